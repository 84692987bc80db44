"""T11: `await timer.aclose()` does from a coroutine what `shutdown` does, where that would wait for its own loop."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tickwheel import SystemTimer, Timer, TimerClosed, aio
from tickwheel.testing import ManualTimer
from timer.watching import until

pytestmark = pytest.mark.timeout(30)
HOUR_MS = 3_600_000


@pytest.fixture(params=[asyncio.SelectorEventLoop, aio.new_event_loop])
def run(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    def run_on_loop(coroutine: Any) -> Any:
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(coroutine)

    return run_on_loop


def test_what_is_pending_runs_on_the_loop_before_it_closes__T11(run: Any) -> None:
    came: list[str] = []

    async def main() -> tuple[list[Any], bool]:
        timer, ended = SystemTimer("on a loop", executor=asyncio.get_running_loop()), asyncio.Event()

        async def late() -> None:
            came.append("coroutine")
            ended.set()

        timer.after(0, came.append, "overdue")
        timer.after(20, lambda: timer.after(20, late))
        left = await timer.aclose(wait_pending=True)
        await ended.wait()  # a coroutine runs until its call alone counts as running
        return left, timer.is_shut_down

    assert run(main()) == ([], True)
    assert came == ["overdue", "coroutine"]


def test_without_a_wait_what_is_overdue_runs_and_the_rest_is_returned__T11(run: Any) -> None:
    came: list[str] = []

    async def main() -> None:
        timer = SystemTimer("on a loop", executor=asyncio.get_running_loop())
        later = [timer.after(2 * HOUR_MS, print), timer.after(HOUR_MS, print)]
        timer.after(0, came.append, "overdue")
        until(lambda: len(timer) == 2)  # it waits for the loop, which this coroutine has
        assert came == []
        assert await timer.aclose() == [later[1], later[0]] == timer.unfinished
        assert came == ["overdue"]
        assert await timer.aclose(wait_pending=True) == timer.unfinished, "a second call is allowed"
        with pytest.raises(TimerClosed):
            timer.after(1, print)

    run(main())


def test_a_time_limit_ends_the_wait__T11() -> None:
    async def main() -> None:
        timer = SystemTimer("limited", executor=asyncio.get_running_loop())
        beat = timer.every(HOUR_MS, print)
        assert await timer.aclose(30, wait_pending=True) == [beat]

    asyncio.run(main())


def test_a_cancelled_wait_shuts_the_timer_down_at_once__T11(run: Any) -> None:
    async def main() -> None:
        timer = SystemTimer("cancelled", executor=asyncio.get_running_loop())
        task = timer.after(HOUR_MS, print)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.03):
                await timer.aclose(wait_pending=True)
        assert timer.is_shut_down
        assert timer.unfinished == [task]
        assert await timer.aclose() == [task]

    run(main())
    until(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith("close-")])


@pytest.mark.parametrize("kind", ["own thread", "pool of the loop"])
def test_other_executors_go_on_too_and_the_loop_with_them__T11(kind: str) -> None:
    came: list[str] = []

    async def main() -> None:
        with ThreadPoolExecutor(1) as pool:
            asyncio.get_running_loop().set_default_executor(pool)
            timer = SystemTimer("threads", executor=pool if kind.startswith("pool") else None)
            asked = asyncio.Event()

            def ask() -> None:
                asyncio.run_coroutine_threadsafe(answer(), timer_loop).result(20)

            async def answer() -> None:
                came.append("answered")
                asked.set()

            timer_loop = asyncio.get_running_loop()
            timer.after(10, ask)
            assert await timer.aclose(wait_pending=True) == []
            assert asked.is_set()

    asyncio.run(main())
    assert came == ["answered"]


def test_a_manual_timer_has_it_too__T11_T15() -> None:
    came: list[int] = []

    async def main() -> None:
        timer = ManualTimer()
        timer.after(10, came.append, threading.get_ident())
        assert await timer.aclose(wait_pending=True) == []

    asyncio.run(main())
    assert came == [threading.get_ident()]


def test_in_a_callback_of_the_timers_own_thread_it_waits_for_nothing__T11() -> None:
    left: list[object] = []
    timer, done = SystemTimer("inside"), threading.Event()

    def end() -> None:
        left.extend(asyncio.run(timer.aclose(wait_pending=True)))
        done.set()

    task = timer.after(HOUR_MS, print)
    timer.after(0, end)
    assert done.wait(20)
    assert left == [task]


def test_it_closes_a_block_of_aclosing__T11(run: Any) -> None:
    async def main() -> Timer:
        async with contextlib.aclosing(SystemTimer("block", executor=asyncio.get_running_loop())) as timer:
            timer.after(HOUR_MS, print)
        return timer

    assert len(run(main()).unfinished) == 1


def test_a_blocking_wait_on_the_loop_is_refused_and_names_the_way__T11_T13(run: Any) -> None:
    text = (
        r"^timer 'jobs' runs its callbacks on the loop of this thread, and a wait for them would block that: call "
        r"`await timer.aclose\(wait_pending=True\)` in a coroutine$"
    )

    async def main() -> None:
        timer = SystemTimer("jobs", executor=asyncio.get_running_loop())
        task = timer.after(HOUR_MS, print)
        with pytest.raises(RuntimeError, match=text):
            timer.shutdown(wait_pending=True)
        assert not timer.is_shut_down
        refused = asyncio.Event()

        def in_callback() -> None:
            with pytest.raises(RuntimeError, match=text):
                timer.shutdown(wait_pending=True)
            refused.set()

        timer.after(0, in_callback)
        await refused.wait()
        assert timer.shutdown() == [task]
        assert timer.shutdown(wait_pending=True) == [task], "there is nothing to wait for"

    run(main())


@pytest.mark.parametrize("given", [{"wait_pending": 1}, {"timeout_ms": "1"}])
def test_bad_input_is_refused__T11_T13(given: dict[str, Any]) -> None:
    async def main() -> None:
        with SystemTimer("jobs") as timer:
            with pytest.raises(TypeError, match=next(iter(given))):
                await timer.aclose(**given)
            assert not timer.is_shut_down

    asyncio.run(main())


LEFT = "timer 'jobs' was left with "
WAY = {
    "thread": "shutdown(wait_pending=True) waits for",
    "loop": "`await timer.aclose(wait_pending=True)` waits for",
    "manual": "shutdown(wait_pending=True) waits for",
    "caller": "call advance_clock until len(timer) is 0 to run",
}


@pytest.mark.parametrize("kind", [*WAY, "loop of another thread"])
def test_a_block_that_is_left_names_a_way_that_works__T11(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    def leave(tasks: int, series: int, loop: asyncio.AbstractEventLoop | None = None) -> None:
        timer: Timer = (
            ManualTimer("jobs") if kind == "manual" else SystemTimer("jobs", executor=loop, reaper=kind != "caller")
        )
        with timer:
            for _ in range(tasks):
                timer.after(HOUR_MS, print)
            for _ in range(series):
                timer.every(HOUR_MS, print)

    async def leave_all(other_thread: bool) -> None:
        for counts in [(1, 0), (2, 0), (0, 1), (0, 2), (2, 1)]:
            loop = asyncio.get_running_loop() if "loop" in kind else None
            if other_thread:
                await asyncio.to_thread(leave, *counts, loop)
            else:
                leave(*counts, loop)

    caplog.set_level(logging.WARNING)
    asyncio.run(leave_all(kind == "loop of another thread"))
    way = WAY.get(kind, WAY["thread"])
    assert [record.getMessage() for record in caplog.records] == [
        f"{LEFT}1 pending: the task is in `unfinished` and will not run; {way} it",
        f"{LEFT}2 pending: the tasks are in `unfinished` and will not run; {way} them",
        f"{LEFT}1 pending: the task is in `unfinished` and will not run; a series has no end: cancel it before",
        f"{LEFT}2 pending: the tasks are in `unfinished` and will not run; a series has no end: cancel them before",
        f"{LEFT}3 pending: the tasks are in `unfinished` and will not run; {way} them "
        "(series among them: 1; cancel those first)",
    ]
