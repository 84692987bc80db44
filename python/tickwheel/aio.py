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
            ended.exception()  # looked at: a future that nothing awaits any more is no error
        else:
            ended.set_result(in_time)

    def tell(in_time: bool | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nothing waits any more
            loop.call_soon_threadsafe(settle, in_time)

    number = purgatory._watch(operation, keys, tell)
    try:
        return await ended
    except OperationCancelled:
        raise  # it is the caller's that took it out
    except BaseException:
        # Only if it is still in this wait: by now it may wait elsewhere, for another caller.
        if number is not None:
            purgatory._cancel_wait(operation, number)
        raise
