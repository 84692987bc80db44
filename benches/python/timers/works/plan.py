"""How many timers a work takes, its random delays from a fixed seed, and the clock that measures it."""

import gc
import random
import time
from collections.abc import Generator
from dataclasses import dataclass, field

from benches.python.records import TooLateError

from ..side import Side, nothing

MINUTE_MS = 60_000
HOUR_MS = 3_600_000
SAMPLES_AT_LEAST = 20
LEAST_LEAD_S = 0.5


@dataclass(frozen=True)
class Plan:
    """`count` timers. `pace` scales the length of works in real time; 1 is the full length."""

    count: int
    pace: float = 1.0
    source: random.Random = field(default_factory=lambda: random.Random(1))

    def delays(self, side: Side) -> list[float]:
        """A delay for each timer, in the side's unit: whole milliseconds, or the same in seconds."""
        delays_ms = self.source.choices(range(MINUTE_MS, MINUTE_MS + HOUR_MS), k=self.count)
        return list(delays_ms) if side.delay_unit == "ms" else [delay_ms / 1000 for delay_ms in delays_ms]

    def lead_s(self, side: Side) -> Generator[float, None, float]:
        """How long the adds of all timers may take: four times the time of a sample of them, which stay pending.

        A real instant must be after the last add.
        """
        sample = max(SAMPLES_AT_LEAST, self.count // 50)
        started_ns = begin()
        for _ in range(sample):
            side.at(side.clock() + 2 * HOUR_MS / 1000, nothing)
        yield 0
        return max(LEAST_LEAD_S, 4 * self.count * since_ns(started_ns) / sample / 1e9)

    def check_still_before(self, side: Side, due_s: float) -> None:
        """Raise an error if the adds took too long."""
        if side.clock() >= due_s:
            raise TooLateError


def begin() -> int:
    """Collect the garbage of the preparations, and read the clock."""
    gc.collect()
    return time.perf_counter_ns()


def since_ns(started_ns: int) -> int:
    return time.perf_counter_ns() - started_ns
