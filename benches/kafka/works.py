"""The works, by the names of `benches/peers/src/plan.rs`, and the sides that can do them."""

from dataclasses import dataclass
from typing import Final

from benches.python.records import Figure

TICKWHEEL: Final = "tickwheel"
WHEEL: Final = "Kafka's wheel, no lock"
TIMER: Final = "Kafka's SystemTimer"
SIDES: Final = (TICKWHEEL, WHEEL, TIMER)

WARM_UP_ROUNDS: Final = 5
"""The whole work is done so often before the round that counts. By trial nothing gets faster after the third."""

JVM: Final = ("-XX:+UseG1GC", "-Xms2g", "-Xmx2g", "-Xmn1500m", "-XX:+AlwaysPreTouch")
"""Kafka runs on G1. The young generation has room for a round, so that nothing is collected while time is taken:
with sizes of G1's own choice *fire all* took twice as long."""

NOTES: Final = {
    TICKWHEEL: "a new process for each figure; it takes its lock at every call",
    WHEEL: f"{WARM_UP_ROUNDS} warm-up rounds before the one that counts; {' '.join(JVM)}; the tasks are there before, "
    "except in rolling time-outs",
    TIMER: f"{WARM_UP_ROUNDS} warm-up rounds, as above; its clock can't be moved by hand, so it does not fire, "
    "and each add reads it, for some 25 ns",
}


@dataclass(frozen=True)
class Work:
    """What one process measures."""

    name: str
    java: str
    """The driver's name for it."""
    sides: tuple[str, ...] = SIDES
    times: int = 1
    """As in the plan of the peers: so many times more timers than in other works."""

    @property
    def figures(self) -> tuple[Figure, ...]:
        """The one figure."""
        return (Figure(self.name, "ns"),)

    def count_for(self, _: str, count: int) -> int:
        """How many timers it takes."""
        return count * self.times


WORKS: Final = (
    Work("insert", "insert"),
    Work("cancel, one by one", "cancel"),
    Work("fire all, claimed", "fire", (TICKWHEEL, WHEEL)),
    Work("reset, one by one", "reset"),
    Work("rolling time-outs", "rolling", (TICKWHEEL, WHEEL), times=4),
)
