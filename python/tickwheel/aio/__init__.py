"""The wheel in asyncio: timers beside a running loop, and loops whose own timers are all in a wheel (T21).

>>> import asyncio
>>> from tickwheel import aio
>>> async def main():
...     late = aio.timers().call_later(0.001, print, "a millisecond has passed")
...     await aio.sleep(0.01)
>>> asyncio.run(main())
a millisecond has passed
"""

from tickwheel._native import LoopTimers, TimerHandle
from tickwheel.aio.beside import Timeout, sleep, sleep_until, timeout, timeout_at, timers
from tickwheel.aio.calling import Debounced, debounce, throttle
from tickwheel.aio.limiting import RateLimiter
from tickwheel.aio.loops import WheelTimers, new_event_loop
from tickwheel.aio.periodic import every

__all__ = [
    "Debounced",
    "LoopTimers",
    "RateLimiter",
    "Timeout",
    "TimerHandle",
    "WheelTimers",
    "debounce",
    "every",
    "new_event_loop",
    "sleep",
    "sleep_until",
    "throttle",
    "timeout",
    "timeout_at",
    "timers",
]
