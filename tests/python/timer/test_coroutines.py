"""T8: a coroutine function runs as a task where the executor is a loop, and is refused everywhere else."""

import asyncio
import functools
import gc
import inspect
import re
import warnings
import weakref
from array import array
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tickwheel import SystemTimer, Timer, TimerTask
from tickwheel.testing import ManualTimer
from timer.watching import until

LONG_S = 20.0


async def fetch(*_: object) -> None:
    raise AssertionError("never run")


class Poller:
    async def poll(self, *_: object) -> None:
        raise AssertionError("never run")

    @classmethod
    async def of_class(cls, *_: object) -> None:
        raise AssertionError("never run")

    @staticmethod
    async def static(*_: object) -> None:
        raise AssertionError("never run")


class AsyncRun(TimerTask):
    async def run(self) -> None:
        raise AssertionError("never run")


REFUSED: list[tuple[Callable[..., Awaitable[None]], str]] = [
    (fetch, "fetch"),
    (Poller().poll, "Poller.poll"),
    (Poller.of_class, "Poller.of_class"),
    (Poller.static, "Poller.static"),
]


@pytest.fixture(params=["own", "pool", "manual"])
def timer(request: pytest.FixtureRequest) -> Iterator[Timer]:
    """Timers whose executor is no loop."""
    if request.param == "manual":
        yield ManualTimer("here")
    elif request.param == "own":
        with SystemTimer("here") as timer:
            yield timer
    else:
        with ThreadPoolExecutor(1) as pool, SystemTimer("here", executor=pool) as timer:
            yield timer


@pytest.mark.parametrize(("function", "name"), REFUSED, ids=lambda value: str(value)[:20])
def test_a_coroutine_function_is_refused_where_no_loop_runs_it__T8_T13(
    timer: Timer, function: Callable[..., Awaitable[None]], name: str
) -> None:
    is_manual = isinstance(timer, ManualTimer)  # it has no executor
    why = ", and timer 'here' runs callbacks itself: " if is_manual else ": make timer 'here' with executor=loop, or "
    rest = f" is a coroutine function, which only an asyncio loop can run{why}pass a "
    rest += "function that calls asyncio.run_coroutine_threadsafe"
    calls: list[tuple[str, Callable[[], object]]] = [
        (f"callback {name}", lambda: timer.after(5, function)),
        (f"callback {name}", lambda: timer.at(5, function, 1)),
        (f"callback {name}", lambda: timer.every(5, function)),
        (f"callback {name}", lambda: timer.add_many(array("q", [5]), function)),
        ("what this task runs", lambda: timer.add(TimerTask(5, function))),
        ("what this task runs", lambda: timer.add(AsyncRun(5))),
    ]
    for _ in range(2):  # known the second time, and refused all the same
        for what, call in calls:
            with pytest.raises(TypeError, match=f"^{re.escape(what + rest)}$"):
                call()
    assert (len(timer), timer.stats()["added"]) == (0, 0)


def test_what_is_no_coroutine_function_is_taken__T8() -> None:
    class Instance:
        def __call__(self) -> None:
            ran.append("object")

        def method(self) -> None:
            ran.append("method")

    class Made:
        def __init__(self) -> None:
            ran.append("class")

    ran: list[str] = []
    timer = ManualTimer()
    callbacks: list[Callable[[], object]] = [
        lambda: ran.append("function"),
        Instance().method,
        Instance(),
        Made,
        functools.partial(ran.append, "partial"),
        functools.partial(Instance()),
        functools.lru_cache(lambda: ran.append("cached")),
        ["builtin"].copy,
        inspect.unwrap,  # type: ignore[list-item]
    ]
    for callback in callbacks[:-1]:
        timer.after(5, callback)
        timer.add(TimerTask(5, callback))
    timer.after(5, callbacks[-1], fetch)
    assert timer.advance(5) == 17
    expected = ["function", "method", "object", "class", "partial", "object", "cached"]
    assert ran == [name for name in expected for _ in range(2 if name != "cached" else 1)]


