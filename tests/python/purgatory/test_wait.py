"""P8: `await purgatory.wait(operation, keys)` returns whether it completed in time."""

import asyncio
import contextlib
import inspect
from collections.abc import Coroutine
from typing import Any

import pytest

from purgatory.operations import EMPTY, HOUR, Op, counts
from tickwheel import DelayedOperation, DelayedOperationPurgatory, OperationCancelled, SystemTimer, TimerClosed
from tickwheel.testing import ManualTimer

pytestmark = pytest.mark.timeout(40)


def run(main: Coroutine[Any, Any, object]) -> None:
    asyncio.run(asyncio.wait_for(main, 20))


async def watched(purgatory: DelayedOperationPurgatory, count: int = 1) -> None:
    while len(purgatory) != count:
        await asyncio.sleep(0)


def test_true_in_time_and_false_when_it_expires__P8() -> None:
    async def main() -> None:
        timer = ManualTimer()
        purgatory = DelayedOperationPurgatory("wait", timer)
        in_time, expires = Op(50), Op(50)
        tasks = [asyncio.create_task(purgatory.wait(operation, ["key"])) for operation in (in_time, expires)]
        await watched(purgatory, 2)
        in_time.is_ready = True
        assert purgatory.check_and_complete("key") == 1
        timer.advance(50)
        assert await asyncio.gather(*tasks) == [True, False]
        assert (in_time.log, expires.log) == (["complete"], ["complete", "expire"])
        assert counts(purgatory) == EMPTY

    run(main())


def test_true_at_once_for_what_is_ready_or_complete_already_and_false_for_what_has_expired__P8() -> None:
    async def main() -> None:
        timer = ManualTimer()
        purgatory = DelayedOperationPurgatory("wait", timer)
        assert await purgatory.wait(Op(ready=True), ["key"]) is True
        complete = Op()
        complete.force_complete()
        assert await purgatory.wait(complete, ["key"]) is True
        assert await purgatory.wait(complete, ["key"]) is True
        expired = Op(5)
        purgatory.try_complete_else_watch(expired, ["key"])
        timer.advance(5)
        assert await purgatory.wait(expired, ["key"]) is False

    run(main())


def test_it_returns_after_the_callbacks_whatever_they_raise__P8() -> None:
    class Fails(Op):
        def on_complete(self) -> None:
            super().on_complete()
            raise ValueError

        def on_expiration(self) -> None:
            super().on_expiration()
            raise ValueError

    async def main() -> None:
        told: list[Any] = []
        with DelayedOperationPurgatory("wait", on_error=lambda *error: told.append(error)) as purgatory:
            operation = Fails(5)
            assert await purgatory.wait(operation, ["key"]) is False
            assert (operation.log, len(told)) == (["complete", "expire"], 2)

    run(main())


@pytest.mark.parametrize("executor", ["own", "loop"])
def test_on_a_real_timer_from_other_threads_and_from_the_loop_itself__P8(executor: str) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with SystemTimer("wait", executor=loop if executor == "loop" else None) as timer:
            purgatory = DelayedOperationPurgatory("wait", timer)
            operations = [Op(20 if number % 2 else HOUR) for number in range(20)]
            tasks = [asyncio.create_task(purgatory.wait(op, [number])) for number, op in enumerate(operations)]
            await watched(purgatory, 20)
            for operation in operations[::2]:
                operation.is_ready = True

            def check() -> None:
                for number in range(0, 20, 2):
                    assert purgatory.check_and_complete(number) == 1

            await asyncio.to_thread(check)
            assert await asyncio.gather(*tasks) == [True, False] * 10
            assert counts(purgatory) == EMPTY

    run(main())


def test_a_cancelled_task_takes_the_operation_out__P8() -> None:
    async def main() -> None:
        timer = ManualTimer()
        purgatory = DelayedOperationPurgatory("wait", timer)
        operation = Op(50)
        task = asyncio.create_task(purgatory.wait(operation, ["a", "b"]))
        await watched(purgatory)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (counts(purgatory), len(timer), operation.is_completed) == (EMPTY, 0, False)
        timer.advance(1000)
        assert operation.log == []

    run(main())


def test_a_timeout_of_asyncio_takes_it_out__P8() -> None:
    async def main() -> None:
        purgatory = DelayedOperationPurgatory("wait", ManualTimer())
        operation = Op()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await purgatory.wait(operation, ["key"])
        assert (counts(purgatory), operation.is_completed) == (EMPTY, False)
        task = asyncio.create_task(purgatory.wait(operation, ["key"]))  # and again
        await watched(purgatory)
        operation.force_complete()
        assert await task is True

    run(main())


