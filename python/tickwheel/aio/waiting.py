"""Waiting from asyncio: what `DelayedOperationPurgatory.wait` and `await task` do."""

import asyncio
import contextlib
from collections.abc import Hashable, Iterable

from tickwheel._native import DelayedOperation, DelayedOperationPurgatory, OperationCancelled, TimerTask

__all__: list[str] = []


class _Waiter:
    """Passes the end of a wait to a future of a loop.

    It is an object with methods and not a closure. If the whole wait is garbage, the collector may clear this before
    the operation or the task calls it. A call of a cleared function crashes the interpreter; here only an attribute is
    missing.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, ended: "asyncio.Future[bool]", taken_out: str) -> None:
        self.loop, self.ended, self.taken_out = loop, ended, taken_out

    def __call__(self, in_time: bool | None) -> None:
        # The loop is closed, or the collector has cleared this: no wait is left.
        with contextlib.suppress(RuntimeError, AttributeError):
            self.loop.call_soon_threadsafe(self.set_future, in_time)

    def set_future(self, in_time: bool | None) -> None:
        with contextlib.suppress(AttributeError):  # as above
            if self.ended.done():
                return
            if in_time is None:
                self.ended.set_exception(OperationCancelled(self.taken_out))
                self.ended.exception()  # marks it as retrieved: a future that is not awaited any more is no error
            else:
                self.ended.set_result(in_time)


async def until_called(task: TimerTask) -> bool:
    """Wait until the call of `task` has ended. Returns whether there was one."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[bool] = loop.create_future()
    waiter = _Waiter(loop, ended, "")
    answer = task._watch(waiter)
    if answer is not None:
        return answer
    try:
        return await ended
    except BaseException:
        task._unwatch(waiter)
        raise


async def wait(purgatory: DelayedOperationPurgatory, operation: DelayedOperation, keys: Iterable[Hashable]) -> bool:
    """Watch `operation` and wait for it. Returns whether it completed in time."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[bool] = loop.create_future()
    taken_out = f"{type(operation).__name__} was taken out of purgatory '{purgatory.name}' before it was complete"
    number = purgatory._watch(operation, keys, _Waiter(loop, ended, taken_out))
    try:
        return await ended
    except OperationCancelled:
        raise  # another call took it out
    except BaseException:
        # Only if it is still in this wait: it may wait elsewhere by now, for another caller.
        if number is not None:
            purgatory._cancel_wait(operation, number)
        raise
