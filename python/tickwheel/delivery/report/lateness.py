"""Reads the lateness of delivered messages from the ledger: over time, and by size.

Percentiles are exact, by nearest rank as in the summary. SQLite sorts, and returns each lateness once with its count,
so that memory does not grow with the ledger. A message found at its destination after a crash has no lateness.
"""

import sqlite3
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from tickwheel.delivery.store import Outcome
from tickwheel.delivery.summary import PERCENTILES, rank
from tickwheel.pages.steps import step_ms

BOUNDS_US: Final = tuple(digit * 10**power for power in range(1, 12) for digit in (1, 2, 5))
"""Upper ends of the histogram's bars, ends included: 10 µs, 20, 50, to 500,000 s; the last bar has the rest."""

_OF_DELIVERED: Final = f"FROM ledger WHERE outcome = {int(Outcome.DELIVERED)} AND lateness_us IS NOT NULL"

_Counted = tuple[int, int]  # lateness_us, messages


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


def read_lateness(db: sqlite3.Connection) -> Lateness | None:
    """`None` if nothing was delivered. O(rows log rows), mostly without the GIL."""
    [(count, first_ms, last_ms)] = db.execute(f"SELECT count(*), min(at_ms), max(at_ms) {_OF_DELIVERED}")
    if not count:
        return None
    step = step_ms(first_ms, last_ms)
    sizes = dict(db.execute(f"SELECT at_ms / ?, count(*) {_OF_DELIVERED} GROUP BY 1", (step,)))
    rows = db.execute(f"SELECT at_ms / ?, lateness_us, count(*) {_OF_DELIVERED} GROUP BY 1, 2 ORDER BY 1, 2", (step,))
    over_time = [
        Late(bucket * step, sizes[bucket], _ranked((row[1:] for row in group), sizes[bucket]))
        for bucket, group in groupby(rows, key=lambda row: row[0])
    ]
    by_size = [0] * len(BOUNDS_US)

    def every() -> Iterable[_Counted]:
        for late_us, messages in db.execute(f"SELECT lateness_us, count(*) {_OF_DELIVERED} GROUP BY 1 ORDER BY 1"):
            by_size[min(bisect_left(BOUNDS_US, late_us), len(BOUNDS_US) - 1)] += messages
            yield late_us, messages

    return Lateness(count, _ranked(every(), count), step, over_time, by_size)


def _ranked(counted: Iterable[_Counted], count: int) -> Mapping[str, float]:
    """The percentiles of values in ascending order, `count` in all; reads every value."""
    wanted = {name: rank(q, count) for name, q in PERCENTILES.items()}
    found: dict[str, float] = {}
    seen = 0
    for late_us, messages in counted:
        seen += messages
        for name, place in wanted.items():
            if place < seen and name not in found:
                found[name] = late_us / 1000
    return found