@pytest.mark.parametrize("how", ["cancel", "cancel_for_key", "shutdown"])
def test_who_waits_for_an_operation_that_is_taken_out_is_told_so__P8(how: str) -> None:
    async def main() -> None:
        timer = ManualTimer()
        purgatory = DelayedOperationPurgatory("wait", timer)
        operation = Op()
        task = asyncio.create_task(purgatory.wait(operation, ["key"]))
        await watched(purgatory)
        taken = {
            "cancel": lambda: [operation.cancel()],
            "cancel_for_key": lambda: purgatory.cancel_for_key("key"),
            "shutdown": purgatory.shutdown,
        }[how]()
        assert taken in ([True], [operation])
        with pytest.raises(OperationCancelled, match=r"^Op was taken out of purgatory 'wait' before"):
            await task
        assert (counts(purgatory), len(timer), operation.log) == (EMPTY, 0, [])

    run(main())


def test_a_repr_that_fails_keeps_nobody_waiting__P8() -> None:
    """The error that says what was taken out shows the operation; it has to come all the same."""

    class Secret(Op):
        def __repr__(self) -> str:
            raise ValueError

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        purgatory = DelayedOperationPurgatory("wait", ManualTimer())
        operation = Secret()
        task = asyncio.create_task(purgatory.wait(operation, ["key"]))
        await watched(purgatory)
        assert operation.cancel()
        done, _ = await asyncio.wait([task], timeout=1)
        assert done == {task}, "it waits for ever"
        assert isinstance(task.exception(), OperationCancelled)

    run(main())


@pytest.mark.parametrize("how", ["watch", "wait"])
def test_what_was_taken_out_and_is_watched_again_stays_so_when_the_waiter_ends__P4_P8(how: str) -> None:
    """The caller that took it out owns it now; its waiter, which is called then, must not take it out once more."""

    async def main() -> None:
        timer = ManualTimer()
        here, there = (DelayedOperationPurgatory(name, timer) for name in ("here", "there"))
        operation = Op()
        first = asyncio.create_task(here.wait(operation, ["key"]))
        await watched(here)
        assert here.cancel_for_key("key") == [operation]
        second = None
        if how == "watch":
            there.try_complete_else_watch(operation, ["again"])
        else:
            second = asyncio.create_task(there.wait(operation, ["again"]))
            await watched(there)
        with pytest.raises(OperationCancelled):
            await first
        assert counts(there) == (1, 1, 1, 1), "the waiter took it out of its new place"
        operation.is_ready = True
        assert there.check_and_complete("again") == 1
        assert second is None or await second is True

    run(main())


def test_one_operation_is_waited_for_once_and_the_first_waiter_goes_on__P8() -> None:
    async def main() -> None:
        purgatory = DelayedOperationPurgatory("wait", ManualTimer())
        operation = Op()
        task = asyncio.create_task(purgatory.wait(operation, ["key"]))
        await watched(purgatory)
        with pytest.raises(ValueError, match="waits in a purgatory already"):
            await purgatory.wait(operation, ["key"])
        assert counts(purgatory) == (1, 1, 1, 1)
        operation.is_ready = True
        assert purgatory.check_and_complete("key") == 1
        assert await task is True

    run(main())


def test_with_the_timer_not_enabled_it_waits_until_the_event__P2_P8() -> None:
    async def main() -> None:
        timer = ManualTimer()
        purgatory = DelayedOperationPurgatory("wait", timer, timer_enabled=False)
        operation = Op(1)
        task = asyncio.create_task(purgatory.wait(operation, ["key"]))
        await watched(purgatory)
        assert (counts(purgatory), len(timer)) == ((1, 0, 1, 1), 0)
        timer.advance(10**9)
        operation.is_ready = True
        purgatory.check_and_complete("key")
        assert await task is True

    run(main())


def test_errors_are_those_of_a_watching_call__P8() -> None:
    class Fails(Op):
        def try_complete(self) -> bool:
            raise ZeroDivisionError

    async def main() -> None:
        purgatory = DelayedOperationPurgatory("wait", ManualTimer())
        calls: list[tuple[Any, Any, type[Exception]]] = [
            (5, ["key"], TypeError),
            (Op(), "key", TypeError),
            (Op(), [], ValueError),
            (Op(), [[]], TypeError),
            (Fails(), ["key"], ZeroDivisionError),
        ]
        for operation, keys, error in calls:
            with pytest.raises(error):
                await purgatory.wait(operation, keys)
            assert counts(purgatory) == EMPTY
        purgatory.shutdown()
        with pytest.raises(TimerClosed):
            await purgatory.wait(Op(), ["key"])

    run(main())
    purgatory = DelayedOperationPurgatory("wait", ManualTimer())
    waiting = purgatory.wait(Op(), ["key"])
    assert inspect.iscoroutine(waiting)
    with contextlib.suppress(RuntimeError):
        waiting.send(None)  # no loop runs
    assert counts(purgatory) == EMPTY


def test_nothing_of_a_waiter_is_left__P8() -> None:
    async def main() -> None:
        purgatory = DelayedOperationPurgatory("wait", ManualTimer())
        operation: DelayedOperation = Op()
        for _ in range(3):
            task = asyncio.create_task(purgatory.wait(operation, ["key"]))
            await watched(purgatory)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        told: list[Any] = []
        purgatory._watch(operation, ["key"], told.append)
        assert operation.cancel()
        assert told == [None]
        operation.force_complete()
        assert told == [None]

    run(main())
