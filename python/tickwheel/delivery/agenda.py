"""What waits on the timer: one task for all that is due in the same millisecond, the finest that a due time can be.

So a wake-up, and its way through the interpreter's lock, is shared by what is due together. Nothing here has a lock:
the dispatcher's guards it. Under it the timer is called, which calls nobody back from `at` and `cancel`.
"""

from collections.abc import Callable, Iterable

import msgspec

from tickwheel import Timer, TimerTask
from tickwheel.delivery.clock import DueClock
from tickwheel.delivery.lanes import Entry


class _Moment(msgspec.Struct, eq=False, gc=False):
    """A millisecond in which something is due; by `seq`, so that each can be taken off in O(1)."""

    task: TimerTask
    entries: dict[int, Entry]


class Agenda:
    """`tell` is called in the timer's thread, without the lock, with the due time of each moment that has come."""

    def __init__(self, timer: Timer, tell: Callable[[int], object]) -> None:
        self._timer = timer
        self._tell = tell
        self._moments: dict[int, _Moment] = {}

    def add(self, entries: Iterable[Entry], clock: DueClock) -> None:
        """They wait for their due time. Errors: `TimerClosed`."""
        moments = self._moments
        for entry in entries:
            due_ms = entry.due_ms
            moment = moments.get(due_ms)
            if moment is None:
                task = self._timer.at(clock.instant_ms(due_ms), self._tell, due_ms)
                moments[due_ms] = moment = _Moment(task, {})
            moment.entries[entry.seq] = entry

    def remove(self, entry: Entry) -> None:
        """It waits no more, if it did."""
        moment = self._moments.get(entry.due_ms)
        if moment is not None and moment.entries.pop(entry.seq, None) is not None and not moment.entries:
            moment.task.cancel()
            del self._moments[entry.due_ms]

    def take(self, due_ms: int) -> Iterable[Entry]:
        """All that waits for this moment, which has come; nothing, if they were taken off meanwhile."""
        moment = self._moments.pop(due_ms, None)
        return moment.entries.values() if moment is not None else ()

    def clear(self) -> None:
        """Nothing waits any more."""
        for moment in self._moments.values():
            moment.task.cancel()
        self._moments.clear()
