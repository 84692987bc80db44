"""Timers for tests: `ManualTimer`, the same wheel on a clock that only the caller moves.

>>> from tickwheel.testing import ManualTimer
>>> timer = ManualTimer()
>>> _ = timer.after(5, print, "five")
>>> timer.advance(5)
five
1
"""

from tickwheel._native import ManualTimer

__all__ = ["ManualTimer"]
