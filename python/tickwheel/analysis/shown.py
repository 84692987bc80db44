"""What the page shows: the short figures as they are written, and the long ones again in fewer time steps.

A week has 10,080 minutes, and percentiles of minutes can't be combined. The long figures are therefore computed again
in the page's own steps (`steps_ahead`, `step_ms`). So the size of the page is bounded, whatever the ledgers hold.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tickwheel.delivery.model.summary import PERCENTILES
from tickwheel.delivery.report.forecast import Forecast
from tickwheel.delivery.report.lateness import BOUNDS_US, Late, Lateness
from tickwheel.delivery.report.queries import ATTEMPTS, KEYS

LEDGERS: Final = 50

SHORT: Final = (
    "ledgers",
    "outcomes",
    "lateness",
    "lateness_by_size",
    "lateness_by_key",
    "hot_keys",
    "attempts",
    "repeats",
)
"""The figures that are shown as they are written."""

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Shown:
    """`short`: rows of whole figures by name. `throughput`: a row for each step of `step_ms` in which a message ended.

    `overdue` counts the waiting messages that were due before `as_of_ms`.
    """

    as_of_ms: int
    short: Mapping[str, Sequence[Row]]
    step_ms: int
    throughput: Sequence[Row]
    lateness: Lateness | None
    forecast: Forecast | None
    waiting: int
    overdue: int
    timer: "Timer | None"

    def counts(self) -> Mapping[str, int]:
        """Messages by outcome, of all ledgers."""
        found: dict[str, int] = {}
        for row in self.short["outcomes"]:
            found[row["outcome"]] = found.get(row["outcome"], 0) + row["messages"]
        return found

    def attempts(self) -> Sequence[tuple[int, Mapping[str, int]]]:
        """Messages by outcome for each number of attempts, up to `ATTEMPTS`."""
        found: dict[int, dict[str, int]] = {}
        for row in self.short["attempts"]:
            by_outcome = found.setdefault(min(row["attempts"], ATTEMPTS), {})
            by_outcome[row["outcome"]] = by_outcome.get(row["outcome"], 0) + row["messages"]
        return sorted(found.items())

    def keys(self, place: str) -> Sequence[Row]:
        """The first of `lateness_by_key`, by `busiest` or `latest`."""
        placed = [row for row in self.short["lateness_by_key"] if row[place] is not None]
        return sorted(placed, key=lambda row: row[place])[:KEYS]


@dataclass(frozen=True, slots=True)
class Timer:
    """The recorded events: a row for each level, and a row for each step of `step_ms` that has an event."""

    levels: Sequence[Row]
    step_ms: int
    over_time: Sequence[Row]


def lateness_of(short: Mapping[str, Sequence[Row]], step: int, over_time: Sequence[Row]) -> Lateness:
    """Made from the short figures, and from the lateness in steps of this many milliseconds."""
    [every] = short["lateness"]
    by_size = {row["up_to_ms"]: row["messages"] for row in short["lateness_by_size"]}
    return Lateness(
        count=every["messages"],
        lateness_ms=_named(every),
        step_ms=step,
        over_time=[Late(row["start_ms"], row["messages"], _named(row)) for row in over_time],
        by_size=[by_size.get(bound / 1000, 0) for bound in BOUNDS_US],
    )


def _named(row: Row) -> Mapping[str, float]:
    return {name: row[f"{name}_ms"] for name in PERCENTILES}
