"""Ledgers as a DataFrame (rule S6). Each task reads one slice of a store."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from tickwheel.analysis.ledgers import Ledger, Slice, read_slice
from tickwheel.spark.analytics.schemas import LEDGER_MESSAGES


def read_ledgers(session: SparkSession, ledgers: Sequence[Ledger]) -> DataFrame:
    """`LEDGER_MESSAGES` of all ledgers. Each slice is a task, on the host that has the files. A task needs memory for
    one slice.

    Errors, from the tasks: `StoreFailed`.
    """
    slices = [part for ledger in ledgers for part in ledger.slices]

    def read(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from arrow_of(slices[number])

    numbers = session.range(0, len(slices), 1, max(1, len(slices)))
    return numbers.mapInArrow(read, LEDGER_MESSAGES)


def arrow_of(part: Slice) -> Iterator[Any]:
    """Arrow batches of `LEDGER_MESSAGES`. Errors: `StoreFailed`."""
    schema = to_arrow_schema(LEDGER_MESSAGES)
    for rows in read_slice(part):
        columns = zip(schema, zip(*rows, strict=True), strict=True)
        yield pa.record_batch([pa.array(values, field.type) for field, values in columns], schema)
