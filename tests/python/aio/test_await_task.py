"""`await task` (T22): told once the call has ended, or that there will be none."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor

import pytest

from tickwheel import DelayedOperation, SystemTimer, TimerTask
from tickwheel.testing import ManualTimer


def run(main: Callable[[], Coroutine[object, object, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(50):
            await main()

    asyncio.run(limited())


async def begun(*waits: "asyncio.Task[bool]") -> None:
    """Until these wait."""
    for _ in waits:
        await asyncio.sleep(0)


def test_of_very_many_calls_at_once_the_last_one_ends_the_wait__T22() -> None:
    calls, first = 4_300, 4_200

    async def main() -> None:
        begun: list[asyncio.Event] = []

        async def call() -> None:
            begun.append(asyncio.Event())
            await begun[-1].wait()

        with SystemTimer("x", executor=asyncio.get_running_loop()) as timer:
            task = TimerTask(0, call)
            for count in range(calls):
                timer.add(task)
                while len(begun) == count:
                    await asyncio.sleep(0)
            ended: list[bool] = []

            async def wait() -> None:
                ended.append(await task)

            waiting = asyncio.ensure_future(wait())
            await asyncio.sleep(0)
            for event in begun[:first]:
                event.set()
            for _ in range(20):
                await asyncio.sleep(0)
            assert not ended
            for event in begun[first:]:
                event.set()
            await waiting
            assert ended == [True]

    run(main)


def test_a_task_is_awaited_from_another_threads_timer__T22() -> None:
    async def main() -> None:
        with SystemTimer("x") as timer:
            seen: list[int] = []
            task = timer.after(20, seen.append, 1)
            assert await task
            assert seen == [1]
            assert await task  # it has run
            assert await timer.after(0, seen.append, 2)
            added = TimerTask(1, seen.append, 3)
            timer.add(added)
            assert await added
            assert seen == [1, 2, 3]

    run(main)


def test_the_answer_comes_after_the_call_and_not_with_its_begin__T22() -> None:
    async def main() -> None:
        begins, goes_on, ended = threading.Event(), threading.Event(), []

        def call() -> None:
            begins.set()
            assert goes_on.wait(20)
            ended.append(1)

        with SystemTimer("x") as timer:
            task = timer.after(0, call)
            await asyncio.to_thread(begins.wait, 20)
            assert not task.is_pending
            wait = asyncio.ensure_future(task)
            await begun(wait)
            assert not wait.done()
            goes_on.set()
            assert await wait
            assert ended == [1]

    run(main)


@pytest.mark.parametrize("how", ["cancel", "cancel_many", "shutdown", "of a task", "periodic"])
def test_a_task_that_will_not_run_says_so__T22(how: str) -> None:
    async def main() -> None:
        timer = ManualTimer()
        task: TimerTask = timer.after(60_000, print)
        if how == "of a task":
            task = TimerTask(5, print)
            timer.add(task)
        elif how == "periodic":
            task = timer.every(50, print)
        waits = [asyncio.ensure_future(task) for _ in range(3)]
        await begun(*waits)
        match how:
            case "cancel_many":
                assert timer.cancel_many([task]) == 1
            case "shutdown":
                assert timer.shutdown() == [task]
            case _:
                assert task.cancel()
        assert [await wait for wait in waits] == [False] * 3
        assert not await task

    run(main)


def test_one_that_was_never_added_is_not_waited_for__T22() -> None:
    async def main() -> None:
        task = TimerTask(5, print)
        assert not await task
        timer = ManualTimer()
        timer.add(task)
        timer.advance(5)
        assert await task
        timer.add(task)
        assert task.cancel()
        assert not await task

    run(main)


def test_a_move_is_waited_for_and_a_failure_is_an_end__T22() -> None:
    async def main() -> None:
        failures: list[BaseException] = []
        timer = ManualTimer(on_error=lambda _, error: failures.append(error))
        task = timer.after(5, lambda: 1 / 0)
        wait = asyncio.ensure_future(task)
        await begun(wait)
        assert task.reschedule(50)
        timer.advance(49)
        await begun(wait, wait)
        assert not wait.done()
        assert not failures
        timer.advance(1)
        assert await wait
        assert [type(error) for error in failures] == [ZeroDivisionError]

    run(main)


def test_of_a_periodic_task_the_next_call_counts__T22() -> None:
    async def main() -> None:
        timer, calls = ManualTimer(), []
        beat = timer.every(10, lambda: calls.append(1))
        for count in range(1, 4):
            wait = asyncio.ensure_future(beat)
            await begun(wait)
            timer.advance(10)
            assert await wait
            assert len(calls) == count

    run(main)


def test_one_that_is_added_again_by_its_own_call_counts_with_that_call__T22() -> None:
    async def main() -> None:
        timer = ManualTimer()
        task: TimerTask = TimerTask(10, lambda: timer.add(task))
        timer.add(task)
        wait = asyncio.ensure_future(task)
        await begun(wait)
        timer.advance(10)
        assert await wait
        assert task.is_pending

    run(main)


def test_a_coroutine_has_ended_when_its_last_step_has__T22() -> None:
    async def main() -> None:
        goes_on = asyncio.Event()
        ended = []

        async def call() -> None:
            await goes_on.wait()
            ended.append(1)

        with SystemTimer("x", executor=asyncio.get_running_loop()) as timer:
            wait = asyncio.ensure_future(timer.after(0, call))
            while len(timer):
                await asyncio.sleep(0.001)
            assert not wait.done()
            goes_on.set()
            assert await wait
            assert ended == [1]

    run(main)


def test_one_that_the_executor_refuses_did_not_run__T22() -> None:
    async def main() -> None:
        pool = ThreadPoolExecutor(1)
        with SystemTimer("x", executor=pool, on_error=lambda *_: None) as timer:
            task = timer.after(20, print)
            pool.shutdown()
            assert not await task

    run(main)


def test_a_wait_that_is_given_up_leaves_nothing_in_the_task__T22() -> None:
    async def main() -> None:
        timer = ManualTimer()
        task = timer.after(60_000, print)
        gc.collect()
        for _ in range(100):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(task, 0)
            async with asyncio.timeout(5) as limit:
                wait = asyncio.ensure_future(task)
                await begun(wait)
                wait.cancel()
            assert not limit.expired()
        await asyncio.sleep(0)
        assert [kind for kind in map(type, gc.get_referents(task)) if kind.__name__ == "_Waiter"] == []
        assert task.is_pending  # who gives up waiting does not cancel it

    run(main)


def test_a_loop_that_is_closed_does_not_disturb_the_call__T22() -> None:
    timer, seen = ManualTimer(), []
    task = timer.after(5, seen.append, 1)

    async def main() -> None:
        wait = asyncio.ensure_future(task)
        await begun(wait)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    loop.run_until_complete(loop.shutdown_asyncgens())
    pending = asyncio.all_tasks(loop)
    for wait in pending:
        wait.cancel()
    loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
    loop.close()
    timer.advance(5)
    assert seen == [1]


def test_a_wait_and_its_timer_are_garbage_together__T22() -> None:
    class Held:
        pass

    def abandoned() -> weakref.ref[Held]:
        loop, timer, held = asyncio.new_event_loop(), ManualTimer(), Held()

        async def main() -> None:
            mine = held
            await timer.after(60_000, print, mine)

        wait = loop.create_task(main())
        loop.run_until_complete(begun(wait, wait))  # type: ignore[arg-type]
        wait._log_destroy_pending = False  # type: ignore[attr-defined]
        loop.close()
        return weakref.ref(held)

    gone = abandoned()
    gc.collect()
    gc.collect()
    assert gone() is None


def test_an_operation_waits_in_a_purgatory__T22() -> None:
    class Operation(DelayedOperation):
        def try_complete(self) -> bool:
            return False

        def on_complete(self) -> None: ...

    async def main() -> None:
        with pytest.raises(TypeError, match=r"await purgatory\.wait"):
            await Operation(5)

    run(main)


def test_without_a_loop_an_await_is_an_error__T22() -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        ManualTimer().after(5, print).__await__().send(None)


def test_a_task_says_on_which_timer_it_is__T22() -> None:
    timer, other = ManualTimer("a"), ManualTimer("b")
    task = TimerTask(5, print)
    assert task.timer is None
    timer.add(task)
    assert task.timer is timer
    task.cancel()
    assert task.timer is None
    other.add(task)
    assert task.timer is other
    assert other.every(5, print).timer is other
    other.advance(5)
    assert task.timer is None
    with SystemTimer("c") as system:
        assert system.after(60_000, print).timer is system
        left = system.after(0, print)
    assert left.timer is None
    kept = ManualTimer().after(5, print)
    gc.collect()
    assert kept.timer is None


def test_the_answer_comes_after_the_last_of_very_many_calls__T22() -> None:
    async def main() -> None:
        loop, events = asyncio.get_running_loop(), []

        async def call() -> None:
            event = asyncio.Event()
            events.append(event)
            await event.wait()

        with SystemTimer("x", executor=loop) as timer:
            task = TimerTask(0, call)
            for number in range(40):
                timer.add(task)
                while len(events) <= number:
                    await asyncio.sleep(0.001)
            wait = asyncio.ensure_future(task)
            await begun(wait)
            for event in events[:-1]:
                event.set()
            for _ in range(10):
                await asyncio.sleep(0)
            assert not wait.done()
            events[-1].set()
            assert await wait

    run(main)


def test_a_wait_that_nothing_else_refers_to_ends__T22() -> None:
    async def main() -> None:
        ended = []

        async def wait() -> None:
            ended.append(await task)

        timer = ManualTimer()
        task = timer.after(5, int)
        waits = asyncio.ensure_future(wait())
        await begun(waits)  # type: ignore[arg-type]
        del waits  # loops keep no task alive
        gc.collect()
        timer.advance(5)
        for _ in range(5):
            await asyncio.sleep(0)
        assert ended == [True]

    run(main)
