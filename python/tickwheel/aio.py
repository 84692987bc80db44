"""Waiting from asyncio: what `DelayedOperationPurgatory.wait` does."""

import asyncio
import contextlib
from collections.abc import Hashable, Iterable

from tickwheel._native import DelayedOperation, DelayedOperationPurgatory, OperationCancelled

__all__: list[str] = []


async def wait(purgatory: DelayedOperationPurgatory, operation: DelayedOperation, keys: Iterable[Hashable]) -> bool:
    """Watch `operation` and wait for it; whether it completed in time."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[bool] = loop.create_future()

    def settle(in_time: bool | None) -> None:
        if ended.done():
            return
        if in_time is None:
            text = f"{type(operation).__name__} was taken out of purgatory '{purgatory.name}' before it was complete"
            ended.set_exception(OperationCancelled(text))
            ended.exception()  # where nobody waits any more, nobody is to be told that nobody was
        else:
            ended.set_result(in_time)

    def tell(in_time: bool | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits any more
            loop.call_soon_threadsafe(settle, in_time)

    purgatory.try_complete_else_watch(operation, keys)
    try:
        operation._when_ended(tell)
        return await ended
    except OperationCancelled:
        raise  # it is somebody else's now
    except BaseException:
        operation.cancel()
        raise
