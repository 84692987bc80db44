"""Reads the lateness of delivered messages from the ledger: over time, and by size.

Percentiles are exact, by nearest rank. A message found at its destination after a crash has no lateness.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tickwheel._native import MAX_DUE_MS, StoreSnapshot
from tickwheel.pages.steps import step_ms

BOUNDS_US: Final = tuple(digit * 10**power for power in range(1, 18) for digit in (1, 2, 5))
"""Upper ends of the histogram's bars, ends included: 10 µs, 20, 50, to 16,000 years, so each lateness has its bar."""


@dataclass(frozen=True, slots=True)
class Late:
    """The messages delivered in the step from `start_ms`, and their lateness in milliseconds."""

    start_ms: int
    count: int
    lateness_ms: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Lateness:
    """`over_time` has only the steps with deliveries; `by_size` has one count for each of `BOUNDS_US`."""

    count: int
    lateness_ms: Mapping[str, float]
    step_ms: int
    over_time: Sequence[Late]
    by_size: Sequence[int]


def read_lateness(db: StoreSnapshot) -> Lateness | None:
    """`None` if nothing was delivered. O(rows log rows), without the GIL."""
    found = db.arrivals()
    if found is None:
        return None
    count, first_ms, last_ms = found
    step = step_ms(first_ms, last_ms)
    over_time = [Late(start_ms, size, _named(late_us)) for start_ms, size, late_us in db.lateness_by_step(step)]
    [(_, _, of_all_us)] = db.lateness_by_step(MAX_DUE_MS + 1)
    return Lateness(count, _named(of_all_us), step, over_time, db.lateness_by_size(BOUNDS_US))


def _named(late_us: Sequence[int]) -> Mapping[str, float]:
    return {name: us / 1000 for name, us in zip(("p50", "p99", "p999", "max"), late_us, strict=True)}
