"""P4, P8: each wait is told once how it ended, whatever else becomes of its operation."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from purgatory.operations import EMPTY, Acts, Op, counts
from tickwheel import DelayedOperationPurgatory, OperationCancelled
from tickwheel.testing import ManualTimer

pytestmark = pytest.mark.timeout(40)


def run(main: Coroutine[Any, Any, object]) -> None:
    asyncio.run(asyncio.wait_for(main, 10))


async def watched(purgatory: DelayedOperationPurgatory) -> None:
    while len(purgatory) != 1:
        await asyncio.sleep(0)


def two() -> tuple[DelayedOperationPurgatory, DelayedOperationPurgatory]:
    here, there = (DelayedOperationPurgatory(name, ManualTimer()) for name in ("here", "there"))
    return here, there


def test_a_cancelled_wait_takes_nothing_out_of_where_the_operation_waits_by_then__P4_P8() -> None:
    async def main() -> None:
        here, there = two()
        operation = Op()
        task = asyncio.create_task(here.wait(operation, ["key"]))
        await watched(here)
        assert here.cancel_for_key("key") == [operation]
        there.try_complete_else_watch(operation, ["again"])
        task.cancel()  # it has not yet heard that the operation was taken out
        await asyncio.gather(task, return_exceptions=True)
        assert counts(there) == (1, 1, 1, 1)
        operation.is_ready = True
        assert there.check_and_complete("again") == 1

    run(main())


def test_a_cancelled_wait_takes_nothing_out_of_a_later_wait_in_the_same_purgatory__P4_P8() -> None:
    async def main() -> None:
        here, _ = two()
        operation = Op()
        task = asyncio.create_task(here.wait(operation, ["key"]))
        await watched(here)
        assert operation.cancel()
        here.try_complete_else_watch(operation, ["again"])
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert counts(here) == (1, 1, 1, 1)

    run(main())


@pytest.mark.parametrize("second", ["fails", "waits"])
def test_a_wait_ends_though_another_watching_call_takes_the_operation_over__P8(second: str) -> None:
    """The operation is taken out and watched elsewhere, during the watching call of the first wait."""

    async def main() -> None:
        here, there = two()
        operation = Acts()

        def take_over() -> None:
            operation.in_try = None
            assert operation.cancel()
            if second == "waits":
                there.try_complete_else_watch(operation, ["again"])

        operation.in_try = take_over
        with pytest.raises(OperationCancelled):
            await here.wait(operation, ["key"])
        assert counts(here) == EMPTY
        assert counts(there) == ((1, 1, 1, 1) if second == "waits" else EMPTY)

    run(main())


def test_a_wait_ends_though_the_call_that_took_the_operation_over_fails_later__P8() -> None:
    async def main() -> None:
        here, there = two()
        operation = Acts()
        waits: list[asyncio.Task[bool]] = []

        def fail() -> None:
            raise ZeroDivisionError

        async def over() -> None:
            await watched(here)
            assert operation.cancel()
            operation.in_try = fail
            with pytest.raises(ZeroDivisionError):
                there.try_complete_else_watch(operation, ["again"])

        waits.append(asyncio.create_task(here.wait(operation, ["key"])))
        await over()
        with pytest.raises(OperationCancelled):
            await waits[0]

    run(main())


class Hooked(DelayedOperationPurgatory):
    """Does something right after the watching call of a wait."""

    hook: Callable[[], object] | None = None

    def then(self, result: Any) -> Any:
        if self.hook:
            self.hook()
        return result

    def try_complete_else_watch(self, operation: Any, keys: Any) -> bool:
        return bool(self.then(super().try_complete_else_watch(operation, keys)))

    def _watch(self, operation: Any, keys: Any, waiter: Any) -> int | None:
        result: int | None = self.then(super()._watch(operation, keys, waiter))
        return result


def test_a_wait_ends_though_a_watching_call_under_way_takes_the_operation_over_and_fails__P8() -> None:
    """When the first call has just returned, the second is in the middle of a try, which then raises."""
    is_trying, fails = threading.Event(), threading.Event()
    here, there = Hooked("here", ManualTimer()), DelayedOperationPurgatory("there", ManualTimer())
    operation = Acts()

    def fail() -> None:
        is_trying.set()
        assert fails.wait(20)
        raise ZeroDivisionError

    def watch() -> None:
        with pytest.raises(ZeroDivisionError):
            there.try_complete_else_watch(operation, ["again"])

    second = threading.Thread(target=watch)

    def take_over() -> None:
        assert operation.cancel()
        operation.in_try = fail
        second.start()
        assert is_trying.wait(20)

    async def main() -> None:
        here.hook = take_over
        task = asyncio.create_task(here.wait(operation, ["key"]))
        await asyncio.sleep(0)
        fails.set()
        with pytest.raises(OperationCancelled):
            await task

    run(main())
    second.join(20)
    assert (counts(here), counts(there)) == (EMPTY, EMPTY)


def test_an_error_of_a_callback_in_a_watching_call_takes_only_its_own_wait_out__P8() -> None:
    """Ctrl-C in the ending of another operation; by then this one has moved to another purgatory."""

    class Interrupts(Op):
        def on_complete(self) -> None:
            raise KeyboardInterrupt

    here, there = two()
    other, operation = Interrupts(), Acts()
    here.try_complete_else_watch(other, ["other"])

    def move() -> None:
        operation.in_try = None
        assert operation.cancel()
        there.try_complete_else_watch(operation, ["again"])
        other.force_complete()

    operation.in_try = move
    with pytest.raises(KeyboardInterrupt):
        here.try_complete_else_watch(operation, ["key"])
    assert (counts(here), counts(there)) == (EMPTY, (1, 1, 1, 1))


def test_a_loop_whose_call_raises_keeps_no_other_wait_from_its_end__P4_P8() -> None:
    """What a loop of the caller's own raises goes to `on_error`; the operations that were taken out are returned."""

    class Bad(asyncio.SelectorEventLoop):
        is_bad = False

        def call_soon_threadsafe(self, *args: Any, **kwargs: Any) -> Any:
            if self.is_bad:
                self.is_bad = False
                super().call_soon_threadsafe(*args, **kwargs)
                raise ZeroDivisionError
            return super().call_soon_threadsafe(*args, **kwargs)

    told: list[Any] = []
    loop = Bad()

    async def main() -> None:
        purgatory = DelayedOperationPurgatory("bad", ManualTimer(on_error=lambda op, error: told.append(type(error))))
        operations = [Op(), Op()]
        tasks = [asyncio.create_task(purgatory.wait(operation, ["key"])) for operation in operations]
        await asyncio.sleep(0)
        loop.is_bad = True
        assert purgatory.cancel_for_key("key") == operations
        done, _ = await asyncio.wait(tasks, timeout=2)
        assert done == set(tasks), "one of them waits for ever"
        assert told == [ZeroDivisionError]

    try:
        loop.run_until_complete(main())
    finally:
        loop.close()
