"""What became of everything (rule D11): counts, and the lateness of what was delivered.

Always `accepted = delivered + cancelled + not_delivered`. Percentiles are nearest-rank, of unrounded values: of 1, 2, 3
and 4 ms, p50 is 2 and p99 is 4. Eight bytes a message. The names beyond D11's: `not_delivered`; `cancels_too_late` came
when the message had gone out; `cancels_unknown` are remembered, their message did not come.
"""

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

_PERCENTILES = (("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("max", 1.0))


@dataclass(slots=True)
class Summary:
    """Counts as they stand; the deliverer adds to them under its lock."""

    accepted: int = 0
    delivered: int = 0
    duplicates: int = 0
    cancelled: int = 0
    dead_letters: int = 0
    cancels_too_late: int = 0
    cancels_unknown: int = 0
    lateness_ms: "array[float]" = field(default_factory=lambda: array("d"))

    @property
    def not_delivered(self) -> int:
        """Accepted, not cancelled, and not known to have arrived."""
        return self.accepted - self.delivered - self.cancelled

    def as_dict(self) -> dict[str, int | dict[str, float | None]]:
        """As it is written to `--summary`; lateness in milliseconds, rounded to the microsecond at the very end."""
        return {
            "accepted": self.accepted,
            "delivered": self.delivered,
            "duplicates": self.duplicates,
            "cancelled": self.cancelled,
            "dead_letters": self.dead_letters,
            "not_delivered": self.not_delivered,
            "cancels_too_late": self.cancels_too_late,
            "cancels_unknown": self.cancels_unknown,
            "lateness_ms": percentiles(self.lateness_ms),
        }


def percentiles(values: Sequence[float]) -> dict[str, float | None]:
    """`p50, p99, p999, max` by nearest rank; `None` where there are no values.

    >>> percentiles([4.0, 1.0, 3.0, 2.0])
    {'p50': 2.0, 'p99': 4.0, 'p999': 4.0, 'max': 4.0}
    """
    ranked = sorted(values)
    return {name: round(ranked[math.ceil(q * len(ranked)) - 1], 3) if ranked else None for name, q in _PERCENTILES}
