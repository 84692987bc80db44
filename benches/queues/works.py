"""The works, and how many jobs each takes."""

from dataclasses import dataclass
from typing import Final

from benches.python.records import Figure

from .sides import BY_NAME, SIDES

RATES: Final = (500, 2_000, 8_000, 20_000)
SECONDS: Final = 5
MOST_PUT_S: Final = 5
"""So long a side may take, by its cautious rate, to hand in the jobs of a work that has no rate."""
ALL: Final = tuple(side.name for side in SIDES)


@dataclass(frozen=True)
class Late:
    """Jobs due one by one at a steady rate. They are all handed in before the first is due."""

    rate: int

    @property
    def figures(self) -> tuple[Figure, ...]:
        """Of the lateness: from when a job is due to its first line."""
        return (Figure(f"{self.rate:,}/s, p50", "ms"), Figure(f"{self.rate:,}/s, p99", "ms"))

    @property
    def sides(self) -> tuple[str, ...]:
        """Those that can be filled in time."""
        return tuple(side.name for side in SIDES if side.most_rate >= self.rate)

    def count_for(self, _side: str, count: int) -> int:
        """Those of five seconds, or `count` if these are fewer."""
        return min(self.rate * SECONDS, count)


@dataclass(frozen=True)
class Accept:
    """Jobs are handed in as fast as they are accepted. `batch` in each call."""

    name: str
    batch: int
    clients: int
    most: int

    @property
    def figures(self) -> tuple[Figure, ...]:
        """The rate."""
        return (Figure(self.name, "jobs/s", "higher"),)

    @property
    def sides(self) -> tuple[str, ...]:
        """All."""
        return ALL

    def count_for(self, side: str, count: int) -> int:
        """Fewer for a side that is slow."""
        return min(self.most, BY_NAME[side].puts_per_s * MOST_PUT_S, count)


@dataclass(frozen=True)
class Overdue:
    """Jobs that are all due when the worker starts."""

    most: int

    @property
    def figures(self) -> tuple[Figure, ...]:
        """The rate, from the start of the worker to the last job that ran."""
        return (Figure("overdue", "jobs/s", "higher"),)

    @property
    def sides(self) -> tuple[str, ...]:
        """All."""
        return ALL

    def count_for(self, side: str, count: int) -> int:
        """Fewer for a side that is slow."""
        return min(self.most, BY_NAME[side].puts_per_s * MOST_PUT_S, count)


Work = Late | Accept | Overdue

WORKS: Final[tuple[Work, ...]] = (
    *map(Late, RATES),
    Accept("accepted, batches", batch=1_000, clients=1, most=100_000),
    Accept("accepted, 32 clients", batch=1, clients=32, most=20_000),
    Overdue(most=50_000),
)
