"""Figures of recorded timer events (rule S6): what happened by minute, and on each level of the wheel.

The recordings are files of `tickwheel.recording`. `read_events` converts their times to the wall clock, with the wall
time that each recording has of its start.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from tickwheel.analysis.figures import MINUTE_MS, Figure, counted, percentiles, start_of
from tickwheel.analysis.shown import Timer
from tickwheel.pages.steps import step_ms
from tickwheel.recording import About, read_recording
from tickwheel.spark.analytics.schemas import EVENTS
from tickwheel.spark.analytics.tables import SparkTables

EVENTS_TABLE: Final = "tickwheel_events"

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


def timer_by_minute(step: int = MINUTE_MS) -> Figure:
    """The number of events of each kind, by the time of the event. `cascades`: how often tasks moved from a level above
    the finest to a lower level or to the front.
    """
    kinds = ", ".join(counted(f"kind = '{kind}'") + f" AS {name}" for name, kind in KINDS.items())
    return Figure(
        f"SELECT {start_of('at_ms', step)} AS start_ms, {kinds}, "
        f"ifnull(sum(CASE WHEN level > 1 THEN tasks END), 0) AS cascades FROM {EVENTS_TABLE} GROUP BY 1",
        "start_ms",
    )


def timer_levels() -> Figure:
    """For each level (0 is the front): the tasks put there, their lateness, and the tasks that left for a lower one."""
    late = f"""
        SELECT put.level, ran.at_us - ran.due_us AS lateness_us FROM {EVENTS_TABLE} AS ran
        JOIN {EVENTS_TABLE} AS put USING (recording, number)
        WHERE ran.kind = 'expired' AND put.kind IN ('added', 'moved')
    """
    return Figure(
        f"""
        WITH moves AS (
            SELECT level, {counted("kind IN ('added', 'moved')")} AS put, {counted("kind = 'cascaded'")} AS flushed,
            ifnull(sum(tasks), 0) AS cascaded FROM {EVENTS_TABLE} WHERE level IS NOT NULL GROUP BY level
        ),
        late_levels AS ({percentiles(late, "level")})
        SELECT moves.*, ifnull(messages, 0) AS expired, late_levels.* EXCEPT (level, messages)
        FROM moves LEFT JOIN late_levels ON moves.level = late_levels.level
        """,
        "level",
    )


def timer_of(events: SparkTables, new: Path, say: Callable[[str], object]) -> Timer:
    """Write the figures to the folder `new`, and return what the page shows of them."""
    for name, figure in {"timer_by_minute": timer_by_minute(), "timer_levels": timer_levels()}.items():
        say(f"Making {name}.parquet.")
        events.write(figure, new / f"{name}.parquet")
    [span] = events.rows(Figure(f"SELECT min(at_ms) AS first_ms, max(at_ms) AS last_ms FROM {EVENTS_TABLE}"))
    step = 0 if span["first_ms"] is None else step_ms(span["first_ms"], span["last_ms"])
    return Timer(
        levels=pq.read_table(new / "timer_levels.parquet").to_pylist(),
        step_ms=step,
        over_time=events.rows(timer_by_minute(step)) if step else [],
    )
