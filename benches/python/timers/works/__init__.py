"""The table of works: their figures and units, the sides that can do them, and how many timers they take at most."""

from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Final

from benches.python.records import Figure

from ..side import Side, Steps
from ..sides import PEERS, TICKWHEEL, WITH_SLACK
from .plan import Plan

EVERY_SIDE: Final = tuple(name for name in PEERS if name != WITH_SLACK)
OURS: Final = (TICKWHEEL,)


@dataclass(frozen=True)
class Work:
    """What one process measures."""

    maker: str
    """`module:function` in this package."""

    figures: tuple[Figure, ...]
    sides: tuple[str, ...] = EVERY_SIDE
    most: int | None = None
    shows_cancel: bool = False
    """Whether the side's note on cancels belongs to its record."""

    def count_for(self, side: str, count: int) -> int:
        """How many timers it takes on this side: `count`, or fewer on a slow one."""
        return min(bound for bound in (count, self.most, PEERS[side].most) if bound is not None)

    def start(self, side: Side, plan: Plan) -> Steps:
        """Imports the works that are needed, and no others."""
        steps: Steps = resolve_name(f"{__name__}.{self.maker}")(side, plan)
        return steps


WORKS: Final = (
    Work("adding:add", (Figure("add", "ns"),)),
    Work("adding:add_gc_off", (Figure("add, GC off", "ns"),)),
    Work("own:add_task", (Figure("add, TimerTask", "ns"),), OURS),
    Work("own:add_many", (Figure("add_many, per timer", "ns"),), OURS),
    Work("cancelling:cancel", (Figure("cancel", "ns"),), shows_cancel=True),
    Work("cancelling:cancel_calls_alone", (Figure("cancel, calls alone", "ns"),)),
    Work("cancelling:rolling_pair", (Figure("rolling pair", "ns"),), shows_cancel=True),
    Work("firing:burst_fire", (Figure("burst fire", "fires/s", "higher"),)),
    Work("firing:spread_fire", (Figure("spread fire", "ns"),), (*EVERY_SIDE, WITH_SLACK), most=100_000),
    Work("adding:add_from_another_thread", (Figure("add from another thread", "ns"),), most=100_000),
    Work(
        "holding:pending",
        (
            Figure("bytes per timer", "bytes"),
            Figure("gc.collect with 1M pending", "ms"),
            Figure("idle CPU", "µs/s"),
        ),
    ),
    Work("own:bytes_per_task", (Figure("bytes per TimerTask", "bytes"),), OURS),
    Work(
        "firing:lateness",
        (Figure("lateness p50", "µs"), Figure("lateness p99", "µs"), Figure("early", "")),
        most=2_000,
    ),
)
