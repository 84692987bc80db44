"""For tests: time that passes when the test says so.

`ManualTimer` is the same wheel on a clock that only the caller moves:

>>> from tickwheel.testing import ManualTimer
>>> timer = ManualTimer()
>>> _ = timer.after(5, print, "five")
>>> timer.advance(5)
five
1

`VirtualLoop` is an event loop on such a timer: what sleeps an hour there is done at once.

>>> import asyncio
>>> from tickwheel.testing import VirtualLoop
>>> with asyncio.Runner(loop_factory=VirtualLoop) as runner:
...     runner.run(asyncio.sleep(3600, "an hour later"))
'an hour later'
"""

from typing import TYPE_CHECKING, Any

from tickwheel._native import ManualTimer

if TYPE_CHECKING:
    from tickwheel.aio.virtual import Deadlock, VirtualLoop

__all__ = ["Deadlock", "ManualTimer", "VirtualLoop"]


def __getattr__(name: str) -> Any:
    """The names that need asyncio, which a test of a timer alone need not import."""
    if name in ("Deadlock", "VirtualLoop"):
        from tickwheel.aio import virtual

        return getattr(virtual, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
