"""P8: a thousand waiters, several loops, and a loop that closes too early."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from purgatory.operations import EMPTY, HOUR, Op, counts, together
from tickwheel import DelayedOperationPurgatory
from tickwheel.testing import ManualTimer

pytestmark = pytest.mark.timeout(40)


def run(main: Coroutine[Any, Any, object]) -> None:
    asyncio.run(asyncio.wait_for(main, 20))


def test_a_thousand_wait_and_each_gets_its_own_answer__P8() -> None:
    async def main() -> None:
        with DelayedOperationPurgatory("wait") as purgatory:
            operations = [Op(30 + number % 7 if number % 3 == 0 else HOUR) for number in range(1000)]
            tasks = [asyncio.create_task(purgatory.wait(op, [number, "all"])) for number, op in enumerate(operations)]
            await asyncio.sleep(0)
            for number, operation in enumerate(operations):
                if number % 3 == 1:
                    operation.is_ready = True
                elif number % 3 == 2:
                    tasks[number].cancel()
            await asyncio.to_thread(purgatory.check_and_complete, "all")
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert results[0::3] == [False] * 334
            assert results[1::3] == [True] * 333
            assert all(isinstance(result, asyncio.CancelledError) for result in results[2::3])
            assert counts(purgatory) == EMPTY

    run(main())


def test_several_loops_in_threads_share_a_purgatory__P8() -> None:
    with DelayedOperationPurgatory("wait") as purgatory:

        async def main(thread: int) -> None:
            other = (thread + 1) % 4
            for turn in range(50):
                operation = Op(HOUR if turn % 5 else 2)
                task = asyncio.create_task(purgatory.wait(operation, [thread]))
                await asyncio.sleep(0)
                operation.is_ready = turn % 5 != 0
                purgatory.check_and_complete(other)
                purgatory.check_and_complete(thread)
                assert await task is bool(turn % 5)

        together(*[lambda thread=thread: run(main(thread)) for thread in range(4)])
        assert counts(purgatory) == EMPTY


def test_a_loop_that_closes_before_the_end_stops_nothing__P8() -> None:
    told: list[Any] = []
    timer = ManualTimer(on_error=lambda *error: told.append(error))
    purgatory = DelayedOperationPurgatory("wait", timer)
    first, second = Op(50), Op(50)
    loop = asyncio.new_event_loop()
    waiting = purgatory.wait(first, ["key"])
    task = loop.create_task(waiting)
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    purgatory.try_complete_else_watch(second, ["key"])
    timer.advance(50)
    assert (first.log, second.log, told) == (["complete", "expire"], ["complete", "expire"], [])
    assert counts(purgatory) == EMPTY
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    waiting.close()


def test_who_waits_anew_is_not_told_of_the_cancel_before__P4_P8() -> None:
    """`cancel_for_key` takes all out, then tells their waiters one by one; meanwhile one may be watched again."""

    class Hooked(asyncio.SelectorEventLoop):
        hook: Any = None

        def call_soon_threadsafe(self, *args: Any, **kwargs: Any) -> Any:
            hook, self.hook = self.hook, None
            if hook:
                hook()
            return super().call_soon_threadsafe(*args, **kwargs)

    async def main(loop: Hooked) -> None:
        here, there = (DelayedOperationPurgatory(name, ManualTimer()) for name in ("here", "there"))
        first, second = Op(), Op()
        tasks = [asyncio.create_task(here.wait(operation, ["key"])) for operation in (first, second)]
        await asyncio.sleep(0.001)
        told: list[bool | None] = []

        def again() -> None:
            there._watch(second, ["again"], told.append)

        loop.hook = again
        assert here.cancel_for_key("key") == [first, second]
        assert told == [], "it waits, and was not taken out of where it waits now"
        await asyncio.wait(tasks)
        if not second.is_completed:
            second.force_complete()
        assert told == [True]

    loop = Hooked()
    try:
        loop.run_until_complete(asyncio.wait_for(main(loop), 20))
    finally:
        loop.close()
