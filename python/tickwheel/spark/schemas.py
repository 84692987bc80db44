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
"""NDJSON records by themselves, with where they stood: for Kafka, topic and partition, and the offset."""

PATHS: Final = StructType([StructField("path", StringType())])
"""Files to read, each whole, by the task that has its row."""

MESSAGES: Final = StructType(
    [
        StructField("id", StringType()),
        StructField("key", StringType()),
        StructField("due_ms", LongType()),
        StructField("delay_ms", DoubleType()),
        StructField("payload", BinaryType()),
        StructField("is_json", BooleanType()),
        StructField("source", StringType()),
        StructField("line", LongType()),
        StructField("reason", StringType()),
        StructField("allowed", StringType()),
        StructField("copies", IntegerType(), nullable=False),
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
"""All rows of a shard that are due in the same second, packed; those that are due at no time have the second -1."""

HELD: Final = StructType([StructField("rows", BinaryType(), nullable=False)])
"""One value of the hold's list state: what one micro-batch brought for its shard and second."""

TAKEN: Final = StructType([StructField("rows", LongType(), nullable=False)])
"""How many rows a task has handed off."""
