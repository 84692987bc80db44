"""Loops on a wheel, and a wheel beside a loop: contexts, clocks, patches, debug mode, and how they end (T21)."""

import asyncio
import contextvars
import gc
import subprocess
import sys
import time
import warnings
import weakref
from collections.abc import Callable
from fractions import Fraction
from typing import Any
from unittest import mock

import pytest

from tickwheel import aio
from tickwheel.testing import VirtualLoop

pytestmark = pytest.mark.timeout(60)
caller: contextvars.ContextVar[Any] = contextvars.ContextVar("caller", default=None)
on_and_beside = pytest.mark.parametrize("loop_factory", [asyncio.SelectorEventLoop, aio.new_event_loop])


def run(coroutine: Any, loop_factory: Any = asyncio.SelectorEventLoop) -> Any:
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(coroutine)


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


# ---- when they come -------------------------------------------------------------------------------------------------


def test_a_slack_bounds_the_wake_ups_of_tasks_that_sleep__T21() -> None:
    async def main() -> tuple[int, float]:
        loop, timers, wakes = asyncio.get_running_loop(), aio.timers(slack_us=50_000), []

        def wake() -> None:
            wakes.append(1)
            timers._run_due()  # type: ignore[union-attr]

        loop.remove_reader(timers.fileno())  # type: ignore[union-attr]
        loop.add_reader(timers.fileno(), wake)  # type: ignore[union-attr]
        began_s = time.monotonic()
        for _ in range(8):
            await aio.sleep(0.001)
        return len(wakes), time.monotonic() - began_s

    wakes, took_s = run(main())
    assert wakes <= took_s / 0.05 + 2


def test_callbacks_that_add_themselves_in_the_past_keep_no_other_waiting__T21() -> None:
    async def main() -> None:
        loop, calls, came_at = asyncio.get_running_loop(), 0, 0

        def again(at: float) -> None:
            nonlocal calls
            calls += 1
            if not came_at and calls < 100_000:
                loop.call_at(at, again, at)

        def come() -> None:
            nonlocal came_at
            came_at = calls

        past = loop.time() - 10
        for _ in range(1500):  # more than a step of the wheel
            loop.call_at(past, again, past)
        loop.call_later(0, come)
        while not came_at:
            await asyncio.sleep(0)
        assert came_at < 10_000

    run(main(), aio.new_event_loop)


# ---- contexts -------------------------------------------------------------------------------------------------------


@on_and_beside
def test_the_context_of_the_first_user_is_not_kept__T21(loop_factory: Any) -> None:
    class Session:
        pass

    async def handle(session: Session) -> None:
        caller.set(session)
        await aio.sleep(0.001)

    async def main() -> None:
        session = Session()
        gone = weakref.ref(session)
        await asyncio.create_task(handle(session))
        del session
        await turns()
        gc.collect()
        assert gone() is None

    run(main(), loop_factory)


def test_an_exception_handler_does_not_run_in_the_context_of_the_first_user__T10_T21() -> None:
    seen = []

    def fail() -> None:
        raise ValueError

    async def use(name: str) -> None:
        caller.set(name)
        aio.timers().call_later(0, fail)

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: seen.append(caller.get()))
        await asyncio.create_task(use("first"))
        await asyncio.create_task(use("second"))
        while len(seen) < 2:
            await asyncio.sleep(0.001)

    run(main())
    assert seen[1] in (None, "second")


# ---- clocks, and methods that were replaced -------------------------------------------------------------------------


