"""What an attack on timers of loops and periodic tasks found, where the other tests saw nothing."""

import asyncio
import contextvars
import gc
import math
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tickwheel import SystemTimer, TimerTask, aio
from tickwheel.testing import ManualTimer, VirtualLoop

pytestmark = pytest.mark.timeout(30)


def run(coroutine: Any, loop_factory: Any = VirtualLoop) -> Any:
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(coroutine)


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


# ---- fork -----------------------------------------------------------------------------------------------------------

FORKS = """
import asyncio, os, sys, time
from tickwheel import aio

async def main():
    pid = os.fork()
    if pid == 0:
        sys.exit(0)  # leaves the Runner's block, which closes the child's copy of the loop
    os.waitpid(pid, 0)
    await asyncio.sleep(0.05)
    print("slept", flush=True)

with asyncio.Runner(loop_factory={factory}) as runner:
    runner.run(main())
"""


@pytest.mark.parametrize("factory", ["asyncio.SelectorEventLoop", "aio.new_event_loop"])
def test_a_child_that_ends_does_not_stop_the_timers_of_its_parent__T12_T21(factory: str) -> None:

    try:
        done = subprocess.run(
            [sys.executable, "-c", FORKS.format(factory=factory)], capture_output=True, text=True, timeout=8
        )
    except subprocess.TimeoutExpired:
        pytest.fail("the parent's timers are dead: its sleep of 50 ms has not ended in 8 s")
    assert done.stdout == "slept\n", done.stderr


FLOODS = """
import asyncio, os, sys, time
from tickwheel import aio

reported = 0

async def main():
    global reported
    def count(loop, context):
        global reported
        reported += 1
    asyncio.get_running_loop().set_exception_handler(count)
    aio.timers().call_later(0.02, int)
    pid = os.fork()
    if pid == 0:
        until = time.monotonic() + 0.3
        while time.monotonic() < until:
            await asyncio.sleep(0)
        print(reported, flush=True)
        os._exit(0)
    os.waitpid(pid, 0)

with asyncio.Runner() as runner:
    runner.run(main())
"""


def test_a_child_that_goes_on_in_the_loop_is_told_once_and_not_flooded__T12() -> None:
    done = subprocess.run([sys.executable, "-c", FLOODS], capture_output=True, text=True, timeout=10)
    assert int(done.stdout) < 10, done.stdout


# ---- timeout --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", [asyncio, aio], ids=["asyncio", "aio"])
@pytest.mark.parametrize("moved_to", [60, None])
def test_a_deadline_that_was_past_and_is_moved_does_not_fire__T21(module: Any, moved_to: float | None) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with module.timeout(0) as deadline:
            deadline.reschedule(None if moved_to is None else loop.time() + moved_to)
            await turns()
        assert not deadline.expired()

    run(main())


def test_on_uvloop_a_timeout_is_never_early__T21() -> None:
    uvloop = pytest.importorskip("uvloop")

    async def main() -> float:
        earliest_s = 0.0
        for _ in range(30):
            began_s = time.monotonic()
            try:
                async with aio.timeout(0.003):
                    await asyncio.Event().wait()
            except TimeoutError:
                earliest_s = max(earliest_s, 0.003 - (time.monotonic() - began_s))
        return earliest_s

    assert run(main(), uvloop.new_event_loop) == 0


def test_a_loop_that_gets_a_clock_of_its_own_later_keeps_to_it__T21() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        await aio.sleep(0.001)  # the wheel is made here
        then = loop.time() - 1000
        loop.time = lambda: then  # type: ignore[method-assign]  # as a test does with mock.patch.object(loop, "time")
        try:
            async with aio.timeout(30):
                await turns(1000)  # no time passes on the loop's clock
        except TimeoutError:
            pytest.fail("it ended at once, after no time on either clock")
        finally:
            del loop.time

    run(main(), asyncio.SelectorEventLoop)


# ---- RateLimiter ----------------------------------------------------------------------------------------------------


