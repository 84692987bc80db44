"""Parses what a source gives into `MESSAGES` (rules D1, D2), with the readers of one-process delivery, in the workers.

A record that breaks the schema becomes a dead letter, a row like any other, and the query goes on.
"""

import io
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import unquote_to_bytes, urlsplit

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812, the usual name

from tickwheel.delivery.arrow_rows import read_rows
from tickwheel.delivery.errors import BadRecord, DeliveryFailed
from tickwheel.delivery.handed import batch_of, row_of
from tickwheel.delivery.message import Columns, check
from tickwheel.delivery.ndjson import read_ndjson
from tickwheel.delivery.record import Record
from tickwheel.delivery.sources import OpenSource, Source, shown
from tickwheel.spark.schemas import MESSAGES

_Batches: TypeAlias = Iterator[Any]  # of pyarrow.RecordBatch, which has no types

_TOGETHER: Final = 2_000
_USUAL: Final = Columns()
_GONE: Final = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
_STAYS: Final = "a file that stays where it is until it is read: put it there again, as a new one"


def parse_lines(records: DataFrame, columns: Columns = _USUAL) -> DataFrame:
    """`RECORDS` as `MESSAGES`: each value is one NDJSON record, as from Kafka."""
    return records.select("value", "source", "line").mapInArrow(
        Parse(partial(records_of_lines, columns), columns), MESSAGES
    )


def parse_files(paths: DataFrame, columns: Columns = _USUAL) -> DataFrame:
    """`PATHS` as `MESSAGES`: .ndjson, .jsonl, .csv or .parquet files, which every worker must be able to open."""
    return paths.select("path").mapInArrow(Parse(partial(records_of_files, columns), columns), MESSAGES)


def parse_rows(rows: DataFrame, columns: Columns = _USUAL, source: str = "rows") -> DataFrame:
    """Any DataFrame with D1's columns, by these names, as `MESSAGES`. The other columns make up the payload.

    A column `line` is part of the payload too. Rows of a DataFrame have no order, so Spark decides which of two equal
    messages is accepted first.
    """
    return rows.mapInArrow(Parse(partial(records_of_rows, columns, source), columns), MESSAGES)


@dataclass(frozen=True, slots=True)
class Parse:
    """The work of a worker: `read` turns Arrow batches into records, and each record becomes a row."""

    read: Callable[[_Batches], Iterable[Record]]
    columns: Columns

    def __call__(self, batches: _Batches) -> _Batches:
        """Batches of `MESSAGES`."""
        found = (row_of(_found(record, self.columns), record) for record in self.read(batches))
        while rows := [*islice(found, _TOGETHER)]:
            yield batch_of(rows)


def _found(record: Record, columns: Columns) -> Any:
    try:
        return check(record.fields(), columns, time.time_ns())
    except BadRecord as bad:
        return bad


def records_of_lines(columns: Columns, batches: _Batches) -> Iterator[Record]:
    """The records of `RECORDS`."""
    for batch in batches:
        for value, source, line in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            data = value or b""
            records = [*read_ndjson(source or "", io.BytesIO(data), columns)]
            if len(records) == 1:
                yield records[0]._replace(line=line or 0)
            else:
                bad = BadRecord(f"the value holds {len(records)} records", "one JSON object per value")
                yield Record(source or "", line or 0, data, bad)


def records_of_files(columns: Columns, batches: _Batches) -> Iterator[Record]:
    """The records of `PATHS`. A missing file becomes a dead letter.

    Errors: `DeliveryFailed` for a file that can't be read. When that is repaired, the next run goes on with the file.
    """
    for batch in batches:
        for uri in batch.column(0).to_pylist():
            path = path_of(uri)
            source = Source(shown(path), path)
            try:
                yield from OpenSource(source, columns, {})
            except DeliveryFailed as error:
                if not isinstance(error.__cause__, _GONE):
                    raise DeliveryFailed(
                        f"{error}; make it readable, or remove it (then it is a dead letter)"
                    ) from error
                yield Record(source.name, 0, b"", BadRecord(str(error), _STAYS))


def path_of(uri: str) -> Path:
    """The path from a URI as `Path.as_uri` writes it, from one of Spark's, which escapes nothing, or from a path."""
    if uri.startswith("file:///"):
        return Path(os.fsdecode(unquote_to_bytes(urlsplit(uri).path)))
    return Path(uri.removeprefix("file:"))


def records_of_rows(columns: Columns, source: str, batches: _Batches) -> Iterator[Record]:
    """The records of rows with D1's columns."""
    for batch in batches:
        for rows in read_rows(batch, columns):
            for place, content in enumerate(rows.contents):
                yield Record(source, 0, rows.data(place), content)


def partition_of(count: int) -> Any:
    """The column with the partition, of `count`, of a row of `MESSAGES`: by its key, or else by its id."""
    return F.pmod(F.xxhash64(F.coalesce("key", "id")), F.lit(count)).cast("int")
