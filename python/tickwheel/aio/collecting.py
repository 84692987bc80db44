"""The garbage collector sees pending handles before a full collection, and not otherwise: see `loop_timers.rs`."""

import gc
import sys
import weakref
from collections.abc import Mapping
from typing import Any, Final

from tickwheel._native import LoopTimers

_FULL: Final = 2 if sys.version_info < (3, 14) else 1  # since then a collection by itself has the old ones in parts
_known: "weakref.WeakSet[LoopTimers]" = weakref.WeakSet()


def know(timers: LoopTimers) -> None:
    """From now on what others hold of these is shown to the collector in time."""
    _known.add(timers)
    if _before not in gc.callbacks:
        gc.callbacks.append(_before)


def _before(phase: str, info: Mapping[str, Any]) -> None:
    if phase == "start" and info["generation"] >= _FULL:
        for timers in [*_known]:
            timers._show_held()
