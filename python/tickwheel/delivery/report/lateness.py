"""Reads the lateness of delivered messages from the ledger: over time, and by size.

Percentiles are exact, by nearest rank. SQLite sorts and ranks, on disk where it is much, so that
memory does not grow with the ledger. A message found at its destination after a crash has no lateness.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from tickwheel._native import StoreSnapshot
from tickwheel.delivery.model.entries import Outcome
from tickwheel.pages.steps import step_ms

BOUNDS_US: Final = tuple(digit * 10**power for power in range(1, 18) for digit in (1, 2, 5))
"""Upper ends of the histogram's bars, ends included: 10 µs, 20, 50, to 16,000 years, so each lateness has its bar."""

_OF_DELIVERED: Final = f"FROM ledger WHERE outcome = {int(Outcome.DELIVERED)} AND lateness_us IS NOT NULL"

_PLACES: Final = {"p50": "(count * 50 + 99) / 100", "p99": "(count * 99 + 99) / 100",
                  "p999": "(count * 999 + 999) / 1000", "max": "count"}  # fmt: skip
"""Nearest ranks, from 1, as whole numbers."""


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
    [(count, first_ms, last_ms)] = db.rows(f"SELECT count(*), min(at_ms), max(at_ms) {_OF_DELIVERED}")
    if not count:
        return None
    step = step_ms(first_ms, last_ms)
    over_time = [Late(bucket * step, size, lateness) for bucket, size, lateness in _ranked(db, "at_ms / :step", step)]
    [(_, _, lateness_ms)] = _ranked(db, "0", step)
    counts = ", ".join(f"total(lateness_us <= {bound})" for bound in BOUNDS_US)
    [up_to] = db.rows(f"SELECT {counts} {_OF_DELIVERED}")
    by_size = [int(here - before) for before, here in pairwise((0, *up_to))]
    return Lateness(count, lateness_ms, step, over_time, by_size)


def _ranked(db: StoreSnapshot, bucket: str, step: int) -> Iterable[tuple[int, int, Mapping[str, float]]]:
    """Each bucket, how many messages it has, and their percentiles."""
    places = ", ".join(f"max(lateness_us) FILTER (WHERE place = {place})" for place in _PLACES.values())
    rows = db.rows(
        f"SELECT bucket, count, {places} FROM (SELECT {bucket} AS bucket, lateness_us, "
        f"row_number() OVER (PARTITION BY {bucket} ORDER BY lateness_us) AS place, "
        f"count(*) OVER (PARTITION BY {bucket}) AS count {_OF_DELIVERED}) GROUP BY bucket ORDER BY bucket",
        step=step,
    )
    for number, size, *found_us in rows:
        yield number, size, {name: late_us / 1000 for name, late_us in zip(_PLACES, found_us, strict=True)}