def test_a_limiter_goes_on_in_the_next_loop__T21() -> None:
    limiter = aio.RateLimiter(100)

    async def leave() -> None:
        await limiter.acquire()
        waits = asyncio.ensure_future(limiter.acquire())
        await turns()
        assert not waits.done()  # it is cancelled at the end of the run, as after Ctrl-C

    async def use() -> None:
        for _ in range(2):
            await limiter.acquire()  # `Deadlock`, if nothing wakes it

    for main in (leave, use):
        run(main())


def test_a_limiter_serves_loops_of_two_threads_or_says_that_it_does_not__T21() -> None:
    limiter, taken, answers = aio.RateLimiter(5), threading.Event(), {}

    async def first() -> None:
        await limiter.acquire()
        waits = asyncio.ensure_future(limiter.acquire())
        await turns()
        taken.set()
        await waits
        await asyncio.sleep(0.5)  # its loop serves the other one's waiter, which is not told

    async def second() -> None:
        await asyncio.to_thread(taken.wait, 10)
        waits = asyncio.ensure_future(limiter.acquire())
        done, _ = await asyncio.wait([waits], timeout=3)
        answers["waited"] = asyncio.get_running_loop().time() - began_s
        assert done

    def thread() -> None:
        try:
            asyncio.run(first())
        except RuntimeError as error:  # as asyncio's Semaphore: "is bound to a different event loop"
            answers["refused"] = error

    began_s = time.monotonic()
    other = threading.Thread(target=thread)
    other.start()
    try:
        asyncio.run(second())
    except RuntimeError:
        return
    finally:
        other.join(10)
    assert answers["waited"] < 2, (
        f"it came after {answers['waited']:.1f} s, and only because the loop woke up for a time-out"
    )


def test_a_waiter_that_is_cancelled_as_it_is_served_takes_no_token__T21() -> None:
    async def main() -> None:
        loop, limiter = asyncio.get_running_loop(), aio.RateLimiter(1 / 3600)
        await limiter.acquire()
        first, second = (asyncio.ensure_future(limiter.acquire()) for _ in range(2))
        await turns()
        loop.call_at(3600, first.cancel)  # the instant of the next token, right after it was given to `first`
        await asyncio.wait([first, second])
        assert first.cancelled()
        assert loop.time() == 3600, f"the token was lost: the second got one at {loop.time():g} s"

    run(main())


def test_on_uvloop_a_limiter_does_not_spin__T21() -> None:
    uvloop = pytest.importorskip("uvloop")

    async def main() -> int:
        limiter, serves = aio.RateLimiter(300), []
        serve = limiter._serve
        limiter._serve = lambda when: (serves.append(1), serve(when))[1]  # type: ignore[method-assign]
        await asyncio.gather(*(limiter.acquire() for _ in range(30)))
        return len(serves)

    assert run(main(), uvloop.new_event_loop) < 90


# ---- throttle, debounce, every, deadline ----------------------------------------------------------------------------


def test_a_throttled_function_goes_on_in_the_next_loop__T21() -> None:
    calls: list[int] = []
    throttled = aio.throttle(0.01)(calls.append)

    async def main(number: int) -> None:
        throttled(number)

    asyncio.run(main(1))  # the loop ends before the period
    time.sleep(0.02)
    asyncio.run(main(2))
    assert calls == [1, 2]


def test_a_throttled_function_survives_a_call_without_a_loop__T21() -> None:
    calls: list[int] = []
    throttled = aio.throttle(0.01)(calls.append)
    with pytest.raises(RuntimeError, match="no running event loop"):
        throttled(0)

    async def main() -> None:
        throttled(1)

    asyncio.run(main())
    assert calls == [1]


def test_a_throttled_function_runs_in_the_context_of_its_call__T8_T21() -> None:
    caller, seen = contextvars.ContextVar("caller", default=""), []

    @aio.throttle(1)
    def show(number: int) -> None:
        seen.append((number, caller.get()))

    async def main() -> None:
        for number, name in ((1, "alice"), (2, "bob")):
            caller.set(name)
            show(number)
        await asyncio.sleep(5)

    run(main())
    assert seen == [(1, "alice"), (2, "bob")]


