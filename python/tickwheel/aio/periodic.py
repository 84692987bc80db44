"""`async for` over the instants of a period, without drift (T20)."""

import math
import random
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Final, Literal, Self

from tickwheel._native import _delay_s, _time_s
from tickwheel.aio.beside import sleep_until, timers

_FARTHEST_S: Final = 2**52 / 1000  # as the timers' own limit


def every(
    period: float | timedelta,
    *,
    start: float | None = None,
    jitter: float | timedelta = 0.0,
    missed: Literal["skip", "all", "last"] = "skip",
) -> "Every":
    """Wait for one instant of a period after the other, without drift, in an `async for`.

    `period`: seconds, or a `timedelta`. `start`: the first instant, on the loop's clock; by default in one period. The
    others are `start + n * period`. `jitter`: each comes later by a random time up to this one, shorter than the
    period. `missed` decides about instants that pass while the body runs. They are left out (`"skip"`), made up for one
    by one (`"all"`), or one stands for all (`"last"`). Errors: `ValueError`.
    """
    period_s, jitter_s = _delay_s(period, "period"), _delay_s(jitter, "jitter")
    if not (1e-6 <= period_s < math.inf):
        raise ValueError(f"the period must be a microsecond or more, got {period_s} s: give seconds, as 0.25")
    if not 0 <= jitter_s < period_s:
        raise ValueError(f"the jitter must be shorter than the period of {period_s} s, got {jitter_s} s: take less")
    if start is not None and not abs(_time_s(start, "start")) < _FARTHEST_S:
        raise ValueError(f"start is a time of the loop's clock, got {start}: leave it out to begin in one period")
    if missed not in ("skip", "all", "last"):
        raise ValueError(f'missed must be "skip", "all" or "last", got {missed!r}')
    return Every(period_s, start, jitter_s, missed)


class Every(AsyncIterator[float]):
    """What `every` returns."""

    def __init__(self, period_s: float, start: float | None, jitter_s: float, missed: str) -> None:
        self._period_s, self._start, self._jitter_s, self._missed = period_s, start, jitter_s, missed
        self._number = -1

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> float:
        now = timers().time()
        if self._start is None:
            self._start = now + self._period_s
        before, number = self._number, self._next(self._start, now)
        self._number = number
        when = self._start + number * self._period_s
        try:
            await sleep_until(when + random.uniform(0, self._jitter_s))  # noqa: S311, nothing secret
        except BaseException:
            if self._number == number:  # nobody else waits: who gave up may come back for it
                self._number = before
            raise
        return when

    def _next(self, start: float, now: float) -> int:
        """The number of the instant that comes after the last one."""
        first_to_come = max(0, math.ceil((now - start) / self._period_s))
        if self._number < 0:  # a start in the past keeps its instants
            return first_to_come
        skipped = {"all": 0, "last": first_to_come - 1, "skip": first_to_come}[self._missed]
        return max(self._number + 1, skipped)
