"""Parses what a source gives into `MESSAGES` (rules D1, D2), with the readers of one-process delivery, in the workers.

A record that breaks the schema becomes a dead letter, a row like any other, and the query goes on.

A `delay_ms` counts from the record's own timestamp, if its source has one, and otherwise from the timestamp of the
micro-batch. Spark keeps that in the checkpoint, so a repeated task gives the same rows (D5).
"""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from tempfile import NamedTemporaryFile
from typing import Any, Final, TypeAlias
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812, the usual name

from tickwheel._native import ArrowRows, NdjsonLines, Records
from tickwheel.delivery.base.errors import BadRecord, DeliveryFailed, WrongUsage
from tickwheel.delivery.model.message import MAX_PAYLOAD, Columns
from tickwheel.delivery.read.arrow import read_batch
from tickwheel.delivery.read.folders import path_as_text
from tickwheel.delivery.read.hand_off_rows import batch_of
from tickwheel.delivery.read.sources import OpenSource, Source
from tickwheel.spark.schemas import MESSAGES

_Batches: TypeAlias = Iterator[Any]  # of pyarrow.RecordBatch, which has no types

_TOGETHER: Final = 2_000
_NS: Final = 1_000_000
_AT: Final = "tickwheel at_ms"
"""The column with the time from which a delay counts, in milliseconds since 1970. No column of a user has this name."""

_USUAL: Final = Columns()
_GONE: Final = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
_STAYS: Final = "a file that stays where it is until it is read: put it there again, as a new one"


def parse_lines(records: DataFrame, columns: Columns = _USUAL) -> DataFrame:
    """`RECORDS` as `MESSAGES`: each value is one NDJSON record, as from Kafka. A column `timestamp` is that of each."""
    at = F.coalesce("timestamp", F.current_timestamp()) if "timestamp" in records.columns else F.current_timestamp()
    rows = records.select("value", "source", "line", F.unix_millis(at).alias(_AT))
    return rows.mapInArrow(Parse(partial(records_of_lines, columns)), MESSAGES)


def parse_files(paths: DataFrame, columns: Columns = _USUAL) -> DataFrame:
    """`PATHS` as `MESSAGES`: .ndjson, .jsonl, .csv or .parquet files, which every worker must be able to open."""
    return paths.select("path", _of_batch()).mapInArrow(Parse(partial(records_of_files, columns)), MESSAGES)


def parse_contents(files: DataFrame, columns: Columns = _USUAL) -> DataFrame:
    """The same of files with their `content`, which Spark has read from storage that is no folder of each host."""
    rows = files.select("path", "content", _of_batch())
    return rows.mapInArrow(Parse(partial(records_of_contents, columns)), MESSAGES)


def parse_rows(rows: DataFrame, columns: Columns = _USUAL, source: str = "rows") -> DataFrame:
    """Any DataFrame with D1's columns, by these names, as `MESSAGES`. The other columns make up the payload.

    A column `line` is part of the payload too. Rows of a DataFrame have no order, so Spark decides which of two equal
    messages is accepted first. Errors: `WrongUsage` if no message can be read with these columns.
    """
    try:
        ArrowRows(source, columns, MAX_PAYLOAD).check(rows.columns)
    except BadRecord as bad:
        raise WrongUsage(f"the rows can't be messages: {bad.reason}: name the columns by `columns=`") from bad
    return rows.select("*", _of_batch()).mapInArrow(Parse(partial(records_of_rows, columns, source)), MESSAGES)


def _of_batch() -> Any:
    """The column with the time of the micro-batch."""
    return F.unix_millis(F.current_timestamp()).alias(_AT)


@dataclass(frozen=True, slots=True)
class Parse:
    """The work of a worker: `read` turns Arrow batches into records, and each record becomes a row."""

    read: Callable[[_Batches], Iterable[Records]]

    def __call__(self, batches: _Batches) -> _Batches:
        """Batches of `MESSAGES`."""
        return (batch_of(records).select(MESSAGES.names) for records in self.read(batches) if len(records))


def records_of_lines(columns: Columns, batches: _Batches) -> Iterator[Records]:
    """The records of `RECORDS`, each with the time from which its delay counts."""
    lines = NdjsonLines("", columns, MAX_PAYLOAD)
    for batch in batches:
        for start in range(0, batch.num_rows, _TOGETHER):
            values = zip(*(column.to_pylist() for column in batch.slice(start, _TOGETHER).columns), strict=True)
            yield lines.read_values([*values])


def records_of_files(columns: Columns, batches: _Batches) -> Iterator[Records]:
    """The records of `PATHS`, each with the time from which delays count. A missing file becomes a dead letter.

    Errors: `DeliveryFailed` for a file that can't be read. When that is repaired, the next run goes on with the file.
    """
    for batch in batches:
        for uri, at_ms in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            path = path_of(uri)
            source = Source(path_as_text(path), path)
            at = partial(int, at_ms * _NS)
            try:
                yield from (part.records for part in OpenSource(source, columns, {}, at))
            except DeliveryFailed as error:
                if not isinstance(error.__cause__, _GONE):
                    raise DeliveryFailed(f"{error}; make it readable, or put an empty file in its place") from error
                yield Records.bad(source.name, 0, str(error), _STAYS, b"")


def records_of_contents(columns: Columns, batches: _Batches) -> Iterator[Records]:
    """The records of files with their content, each with the time from which delays count."""
    for batch in batches:
        for row in range(batch.num_rows):
            uri, content, at_ms = (column[row] for column in batch.columns)
            name = unquote(uri.as_py())
            with NamedTemporaryFile(suffix=PurePosixPath(name).suffix) as copy:
                copy.write(content.as_buffer())
                copy.flush()
                source = OpenSource(Source(name, Path(copy.name)), columns, {}, partial(int, at_ms.as_py() * _NS))
                yield from (part.records for part in source)


def path_of(uri: str) -> Path:
    """The path from a URI as `Path.as_uri` writes it, from one of Spark's, which escapes nothing, or from a path."""
    if uri.startswith("file:///"):
        return Path(os.fsdecode(unquote_to_bytes(urlsplit(uri).path)))
    return Path(uri.removeprefix("file:"))


def records_of_rows(columns: Columns, source: str, batches: _Batches) -> Iterator[Records]:
    """The records of rows with D1's columns, and at the end the time from which delays count."""
    rows = ArrowRows(source, columns, MAX_PAYLOAD)
    for batch in batches:
        if batch.num_rows:
            at_ms = batch.column(_AT)[0].as_py()
            yield from read_batch(rows, batch.drop_columns([_AT]), first_line=0, now_ns=at_ms * _NS)
