"""Reads records with the readers of a run: for each record its place and what it became."""

import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from tickwheel._native import NdjsonLines, Records
from tickwheel.delivery.base.errors import BadRecord
from tickwheel.delivery.model.message import MAX_PAYLOAD, MAX_RECORD, Cancel, Columns, Message
from tickwheel.delivery.read import parquet, sources
from tickwheel.delivery.read.blocks import LineBlocks

DUE_MS = 1_700_000_000_005
"""A due time for test data, a Tuesday in November 2023."""

Item = Message | Cancel | BadRecord

_USUAL = Columns()


class Found(NamedTuple):
    """`data`: the original record, if it was kept."""

    source: str
    line: int
    data: bytes | None
    item: Item

    @property
    def id(self) -> str | None:
        return None if isinstance(self.item, BadRecord) else self.item.id

    @property
    def bad(self) -> BadRecord | None:
        return self.item if isinstance(self.item, BadRecord) else None


def found_in(parts: Iterable[Records]) -> Iterator[Found]:
    for records in parts:
        places, items = records.places(), records.to_list()
        assert len(places) == len(items) == len(records)
        assert records.bad_count == sum(isinstance(item, BadRecord) for item in items)
        for place, item in zip(places, items, strict=True):
            assert place is not None
            yield Found(*place, item)


def read_ndjson(
    data: bytes | BinaryIO, columns: Columns = _USUAL, now_ns: int | None = 0, source: str = "test"
) -> list[Found]:
    lines = NdjsonLines(source, columns, MAX_PAYLOAD)
    blocks = LineBlocks(_stream(data).read, MAX_RECORD)
    parts = (
        lines.read(block.data, first_line=block.first_line, left_out=block.left_out, now_ns=now_ns) for block in blocks
    )
    return [*found_in(parts)]


def read_csv(
    data: bytes | BinaryIO, columns: Columns = _USUAL, now_ns: int | None = 0, source: str = "test"
) -> list[Found]:
    blocks = LineBlocks(_stream(data).read, MAX_RECORD)
    parts = sources.read_csv(source, blocks, columns, lambda: now_ns)
    return [*found_in(records for records, _ in parts)]


def read_parquet(
    data: bytes | BinaryIO, columns: Columns = _USUAL, now_ns: int | None = 0, source: str = "test"
) -> list[Found]:
    return [*rows_of_parquet(data, columns, now_ns, source)]


def rows_of_parquet(
    data: bytes | BinaryIO, columns: Columns = _USUAL, now_ns: int | None = 0, source: str = "test"
) -> Iterator[Found]:
    parts = parquet.read_parquet(source, _stream(data), columns, lambda: now_ns)
    return found_in(records for records, _ in parts)


READERS: dict[str, Any] = {"ndjson": read_ndjson, "csv": read_csv, "parquet": read_parquet}


def read_file(path: Path, columns: Columns = _USUAL, now_ns: int | None = 0) -> list[Found]:
    """By its suffix."""
    read = READERS.get(path.suffix.lower().removeprefix("."), read_ndjson)
    found: list[Found] = read(path.read_bytes(), columns, now_ns, str(path))
    return found


def _stream(data: bytes | BinaryIO) -> BinaryIO:
    return io.BytesIO(data) if isinstance(data, bytes) else data
