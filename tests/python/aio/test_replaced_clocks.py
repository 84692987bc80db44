"""Where a test has replaced `time.monotonic`, loops and `aio` do what asyncio does, in both modes (T21)."""

import asyncio
import time
import unittest
from collections.abc import Callable, Coroutine, Iterator
from typing import Any
from unittest import mock

import pytest

from tickwheel import aio
from tickwheel.testing import VirtualLoop

pytestmark = pytest.mark.timeout(30)


class Clock:
    """It moves when it is told."""

    def __init__(self, offset_s: float) -> None:
        self.now_s = time.monotonic() + offset_s

    def __call__(self) -> float:
        return self.now_s


async def expires(module: Any, make: Callable[[], Any]) -> None:
    try:
        async with make():
            await asyncio.Event().wait()
    except TimeoutError:
        return
    raise AssertionError(f"no time-out of {module}")


def now_s() -> float:
    return asyncio.get_running_loop().time()


async def called(add: Callable[[Callable[[], None]], object]) -> None:
    done = asyncio.get_running_loop().create_future()
    add(lambda: done.set_result(None))
    await done


WAITS: dict[str, Callable[[Any], Coroutine[Any, Any, object]]] = {
    "sleep": lambda module: module.sleep(30),
    "timeout": lambda module: expires(module, lambda: module.timeout(30)),
    "timeout_at": lambda module: expires(module, lambda: module.timeout_at(now_s() + 30)),
    "call_later": lambda _: called(lambda call: asyncio.get_running_loop().call_later(30, call)),
    "call_at": lambda _: called(lambda call: asyncio.get_running_loop().call_at(now_s() + 30, call)),
}
OF_AIO: dict[str, Callable[[Any], Coroutine[Any, Any, object]]] = {
    "sleep_until": lambda module: module.sleep_until(now_s() + 30),
    "timers().call_later": lambda module: called(lambda call: module.timers().call_later(30, call)),
    "timers().call_at": lambda module: called(lambda call: module.timers().call_at(now_s() + 30, call)),
}


def cases() -> Iterator[Any]:
    for loop_name, loop_factory in (("stock", asyncio.SelectorEventLoop), ("wheel", aio.new_event_loop)):
        for module in (asyncio, aio):
            for name, wait in {**WAITS, **(OF_AIO if module is aio else {})}.items():
                yield pytest.param(loop_factory, module, wait, id=f"{loop_name}-{module.__name__}-{name}")


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("debug", [False, True], ids=["", "debug"])
@pytest.mark.parametrize("offset_s", [-1_000, 1_000])
@pytest.mark.parametrize(("loop_factory", "module", "wait"), [*cases()])
def test_a_wait_ends_with_the_replaced_clock_and_not_before__T21(
    loop_factory: Any, module: Any, wait: Any, offset_s: float, debug: bool
) -> None:
    async def main() -> None:
        await module.sleep(0.001)  # on the clock of the system
        clock = Clock(offset_s)
        with mock.patch("time.monotonic", clock):
            assert now_s() == clock.now_s
            waits = asyncio.ensure_future(wait(module))
            await turns()
            clock.now_s += 29
            await turns()
            assert not waits.done()
            clock.now_s += 2
            await turns()
            assert waits.done()
            await waits
        await module.sleep(0.001)

    with asyncio.Runner(loop_factory=loop_factory, debug=debug) as runner:
        runner.run(main())


@pytest.mark.parametrize("loop_factory", [asyncio.SelectorEventLoop, aio.new_event_loop])
def test_a_clock_that_was_replaced_before_the_loop_was_made__T21(loop_factory: Any) -> None:
    async def main() -> None:
        waits = asyncio.ensure_future(aio.sleep(30))
        await turns()
        assert not waits.done()
        clock.now_s += 31
        await turns()
        assert waits.done()

    clock = Clock(-1_000)
    with mock.patch("time.monotonic", clock), asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


def test_a_test_case_of_asyncio_with_a_replaced_clock__T21() -> None:
    class Case(unittest.IsolatedAsyncioTestCase):
        async def test_it(self) -> None:
            with mock.patch("time.monotonic", Clock(-1_000)) as clock:
                waits = asyncio.ensure_future(aio.sleep(30))
                await turns()
                assert not waits.done()
                clock.now_s += 31
                await turns()
                assert waits.done()

    result = unittest.TestResult()
    Case("test_it").run(result)
    assert (result.testsRun, result.errors, result.failures) == (1, [], [])


def test_a_loop_with_its_own_clock_counts_what_is_pending_as_a_wheel_does__T21() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        timers, came = aio.timers(), asyncio.Event()
        first, second = timers.call_later(3600, print), timers.call_later(7200, came.set)
        assert (len(aio.timers()), bool(isinstance(first, asyncio.TimerHandle))) == (2, True)
        assert first.reschedule(30)
        assert len(timers) == 2
        first.cancel()
        first.cancel()
        assert len(timers) == 1
        await came.wait()
        assert (len(timers), second.cancelled(), loop.time()) == (0, False, 7200)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())
