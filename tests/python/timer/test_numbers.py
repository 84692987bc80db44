"""T13: one table of what each call with a time takes, type by call; a loop takes what asyncio's takes."""

import asyncio
import math
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tickwheel import Timer, TimerTask, aio
from tickwheel.aio.virtual import VirtualLoop
from tickwheel.testing import ManualTimer


class Index:
    def __index__(self) -> int:
        return 3


class Float:
    def __float__(self) -> float:
        return 3.0


NOT: Any = TypeError
NOW = -math.inf

# A value, and the number that a timer, a delay of a loop and a time of a loop read; or the error.
TABLE: list[tuple[Any, Any, Any, Any]] = [
    (3, 3, 3, 3),
    (-3, NOW, -3, -3),
    (2.5, 2.5, 2.5, 2.5),
    (-math.inf, ValueError, NOW, NOW),
    (math.inf, ValueError, math.inf, math.inf),
    (math.nan, ValueError, ValueError, ValueError),
    (10**400, ValueError, OverflowError, OverflowError),
    (-(10**400), NOW, NOW, NOW),
    (True, NOT, NOT, NOT),
    (Index(), 3, NOT, NOT),
    (Float(), NOT, NOT, NOT),
    (Fraction(5, 2), NOT, 2.5, 2.5),
    (Decimal("2.5"), NOT, NOT, 2.5),
    (np.int64(3), 3, 3, 3),
    (np.float64(2.5), 2.5, 2.5, 2.5),
    (np.float32(2.5), NOT, 2.5, 2.5),
    (np.True_, NOT, NOT, NOT),
    (np.timedelta64(5, "ms"), NOT, NOT, NOT),
    (np.datetime64("2026-01-01"), NOT, NOT, NOT),
    ("3", NOT, NOT, NOT),
    (None, NOT, NOT, NOT),
    (3j, NOT, NOT, NOT),
    ([3], NOT, NOT, NOT),
]


def of_table(column: int) -> list[Any]:
    return [pytest.param(row[0], row[column], id=f"{type(row[0]).__name__}-{str(row[0])[:12]}") for row in TABLE]


NOW_MS = 100_000
CALLS_IN_MS: list[Callable[[Timer, Any], object]] = [
    lambda timer, value: timer.after(value, print),
    lambda timer, value: timer.add(TimerTask(value, print)),
    lambda timer, value: timer.after(1, print).reschedule(value),
]


@pytest.mark.parametrize(("value", "read"), of_table(1))
def test_after_and_call_later_of_a_timer_differ_by_their_unit_alone__T13(value: Any, read: Any) -> None:
    for add in CALLS_IN_MS:
        check(lambda timer, add=add: add(timer, value), read, 1, "delay_ms", "milliseconds")  # type: ignore[misc]
    check(lambda timer: timer.call_later(value, print), read, 1000, "delay", "seconds")


def check(add: Callable[[ManualTimer], object], read: Any, factor: float, what: str, unit: str) -> None:
    timer = ManualTimer(start_ms=NOW_MS)
    if isinstance(read, type):
        with pytest.raises(read, match=rf"^{what} must be ") as raised:
            add(timer)
        other = {"milliseconds": "pass seconds", "seconds": "millisecond"}[unit]
        assert other not in str(raised.value), "an error speaks of the unit of its call"
    else:
        add(timer)
        assert [due for due, _ in timer.pending()] == [NOW_MS + max(read, 0) * factor]


def test_a_timedelta_is_the_same_time_in_each_call_of_a_timer__T13() -> None:
    delay, timer = timedelta(milliseconds=2.5), ManualTimer(start_ms=NOW_MS)
    assert [timer.after(delay, print).due_ms, timer.call_later(delay, print).due_ms] == [NOW_MS + 2.5] * 2


LOOPS = [
    pytest.param(asyncio.SelectorEventLoop, id="beside"),
    pytest.param(aio.new_event_loop, id="wheel"),
    pytest.param(VirtualLoop, id="virtual"),
]


def callers(name: str) -> list[Any]:
    """The methods of this name: of the timers beside the loop, and of the loop, unless that is asyncio's own."""
    loop = asyncio.get_running_loop()
    return [getattr(it, name) for it in (aio.timers(), loop) if type(it) is not asyncio.SelectorEventLoop]


@pytest.mark.parametrize("loop_factory", LOOPS)
@pytest.mark.parametrize(("value", "read"), of_table(2))
def test_a_delay_of_a_loop__T13_T21(loop_factory: Any, value: Any, read: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        for call_later in callers("call_later"):
            if isinstance(read, type):
                with pytest.raises(read, match=r"^delay must "):
                    call_later(value, print)
                with pytest.raises(read, match=r"^delay must "):
                    call_later(1, print).reschedule(value)
            else:
                before = loop.time()
                handle = call_later(value, print)
                assert before + read <= handle.when() <= loop.time() + read
                before = loop.time()
                assert handle.reschedule(value) is True
                assert before + read <= handle.when() <= loop.time() + read
                handle.cancel()
        if isinstance(read, type) and value is not None:  # a time-out of None is none
            for refused in (aio.timeout, aio.debounce, aio.throttle, aio.every, lambda it: aio.sleep(it).send(None)):
                with pytest.raises(read):
                    refused(value)

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


@pytest.mark.parametrize("loop_factory", LOOPS)
@pytest.mark.parametrize(("value", "read"), of_table(3))
def test_a_time_of_a_loop__T13_T21(loop_factory: Any, value: Any, read: Any) -> None:
    async def main() -> None:
        for call_at in callers("call_at"):
            if isinstance(read, type):
                with pytest.raises(read, match=r"^when (must|cannot) "):
                    call_at(value, print)
            else:
                handle = call_at(value, print)
                assert read == NOW or handle.when() == read
                handle.cancel()
        if isinstance(read, type) and value is not None:
            with pytest.raises(read):
                await aio.sleep_until(value)

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


@pytest.mark.parametrize(("value", "read"), of_table(2))
def test_a_delay_that_asyncio_takes_is_taken_by_a_loop_and_no_other__T13_T21(value: Any, read: Any) -> None:
    loop = asyncio.SelectorEventLoop()
    try:
        # A time of numpy is added to the loop's time, and fails later, in the heap.
        is_taken = isinstance(loop.call_later(value, print).when(), (int, float, np.floating))
    except (TypeError, OverflowError):
        is_taken = False
    finally:
        loop.close()
    is_ours = isinstance(value, (bool, np.bool_)) or value != value or (isinstance(value, int) and value < -(10**300))
    assert is_ours or is_taken == (not isinstance(read, type))
