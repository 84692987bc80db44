"""What became of everything (rule D11): counts, and the lateness of what was delivered.

Always `resumed + accepted = delivered + cancelled + undeliverable + not_delivered`. Beyond D11: `resumed` was
waiting in the store already; `undeliverable` was refused by its destination to the last attempt, `dead_letters` counts
it too; `cancels_too_late` came when the message had gone out; the message of `cancels_unknown` did not come, they are
remembered. Lateness is of this run, from the ledger; percentiles are nearest-rank: of 1, 2, 3 and 4 ms, p99 is 4.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Final

PERCENTILES: Final = {"p50": 0.5, "p99": 0.99, "p999": 0.999, "max": 1.0}


@dataclass(slots=True)
class Summary:
    """Counts as they stand; the writer adds to them once what they count is committed."""

    resumed: int = 0
    accepted: int = 0
    delivered: int = 0
    duplicates: int = 0
    cancelled: int = 0
    dead_letters: int = 0
    undeliverable: int = 0
    cancels_too_late: int = 0
    cancels_unknown: int = 0
    lateness_ms: Mapping[str, float | None] = field(default_factory=lambda: percentiles([]))

    def add(self, other: "Summary") -> None:
        """Count what the other counted; not its lateness."""
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def not_delivered(self) -> int:
        """It waits, or is not known to have arrived."""
        return self.resumed + self.accepted - self.delivered - self.cancelled - self.undeliverable

    def as_dict(self) -> dict[str, int | Mapping[str, float | None]]:
        """As it is written to `--summary`; lateness in milliseconds."""
        return {
            "accepted": self.accepted,
            "delivered": self.delivered,
            "duplicates": self.duplicates,
            "cancelled": self.cancelled,
            "dead_letters": self.dead_letters,
            "resumed": self.resumed,
            "undeliverable": self.undeliverable,
            "not_delivered": self.not_delivered,
            "cancels_too_late": self.cancels_too_late,
            "cancels_unknown": self.cancels_unknown,
            "lateness_ms": self.lateness_ms,
        }


_COUNTS: Final = [part.name for part in fields(Summary) if part.name != "lateness_ms"]


def percentiles(values: Sequence[float]) -> dict[str, float | None]:
    """`p50, p99, p999, max` by nearest rank; `None` where there are no values.

    >>> percentiles([4.0, 1.0, 3.0, 2.0])
    {'p50': 2.0, 'p99': 4.0, 'p999': 4.0, 'max': 4.0}
    """
    ranked = sorted(values)
    return {name: round(ranked[rank(q, len(ranked))], 3) if ranked else None for name, q in PERCENTILES.items()}


def rank(q: float, count: int) -> int:
    """Where the percentile stands among so many values in order, counted from 0."""
    return math.ceil(q * count) - 1
