"""What the page shows: the short figures as they are written, and the long ones again in fewer time steps.

A week has 10,080 minutes, and percentiles of minutes can't be combined. So the long figures are computed again in the
page's own steps (`steps_ahead`, `step_ms`), and the size of the page is bounded whatever the ledgers hold.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812, the usual name

from tickwheel.delivery.report.forecast import Forecast, steps_ahead
from tickwheel.delivery.report.lateness import BOUNDS_US, Late, Lateness
from tickwheel.delivery.report.queries import ATTEMPTS, KEYS
from tickwheel.delivery.summary import PERCENTILES
from tickwheel.pages.steps import step_ms
from tickwheel.spark.analytics.events import timer_by_minute
from tickwheel.spark.analytics.figures import due, lateness_over_time, throughput

LEDGERS: Final = 50

_SHORT: Final = (
    "ledgers",
    "outcomes",
    "lateness",
    "lateness_by_size",
    "lateness_by_key",
    "hot_keys",
    "attempts",
    "repeats",
)

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


def collect(messages: DataFrame, figures: Path, as_of_ms: int, events: DataFrame | None = None) -> Shown:
    """Collect it from the figures written to this folder, the messages, and the recorded events if there are any."""
    short = {name: pq.read_table(figures / f"{name}.parquet").to_pylist() for name in _SHORT}
    is_waiting = F.col("outcome") == "waiting"
    coming = F.when(is_waiting & (F.col("due_ms") >= as_of_ms), F.col("due_ms"))
    [span] = messages.agg(
        F.min("at_ms").alias("first_ms"),
        F.max("at_ms").alias("last_ms"),
        F.count_if(is_waiting).alias("waiting"),
        F.count(coming).alias("coming"),
    ).collect()
    step = 0 if span.first_ms is None else step_ms(span.first_ms, span.last_ms)
    return Shown(
        as_of_ms=as_of_ms,
        short=short,
        step_ms=step,
        throughput=_rows(throughput(messages, step)) if step else [],
        lateness=_lateness(messages, short, step) if short["lateness"][0]["messages"] else None,
        forecast=_forecast(messages.where(is_waiting), as_of_ms, span) if span.waiting else None,
        waiting=span.waiting,
        overdue=span.waiting - span.coming,
        timer=_timer(events, figures) if events is not None else None,
    )


def _timer(events: DataFrame, figures: Path) -> Timer:
    [span] = events.agg(F.min("at_ms").alias("first_ms"), F.max("at_ms").alias("last_ms")).collect()
    step = 0 if span.first_ms is None else step_ms(span.first_ms, span.last_ms)
    return Timer(
        levels=pq.read_table(figures / "timer_levels.parquet").to_pylist(),
        step_ms=step,
        over_time=_rows(timer_by_minute(events, step)) if step else [],
    )


def _lateness(messages: DataFrame, short: Mapping[str, Sequence[Row]], step: int) -> Lateness:
    [every] = short["lateness"]
    by_size = {row["up_to_ms"]: row["messages"] for row in short["lateness_by_size"]}
    return Lateness(
        count=every["messages"],
        lateness_ms=_named(every),
        step_ms=step,
        over_time=[
            Late(row["start_ms"], row["messages"], _named(row)) for row in _rows(lateness_over_time(messages, step))
        ],
        by_size=[by_size.get(bound / 1000, 0) for bound in BOUNDS_US],
    )


def _forecast(waiting: DataFrame, as_of_ms: int, span: Any) -> Forecast:
    """The messages due from now on; if all are overdue, as after an outage, those."""
    is_past = not span.coming
    shown = waiting if is_past else waiting.where(F.col("due_ms") >= as_of_ms)
    [ends] = shown.agg(
        F.min("due_ms").alias("first_ms"),
        F.max("due_ms").alias("last_ms"),
        F.percentile_approx("due_ms", 0.9).alias("most_ms"),  # decides the size of a step; the counts are exact
    ).collect()
    from_ms = ends.first_ms if is_past else as_of_ms
    step, end_ms = steps_ahead(from_ms, ends.most_ms, ends.last_ms)
    found = {row["start_ms"]: row["messages"] for row in _rows(due(shown.where(F.col("due_ms") < end_ms), step))}
    later = (span.waiting if is_past else span.coming) - sum(found.values())
    return Forecast(step, found, later, ends.last_ms, is_past)


def _named(row: Row) -> Mapping[str, float]:
    return {name: row[f"{name}_ms"] for name in PERCENTILES}


def _rows(few: DataFrame) -> Sequence[Row]:
    return [row.asDict() for row in few.collect()]
