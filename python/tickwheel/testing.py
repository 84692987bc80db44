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

from tickwheel._native import ManualTimer
from tickwheel.aio.virtual import Deadlock, VirtualLoop

__all__ = ["Deadlock", "ManualTimer", "VirtualLoop"]
