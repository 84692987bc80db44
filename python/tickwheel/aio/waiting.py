"""Waiting from asyncio: what `DelayedOperationPurgatory.wait`, `await task` and `Timer.aclose` do."""

import asyncio
import contextlib
from collections.abc import Hashable, Iterable
from concurrent.futures import Future
from datetime import timedelta

from tickwheel import _system_threads
from tickwheel._native import (
    DelayedOperation,
    DelayedOperationPurgatory,
    OperationCancelled,
    TaskBatch,
    Timer,
    TimerTask,
)

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


async def close(
    timer: Timer, timeout_ms: float | timedelta | None, wait_pending: bool, needs_thread: bool
) -> list[TimerTask | tuple[TaskBatch, int]]:
    """Shut the timer down in a thread of its own, so that the loop goes on meanwhile."""
    if not needs_thread:
        return timer.shutdown(timeout_ms, wait_pending=wait_pending)
    ended: Future[list[TimerTask | tuple[TaskBatch, int]]] = Future()
    ended.set_running_or_notify_cancel()  # a cancel ends the wait alone

    def shut_down() -> None:
        try:
            ended.set_result(timer.shutdown(timeout_ms, wait_pending=wait_pending))
        except BaseException as error:
            ended.set_exception(error)

    _system_threads.make_thread(shut_down, f"close-{timer.name}").start()
    try:
        return await asyncio.wrap_future(ended)
    except asyncio.CancelledError:
        timer.shutdown(0)
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
