"""Whether a loop's clock is the system's monotonic one, which the wheel can read by itself."""

import asyncio
import sys
from collections.abc import Callable


def clock_of(loop: asyncio.AbstractEventLoop) -> Callable[[], float] | None:
    """`loop.time` where it is a clock of its own, as in tests; `None` where it reads the monotonic clock."""
    return None if is_monotonic(type(loop)) and "time" not in vars(loop) else loop.time


def is_monotonic(kind: type) -> bool:
    """Whether the loops of this class read the monotonic clock: asyncio's, and uvloop's, to a millisecond."""
    time = getattr(kind, "time", None)
    if time is asyncio.BaseEventLoop.time:
        return True
    uvloop = sys.modules.get("uvloop")
    return uvloop is not None and time is uvloop.Loop.time