def test_many_functions_are_told_apart_whatever_was_known_before__T8() -> None:
    """More than the cache holds, made and dropped, so that addresses come again."""
    timer = ManualTimer()
    for number in range(2_000):
        names: dict[str, Any] = {}
        exec(f"async def wanted(): return {number}\ndef plain(): return {number}", names)
        timer.after(5, names["plain"]).cancel()
        with pytest.raises(TypeError, match=r"^callback wanted is a coroutine function"):
            timer.after(5, names["wanted"])


class AsyncCall:
    async def __call__(self) -> None:
        raise AssertionError("never run")


class LateRun(TimerTask):
    def run(self) -> object:
        return fetch()


@pytest.mark.parametrize(
    "add",
    [
        lambda timer: timer.after(5, lambda: fetch()),
        lambda timer: timer.after(5, AsyncCall()),
        lambda timer: timer.after(5, functools.partial(fetch, 1)),
        lambda timer: timer.after(5, functools.partial(functools.partial(Poller().poll, 1), 2)),
        lambda timer: timer.add_many(array("q", [5]), lambda _: fetch()),
        lambda timer: timer.add(LateRun(5)),
    ],
)
def test_a_coroutine_that_comes_back_is_closed_and_is_an_error__T8_T10(add: Callable[[Timer], object]) -> None:
    told: list[BaseException] = []
    timer = ManualTimer("here", on_error=lambda _, error: told.append(error))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        add(timer)
        assert timer.advance(5) == 1
        gc.collect()
    assert warned == []
    text = (
        "the callback returned a coroutine, which only an asyncio loop can run: make timer 'here' with executor=loop, "
        "or call asyncio.run_coroutine_threadsafe in the callback"
    )
    assert [(type(error), str(error)) for error in told] == [(TypeError, text)]


def test_an_async_run_that_is_put_on_a_task_later_is_closed_too__T8() -> None:
    told: list[BaseException] = []
    timer = ManualTimer(on_error=lambda _, error: told.append(error))
    task = LateRun(5)
    task.run = fetch  # type: ignore[method-assign]
    timer.add(task)
    timer.advance(5)
    assert [type(error) for error in told] == [TypeError]


async def finished(tasks: list[Any], count: int) -> None:
    async with asyncio.timeout(LONG_S):
        while len(tasks) < count:
            await asyncio.sleep(0.001)


def test_a_loop_runs_coroutine_functions_as_tasks__T8() -> None:
    async def main() -> None:
        ran: list[tuple[object, bool]] = []

        async def work(what: object) -> None:
            await asyncio.sleep(0)
            ran.append((what.tolist() if isinstance(what, memoryview) else what, asyncio.current_task() is not None))

        class Async(TimerTask):
            async def run(self) -> None:
                await work("run")

        class AsyncCall:
            async def __call__(self) -> None:
                await work("object")

        with SystemTimer("x", executor=asyncio.get_running_loop()) as timer:
            timer.after(0, work, "after")
            timer.at(0, work, "at")
            timer.add(TimerTask(0, work, "task"))
            timer.add(Async(0))
            timer.add_many(array("q", [0, 0]), work)
            timer.after(0, lambda: work("lambda"))
            timer.after(0, AsyncCall())
            timer.after(0, functools.partial(work, "partial"))
            await finished(ran, 8)
        assert sorted(map(str, ran)) == sorted(
            str((what, True)) for what in ["after", "at", "task", "run", [0, 1], "lambda", "object", "partial"]
        )

    asyncio.run(main())


def test_the_timer_counts_a_coroutine_as_running_for_its_call_only__T8() -> None:
    async def main() -> None:
        go, ran = asyncio.Event(), list[int]()

        async def work() -> None:
            await go.wait()
            ran.append(1)

        timer = SystemTimer("x", executor=asyncio.get_running_loop())
        timer.after(0, work)
        async with asyncio.timeout(LONG_S):
            while len(asyncio.all_tasks()) == 1:
                await asyncio.sleep(0.001)
        assert (timer.stats()["running"], timer.stats()["executor_depth"], timer.shutdown()) == (0, 0, [])
        go.set()
        await finished(ran, 1)

    asyncio.run(main())


