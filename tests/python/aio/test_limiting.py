"""RateLimiter on clocks and loops that are not the usual ones (T21)."""

import asyncio
import gc
import sys
import weakref
from contextvars import ContextVar
from typing import Any

import pytest

from tickwheel import aio
from tickwheel.testing import ManualTimer, VirtualLoop

pytestmark = pytest.mark.timeout(30)


def test_a_limiter_serves_on_a_clock_whose_floats_are_coarse__T21() -> None:
    """A float of today's seconds since 1970 has a step of 2.4e-7."""
    limiter, serves = aio.RateLimiter(3, burst=7), []
    serve = limiter._serve

    def counted(when: float) -> None:
        serves.append(when)
        if len(serves) > 1_000:
            raise SystemExit("it serves again and again at one instant")
        serve(when)

    limiter._serve = counted  # type: ignore[method-assign]
    timer = ManualTimer(start_ms=1_795_000_000_000)

    async def main() -> float:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await asyncio.gather(*(limiter.acquire() for _ in range(40)))
        return loop.time() - began_s

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(timer)) as runner:
        assert runner.run(main()) == pytest.approx(33 / 3, abs=1e-4)


def test_a_limiter_begins_full_on_another_clock__T21() -> None:
    limiter = aio.RateLimiter(1, burst=10)

    async def main() -> float:
        for _ in range(10):
            await limiter.acquire()
        return asyncio.get_running_loop().time()

    asyncio.run(main())
    for _ in range(2):
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            assert runner.run(main()) == 0


def test_a_limiter_does_not_begin_full_in_the_next_loop_of_its_clock__T21() -> None:
    limiter = aio.RateLimiter(1 / 3600)
    asyncio.run(limiter.acquire())

    async def main() -> None:
        async with asyncio.timeout(0.01):
            await limiter.acquire()

    with pytest.raises(TimeoutError):
        asyncio.run(main())


def test_a_wait_that_is_garbage_after_it_was_served_is_no_error__T21(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda it: seen.append(it.exc_value))
    limiter = aio.RateLimiter(1_000)

    async def main() -> "asyncio.Task[None]":
        loop = asyncio.get_running_loop()
        await limiter.acquire()
        waits = loop.create_task(limiter.acquire())
        await asyncio.sleep(0)
        return waits

    loop = asyncio.SelectorEventLoop()
    loop.set_exception_handler(lambda *_: None)
    waits: Any = loop.run_until_complete(main())
    loop.call_soon(limiter._serve, loop.time() + 1)
    loop.call_soon(loop.stop)  # it has its token, and does not go on
    loop.run_forever()
    loop.close()
    assert not waits.done()
    del waits
    gc.collect()
    assert not seen


def test_a_limiter_keeps_no_context_of_a_waiter_that_was_served__T21() -> None:
    class Request:
        pass

    request: ContextVar[Request] = ContextVar("request")
    limiter = aio.RateLimiter(100)

    async def serve(served: "asyncio.Queue[Any]") -> None:
        mine = Request()
        request.set(mine)
        await limiter.acquire()
        await served.put(weakref.ref(mine))

    async def main() -> None:
        served: asyncio.Queue[Any] = asyncio.Queue()
        waiting = {asyncio.ensure_future(serve(served)) for _ in range(4)}
        gone = [await served.get() for _ in range(3)]  # the last one still waits, so the limiter has armed itself again
        await asyncio.sleep(0)
        gc.collect()
        assert len([it for it in waiting if not it.done()]) == 1
        waiting -= {it for it in waiting if it.done()}
        gc.collect()
        assert [it() for it in gone] == [None] * 3
        await asyncio.gather(*waiting)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("name", "given"), [("rate", "x"), ("rate", True), ("rate", None), ("burst", "2"), ("burst", [1])]
)
def test_what_is_no_number_is_refused_by_its_name__T13(name: str, given: Any) -> None:
    how = {"rate": 5, "burst": 1} | {name: given}
    with pytest.raises(TypeError, match=f"{name} must be a number, got "):
        aio.RateLimiter(how["rate"], burst=how["burst"])
