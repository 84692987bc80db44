"""Which loops the wheel can serve: those that tell the time of the monotonic clock, which it reads by itself.

And on Linux alone, whose timerfd wakes the loop. Elsewhere a loop keeps its own timers, and all works as they do.
"""

import asyncio
import sys
from typing import Final

_HAS_TIMERFD: Final = sys.platform == "linux"


def can_serve(loop: object) -> bool:
    """Whether a loop, or a class of loops, reads the monotonic clock: asyncio's do, and uvloop's, to a millisecond."""
    if not _HAS_TIMERFD:
        return False
    if not isinstance(loop, type):
        return "time" not in vars(loop) and can_serve(type(loop))
    time = getattr(loop, "time", None)
    uvloop = sys.modules.get("uvloop")
    return time is asyncio.BaseEventLoop.time or (uvloop is not None and time is uvloop.Loop.time)