def test_debounce_in_one_loop_does_not_take_the_call_of_another__T21() -> None:
    called: list[str] = []
    debounced = aio.debounce(0.05)(lambda name: called.append(name))
    both = threading.Barrier(2)

    def thread(name: str) -> None:
        async def main() -> None:
            debounced(name)
            both.wait(10)
            await asyncio.sleep(0.15)

        asyncio.run(main())

    threads = [threading.Thread(target=thread, args=[name]) for name in "ab"]
    for it in threads:
        it.start()
    for it in threads:
        it.join(10)
    assert sorted(called) == ["a", "b"]


def test_a_wait_for_the_next_instant_that_is_given_up_loses_none__T20() -> None:
    async def main() -> list[float]:
        ticks, came = aio.every(1, missed="all"), []
        while asyncio.get_running_loop().time() < 5.5:
            try:
                async with asyncio.timeout(0.4):  # looks in between for something else
                    came.append(await anext(ticks))
            except TimeoutError:
                pass
        return came

    assert run(main())[:5] == [1, 2, 3, 4, 5]


async def _iterate(**options: Any) -> None:
    async for _ in aio.every(1, **options):
        break


@pytest.mark.parametrize(
    ("call", "says"),
    [
        pytest.param(lambda: aio.RateLimiter(5, burst=math.nan), "burst", id="burst nan"),  # type: ignore[arg-type]
        pytest.param(lambda: run(_iterate(start=math.nan)), "start", id="start nan"),
        pytest.param(lambda: run(_iterate(start=-math.inf)), "start", id="start -inf"),
        pytest.param(lambda: run(_iterate(start=-1e303)), "start", id="start far away"),
        pytest.param(lambda: run(aio.sleep(None)), "delay", id="sleep None"),  # type: ignore[arg-type]
        pytest.param(lambda: VirtualLoop(grace_s=-1), "grace_s", id="grace_s"),
        pytest.param(lambda: VirtualLoop(5), "timer", id="timer"),  # type: ignore[arg-type]
        pytest.param(lambda: aio.new_event_loop(VirtualLoop.__call__), "base", id="base"),  # type: ignore[arg-type]
    ],
)
def test_bad_input_is_refused_with_the_name_of_what_was_given__T13(call: Any, says: str) -> None:
    with pytest.raises((ValueError, TypeError), match=says):
        call()


# ---- VirtualLoop ----------------------------------------------------------------------------------------------------


def test_a_process_without_pipes_is_no_deadlock__T15() -> None:
    async def main() -> int:
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", "import time; time.sleep(0.3)")
        return await process.wait()

    assert run(main()) == 0


def test_a_thread_that_outlives_its_time_out_is_no_deadlock_at_the_end__T15() -> None:
    async def main() -> str:
        try:
            async with asyncio.timeout(5):
                await asyncio.to_thread(time.sleep, 0.4)
        except TimeoutError:
            return "timed out"
        return "ended"

    assert run(main()) in ("timed out", "ended")


def test_a_signal_can_still_come__T15() -> None:
    async def main() -> str:
        loop = asyncio.get_running_loop()
        came: asyncio.Future[str] = loop.create_future()
        loop.add_signal_handler(signal.SIGUSR1, came.set_result, "a signal")
        sender = threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGUSR1])
        sender.start()
        try:
            return await came
        finally:
            sender.cancel()

    assert run(main()) == "a signal"


def test_a_closed_virtual_loop_leaves_nothing_in_its_timer__T11_T15() -> None:
    timer = ManualTimer()

    async def main() -> None:
        asyncio.get_running_loop().call_later(60, print)

    run(main(), lambda: VirtualLoop(timer))
    assert len(timer) == 0


