"""`async for` over the instants of a period, without drift (T20). The rules are those of a timer's `every`, in Rust."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Literal, Self

from tickwheel._native import _Instant, _Series
from tickwheel.aio.beside import sleep_until, timers


def every(
    period: float | timedelta | None = None,
    *,
    gap: float | timedelta | None = None,
    start: float | None = None,
    first: Literal["now"] | None = None,
    jitter: float | timedelta = 0.0,
    missed: Literal["skip", "all", "last"] = "skip",
    times: int | None = None,
    until: float | None = None,
) -> "Every":
    """Wait for one instant of a period after the other, without drift, in an `async for`.

    `period`: seconds, or a `timedelta`; exact to a microsecond. `start`: the first instant, on the loop's clock; by
    default in one period. The others are `start + n * period`. `first="now"`: the first one is now. With `gap` in place
    of `period` the next instant comes so long after the body has ended. `jitter`: each comes later by a random time up
    to this one, shorter than the period. `missed` decides about instants that pass while the body runs. They are left
    out (`"skip"`), made up for one by one (`"all"`), or one stands for all (`"last"`). The loop ends after so many
    instants (`times`), or with the last one until then (`until`, on the loop's clock). Errors: `ValueError`.
    """
    return Every(_Series(period, gap, start, first, jitter, missed, times, until))


class Every(AsyncIterator[float]):
    """What `every` returns."""

    def __init__(self, series: _Series) -> None:
        self._series = series
        self._last: _Instant | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> float:
        now = timers().time()
        self._last = self._last or self._series.begin(now)
        instant = self._last.next(now)
        if instant is None:
            raise StopAsyncIteration
        self._last = instant
        try:
            await sleep_until(instant.due)
        except BaseException:
            if self._last is instant:  # nobody else waits: who gave up may come back for it
                self._last = instant.given_up()
            raise
        return instant.when
