"""Timers beside a running loop, and loops whose own timers are in a wheel (T21)."""

import asyncio
import contextvars
import gc
import math
import os
import random
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from tickwheel import TimerForked, aio

pytestmark = pytest.mark.timeout(60)


def loops() -> Iterator[Any]:
    yield pytest.param(asyncio.SelectorEventLoop, id="beside")
    yield pytest.param(aio.new_event_loop, id="wheel")


@pytest.fixture(params=loops())
def run(request: pytest.FixtureRequest) -> Iterator[Callable[[Any], Any]]:
    """Runs a coroutine, beside asyncio's loop or on a loop of its own."""
    with asyncio.Runner(loop_factory=request.param) as runner:
        yield runner.run


def test_callbacks_come_in_order_with_their_arguments_and_are_never_early__T1_T6_T21(run: Any) -> None:
    came: list[int] = []
    early: list[float] = []

    async def main() -> None:
        timers, loop, rng = aio.timers(), asyncio.get_running_loop(), random.Random(7)
        due_s = [loop.time() + rng.randrange(20_000) / 1e5 for _ in range(100_000)]

        def ring(number: int) -> None:
            came.append(number)
            if loop.time() < due_s[number] or time.monotonic() < due_s[number]:
                early.append(due_s[number])

        for number, when in enumerate(due_s):
            timers.call_at(when, ring, number)
        assert len(timers) == 100_000
        while len(timers):
            await asyncio.sleep(0.01)
        due_us = [math.ceil(when * 1e6) for when in due_s]
        assert came == sorted(range(100_000), key=lambda number: (due_us[number], number))

    run(main())
    assert not early


def test_a_cancelled_callback_does_not_run_and_nothing_is_kept__T9_T21(run: Any) -> None:
    class Kept:
        pass

    async def main() -> None:
        timers, kept = aio.timers(), Kept()
        gone = weakref.ref(kept)
        before = len(timers)
        handle = timers.call_later(3600, print, kept)
        assert (len(timers), handle.cancelled()) == (before + 1, False)
        handle.cancel()
        handle.cancel()
        del kept
        assert (len(timers), handle.cancelled(), gone()) == (before, True, None)
        assert "cancelled" in repr(handle)

    run(main())


def test_what_is_due_together_can_cancel_each_other__T9_T21(run: Any) -> None:
    async def main() -> list[str]:
        timers, came = aio.timers(), []
        when = asyncio.get_running_loop().time() + 0.001
        timers.call_at(when, lambda: (came.append("first"), second.cancel()))
        second = timers.call_at(when, came.append, "second")
        timers.call_at(when, came.append, "third")
        await aio.sleep(0.01)
        return came

    assert run(main()) == ["first", "third"]


def test_a_handle_is_as_asyncios__T21(run: Any) -> None:
    async def main() -> None:
        timers, loop = aio.timers(), asyncio.get_running_loop()
        when = loop.time() + 3600
        mine, theirs = timers.call_at(when, print, 1), asyncio.TimerHandle(when, print, (1,), loop)
        assert isinstance(mine, asyncio.TimerHandle)
        assert (repr(mine), mine.when(), hash(mine)) == (repr(theirs), theirs.when(), hash(theirs))
        assert mine == theirs
        assert theirs == mine
        whole = timers.call_at(int(when), print)
        assert (repr(whole.when()), repr(whole._when)) == (repr(int(when)),) * 2, "an int stays one"  # type: ignore[attr-defined]
        whole.cancel()
        assert mine >= theirs
        assert not mine > theirs
        later = timers.call_at(when + 1, print, 1)
        assert mine < later
        assert later > theirs
        assert mine != later
        assert mine != 3
        mine.cancel()
        later.cancel()

    run(main())


def test_a_loop_that_raises_when_it_is_asked_for_its_mode_calls_back_all_the_same__T10_T21() -> None:
    class Loop(asyncio.SelectorEventLoop):
        def get_debug(self) -> bool:
            if sys._getframe(1).f_code.co_name in ("_run", "run"):  # the loop calls its reader
                raise ArithmeticError
            return super().get_debug()

    async def main() -> None:
        reports: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, report: reports.append(report["exception"]))
        called = asyncio.Event()
        aio.timers().call_later(0.001, called.set)
        while not called.is_set() and len(reports) < 10:
            await asyncio.sleep(0.0001)
        await asyncio.sleep(0.001)
        assert called.is_set()
        assert 1 <= len(reports) < 10, "one in each turn, and a timer takes few"
        assert all(isinstance(it, ArithmeticError) for it in reports)

    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(main())


