"""Periods, and what programs write by hand around timers, in virtual time (T20, T21)."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from tickwheel import aio
from tickwheel.testing import VirtualLoop

pytestmark = pytest.mark.timeout(30)


@pytest.fixture
def run() -> Iterator[Callable[[Any], Any]]:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        yield runner.run


def now_s() -> float:
    return round(asyncio.get_running_loop().time(), 3)


def work(*durations_s: float, **settings: Any) -> Any:
    """The instants of a period of 10 s, and when each came, while the body takes so long."""

    async def main() -> list[tuple[float, float]]:
        found = []
        for_s = iter(durations_s)
        async for when in aio.every(10, **settings):
            found.append((when, now_s()))
            duration_s = next(for_s, None)
            if duration_s is None:
                return found
            await asyncio.sleep(duration_s)
        raise AssertionError

    return main()


@pytest.mark.parametrize(
    ("missed", "expected"),
    [
        ("skip", [(10, 10), (40, 40), (50, 50), (60, 60)]),
        ("last", [(10, 10), (30, 34), (40, 40), (50, 50)]),
        ("all", [(10, 10), (20, 34), (30, 34), (40, 40)]),
    ],
)
def test_instants_that_were_missed_are_left_out_or_made_up_for__T20(run: Any, missed: str, expected: Any) -> None:
    assert run(work(24, 0, 0, missed=missed)) == expected


def test_a_period_does_not_drift_and_a_start_in_the_past_keeps_its_instants__T20(run: Any) -> None:
    assert run(work(*[3] * 999))[-1] == (10_000, 10_000)
    assert run(work(0, start=-5))[0][0] % 10 == 5
    assert run(work(start=0.0))[0][0] % 10 == 0


def test_a_jitter_makes_late_and_moves_no_other__T20(run: Any) -> None:
    found = run(work(*[0] * 200, jitter=timedelta(seconds=4)))
    assert [when for when, _ in found] == [10 * (n + 1) for n in range(201)]
    late_s = [at - when for when, at in found]
    assert 0 <= min(late_s) < 1
    assert 3 < max(late_s) <= 4.001


@pytest.mark.parametrize(
    "wrong",
    [
        {"period": 0},
        {"period": -1},
        {"period": float("nan")},
        {"period": 1, "jitter": 1},
        {"period": 1, "missed": "x"},
        {},
        {"period": 1, "gap": 1},
        {"period": 1, "first": "x"},
        {"period": 1, "times": 0},
        {"period": 1, "first": "now", "start": 1},
    ],
)
def test_a_period_that_can_not_be_is_refused__T13(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"must be|a delay is|needs period or gap"):
        aio.every(**wrong)


def test_a_series_has_a_gap_a_first_and_a_last_instant__T20(run: Any) -> None:
    async def main(**options: Any) -> list[float]:
        came = []
        async for when in aio.every(**options):
            assert when == pytest.approx(asyncio.get_running_loop().time())
            came.append(round(when - begun_s, 3))
            await asyncio.sleep(3)
        ended = aio.every(**options)
        assert ended.__aiter__() is ended
        return came

    for options, expected in [
        ({"gap": 2, "times": 3}, [2, 7, 12]),
        ({"gap": timedelta(seconds=2), "times": 3, "first": "now"}, [0, 5, 10]),
        ({"period": 4, "first": "now", "times": 3}, [0, 4, 8]),
        ({"period": 0.1, "first": "now", "times": 3}, [0, 3, 6]),
    ]:
        begun_s = run(asyncio.sleep(0.5, 0)) or run(_time())
        assert run(main(**options)) == expected, options
    begun_s = run(_time())
    assert run(main(period=4, until=begun_s + 12)) == [4, 8, 12]
    assert run(main(period=4, until=begun_s)) == []


async def _time() -> float:
    return asyncio.get_running_loop().time()


def test_a_gap_is_not_longer_where_a_wait_was_given_up__T20(run: Any) -> None:
    async def main() -> list[float]:
        ticks, came = aio.every(gap=1), []
        while len(came) < 3:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.4):
                    came.append(await anext(ticks))
        return came

    assert run(main()) == pytest.approx([1, 2, 3])


def test_after_its_last_instant_a_series_has_none_for_good__T20(run: Any) -> None:
    async def main() -> None:
        ticks = aio.every(1, times=1)
        assert await anext(ticks) == 1
        for _ in range(3):
            with pytest.raises(StopAsyncIteration):
                await anext(ticks)

    run(main())


def test_debounce_calls_once_with_what_came_last__T21(run: Any) -> None:
    came: list[tuple[str, float]] = []

    @aio.debounce(1)
    def save(text: str) -> None:
        came.append((text, now_s()))

    async def main() -> None:
        for text in ("h", "he", "hello"):
            save(text)
            await asyncio.sleep(0.9)
        await asyncio.sleep(5)
        save("again")
        await asyncio.sleep(5)

    run(main())
    assert came == [("hello", 2.8), ("again", 8.7)]


def test_throttle_calls_at_once_and_then_once_a_period__T21(run: Any) -> None:
    came: list[tuple[int, float]] = []

    @aio.throttle(1)
    async def show(number: int) -> None:
        came.append((number, now_s()))

    async def main() -> None:
        for number in range(25):
            show(number)
            await asyncio.sleep(0.1)
        await asyncio.sleep(5)
        show(99)
        await asyncio.sleep(1.5)

    run(main())
    assert came == [(0, 0), (9, 1), (19, 2), (24, 3), (99, 7.5)]


def test_a_rate_limiter_lets_a_burst_through_and_then_so_many_a_second__T21(run: Any) -> None:
    came: list[tuple[int, float]] = []

    async def main() -> None:
        limiter = aio.RateLimiter(2, burst=3)

        async def ask(number: int) -> None:
            async with limiter:
                came.append((number, now_s()))

        tasks = [asyncio.create_task(ask(number)) for number in range(8)]
        await asyncio.sleep(0)
        tasks[4].cancel()
        await asyncio.wait(tasks)
        await asyncio.sleep(10)
        await asyncio.gather(*(ask(number) for number in range(10, 14)))

    run(main())
    assert came == [
        (0, 0),
        (1, 0),
        (2, 0),
        (3, 0.5),
        (5, 1),
        (6, 1.5),
        (7, 2),
        (10, 12),
        (11, 12),
        (12, 12),
        (13, 12.5),
    ]
    for rate, burst in ((0, 1), (1, 0), (float("nan"), 1)):
        with pytest.raises(ValueError, match="the rate must be more than 0"):
            aio.RateLimiter(rate, burst=burst)
