"""From wall time to the timer's time (rule D3): when on the timer's own clock a message is due, and how late it is now.

The timer's clock is monotonic, due times are wall time, and the wall clock may be stepped. So the distance between the
two is measured and kept, which makes order on the timer the order of due times, and is measured again by `read_again`.
Every measurement errs on the late side, by some microseconds: first the wall clock is read, then the timer's, and of
a few readings the best is taken. Example: wall 1,700,000,000,000 ms when the timer's clock reads 5,000 ms; a
message due at 1,700,000,000,250 has the instant 5,250.
"""

import math
import time
from collections.abc import Callable
from typing import Protocol

from tickwheel import Timer

_READINGS = 5
_MS = 1_000_000
_US = 1_000


class DueClock(Protocol):
    """What the deliverer asks for each message."""

    def instant_ms(self, due_ms: int) -> float:
        """When this is due, on the timer's clock; 0 for what was before that."""

    def late_ns(self, due_ms: int, wall_ns: int) -> int:
        """How late it is now; negative if it would be early. `wall_ns` is the wall clock now."""

    def due_within(self, ms: float) -> int:
        """What is due until then: the latest due time whose instant is at most so far ahead."""

    def was_stepped(self) -> bool:
        """Whether instants are off by a millisecond or more, so that `read_again` is called for."""

    def read_again(self) -> None:
        """Measure once more; instants are now others than before, and all that waits has to be placed anew."""


class WallClock:
    """Messages are due when the wall clock says so."""

    def __init__(self, timer: Timer, wall_ns: Callable[[], int] = time.time_ns) -> None:
        self._timer = timer
        self._wall_ns = wall_ns
        self._ahead_ns = self._read()

    def instant_ms(self, due_ms: int) -> float:
        """When this is due, on the timer's clock, as last measured."""
        return max(0, due_ms * _MS - self._ahead_ns) / _MS

    def late_ns(self, due_ms: int, wall_ns: int) -> int:
        """By the wall clock itself, not by the measurement."""
        return wall_ns - due_ms * _MS

    def due_within(self, ms: float) -> int:
        """By the wall clock as it is now."""
        return (self._wall_ns() + round(ms * _MS)) // _MS

    def was_stepped(self) -> bool:
        """Whether the wall clock was, since it was last measured."""
        return abs(self._read() - self._ahead_ns) >= _MS

    def read_again(self) -> None:
        """Take the wall clock as it is now."""
        self._ahead_ns = self._read()

    def _read(self) -> int:
        return max(self._wall_ns() - self._timer.now_us() * _US for _ in range(_READINGS))


class ReplayClock:
    """Recorded times, `speed` times faster: `from_ms` is now, plus `head_start_ms` to put all messages on the timer.

    Steps of the wall clock don't matter, as nothing is due by it. Example: speed 60, from 08:00, due 08:01: in 1 s.
    """

    def __init__(self, timer: Timer, speed: float, from_ms: int, head_start_ms: float = 0) -> None:
        self._timer = timer
        self._ns_per_ms = _MS / speed
        self._from_ms = from_ms
        self._start_ns = timer.now_us() * _US + round(head_start_ms * _MS)

    def instant_ms(self, due_ms: int) -> float:
        """When this is replayed, on the timer's clock."""
        return max(0, self._due_ns(due_ms)) / _MS

    def late_ns(self, due_ms: int, wall_ns: int) -> int:  # noqa: ARG002
        """In real time, against the replayed due time."""
        return self._timer.now_us() * _US - self._due_ns(due_ms)

    def due_within(self, ms: float) -> int:
        """In recorded time, so `speed` times as far; nothing before the start."""
        ahead_ns = self._timer.now_us() * _US + round(ms * _MS) - self._start_ns
        return self._from_ms + math.floor(ahead_ns / self._ns_per_ms)

    def was_stepped(self) -> bool:
        """A monotonic clock is not."""
        return False

    def read_again(self) -> None:
        """Nothing to measure."""

    def _due_ns(self, due_ms: int) -> int:
        return self._start_ns + round((due_ms - self._from_ms) * self._ns_per_ms)
