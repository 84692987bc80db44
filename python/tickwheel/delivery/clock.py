"""From wall time to the timer's time (rule D3): when on the timer's own clock a message is due, and how late it is now.

The timer's clock is monotonic, due times are wall time, and the wall clock may be stepped. So the distance between the
two is measured and kept, which makes order on the timer the order of due times, and is measured again by `read_again`.
Every measurement errs on the late side, by some microseconds: first the wall clock is read, then the monotonic one, and
of a few readings the best is taken. Example: wall 1,700,000,000,000 ms when the timer's clock reads 5,000 ms; a message
due at 1,700,000,000,250 has the instant 5,250.
"""

import time
from collections.abc import Callable
from typing import Protocol

from tickwheel import Timer

_READINGS = 5
_PROBE_MS = 3_600_000
_MS = 1_000_000


class DueClock(Protocol):
    """What the deliverer asks for each message."""

    def instant_ms(self, due_ms: int) -> float:
        """When this is due, on the timer's clock."""

    def late_ns(self, due_ms: int, wall_ns: int) -> int:
        """How late it is now; negative if it would be early. `wall_ns` is the wall clock now."""

    def read_again(self) -> bool:
        """Measure once more; whether instants are now others than before, by a millisecond or more."""


class TimerClock:
    """The timer's clock, read finer than its `now_ms()`: the system's monotonic clock less a constant.

    The timer must be idle: the constant is read off a probe task. `monotonic_ns` is for tests.
    """

    def __init__(self, timer: Timer, monotonic_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self.monotonic_ns = monotonic_ns
        self._zero_ns = max(_zero_ns(timer, monotonic_ns) for _ in range(_READINGS))

    def instant_ms(self, monotonic_ns: int) -> float:
        """The timer's time at an instant of the monotonic clock; 0 for what was before that."""
        return max(0, monotonic_ns - self._zero_ns) / _MS


class WallClock:
    """Messages are due when the wall clock says so."""

    def __init__(self, timer_clock: TimerClock, wall_ns: Callable[[], int] = time.time_ns) -> None:
        self._timer_clock = timer_clock
        self._wall_ns = wall_ns
        self._ahead_ns = self._read()

    def instant_ms(self, due_ms: int) -> float:
        """When this is due, on the timer's clock, as last measured."""
        return self._timer_clock.instant_ms(due_ms * _MS - self._ahead_ns)

    def late_ns(self, due_ms: int, wall_ns: int) -> int:
        """By the wall clock itself, not by the measurement."""
        return wall_ns - due_ms * _MS

    def read_again(self) -> bool:
        """Whether the wall clock was stepped by a millisecond or more since it was last measured."""
        before, self._ahead_ns = self._ahead_ns, self._read()
        return abs(self._ahead_ns - before) >= _MS

    def _read(self) -> int:
        return max(self._wall_ns() - self._timer_clock.monotonic_ns() for _ in range(_READINGS))


class ReplayClock:
    """Recorded times, `speed` times faster: `from_ms` is now, plus `head_start_ms` to put all messages on the timer.

    Steps of the wall clock don't matter, as nothing is due by it. Example: speed 60, from 08:00, due 08:01: in 1 s.
    """

    def __init__(self, timer_clock: TimerClock, speed: float, from_ms: int, head_start_ms: float = 0) -> None:
        self._timer_clock = timer_clock
        self._ns_per_ms = _MS / speed
        self._from_ms = from_ms
        self._start_ns = timer_clock.monotonic_ns() + round(head_start_ms * _MS)

    def instant_ms(self, due_ms: int) -> float:
        """When this is replayed, on the timer's clock."""
        return self._timer_clock.instant_ms(self._due_ns(due_ms))

    def late_ns(self, due_ms: int, wall_ns: int) -> int:  # noqa: ARG002
        """In real time, against the replayed due time."""
        return self._timer_clock.monotonic_ns() - self._due_ns(due_ms)

    def read_again(self) -> bool:
        """Nothing to measure."""
        return False

    def _due_ns(self, due_ms: int) -> int:
        return self._start_ns + round((due_ms - self._from_ms) * self._ns_per_ms)


def _zero_ns(timer: Timer, monotonic_ns: Callable[[], int]) -> int:
    before = monotonic_ns()
    probe = timer.after(_PROBE_MS, _nothing)
    [(due_ms, _)] = timer.pending(limit=1)
    probe.cancel()
    return before - round((due_ms - _PROBE_MS) * _MS)


def _nothing() -> None:
    pass
