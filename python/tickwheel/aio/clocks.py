"""Which loops the wheel can serve: loops with the time of the monotonic clock, because the wheel reads that clock
itself.

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
    return _is_known(loop, "time")


def has_own_timers(kind: type) -> bool:
    """Whether a class of loops has a `call_at` or `call_later` of its own, which wants to be called."""
    return not (_is_known(kind, "call_at") and _is_known(kind, "call_later"))


def _is_known(kind: type, name: str) -> bool:
    method, uvloop = getattr(kind, name, None), sys.modules.get("uvloop")
    known = [asyncio.BaseEventLoop] if uvloop is None else [asyncio.BaseEventLoop, uvloop.Loop]
    return any(method is getattr(it, name) for it in known)
