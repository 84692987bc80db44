"""Every table of the analysis, in one place: what is read from ledgers, and the figures made from it (rule S6).

`docs/spark.md` has the columns of each figure.
"""

from typing import Final

from pyspark.sql.types import BooleanType, IntegerType, LongType, StringType, StructField, StructType

LEDGER_MESSAGES: Final = StructType(
    [
        StructField("ledger", IntegerType(), nullable=False),
        StructField("seq", LongType(), nullable=False),
        StructField("key", StringType()),
        StructField("id", StringType(), nullable=False),
        StructField("due_ms", LongType(), nullable=False),
        StructField("outcome", StringType(), nullable=False),
        StructField("at_ms", LongType()),
        StructField("lateness_us", LongType()),
        StructField("attempts", IntegerType()),
        StructField("redelivered", BooleanType(), nullable=False),
    ]
)
"""Every message in the ledgers. A waiting message has no `at_ms`, `lateness_us` and `attempts`."""

EVENTS: Final = StructType(
    [
        StructField("recording", IntegerType(), nullable=False),
        StructField("at_ms", LongType(), nullable=False),
        StructField("at_us", LongType(), nullable=False),
        StructField("kind", StringType(), nullable=False),
        StructField("number", LongType()),
        StructField("due_us", LongType()),
        StructField("level", IntegerType()),
        StructField("tasks", LongType()),
    ]
)
"""Every event of the recordings (see `tickwheel.recording`). `recording` is the file's place on the command line, from
0; `at_ms` is the wall time.
"""