def test_a_coroutine_is_kept_alive_until_it_is_done_also_without_its_timer__T8() -> None:
    """A loop keeps weak references to its tasks: one that waits for what only it knows of was collected."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        waits: list[weakref.ref[asyncio.Future[None]]] = []
        ran: list[int] = []

        async def work() -> None:
            future = loop.create_future()
            waits.append(weakref.ref(future))
            await future
            ran.append(1)

        timer = SystemTimer("x", executor=loop)
        timer.after(0, work)
        await finished(waits, 1)
        del timer
        gc.collect()
        future = waits[0]()
        assert future is not None, "the coroutine was collected"
        future.set_result(None)
        await finished(ran, 1)
        await asyncio.sleep(0)
        assert loop._tickwheel_running == set()  # type: ignore[attr-defined]

    asyncio.run(main())


def test_a_loop_that_is_dropped_with_a_coroutine_undone_is_collected__rule8() -> None:
    begun: list[int] = []

    async def work() -> None:
        begun.append(1)
        await asyncio.get_running_loop().create_future()

    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # it tells of a task that was destroyed undone
    timer = SystemTimer("x", executor=loop)
    timer.after(0, work)
    loop.run_until_complete(finished(begun, 1))
    timer.shutdown()
    loop.close()
    gone = weakref.ref(loop)
    del loop, timer
    until(lambda: gc.collect() >= 0 and gone() is None)


@pytest.mark.parametrize("has_on_error", [True, False])
def test_what_a_coroutine_raises_is_told__T8_T10(has_on_error: bool) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        told: list[tuple[object, ...]] = []
        loop.set_exception_handler(
            lambda _, context: told.append((context["timer_task"], context["exception"], context["message"]))
        )
        on_error = (lambda task, error: told.append((task, error))) if has_on_error else None
        errors = [ValueError("late"), ValueError("cancelled")]

        async def work(error: BaseException) -> None:
            await asyncio.sleep(0)
            raise error

        async def cancelled() -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)

        with SystemTimer("x", executor=loop, on_error=on_error) as timer:
            timer.after(0, cancelled)
            task = timer.after(0, work, errors[0])
            await finished(told, 1)
        name = f"{work.__qualname__}"
        assert told == [(task, errors[0]) if has_on_error else (task, errors[0], f"timer 'x': callback {name} failed")]

    asyncio.run(main())
    gc.collect()


def test_on_error_of_a_timer_in_a_ring_is_there_for_a_coroutine_that_outlives_it__T10_rule8() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        told: list[BaseException] = []
        go = asyncio.Event()
        begun: list[int] = []

        async def work() -> None:
            begun.append(1)
            await go.wait()
            raise ValueError

        class Owner:
            def __init__(self) -> None:
                self.timer = SystemTimer(
                    "x", executor=loop, on_error=lambda _, error: told.append(error) or self.told()
                )
                self.timer.after(0, work)

            def told(self) -> None:
                pass

        owner = Owner()
        await finished(begun, 1)
        del owner
        gc.collect()
        go.set()
        await finished(told, 1)

    asyncio.run(main())


def test_an_interrupt_in_a_coroutine_reaches_the_loop_and_nothing_else__T10() -> None:
    told: list[object] = []

    async def work() -> None:
        await asyncio.sleep(0)
        raise KeyboardInterrupt

    loop = asyncio.new_event_loop()
    with SystemTimer("x", executor=loop, on_error=lambda *error: told.append(error)) as timer:
        timer.after(0, work)
        with pytest.raises(KeyboardInterrupt):
            loop.run_forever()
        loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    assert told == []


def test_a_task_factory_that_fails_closes_the_coroutine_and_is_told_of__T8_T10() -> None:
    async def main() -> None:
        told: list[BaseException] = []
        loop = asyncio.get_running_loop()

        def factory(*_: object, **__: object) -> Any:
            raise OSError("no task today")

        with SystemTimer("x", executor=loop, on_error=lambda _, error: told.append(error)) as timer:
            loop.set_task_factory(factory)
            timer.after(0, fetch)
            while not told:
                future = loop.create_future()
                loop.call_later(0.001, future.set_result, None)
                await future
            loop.set_task_factory(None)
        assert [str(error) for error in told] == ["no task today"]

    asyncio.run(main())