@pytest.mark.parametrize("loop_factory", [asyncio.SelectorEventLoop, aio.new_event_loop, VirtualLoop])
def test_to_wait_for_ever_is_allowed__T21(loop_factory: Any) -> None:
    async def main() -> None:
        async with asyncio.timeout(math.inf):
            await asyncio.sleep(0.001)
        waits = asyncio.ensure_future(asyncio.sleep(math.inf))
        await turns()
        assert not waits.done()
        waits.cancel()

    run(main(), loop_factory)


# ---- callbacks of a loop --------------------------------------------------------------------------------------------


def test_in_debug_mode_a_callback_whose_repr_fails_is_called_all_the_same__T10_T21() -> None:
    called = []

    class Callback:
        def __repr__(self) -> str:
            raise ValueError("no repr")

        def __call__(self) -> None:
            called.append(1)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda *_: None)
        timers = aio.timers()
        loop.set_debug(True)
        timers.call_later(0.001, Callback())
        while len(timers):
            await asyncio.sleep(0.001)

    run(main(), asyncio.SelectorEventLoop)
    assert called == [1]


def test_a_closed_loop_lets_go_of_its_timers__T11_T21() -> None:
    class Session:
        pass

    async def main(session: Session) -> None:
        aio.timers().call_later(3600, print, session)

    loop, session = asyncio.SelectorEventLoop(), Session()
    gone = weakref.ref(session)
    loop.run_until_complete(main(session))
    del session
    loop.close()  # asyncio's own timers are dropped here; the loop object may live on, as in a policy or a fixture
    gc.collect()
    assert gone() is None


def test_closed_loops_leave_no_descriptor_open__T11_T21() -> None:
    def run_one() -> None:
        asyncio.run(aio.sleep(1e-5))

    run_one()
    gc.collect()
    gc.disable()
    try:
        before = len([*Path("/proc/self/fd").iterdir()])
        for _ in range(20):
            run_one()
        assert len([*Path("/proc/self/fd").iterdir()]) == before
    finally:
        gc.enable()


LEFT = """
import asyncio, gc, warnings
from tickwheel import aio
warnings.simplefilter("always")

async def main():
    aio.timers().call_later(60, print)

loop = asyncio.SelectorEventLoop()
loop.close = {wrapper}
loop.run_until_complete(main())
del loop
gc.collect()
"""


@pytest.mark.parametrize("wrapper", ["loop.close", "lambda close=loop.close: (print('closed'), close())"])
def test_a_loop_that_is_left_closes_itself_with_its_timers__T11_T21(wrapper: str) -> None:
    """By its finalizer, which runs when weak references to it are gone; and by a `close` that somebody has wrapped."""
    done = subprocess.run(
        [sys.executable, "-c", LEFT.format(wrapper=wrapper)], capture_output=True, text=True, timeout=20, check=True
    )
    assert "unclosed event loop" in done.stderr
    assert "unclosed <socket" not in done.stderr, done.stderr
    assert ("closed" in done.stdout) == ("print" in wrapper)


def test_in_debug_mode_a_handle_says_where_it_was_made__T21() -> None:
    async def main() -> None:
        asyncio.get_running_loop().set_debug(True)
        handle = aio.timers().call_later(60, print)
        assert "created at" in repr(handle)  # as that of loop.call_later

    run(main(), asyncio.SelectorEventLoop)


def test_a_debounced_coroutine_does_not_keep_its_closed_loop__rule8_T21() -> None:
    @aio.debounce(0.001)
    async def for_ever() -> None:
        begun.append(1)
        await asyncio.Event().wait()

    async def main() -> None:
        for_ever()
        while not begun:
            await asyncio.sleep(0.001)

    begun: list[int] = []
    loop = asyncio.SelectorEventLoop()
    gone = weakref.ref(loop)
    loop.set_exception_handler(lambda *_: None)
    loop.run_until_complete(main())
    loop.close()
    del loop
    gc.collect()
    assert gone() is None


# ---- periodic tasks -------------------------------------------------------------------------------------------------


def test_a_periodic_task_that_was_cancelled_in_its_own_call_says_so__T22() -> None:
    timer, answers = ManualTimer(), []
    beat = timer.every(10, lambda: answers.append(beat.cancel()))
    timer.advance(10)
    assert answers == [True]
    assert beat.cancelled()


