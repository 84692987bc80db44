"""Replays every recording on every wheel (S7): from a DataFrame of settings to one of figures, in Spark's workers.

A task replays one recording on one wheel while it streams through the file, so a worker needs memory for the wheel and
one row group. The workers open the files by their paths: on a cluster, put them on storage that all hosts share.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from math import ceil
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, IntegerType, LongType, StringType, StructField, StructType

from tickwheel.recording import replay

PRECISIONS: Final = ("exact", "tick")

SETTINGS: Final = StructType(
    [
        StructField("recording", IntegerType(), nullable=False),
        StructField("path", StringType(), nullable=False),
        StructField("tick_ms", LongType(), nullable=False),
        StructField("wheel_size", LongType(), nullable=False),
        StructField("precision", StringType(), nullable=False),
    ]
)
"""What to replay on which wheel. `recording` is the file's place on the command line, from 0."""

_COUNTS: Final = ("added", "moved", "cancelled", "expired", "pending", "unknown", "wake_ups", "cascades")
_EARLY: Final = ("early_p50_us", "early_p99_us", "max_early_us")
_PEAKS: Final = ("peak_pending", "peak_bytes")
_LEVELS: Final = ArrayType(LongType(), containsNull=False)

FIGURES: Final = StructType(
    [
        *(field for field in SETTINGS if field.name != "path"),
        *(StructField(name, LongType(), nullable=False) for name in (*_COUNTS, *_EARLY, *_PEAKS)),
        *(StructField(name, _LEVELS, nullable=False) for name in ("cascaded", "flushed")),
    ]
)
"""The results: those of `tickwheel.recording.replay`, and

- `cascades`: how often a task moved from one level to a lower one or to the front. The finest level does not count,
  because every task on it goes to the front;
- `early_p50_us`, `early_p99_us`: how long before their instant tasks were released, to an eighth.
"""


def settings(
    session: SparkSession, recordings: Sequence[str], ticks_ms: Sequence[int], wheel_sizes: Sequence[int]
) -> DataFrame:
    """Each recording on each wheel, exact and to the tick: `SETTINGS`, a row for each task."""
    rows = [
        (number, path, tick_ms, wheel_size, precision)
        for (number, path), tick_ms, wheel_size, precision in product(
            enumerate(recordings), ticks_ms, wheel_sizes, PRECISIONS
        )
    ]
    return session.createDataFrame(rows, SETTINGS).repartition(len(rows))


def replayed(settings: DataFrame) -> DataFrame:
    """`SETTINGS` to `FIGURES`. Errors, when it is collected: `BadRecording` and those of `replay`, inside Spark's."""
    return settings.mapInArrow(_replay_all, FIGURES)


def _replay_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    schema = to_arrow_schema(FIGURES)
    for batch in batches:
        for row in batch.to_pylist():
            counts = replay(row["path"], row["tick_ms"], row["wheel_size"], precision=row["precision"])
            early, longest = counts["early_us"], counts["max_early_us"]
            figures = {
                **row,
                **counts,
                "cascades": sum(counts["cascaded"][1:]),
                "early_p50_us": min(percentile(early, 0.5), longest),
                "early_p99_us": min(percentile(early, 0.99), longest),
            }
            yield pa.RecordBatch.from_pylist([{name: figures[name] for name in schema.names}], schema)


def percentile(classes: Sequence[tuple[int, int]], q: float) -> int:
    """The percentile of a histogram by nearest rank. `classes`: pairs of upper bound and count, in order. 0 if empty.

    >>> percentile([(0, 5), (7, 4), (90, 1)], 0.9), percentile([(0, 5), (7, 4), (90, 1)], 0.91), percentile([], 0.5)
    (7, 90, 0)
    """
    remaining = ceil(q * sum(count for _, count in classes))
    for bound, count in classes:
        remaining -= count
        if remaining <= 0:
            return bound
    return 0
