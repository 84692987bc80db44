"""The timers that are measured, by name. Each is made only in the process that measures it."""

from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Final

from ..side import Side


@dataclass(frozen=True)
class Peer:
    """How to make a timer, and how many timers it can take in reasonable time."""

    maker: str
    """`module:function` in this package."""

    package: str = ""
    """The package to install; empty for the standard library, and for timers that are written here."""

    most: int | None = None


TICKWHEEL: Final = "tickwheel"
WITH_SLACK: Final = "tickwheel, slack_us=1000"

PEERS: Final = {
    TICKWHEEL: Peer("wheel:with_defaults", "tickwheel"),
    WITH_SLACK: Peer("wheel:with_slack", "tickwheel"),
    "asyncio": Peer("loops:of_asyncio"),
    "uvloop": Peer("loops:of_uvloop", "uvloop"),
    "rloop": Peer("loops:of_rloop", "rloop"),
    "heapq": Peer("heap:own_thread"),
    "tornado": Peer("tornado_loop:io_loop", "tornado", most=200_000),
    "twisted": Peer("twisted_reactor:epoll", "Twisted", most=200_000),
    "APScheduler": Peer("scheduler:background", "APScheduler", most=2_000),
    "threading.Timer": Peer("threads:one_each", most=1_000),
}


def make(name: str) -> Side:
    """A new timer. Only its own package is imported."""
    side = resolve_name(f"{__name__}.{PEERS[name].maker}")()
    assert isinstance(side, Side)
    return side
