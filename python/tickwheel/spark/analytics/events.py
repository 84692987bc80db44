"""Figures of recorded timer events (rule S6): what happened by minute, and on each level of the wheel.

The recordings are files of `tickwheel.recording`. `read_events` converts their times to the wall clock, with the wall
time that each recording has of its start.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812, the usual name
from pyspark.sql.pandas.types import to_arrow_schema

from tickwheel.analysis.figures import MINUTE_MS
from tickwheel.recording import About, read_recording
from tickwheel.spark.analytics.figures import counted, in_order, percentiles, start_of
from tickwheel.spark.analytics.schemas import EVENTS

KINDS: Final = {"added": "added", "moved": "moved", "cancelled": "cancelled", "expired": "expired", "wake_ups": "woke"}


def read_events(session: SparkSession, recordings: Sequence[tuple[Path, About]]) -> DataFrame:
    """The events of all recordings: `EVENTS`. Errors, when it is collected: `BadRecording`, inside Spark's."""
    rows = [
        (number, str(path.absolute()), about.wall_ms, about.at_us) for number, (path, about) in enumerate(recordings)
    ]
    files = session.createDataFrame(rows, "recording int, path string, wall_ms long, from_us long")
    return files.repartition(len(rows)).mapInArrow(_read_all, EVENTS)


def _read_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a worker. pyarrow reads the files, because Spark takes some characters of a path for a pattern."""
    for batch in batches:
        for row in batch.to_pylist():
            for events in read_recording(row["path"]):
                yield _placed(events, row)


def _placed(events: pa.RecordBatch, file: Mapping[str, Any]) -> pa.RecordBatch:
    since_ms = pc.divide(pc.subtract(events["at_us"], file["from_us"]), 1000)
    columns = {
        **{name: events[name] for name in events.schema.names},
        "recording": pa.repeat(pa.scalar(file["recording"], pa.int32()), len(events)),
        "at_ms": pc.add(since_ms, file["wall_ms"]),
        "kind": events["kind"].cast(pa.string()),
        "level": events["level"].cast(pa.int32()),
    }
    schema = to_arrow_schema(EVENTS)
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def timer_by_minute(events: DataFrame, step_ms: int = MINUTE_MS) -> DataFrame:
    """The number of events of each kind, by the time of the event."""
    found = events.groupBy(start_of("at_ms", step_ms).alias("start_ms"))
    return in_order(
        found.agg(*(counted(F.col("kind") == kind).alias(name) for name, kind in KINDS.items()), _cascades()),
        "start_ms",
    )


def timer_levels(events: DataFrame) -> DataFrame:
    """For each level (0 is the front): the tasks put there, their lateness, and the tasks that left for a lower one."""
    is_put = F.col("kind").isin("added", "moved")
    moves = events.groupBy("level").agg(
        counted(is_put).alias("put"),
        counted(F.col("kind") == "cascaded").alias("flushed"),
        F.coalesce(F.sum("tasks"), F.lit(0)).alias("cascaded"),
    )
    put = events.where(is_put).select("recording", "number", "level")
    ran = events.where(F.col("kind") == "expired").select(
        "recording", "number", (F.col("at_us") - F.col("due_us")).alias("lateness_us")
    )
    late = percentiles(ran.join(put, ["recording", "number"]), "level").withColumnRenamed("messages", "expired")
    found = moves.where(F.col("level").isNotNull()).join(late, "level", "left").fillna(0, ["expired"])
    return in_order(found, "level")


def _cascades() -> F.Column:
    """How often tasks moved from a level above the finest to a lower level or to the front."""
    return F.coalesce(F.sum(F.when(F.col("level") > 1, F.col("tasks"))), F.lit(0)).alias("cascades")


EVENT_FIGURES: Final[Mapping[str, Callable[[DataFrame], DataFrame]]] = {
    "timer_by_minute": timer_by_minute,
    "timer_levels": timer_levels,
}
"""Each figure is written to a file of its name, if recordings were given."""
