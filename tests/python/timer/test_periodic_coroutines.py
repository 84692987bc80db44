"""`every` with a coroutine function (T8, T20): the next call comes after the coroutine of the last one has ended."""

import asyncio
import functools
import gc
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, Literal

import pytest

from tickwheel import PeriodicTask, SystemTimer, weak_method
from tickwheel.testing import ManualTimer
from timer.watching import until

pytestmark = pytest.mark.timeout(60)
LONG_S = 30.0
EAGER = getattr(asyncio, "eager_task_factory", None)  # new in Python 3.12
Came = asyncio.Queue[int]


@asynccontextmanager
async def on_loop(**options: Any) -> AsyncIterator[SystemTimer]:
    async with asyncio.timeout(LONG_S):
        with SystemTimer("beat", executor=asyncio.get_running_loop(), **options) as timer:
            yield timer
            for _, task in timer.pending():
                task.cancel()


def test_calls_come_again_and_do_not_overlap__T8_T20() -> None:
    async def main() -> None:
        came, go, inside = Came(), asyncio.Event(), list[int]()

        async def beat() -> None:
            inside.append(1)
            assert len(inside) == 1, "two at once"
            came.put_nowait(1)
            await go.wait()
            await asyncio.sleep(0)
            inside.clear()

        async with on_loop() as timer:
            task = timer.every(1, beat)
            await came.get()
            assert (len(timer), task.is_pending, task.cancelled()) == (0, False, False)
            await asyncio.sleep(0.02)
            assert came.empty()
            go.set()
            for _ in range(5):
                await came.get()
            assert task.cancel() is True
            assert task.cancel() is False
        await asyncio.sleep(0.02)
        assert came.qsize() <= 1, "one may have begun before the cancel"

    asyncio.run(main())


@pytest.mark.parametrize("missed", ["skip", "last", "all"])
def test_instants_that_pass_while_a_coroutine_runs_are_missed__T20(missed: Literal["skip", "last", "all"]) -> None:
    async def main() -> None:
        started, go = asyncio.Event(), asyncio.Event()

        async def beat() -> None:
            started.set()
            await go.wait()

        async with on_loop(reaper=False) as timer:
            task = timer.every(10, beat, missed=missed)
            first_ms = task.due_ms
            assert first_ms is not None
            while not started.is_set():
                timer.advance_clock(0)
                await asyncio.sleep(0.001)
            while timer.now_ms() < first_ms + 55:
                await asyncio.sleep(0.001)
            has_ended = asyncio.ensure_future(ended(task))
            await asyncio.sleep(0)
            go.set()
            assert await has_ended is True
            overdue = 0
            while task.due_ms is None or task.due_ms * 1000 <= timer.now_us():
                overdue += 1
                has_ended = asyncio.ensure_future(ended(task))
                timer.advance_clock(0)
                await has_ended
            passed = round((task.due_ms - first_ms) / 10)
            assert task.due_ms == pytest.approx(first_ms + passed * 10, abs=0.001)
            assert {"all": overdue == passed - 1, "last": 1 <= overdue <= passed - 5, "skip": overdue <= passed - 6}[
                missed
            ]

    asyncio.run(main())


class Calls:
    def __init__(self, beat: Callable[[int], Coroutine[None, None, None]]) -> None:
        self.beat = beat

    async def __call__(self) -> None:
        await self.beat(1)


async def ended(task: PeriodicTask) -> bool:
    return await task


def test_it_goes_on_after_what_a_coroutine_raises_and_after_its_cancel__T10_T20() -> None:
    async def main() -> None:
        told, came = list[tuple[object, BaseException]](), Came()
        error = ValueError("a beat")

        async def beat() -> None:
            came.put_nowait(1)
            await asyncio.sleep(0)
            if came.qsize() == 1:
                raise error
            if came.qsize() == 2:
                current = asyncio.current_task()
                assert current is not None
                current.cancel()
                await asyncio.sleep(0)

        async with on_loop(on_error=lambda task, error: told.append((task, error))) as timer:
            task = timer.every(1, beat)
            while came.qsize() < 5:
                await asyncio.sleep(0.001)
        assert told == [(task, error)]

    asyncio.run(main())


@pytest.mark.parametrize(
    "callback",
    [
        pytest.param(lambda beat: lambda: beat(1), id="a function that returns a coroutine"),
        pytest.param(lambda beat: functools.partial(beat, 1), id="a partial"),
        pytest.param(lambda beat: Calls(beat), id="an object"),
    ],
)
def test_a_callable_whose_coroutine_shows_at_the_call_runs_alike__T8_T20(callback: Callable[[Any], Any]) -> None:
    async def main() -> None:
        came = Came()

        async def beat(number: int) -> None:
            await asyncio.sleep(0)
            came.put_nowait(number)

        async with on_loop() as timer:
            timer.every(1, callback(beat))
            assert [await came.get() for _ in range(3)] == [1, 1, 1]

    asyncio.run(main())


