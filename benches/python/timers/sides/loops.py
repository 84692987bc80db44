"""The asyncio event loops: Python's own, uvloop, rloop.

All have `call_later`, and `call_soon_threadsafe` for other threads. They differ in what remains after a cancel:
asyncio marks the handle, and removes the marked ones in a later turn, when they are more than half of its heap;
uvloop frees the libuv timer in the next turn; rloop keeps all of it until it would have been due.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Literal

from ..side import Side, nothing


def of_asyncio() -> Side:
    return _side(asyncio.new_event_loop(), time.monotonic)


def of_uvloop() -> Side:
    import uvloop

    # Its own clock stops during a turn, but counts from the same moment.
    return _side(uvloop.new_event_loop(), time.monotonic)


def of_rloop() -> Side:
    import rloop

    loop: asyncio.AbstractEventLoop = rloop.new_event_loop()
    return _side(loop, loop.time, "when due", "a cancelled timer stays in its heap, callback and all, until it is due")


async def run(work: Iterator[float]) -> None:
    """Run a work inside the loop."""
    for seconds in work:
        await asyncio.sleep(seconds)


def _side(
    loop: asyncio.AbstractEventLoop,
    clock: Callable[[], float],
    freed: Literal["at once", "when due"] = "at once",
    after_cancel: str = "",
) -> Side:
    handle = loop.call_later(3600, nothing)
    handle.cancel()
    return Side(
        add=loop.call_later,
        cancel=type(handle).cancel,
        at=loop.call_at,
        clock=clock,
        drive=lambda work: loop.run_until_complete(run(work)),
        call_in_loop=loop.call_soon_threadsafe,
        freed=freed,
        after_cancel=after_cancel,
    )
