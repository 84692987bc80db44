"""Which loops the wheel can serve: those that tell the time of the monotonic clock, which it reads by itself."""

import asyncio
import sys


def is_monotonic(loop: object) -> bool:
    """Whether a loop, or a class of loops, reads the monotonic clock: asyncio's do, and uvloop's, to a millisecond."""
    if not isinstance(loop, type):
        return "time" not in vars(loop) and is_monotonic(type(loop))
    time = getattr(loop, "time", None)
    uvloop = sys.modules.get("uvloop")
    return time is asyncio.BaseEventLoop.time or (uvloop is not None and time is uvloop.Loop.time)
