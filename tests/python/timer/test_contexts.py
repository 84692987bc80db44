"""T8: a callback runs in the context of its add (on a loop, or if the add says so), or in the one that is given."""

import asyncio
import gc
import re
import weakref
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, ContextVar, copy_context
from typing import Any

import pytest

from tickwheel import DelayedOperation, DelayedOperationPurgatory, SystemTimer, Timer, TimerTask
from tickwheel.testing import ManualTimer
from timer.watching import until

LONG_S = 20.0
request: ContextVar[Any] = ContextVar("request", default="none")


class Seen(TimerTask):
    """Keeps what its `run` sees."""

    def __init__(self, delay_ms: float, seen: list[object]) -> None:
        super().__init__(delay_ms)
        self.seen = seen

    def run(self) -> None:
        self.seen.append(request.get())


async def count(seen: list[Any], number: int) -> None:
    async with asyncio.timeout(LONG_S):
        while len(seen) < number:
            await asyncio.sleep(0.001)


def look(seen: list[object], *_: object) -> None:
    seen.append(request.get())


ADDS: list[Callable[..., object]] = [
    lambda timer, seen, **how: timer.after(20, look, seen, **how),
    lambda timer, seen, **how: timer.at(timer.now_ms() + 20, look, seen, **how),
    lambda timer, seen, **how: timer.after(20, lambda: look(seen), **how),
    lambda timer, seen, **how: timer.add(TimerTask(20, look, seen), **how),
    lambda timer, seen, **how: timer.add(TimerTask(20, lambda: look(seen)), **how),
    lambda timer, seen, **how: timer.add(Seen(20, seen), **how),
    lambda timer, seen, **how: timer.add_many(array("q", [20, 20]), lambda _: look(seen), **how),
]


@pytest.mark.parametrize("add", ADDS)
def test_a_callback_runs_in_the_context_of_its_add__T8(add: Callable[..., object]) -> None:
    async def main() -> None:
        seen: list[object] = []
        with SystemTimer("x", executor=asyncio.get_running_loop()) as timer:
            request.set("first")
            add(timer, seen)
            request.set("second")
            await count(seen, 1)
        assert seen == ["first"]

    copy_context().run(asyncio.run, main())


@pytest.mark.parametrize("add", ADDS)
def test_another_context_may_be_given__T8(add: Callable[..., object]) -> None:
    async def main() -> None:
        seen: list[object] = []
        context = copy_context()
        context.run(request.set, "given")
        with SystemTimer("x", executor=asyncio.get_running_loop()) as timer:
            add(timer, seen, context=context)
            await count(seen, 1)
        assert seen == ["given"]

    asyncio.run(main())


def test_what_a_callback_sets_stays_in_its_context__T8() -> None:
    async def main() -> None:
        seen: list[object] = []
        context = copy_context()
        with SystemTimer("x", executor=asyncio.get_running_loop()) as timer:
            timer.after(0, request.set, 1)
            timer.after(0, request.set, 2, context=context)
            timer.after(0, look, seen)
            timer.after(0, look, seen, context=context)
            await count(seen, 2)
        assert (seen, request.get(), context[request]) == (["none", 2], "none", 2)

    asyncio.run(main())


def test_a_coroutine_runs_in_a_copy_of_the_context__T8() -> None:
    async def main() -> None:
        seen: list[object] = []
        context = copy_context()
        context.run(request.set, "given")

        async def work(number: int) -> None:
            await asyncio.sleep(0)
            seen.append(request.get())
            request.set(number)

        with SystemTimer("x", executor=asyncio.get_running_loop()) as timer:
            for number in range(3):
                timer.after(0, work, number, context=context)
            request.set("elsewhere")
            timer.add_many(array("q", [0]), work)
            await count(seen, 4)
        assert (seen, context[request]) == (["given", "given", "given", "elsewhere"], "given")

    copy_context().run(asyncio.run, main())


def test_an_add_again_takes_the_context_of_then__T7_T8() -> None:
    async def main() -> None:
        seen: list[object] = []
        with SystemTimer("x", executor=asyncio.get_running_loop()) as timer:
            task = TimerTask(20, look, seen)
            for value in ("first", "second"):  # the second add moves it
                request.set(value)
                timer.add(task)
            await count(seen, 1)
            request.set("third")
            timer.add(task)
            await count(seen, 2)
            task.cancel()
            request.set("fourth")
            timer.add(task)
            await count(seen, 3)
        assert seen == ["second", "third", "fourth"]

    copy_context().run(asyncio.run, main())


class Value:
    """Kept by nothing but a context."""


