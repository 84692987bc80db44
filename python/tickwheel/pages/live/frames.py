"""What a timer sends to its page: how full the wheel is, some times a second, and its figures once a second."""

import time
from typing import Any, Final

from tickwheel import Timer

# The time from one look at a full wheel to the next, in times what the look takes: no page costs much of a processor.
REST: Final = 20
COUNTS: Final = ("added", "moved", "cancelled", "expired", "wake_ups", "executor_depth", "running")


def wheel_frame(timer: Timer) -> dict[str, Any]:
    """How full the wheel is. O(pending), in steps."""
    return {"wheel": timer.occupancy()}


def figures_frame(timer: Timer) -> dict[str, Any]:
    """The counts since the timer was made, and how late its calls were."""
    stats: Any = timer.stats()
    return {
        "at_ms": time.time_ns() // 1_000_000,
        "counts": {name: stats[name] for name in COUNTS},
        "lateness_us": stats["lateness_us"],
    }
