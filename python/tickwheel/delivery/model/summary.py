"""The summary of a run (rule D11): counts of messages by outcome, and the lateness of the delivered ones.

Always `resumed + accepted = delivered + cancelled + undeliverable + not_delivered`. Beyond D11: `resumed` messages
were waiting in the store already. `undeliverable` ones were refused by their destination up to the last attempt, or
are among the `expired`, and count as `dead_letters` too. `requeued` ones were dead letters, and count as accepted once
more. `rescheduled` ones have another due time, or gave their place to another; `reschedules_too_late` came after the
message was sent, or before it came. `cancels_too_late` came after the message was sent. The messages of
`cancels_unknown` have not come; these cancels are remembered. `conflicts` were known with other content. `events` came,
each once, and have `let_go` messages. Lateness is of this run. Percentiles are by nearest rank, at most a thousandth
too large: of 1, 2, 3 and 4 ms, p99 is 4.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

PERCENTILES: Final = {"p50": 0.5, "p99": 0.99, "p999": 0.999, "max": 1.0}

_WRITTEN: Final = (
    *("accepted", "delivered", "duplicates", "cancelled", "dead_letters", "resumed", "undeliverable", "not_delivered"),
    *("expired", "requeued", "rescheduled", "reschedules_too_late", "cancels_too_late", "cancels_unknown"),
    *("conflicts", "events", "let_go", "lateness_ms"),
)


@dataclass(slots=True)
class Summary:
    """The present counts. The writer adds to a count after the commit of the counted messages."""

    resumed: int = 0
    accepted: int = 0
    delivered: int = 0
    duplicates: int = 0
    cancelled: int = 0
    dead_letters: int = 0
    undeliverable: int = 0
    expired: int = 0
    requeued: int = 0
    rescheduled: int = 0
    reschedules_too_late: int = 0
    cancels_too_late: int = 0
    cancels_unknown: int = 0
    conflicts: int = 0
    events: int = 0
    let_go: int = 0
    lateness_ms: Mapping[str, float | None] = field(default_factory=lambda: percentiles([]))

    @property
    def not_delivered(self) -> int:
        """Messages that wait, or are not known to have arrived."""
        return self.resumed + self.accepted - self.delivered - self.cancelled - self.undeliverable

    def as_dict(self) -> dict[str, int | Mapping[str, float | None]]:
        """The values written to `--summary`; lateness in milliseconds."""
        return {name: getattr(self, name) for name in _WRITTEN}


def percentiles(values: Sequence[float]) -> dict[str, float | None]:
    """`p50, p99, p999, max` by nearest rank; `None` where there are no values.

    >>> percentiles([4.0, 1.0, 3.0, 2.0])
    {'p50': 2.0, 'p99': 4.0, 'p999': 4.0, 'max': 4.0}
    """
    ranked = sorted(values)
    return {name: round(ranked[rank(q, len(ranked))], 3) if ranked else None for name, q in PERCENTILES.items()}


def rank(q: float, count: int) -> int:
    """The index of the percentile among `count` values in order, from 0."""
    return math.ceil(q * count) - 1