@pytest.mark.parametrize("end", ["run", "cancel", "cancel many", "move", "shutdown"])
def test_a_context_is_let_go_when_its_callback_can_run_no_more__T8_T9(end: str) -> None:
    async def main() -> None:
        values: list[weakref.ref[Value]] = []
        timer = SystemTimer("x", executor=asyncio.get_running_loop())
        seen: list[object] = []

        def noted(*_: object) -> None:
            seen.append(1)

        def held() -> Context:
            value = Value()
            values.append(weakref.ref(value))
            context = Context()
            context.run(request.set, value)
            return context

        delay_ms = 0 if end == "run" else 60_000
        one_shot = timer.after(delay_ms, noted, context=held())
        task = TimerTask(delay_ms, noted)
        timer.add(task, context=held())
        batch = timer.add_many(array("q", [delay_ms]), noted, context=held())
        gc.collect()
        if end == "run":
            await count(seen, 3)
        elif end == "cancel":
            assert one_shot.cancel()
            assert task.cancel()
            assert batch.cancel(0)
        elif end == "cancel many":
            assert timer.cancel_many([one_shot, task]) == 2
            assert batch.cancel_all() == 1
        elif end == "move":
            assert one_shot.cancel()
            assert batch.cancel(0)
            timer.add(task)
        else:
            assert len(timer.shutdown(0)) == 3
        await asyncio.sleep(0)
        gc.collect()
        alive = [value() is not None for value in values]
        timer.shutdown(0)
        assert alive == [False] * 3

    asyncio.run(main())


@pytest.mark.parametrize("end", ["cancel", "cancel many"])
def test_a_series_that_has_ended_keeps_no_context__T8_T20(end: str) -> None:
    async def main() -> None:
        context, value, seen = Context(), Value(), list[object]()
        context.run(request.set, value)
        gone = weakref.ref(value)
        with SystemTimer("x", executor=asyncio.get_running_loop()) as timer:
            series = timer.every(1, seen.append, 1, context=context)
            del context, value
            await count(seen, 2)
            assert series.cancel() if end == "cancel" else timer.cancel_many([series]) == 1
            await asyncio.sleep(0)
            gc.collect()
            assert gone() is None
            assert series.run() is None

    asyncio.run(main())


def test_no_context_is_kept_where_the_executor_is_no_loop__T8() -> None:
    def check(timer: Timer) -> None:
        value = Value()
        gone = weakref.ref(value)
        token = request.set(value)
        task = timer.after(60_000, print)
        timer.add(again := TimerTask(60_000, print))
        batch = timer.add_many(array("q", [60_000]), print)
        request.reset(token)
        del value, token
        assert gone() is None
        assert task.cancel()
        assert again.cancel()
        assert batch.cancel(0)

    with ThreadPoolExecutor(1) as pool:
        for timer in (SystemTimer("own"), SystemTimer("pool", executor=pool), ManualTimer()):
            copy_context().run(check, timer)
            timer.shutdown()


@pytest.fixture(params=["own thread", "pool", "manual"])
def without_loop(request: pytest.FixtureRequest) -> Iterator[Timer]:
    if request.param == "manual":
        yield ManualTimer()
        return
    with ThreadPoolExecutor(1) as pool, SystemTimer("x", executor=pool if request.param == "pool" else None) as timer:
        yield timer


def wait_for(timer: Timer, seen: list[object], number: int = 1) -> None:
    if isinstance(timer, ManualTimer):
        timer.advance(100)
    until(lambda: len(seen) >= number)


@pytest.mark.parametrize("add", [*ADDS, lambda timer, seen, **how: timer.every(20, look, seen, times=1, **how)])
def test_without_a_loop_a_callback_runs_in_a_copy_of_the_context_of_its_add_if_that_asks_for_it__T8(
    without_loop: Timer, add: Callable[..., object]
) -> None:
    def main() -> None:
        seen: list[object] = []
        request.set("first")
        add(without_loop, seen, context="copy")
        add(without_loop, seen)
        request.set("second")
        wait_for(without_loop, seen, 2)
        inherited = "second" if isinstance(without_loop, ManualTimer) else "none"  # it runs on this thread
        assert sorted(map(str, seen)) == sorted(["first", inherited])

    copy_context().run(main)


def test_what_a_callback_sets_in_its_copy_stays_there__T8(without_loop: Timer) -> None:
    seen: list[object] = []
    task = without_loop.every(1, lambda: seen.append(request.set(len(seen)).old_value), context="copy")
    wait_for(without_loop, seen, 3)
    task.cancel()
    assert seen[1:3] == [0, 1], "the calls of a series share one"
    assert request.get() == "none"


