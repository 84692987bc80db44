"""Waiting from asyncio: what `DelayedOperationPurgatory.wait` and `await task` do."""

import asyncio
import contextlib
from collections.abc import Hashable, Iterable
from weakref import ref

from tickwheel._native import DelayedOperation, DelayedOperationPurgatory, OperationCancelled, TimerTask

__all__: list[str] = []


class _Waiter:
    """Passes the end of a wait to a future of a loop.

    It is an object with methods and not a closure. If the whole wait is garbage, the collector may clear this before
    the operation or the task calls it. A call of a cleared function crashes the interpreter; here only an attribute is
    missing.

    The loop keeps the future, and this has a weak reference to the loop. So a loop that is closed or left is freed,
    however long the operation or the task goes on.
    """

    def __init__(self, taken_out: str = "") -> None:
        self.loop, self.taken_out = ref(asyncio.get_running_loop()), taken_out

    def __call__(self, in_time: bool | None) -> None:
        # The loop is closed or gone, or the collector has cleared this: no wait is left.
        with contextlib.suppress(RuntimeError, AttributeError):
            if (loop := self.loop()) is not None:
                loop.call_soon_threadsafe(self.set_future, in_time)

    async def until_called(self) -> bool:
        """Wait for the call. Its answer is the argument. Errors: `OperationCancelled` if that is `None`."""
        loop = asyncio.get_running_loop()
        futures = _futures_of(loop)
        ended: asyncio.Future[bool] = loop.create_future()
        futures[self] = ended
        try:
            return await ended
        finally:
            futures.pop(self, None)  # it may have been cleared, too

    def set_future(self, in_time: bool | None) -> None:
        with contextlib.suppress(AttributeError):  # as above
            ended = _futures_of(asyncio.get_running_loop()).get(self)
            if ended is None or ended.done():
                return
            if in_time is None:
                ended.set_exception(OperationCancelled(self.taken_out))
                ended.exception()  # marks it as retrieved: a future that is not awaited any more is no error
            else:
                ended.set_result(in_time)


def _futures_of(loop: asyncio.AbstractEventLoop) -> "dict[_Waiter, asyncio.Future[bool]]":
    found: dict[_Waiter, asyncio.Future[bool]] = vars(loop).setdefault("_tickwheel_waiting", {})
    return found


async def until_called(task: TimerTask) -> bool:
    """Wait until the call of `task` has ended. Returns whether there was one."""
    waiter = _Waiter()
    answer = task._watch(waiter)
    if answer is not None:
        return answer
    try:
        return await waiter.until_called()
    except BaseException:
        task._unwatch(waiter)
        raise


async def wait(purgatory: DelayedOperationPurgatory, operation: DelayedOperation, keys: Iterable[Hashable]) -> bool:
    """Watch `operation` and wait for it. Returns whether it completed in time."""
    taken_out = f"{type(operation).__name__} was taken out of purgatory '{purgatory.name}' before it was complete"
    waiter = _Waiter(taken_out)
    number = purgatory._watch(operation, keys, waiter)
    try:
        return await waiter.until_called()
    except OperationCancelled:
        raise  # another call took it out
    except BaseException:
        # Only if it is still in this wait: it may wait elsewhere by now, for another caller.
        if number is not None:
            purgatory._cancel_wait(operation, number)
        raise
