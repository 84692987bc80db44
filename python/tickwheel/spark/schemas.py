"""Every schema that flows through the pipeline, in one place (rules D1, S1).

RECORDS or PATHS --parse--> MESSAGES --pack--> PACKED --hold--> PACKED --unpack--> MESSAGES --hand off--> TAKEN
"""

from typing import Final

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

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

MESSAGES: Final = StructType(
    [
        StructField("id", StringType()),
        StructField("key", StringType()),
        StructField("due_ms", LongType()),
        StructField("delay_ms", DoubleType()),
        StructField("payload", BinaryType()),
        StructField("is_json", BooleanType()),
        StructField("expires_ms", LongType()),
        StructField("traceparent", StringType()),
        StructField("source", StringType()),
        StructField("line", LongType()),
        StructField("reason", StringType()),
        StructField("allowed", StringType()),
        StructField("again", BooleanType(), nullable=False),
    ]
)
"""Messages, cancels and dead letters: `tickwheel.delivery.handed.HANDED` says what each row holds."""

PACKED: Final = StructType(
    [
        StructField("shard", IntegerType(), nullable=False),
        StructField("second", LongType(), nullable=False),
        StructField("rows", BinaryType(), nullable=False),
    ]
)
"""All rows of a shard that are due in the same second, packed; rows without a due time have the second -1."""

HELD: Final = StructType([StructField("rows", BinaryType(), nullable=False)])
"""One value of the hold's list state: one micro-batch's rows of a shard and second."""

TAKEN: Final = StructType([StructField("rows", LongType(), nullable=False)])
"""The number of rows that a task has handed off."""