def test_callbacks_run_in_their_context__T21(run: Any) -> None:
    name: contextvars.ContextVar[str] = contextvars.ContextVar("name")
    seen: list[str] = []

    async def main() -> None:
        timers = aio.timers()
        name.set("of the caller")
        timers.call_later(0, lambda: (seen.append(name.get()), name.set("of the callback")))
        given = contextvars.copy_context()
        given.run(name.set, "given")
        timers.call_later(0.001, lambda: seen.append(name.get()), context=given)
        name.set("changed")
        await aio.sleep(0.01)
        assert name.get() == "changed"

    run(main())
    assert seen == ["of the caller", "given"]


def test_what_a_callback_raises_goes_to_the_loops_handler__T10_T21(run: Any) -> None:
    told: list[dict[str, Any]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        failing = aio.timers().call_later(0, divmod, 1, 0)
        await aio.sleep(0.01)
        assert told[0]["handle"] is failing

    run(main())
    assert [type(it["exception"]) for it in told] == [ZeroDivisionError]
    assert told[0]["message"].startswith("Exception in callback divmod(")  # arguments: before Python 3.13


def test_an_interrupt_in_the_middle_of_a_thousand_loses_none__T10_T21(run: Any) -> None:
    came: list[int] = []

    def ring(number: int) -> None:
        came.append(number)
        if number == 500:
            raise KeyboardInterrupt

    async def first() -> None:
        when = asyncio.get_running_loop().time() + 0.001
        for number in range(1_000):
            aio.timers().call_at(when, ring, number)
        await asyncio.sleep(10)

    with pytest.raises(KeyboardInterrupt):
        run(first())
    assert came == list(range(501))

    async def second() -> None:
        while len(came) < 1_000:
            await asyncio.sleep(0)

    run(second())
    assert came == list(range(1_000))


def test_many_that_are_due_at_once_leave_the_loop_its_turns__T21(run: Any) -> None:
    async def main() -> int:
        timers, came, turns = aio.timers(), [], 0
        when = asyncio.get_running_loop().time() + 0.05
        for _ in range(100_000):
            timers.call_at(when, came.append, None)
        while len(came) < 100_000:
            turns += bool(came)
            await asyncio.sleep(0)
        return turns

    assert run(main()) > 5


def test_what_is_due_at_the_same_time_runs_in_the_same_turn__T21(run: Any) -> None:
    """Else the task that the first of two time-outs cancels goes on before the second one, and that never expires."""

    async def main() -> list[str]:
        loop, timers, came = asyncio.get_running_loop(), aio.timers(), list[str]()
        when = loop.time() + 0.01

        def slow() -> None:
            began_s = time.monotonic()
            while time.monotonic() < began_s + 0.005:  # longer than a turn, as on a busy machine
                pass
            came.append("slow")
            loop.call_soon(came.append, "turn")

        timers.call_at(when, slow)
        cancelled = timers.call_at(when, came.append, "cancelled")
        timers.call_at(when, slow)
        timers.call_at(when, came.append, "last")
        timers.call_at(when + 0.000_1, came.append, "later")
        cancelled.cancel()
        while len(came) < 6:
            await asyncio.sleep(0.001)
        return came

    assert run(main()) == ["slow", "slow", "last", "turn", "turn", "later"]


def test_what_is_added_at_the_same_time_meanwhile_waits_for_its_turn__T21(run: Any) -> None:
    async def main() -> int:
        loop, timers, came = asyncio.get_running_loop(), aio.timers(), list[int]()
        when = loop.time() + 0.001

        def again() -> None:
            came.append(1)
            if len(came) < 50_000:
                timers.call_at(when, again)

        timers.call_at(when, again)
        turns = 0
        while len(came) < 50_000:
            turns += bool(came)
            await asyncio.sleep(0)
        return turns

    assert run(main()) > 5


def test_callbacks_that_add_others_due_now_do_not_keep_the_loop__T21(run: Any) -> None:
    async def main() -> None:
        timers, is_over = aio.timers(), False

        def again() -> None:
            if not is_over:
                timers.call_later(0, again)

        again()
        for _ in range(100):
            await asyncio.sleep(0)
        is_over = True
        await aio.sleep(0.01)
        assert not len(timers)

    run(main())


def test_sleep_and_timeout_take_seconds_and_timedeltas__T21_T22(run: Any) -> None:
    async def main() -> None:
        began_s = time.monotonic()
        assert await aio.sleep(timedelta(milliseconds=20), "slept") == "slept"
        assert time.monotonic() - began_s >= 0.02
        assert await aio.sleep(-1, "at once") == "at once"
        with pytest.raises(TimeoutError):
            async with aio.timeout(timedelta(milliseconds=1)):
                await asyncio.sleep(3600)
        with pytest.raises(TimeoutError):
            async with aio.timeout_at(asyncio.get_running_loop().time()):
                await asyncio.sleep(3600)
        async with aio.timeout(None) as scope:
            scope.reschedule(asyncio.get_running_loop().time() + 3600)
        assert not scope.expired()
        asleep = asyncio.create_task(aio.sleep(3600))
        await asyncio.sleep(0)
        asleep.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asleep
        assert len(aio.timers()) == 0

    run(main())


@pytest.mark.parametrize(
    ("delay", "error", "text"),
    [
        (float("nan"), ValueError, "delay must be a number of seconds, got nan"),
        ("1", TypeError, "delay must be seconds, got str '1': pass a number, or a timedelta"),
        (None, TypeError, "delay must"),
    ],
)
def test_a_bad_delay_is_refused__T13_T21(run: Any, delay: Any, error: type[Exception], text: str) -> None:
    async def main() -> None:
        with pytest.raises(error, match=text):
            aio.timers().call_later(delay, print)
        with pytest.raises(TypeError, match="callback must be callable"):
            aio.timers().call_later(1, 3)  # type: ignore[arg-type]
        never = aio.timers().call_later(float("inf"), print)
        never.cancel()

    run(main())


def test_timers_need_a_running_loop_and_keep_their_slack__T21() -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        aio.timers()

    async def main() -> None:
        assert aio.timers(slack_us=500).slack_us == 500
        assert aio.timers() is aio.timers(slack_us=500)
        with pytest.raises(RuntimeError, match="slack_us=500, got 3: give it at the first call"):
            aio.timers(slack_us=3)

    asyncio.run(main())


def test_a_closed_loop_takes_no_more__T11_T21() -> None:
    async def main() -> aio.LoopTimers:
        return aio.timers()

    loop = asyncio.SelectorEventLoop()
    timers = loop.run_until_complete(main())
    loop.close()
    with pytest.raises(RuntimeError, match="Event loop is closed"):
        timers.call_later(1, print)


@pytest.mark.parametrize("keeps_a_handle", [False, True])
@pytest.mark.parametrize("is_beside", [False, True])
@pytest.mark.filterwarnings("ignore:unclosed")
def test_a_loop_that_is_left_unclosed_leaves_nothing__T21(*, is_beside: bool, keeps_a_handle: bool) -> None:
    class Protocol:
        def __init__(self, timers: Any, loop: Any) -> None:
            self.loop = loop
            handle = timers.call_later(3600, self.ring)
            if keeps_a_handle:
                self.handle = handle

        def ring(self) -> None:
            pass

    def leave() -> list["weakref.ref[Any]"]:
        loop = asyncio.SelectorEventLoop() if is_beside else aio.new_event_loop()

        async def get() -> aio.LoopTimers:
            return aio.timers()

        timers = loop.run_until_complete(get())
        protocols = [Protocol(timers, loop) for _ in range(10)]
        return [weakref.ref(it) for it in (loop, timers, *protocols)]

    left = leave()
    gc.collect()
    assert [it() for it in left] == [None] * 12


def test_a_handle_that_is_kept_keeps_what_it_would_run__T21(run: Any) -> None:
    class Kept:
        def ring(self) -> None:
            pass

    async def main() -> None:
        kept = Kept()
        handle = aio.timers().call_later(3600, kept.ring)
        left = weakref.ref(kept)
        del kept
        for _ in range(3):
            gc.collect()
        assert left() is not None
        assert handle._callback is not None  # type: ignore[attr-defined]
        handle.cancel()
        assert left() is None

    run(main())


def test_a_child_process_does_not_touch_the_timers_of_its_parent__T12_T21(run: Any) -> None:
    async def main() -> None:
        timers = aio.timers()
        kept = timers.call_later(3600, print)
        if (child := os.fork()) == 0:
            code = 1
            try:
                timers.call_later(1, print)
            except TimerForked:
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        kept.cancel()
        await aio.sleep(0.001)

    run(main())


def test_the_interpreter_ends_with_timers_pending__T11_T21() -> None:
    program = """
import asyncio, threading
from tickwheel import aio
def work():
    loop = aio.new_event_loop()
    async def main():
        for n in range(1_000):
            asyncio.get_running_loop().call_later(n / 1e4, len, "")
        ready.set()
        await asyncio.sleep(3600)
    loop.run_until_complete(main())
ready = threading.Event()
threading.Thread(target=work, daemon=True).start()
ready.wait()
left = aio.new_event_loop()
left.call_later(3600, print)
"""
    for _ in range(5):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=30
        )
        assert (done.returncode, done.stderr) == (0, "")


def test_ctrl_c_ends_a_loop_on_the_wheel__T21() -> None:
    program = """
import asyncio
from tickwheel import aio
async def main():
    for n in range(100_000):
        asyncio.get_running_loop().call_later(n / 1e5, len, "")
    print("ready", flush=True)
    await asyncio.sleep(3600)
try:
    with asyncio.Runner(loop_factory=aio.new_event_loop) as runner:
        runner.run(main())
except KeyboardInterrupt:
    print("interrupted")
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == "interrupted\n"
    assert process.returncode == 0
