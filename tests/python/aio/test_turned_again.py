"""A callback that turns its loop again, as with nest_asyncio: what else is due runs meanwhile (T21)."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tickwheel import SystemTimer, aio

pytestmark = pytest.mark.timeout(60)

LOOPS = [
    pytest.param(asyncio.SelectorEventLoop, id="beside"),
    pytest.param(aio.new_event_loop, id="wheel"),
]


def turn_until(loop: Any, is_done: Callable[[], bool]) -> None:
    """As nest_asyncio does, without a task of its own."""
    for _ in range(1_000):
        if is_done():
            return
        loop._run_once()
    raise AssertionError("the loop was turned a thousand times, and it did not come")


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Any:
    def run(main: Any) -> Any:
        reports: list[dict[str, Any]] = []
        with asyncio.Runner(loop_factory=request.param) as runner:
            loop: Any = runner.get_loop()
            loop.set_exception_handler(lambda _, report: reports.append(report))
            runner.run(main())
        assert reports == []

    return run


def test_timers_that_become_due_in_a_callback_run_in_it__T21(run: Any) -> None:
    async def main() -> None:
        loop, came, ended = asyncio.get_running_loop(), list[str](), asyncio.Event()

        def outer() -> None:
            came.append("outer begins")
            aio.timers().call_later(0.001, came.append, "inner")
            turn_until(loop, lambda: "inner" in came)
            came.append("outer ends")
            ended.set()

        aio.timers().call_later(0.001, outer)
        await ended.wait()
        assert came == ["outer begins", "inner", "outer ends"]

    run(main)


def test_what_is_due_at_the_same_time_does_not_wait_for_the_outer_call__T21(run: Any) -> None:
    async def main() -> None:
        loop, came, ended = asyncio.get_running_loop(), list[str](), asyncio.Event()
        when = loop.time() + 0.001

        def outer() -> None:
            turn_until(loop, lambda: came == ["second", "third"])
            came.append("outer ends")
            ended.set()

        aio.timers().call_at(when, outer)
        aio.timers().call_at(when, came.append, "second")
        aio.timers().call_at(when, came.append, "third")
        await ended.wait()
        assert came == ["second", "third", "outer ends"]

    run(main)


def test_three_levels_deep__T21(run: Any) -> None:
    async def main() -> None:
        loop, came, ended = asyncio.get_running_loop(), list[int](), asyncio.Event()

        def nested(depth: int) -> None:
            if depth:
                aio.timers().call_later(0.001, nested, depth - 1)
                turn_until(loop, lambda: depth - 1 in came)
            came.append(depth)
            if depth == 3:
                ended.set()

        aio.timers().call_later(0.001, nested, 3)
        await ended.wait()
        assert came == [0, 1, 2, 3]
        await aio.sleep(0.001)

    run(main)


def test_a_debounced_call_in_a_callback_that_turns_the_loop__T21(run: Any) -> None:
    async def main() -> None:
        loop, came, ended = asyncio.get_running_loop(), list[str](), asyncio.Event()
        save = aio.debounce(0.001)(came.append)

        def outer() -> None:
            save("saved")
            turn_until(loop, lambda: came == ["saved"])
            ended.set()

        aio.timers().call_later(0.001, outer)
        await ended.wait()

    run(main)


def test_tasks_of_one_instant_on_a_loop_do_not_wait_for_the_outer_call__T8_T21(run: Any) -> None:
    async def main() -> None:
        loop, came, ended = asyncio.get_running_loop(), list[object](), asyncio.Event()
        with SystemTimer("x", executor=loop) as timer:

            def outer() -> None:
                turn_until(loop, lambda: came == [1, 2])
                came.append("outer ends")
                ended.set()

            due_ms = timer.now_ms() + 20
            timer.at(due_ms, outer)
            timer.at(due_ms, came.append, 1)
            timer.at(due_ms, came.append, 2)
            await ended.wait()
            assert came == [1, 2, "outer ends"]

    run(main)