def test_a_given_context_is_entered_and_one_that_is_in_use_is_an_error_of_the_call__T8_T10() -> None:
    errors: list[Exception] = []
    timer, context, seen = ManualTimer(on_error=lambda _, error: errors.append(error)), copy_context(), list[object]()
    context.run(request.set, "here")
    timer.after(5, look, seen, context=context)
    timer.advance(5)
    assert seen == ["here"]
    timer.after(5, look, seen, context=context)
    context.run(timer.advance, 5)
    assert [type(error) for error in errors] == [RuntimeError]
    assert seen == ["here"]


@pytest.mark.parametrize("end", ["run", "cancel", "shutdown", "in its own cycle"])
def test_a_copied_context_is_let_go_when_its_callback_can_run_no_more__T8_T9(without_loop: Timer, end: str) -> None:
    values: list[weakref.ref[Value]] = []

    def add() -> TimerTask:
        value = Value()
        values.append(weakref.ref(value))
        request.set(value)
        task = without_loop.after(0 if end == "run" else 60_000, seen.append, 1, context="copy")
        if end == "in its own cycle":
            value.task, value.timer = task, without_loop  # type: ignore[attr-defined]
        return task

    seen: list[object] = []
    task = copy_context().run(add)
    match end:
        case "run":
            wait_for(without_loop, seen)
        case "shutdown":
            assert without_loop.shutdown() == [task]
        case _:
            assert values[0]() is not None
            assert task.cancel()
    until(lambda: (gc.collect(), values[0]() is None)[1])


@pytest.mark.parametrize("context", [3, "x", {}, copy_context])
def test_what_is_no_context_is_refused__T13(context: Any) -> None:
    async def main() -> None:
        message = re.escape(f"context must be a contextvars.Context or 'copy', got {type(context).__name__} ")
        with (
            SystemTimer("x", executor=asyncio.get_running_loop()) as timer,
            pytest.raises(TypeError, match=f"^{message}.*: or leave it out$"),
        ):
            timer.after(5, print, context=context)

    asyncio.run(main())


def test_a_context_that_is_in_use_is_an_error_of_its_task_alone__T10() -> None:
    """A context may be entered once at a time: here the loop itself runs in it."""
    told: list[tuple[object, BaseException]] = []
    seen: list[object] = []
    context = copy_context()

    async def main() -> None:
        on_error = lambda *error: told.append(error)  # noqa: E731
        with SystemTimer("x", executor=asyncio.get_running_loop(), on_error=on_error) as timer:
            task = timer.after(0, look, seen, context=context)
            timer.after(0, look, seen)
            await count(seen, 1)
            assert [(found, type(error)) for found, error in told] == [(task, RuntimeError)]

    context.run(asyncio.run, main())


class Expires(DelayedOperation):
    """Keeps what its two last methods see."""

    def __init__(self, delay_ms: float, seen: list[object]) -> None:
        super().__init__(delay_ms)
        self.seen = seen

    def try_complete(self) -> bool:
        return False

    def on_complete(self) -> None:
        look(self.seen)

    def on_expiration(self) -> None:
        look(self.seen)


def watch(timer: Timer, operation: DelayedOperation) -> None:
    DelayedOperationPurgatory("p", timer).try_complete_else_watch(operation, ["key"])


OPERATION_ADDS: dict[str, Callable[[Timer, DelayedOperation], object]] = {
    "on a timer": lambda timer, operation: timer.add(operation),
    "watched": watch,
    "on a timer, then watched": lambda timer, operation: (
        copy_context().run(timer.add, operation),
        watch(timer, operation),
    ),
}


@pytest.mark.parametrize("how", OPERATION_ADDS)
def test_an_operation_expires_in_the_context_of_its_add__T8(how: str) -> None:
    async def main() -> None:
        seen: list[object] = []
        with SystemTimer("x", executor=asyncio.get_running_loop()) as timer:
            request.set("first")
            OPERATION_ADDS[how](timer, Expires(20, seen))
            request.set("second")
            await count(seen, 2)
        assert seen == ["first", "first"]

    copy_context().run(asyncio.run, main())


def test_an_operation_expires_in_the_context_that_is_given__T8() -> None:
    async def main() -> None:
        seen: list[object] = []
        given = copy_context()
        given.run(request.set, "given")
        with SystemTimer("x", executor=asyncio.get_running_loop()) as timer:
            timer.add(Expires(20, seen), context=given)
            await count(seen, 2)
        assert seen == ["given", "given"]

    copy_context().run(asyncio.run, main())