@pytest.mark.parametrize("module", [asyncio, aio])
@on_and_beside
def test_a_loop_that_gets_a_clock_of_its_own_keeps_to_it__T21(loop_factory: Any, module: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        await module.sleep(0.001)
        clock = mock.Mock(return_value=loop.time() - 1000)
        with mock.patch.object(loop, "time", clock):
            async with module.timeout(30) as timeout:
                await turns(100)  # no time passes on the loop's clock
                clock.return_value += 29
                await turns(100)
            assert not timeout.expired()
            with pytest.raises(TimeoutError):  # noqa: PT012, what is inside passes the time
                async with module.timeout(30):
                    clock.return_value += 30
                    await asyncio.Event().wait()
        await module.sleep(0.001)

    run(main(), loop_factory)


@pytest.mark.parametrize("name", ["call_at", "call_later"])
def test_a_method_of_a_loop_that_a_test_replaces_is_called__T21(name: str) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with mock.patch.object(loop, name, wraps=getattr(loop, name)) as spy:
            await asyncio.sleep(0.0001)
            assert spy.call_count == 1
            loop.set_debug(True)
            loop.set_debug(False)
            await asyncio.sleep(0.0001)
            assert spy.call_count == 2
        await asyncio.sleep(0.0001)
        assert spy.call_count == 2
        assert vars(loop)[name] is loop._tickwheel_shortcuts[name], "it is as fast as before"  # type: ignore[attr-defined]

    run(main(), aio.new_event_loop)


def test_a_base_with_a_call_at_of_its_own_keeps_its_timers__T21() -> None:
    class Base(asyncio.SelectorEventLoop):
        def call_at(self, when: float, callback: Callable[..., object], *args: Any, **options: Any) -> Any:
            added.append(when)
            return super().call_at(when, callback, *args, **options)

    added: list[float] = []
    run(asyncio.sleep(0.001), lambda: aio.new_event_loop(Base))
    assert added


def test_timers_of_a_clock_of_its_own_take_the_same_delays__T13_T21() -> None:
    async def main() -> float:
        await aio.sleep(Fraction(3, 2))  # type: ignore[arg-type]  # a number all the same
        return asyncio.get_running_loop().time()

    assert run(main(), VirtualLoop) == 1.5


# ---- debug mode -----------------------------------------------------------------------------------------------------


def test_in_debug_mode_a_callback_whose_repr_fails_is_cancelled_all_the_same__T9_T21() -> None:
    class Callback:
        def __repr__(self) -> str:
            raise ValueError("no repr")

        def __call__(self) -> None:
            pytest.fail("it was cancelled")

    async def main() -> None:
        asyncio.get_running_loop().set_debug(True)
        timers = aio.timers()
        handle = timers.call_later(0.001, Callback())
        with pytest.raises(ValueError, match="no repr"):  # as asyncio's
            handle.cancel()
        assert handle.cancelled()
        assert len(timers) == 0  # type: ignore[arg-type]
        handle.cancel()
        await aio.sleep(0.002)

    run(main())


# ---- how they end ---------------------------------------------------------------------------------------------------


def test_a_loop_whose_close_fails_goes_on_with_its_timers__T21() -> None:
    class Loop(asyncio.SelectorEventLoop):
        has_failed = False

        def close(self) -> None:
            if not self.has_failed:
                self.has_failed = True
                raise OSError("once")
            super().close()

    async def main() -> None:
        async with asyncio.timeout(10):
            await aio.sleep(0.001)

    loop = Loop()
    loop.run_until_complete(main())
    with pytest.raises(OSError, match="once"):
        loop.close()
    loop.run_until_complete(main())
    loop.close()


def test_a_refused_slack_leaves_no_unclosed_loop__T13() -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with pytest.raises(ValueError, match="slack_us"):
            aio.new_event_loop(slack_us=-1)
        gc.collect()
    assert not seen


@on_and_beside
def test_a_closed_loop_is_freed_without_the_collector__T21(loop_factory: Any) -> None:
    gc.collect()
    gc.disable()
    try:
        loop = loop_factory()
        loop.run_until_complete(aio.sleep(0.001))
        loop.close()
        gone = weakref.ref(loop)
        del loop
        assert gone() is None
    finally:
        gc.enable()


def test_a_class_of_loops_that_is_not_used_any_more_is_freed__T21() -> None:
    def made() -> "weakref.ref[Any]":
        class Loop(asyncio.SelectorEventLoop):
            pass

        first, second = aio.new_event_loop(Loop), aio.new_event_loop(Loop)
        assert type(first) is type(second)
        first.close()
        second.close()
        return weakref.ref(Loop)

    gone = made()
    for _ in range(2):  # first the class that was made of it
        gc.collect()
    assert gone() is None


# ---- collections ----------------------------------------------------------------------------------------------------

WHILE_OTHERS_ADD = """
import gc, sys, threading, time
from tickwheel import aio

errors = []
sys.unraisablehook = lambda it: errors.append(repr(it.exc_value))
sys.setswitchinterval(1e-5)
kept = [aio.new_event_loop() for _ in range(100)]
until = time.monotonic() + 1.5

def make():
    while time.monotonic() < until and not errors:
        aio.new_event_loop().close()

threads = [threading.Thread(target=make) for _ in range(3)]
for it in threads:
    it.start()
while time.monotonic() < until and not errors:
    gc.collect()
for it in threads:
    it.join()
for it in kept:
    it.close()
print(errors)
"""


def test_other_threads_may_make_loops_during_a_collection__T21() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WHILE_OTHERS_ADD], capture_output=True, text=True, timeout=50, check=False
    )
    assert done.stdout == "[]\n", done.stderr


def test_what_is_called_before_a_collection_runs_no_python_code__T21() -> None:
    """A signal handler that ran there, as that of Ctrl-C, would raise into nothing."""
    run(asyncio.sleep(0), aio.new_event_loop)
    ours = [it for it in gc.callbacks if "before_collection" in repr(it)]
    assert [type(it) for it in ours] == [type(len)]