def test_a_call_by_hand_gives_the_coroutine__T20() -> None:
    async def main() -> None:
        async def beat() -> int:
            await asyncio.sleep(0)
            return 5

        async with on_loop() as timer:
            task = timer.every(3_600_000, beat)
            assert await task.run() == 5  # type: ignore[misc]
            assert task.is_pending

    asyncio.run(main())


def test_each_call_has_the_context_of_the_add__T8_T20() -> None:
    who: ContextVar[str] = ContextVar("who", default="nobody")

    async def main() -> None:
        came = asyncio.Queue[str]()

        async def beat() -> None:
            came.put_nowait(who.get())
            who.set("a beat")

        async with on_loop() as timer:
            who.set("the caller")
            timer.every(1, beat)
            who.set("another")
            assert [await came.get() for _ in range(3)] == ["the caller"] * 3

    asyncio.run(main())


def test_one_of_a_weak_method_ends_with_its_object__T20() -> None:
    async def main() -> None:
        go, begun = asyncio.Event(), asyncio.Event()

        class Session:
            async def beat(self) -> None:
                begun.set()
                await go.wait()

        async with on_loop() as timer:
            session = Session()
            task = timer.every(1, weak_method(session.beat))
            await begun.wait()
            gone = weakref.ref(session)
            del session
            go.set()
            assert await task is True
            while gone() is not None:
                gc.collect()
                await asyncio.sleep(0.001)
            while len(timer):
                await asyncio.sleep(0.001)
            assert not task.is_pending

    asyncio.run(main())


def test_a_shutdown_while_a_coroutine_runs_ends_the_series_and_not_the_coroutine__T11_T20() -> None:
    async def main() -> None:
        begun, go, came = asyncio.Event(), asyncio.Event(), Came()

        async def beat() -> None:
            begun.set()
            await go.wait()
            came.put_nowait(1)

        timer = SystemTimer("beat", executor=asyncio.get_running_loop())
        task = timer.every(1, beat)
        await begun.wait()
        assert timer.shutdown() == []
        go.set()
        async with asyncio.timeout(LONG_S):
            await came.get()
            assert await task is True
        assert (task.is_pending, task.cancel()) == (False, False)

    asyncio.run(main())


def test_a_loop_that_is_dropped_with_a_coroutine_of_a_series_undone_is_collected__rule8() -> None:
    begun: list[int] = []

    async def beat() -> None:
        begun.append(1)
        await asyncio.get_running_loop().create_future()

    async def begins() -> None:
        while not begun:
            await asyncio.sleep(0.001)

    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # it tells of a task that was destroyed undone
    timer = SystemTimer("beat", executor=loop)
    timer.every(1, beat)
    loop.run_until_complete(begins())
    timer.shutdown()
    loop.close()
    gone = weakref.ref(loop)
    del loop, timer
    until(lambda: gc.collect() >= 0 and gone() is None)


@pytest.mark.parametrize("factory", ["refuses", *(["is eager"] if EAGER else [])])
def test_a_task_factory_of_the_loop__T8_T20(factory: str) -> None:
    """A factory that refuses costs one call. With an eager one a coroutine may have ended before its task is known."""

    async def main() -> None:
        told, came = list[str](), Came()
        loop = asyncio.get_running_loop()

        async def beat() -> None:
            came.put_nowait(1)

        def refuses(*_: object, **__: object) -> Any:
            loop.set_task_factory(None)
            raise OSError("no task today")

        async with on_loop(on_error=lambda _, error: told.append(str(error))) as timer:
            loop.set_task_factory(refuses if factory == "refuses" else EAGER)
            timer.every(1, beat)
            for _ in range(3):
                await came.get()
            loop.set_task_factory(None)
        assert told == (["no task today"] if factory == "refuses" else [])

    asyncio.run(main())


def test_without_a_loop_a_coroutine_that_comes_back_is_an_error_and_the_calls_go_on__T8_T20() -> None:
    async def beat() -> None:
        raise AssertionError("never run")

    told = list[BaseException]()
    timer = ManualTimer("here", on_error=lambda _, error: told.append(error))
    timer.every(5, lambda: beat())
    assert timer.advance(15) == 3
    assert {str(error).partition(",")[0] for error in told} == {"the callback returned a coroutine"}
    assert (len(told), len(timer)) == (3, 1)


def test_an_add_inside_its_call_makes_no_second_chain_of_calls__T20() -> None:
    async def main() -> None:
        inside, came = list[int](), Came()

        async def beat() -> None:
            inside.append(1)
            assert len(inside) == 1, "two at once"
            if came.empty():
                timer.add(task)
            came.put_nowait(1)
            await asyncio.sleep(0.012)
            inside.clear()

        told = list[BaseException]()
        async with on_loop(on_error=lambda _, error: told.append(error)) as timer:
            task = timer.every(5, beat)
            while came.qsize() < 20:
                await asyncio.sleep(0.001)
        assert told == []

    asyncio.run(main())
