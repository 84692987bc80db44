"""Collects what the page shows from the written figures, and once more from the messages."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812, the usual name

from tickwheel.analysis.shown import SHORT, Row, Shown, Timer, lateness_of
from tickwheel.delivery.report.forecast import Forecast, steps_ahead
from tickwheel.pages.steps import step_ms
from tickwheel.spark.analytics.events import timer_by_minute
from tickwheel.spark.analytics.figures import due, lateness_over_time, throughput


def collect(messages: DataFrame, figures: Path, as_of_ms: int, events: DataFrame | None = None) -> Shown:
    """Collect it from the figures written to this folder, the messages, and the recorded events if there are any."""
    short = {name: pq.read_table(figures / f"{name}.parquet").to_pylist() for name in SHORT}
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
        lateness=lateness_of(short, step, _rows(lateness_over_time(messages, step)))
        if short["lateness"][0]["messages"]
        else None,
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


def _rows(few: DataFrame) -> Sequence[Row]:
    return [row.asDict() for row in few.collect()]