def test_a_cancel_after_the_shutdown_is_false_as_for_any_task__T9_T20() -> None:
    timer = ManualTimer()
    once, beat = timer.after(10, int), timer.every(10, int)
    timer.shutdown()
    assert not once.cancel()
    assert not beat.cancel()


def test_a_periodic_task_that_cancel_many_ended_is_cancelled_once__T9_T18_T20() -> None:
    timer = ManualTimer()
    beat = timer.every(10, int)
    assert timer.cancel_many([beat]) == 1
    assert not beat.cancel()


def test_cancel_many_ends_a_series_in_its_own_call_as_cancel_does__T18_T20() -> None:
    timer, calls = ManualTimer(), []
    beat = timer.every(10, lambda: (calls.append(1), timer.cancel_many([beat])))
    timer.advance(30)
    assert len(calls) == 1


def test_a_periodic_task_that_ended_is_refused_or_runs__T7_T20_T22() -> None:
    timer, calls = ManualTimer(), []
    beat = timer.every(10, calls.append, 1)
    assert beat.cancel()
    try:
        timer.add(beat)
    except (ValueError, RuntimeError):
        return  # an error that says so would do, too
    timer.advance(100)
    assert calls, f"it was added, counted as expired ({timer.stats()['expired']}) and never called"


def test_a_start_before_the_clocks_zero_keeps_its_instants_or_is_refused__T13_T20() -> None:
    timer = ManualTimer()
    try:
        beat = timer.every(10, int, start_ms=-4)
    except ValueError:
        return
    assert beat.due_ms == 6  # start + n * period


# ---- await task -----------------------------------------------------------------------------------------------------


def test_the_answer_is_that_of_the_add_that_is_awaited__T22() -> None:
    begun, end = [threading.Event(), threading.Event()], [threading.Event(), threading.Event()]
    numbers = iter(range(2))

    def call() -> None:
        number = next(numbers)
        begun[number].set()
        end[number].wait(10)

    async def main() -> bool:
        task = TimerTask(0, call)
        timer.add(task)
        await asyncio.to_thread(begun[0].wait, 10)
        timer.add(task)
        await asyncio.to_thread(begun[1].wait, 10)
        wait = asyncio.ensure_future(task)  # of the second add, whose call runs
        await turns()
        end[0].set()
        await asyncio.wait([wait], timeout=0.3)
        return wait.done()

    with ThreadPoolExecutor(2) as pool, SystemTimer("x", executor=pool) as timer:
        try:
            too_early = asyncio.run(main())
        finally:
            for it in end:
                it.set()
    assert not too_early, "the wait ended while the second call runs"


# ---- many at once ---------------------------------------------------------------------------------------------------


def test_a_million_that_are_due_at_once_leave_the_loop_its_turns__T21() -> None:
    """Also the wheel's own work for them is cut into turns: processor's time, so that a busy machine does not count.

    A full collection takes 20 ms and more where other tests have left many objects, and belongs to no turn. The
    kernel's work counts as the thread's, and one interrupt may take as long. Work that is not cut is in each of three.
    """

    async def main(turns_s: list[float]) -> None:
        loop = asyncio.get_running_loop()
        at = loop.time() + 0.5
        for _ in range(1_000_000):
            loop.call_at(at, int)
        await asyncio.sleep(at - loop.time())
        timers = loop._tickwheel_timers  # type: ignore[attr-defined]
        gc.disable()
        before_s = time.thread_time()
        while len(timers):
            await asyncio.sleep(0)
            now_s = time.thread_time()
            turns_s.append(now_s - before_s)
            before_s = now_s

    def longest() -> float:
        turns_s: list[float] = []
        try:
            run(main(turns_s), aio.new_event_loop)
        finally:
            gc.enable()
        return max(turns_s) / sum(turns_s)

    assert min(longest() for _ in range(3)) < 1 / 20
