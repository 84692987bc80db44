"""Every schema that flows through the pipeline, in one place (rules D1, S1).

RECORDS or PATHS --parse--> MESSAGES --split--> PIECES --hold--> NEAR --hand off--> TOLD
"""

from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from tickwheel.delivery.read.hand_off_rows import HANDED

RECORDS: Final = StructType(
    [
        StructField("value", BinaryType()),
        StructField("source", StringType()),
        StructField("line", LongType()),
    ]
)
"""Single NDJSON records, each with its place: for Kafka, topic and partition, and the offset."""

PATHS: Final = StructType([StructField("path", StringType())])
"""Files to read; the task that has the row reads the whole file."""

MESSAGES: Final[StructType] = from_arrow_schema(HANDED.append(pa.field("partition", pa.int32(), nullable=False)))
"""Messages, cancels and dead letters, with the columns of `tickwheel.delivery.read.hand_off_rows.HANDED`."""

PIECES: Final = StructType(
    [
        StructField("shard", IntegerType(), nullable=False),
        StructField("rows", BinaryType()),
    ]
)
"""Rows of a shard, packed; null for a visit without any."""

INDEX: Final = StructType([StructField("index", BinaryType(), nullable=False)])
CHUNK_NUMBER: Final = StructType([StructField("number", LongType(), nullable=False)])
CHUNK: Final = StructType([StructField("rows", BinaryType(), nullable=False)])
"""The hold's state: an index for each shard, and its chunks by number."""

NEAR: Final = StructType(
    [
        StructField("shard", IntegerType(), nullable=False),
        StructField("rows", BinaryType()),
        StructField("taker", StringType()),
        StructField("store_id", StringType()),
        StructField("waiting", LongType()),
        StructField("given", LongType()),
        StructField("due_ms", LongType()),
        StructField("due_within", ArrayType(LongType(), containsNull=False)),
        StructField("went_back", BooleanType()),
    ]
)
"""What a visit to a shard gives: packed rows for its taker, by address and store; and a row without any, with how many
messages wait and are given, when the first that waits is due, how many are due within each of `DUE_WITHIN`, and
whether the deliverer's store is an older copy of itself.
"""

DUE_WITHIN: Final = {"1m": 60_000, "1h": 3_600_000, "1d": 86_400_000}
"""In milliseconds."""

TOLD: Final = StructType(
    [
        *(field for field in NEAR if field.name not in ("rows", "store_id")),
        StructField("sent", LongType(), nullable=False),
        StructField("error", StringType()),
    ]
)
"""What became of a shard's visit: how many messages its taker took, and why not all, if it did not."""
