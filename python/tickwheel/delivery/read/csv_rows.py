"""Reads CSV with a header row: commas, double quotes, rows that may span lines (RFC 4180), in UTF-8.

A header with no comma, but with semicolons or tabs, says that these separate the cells: a message has two at least.

Here rows are split into cells. What a row means is native (`crates/delivery/src/formats/csv_rows.rs`).

- A row that can't be read is a bad record of its first line, and reading goes on with the next line: a quote that is
  never closed costs one line, not the rest of the file. The lines of such rows are read again, in total at most as many
  bytes as were read so far, plus `_PATIENCE`. Beyond that, a row that does not end is given up earlier.
- A header that can't be used is one bad record, and nothing of the file is read.
"""

import csv
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import NamedTuple, Protocol

from tickwheel._native import CsvRows, Records
from tickwheel.delivery.base.errors import BadRecord
from tickwheel.delivery.model.message import MAX_PAYLOAD, MAX_RECORD, Columns

_PATIENCE = 2 * MAX_RECORD
_TOGETHER = 250
_SEPARATORS = (",", ";", "\t")
_KEPT = 1024  # bytes of a line that is too long
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class LineStream(Protocol):
    """The part of a byte stream's interface that is needed."""

    def readline(self, limit: int = -1, /) -> bytes:
        """A line with its newline, or `limit` bytes of it; empty at the end."""


class Row(NamedTuple):
    """A row, with the number of its first line, from 1. Of a line that is too long, `data` has the beginning, and
    `size` is the whole length. Without `cells`, `fault` says what is wrong and what is allowed, or else the first line
    is no text.
    """

    line: int
    data: bytes
    size: int
    cells: list[str] | None = None
    fault: tuple[str, str] | None = None


def read_csv(
    source: str, stream: LineStream, columns: Columns, now_ns: Callable[[], int | None], after: int = 0
) -> Iterator[tuple[Records, int]]:
    """The records of `stream` after the line `after`, each time with the line of the last one."""
    found = split(stream)
    header = next(found, None)
    if header is None:
        return
    try:
        rows = CsvRows(source, columns.names, MAX_PAYLOAD, header)
    except BadRecord as bad:
        yield Records.bad(source, header.line, bad.reason, bad.allowed, header.data), header.line
        return
    left = (row for row in found if row.line > after)
    while together := [*islice(left, _TOGETHER)]:
        yield rows.read(together, now_ns=now_ns()), together[-1].line


class _NoText(Exception):
    """A line is too long, or not UTF-8."""


class _DoesNotEnd(Exception):
    """A row takes more than it may."""


def split(stream: LineStream) -> Iterator[Row]:
    """The rows of `stream`, each as soon as it is complete. Blank lines are no rows."""
    csv.field_size_limit(max(csv.field_size_limit(), MAX_RECORD))  # for the whole process; the default is 128 KiB
    lines = _lines(stream)
    again: deque[Row] = deque()  # lines that a row took before it turned out to be broken
    taken: list[Row] = []
    patience = _PATIENCE  # bytes that may be read again
    separator, has_header = ",", False

    def texts() -> Iterator[str]:
        size, reach = 0, min(patience, MAX_RECORD)
        while (line := again.popleft() if again else next(lines, None)) is not None:
            taken.append(line)
            size += line.size
            if len(taken) > 1 and size > reach:
                raise _DoesNotEnd
            yield _text(line)

    while True:
        taken.clear()
        if not has_header and (line := again.popleft() if again else next(lines, None)) is not None:
            again.appendleft(line)
            separator = _separator_of(line)
        cells: list[str] | None = None
        fault: tuple[str, str] | None = None
        try:
            cells = next(csv.reader(texts(), strict=True, delimiter=separator))
        except StopIteration:
            return
        except csv.Error as error:
            fault = f"not a row of CSV: {error}", "RFC 4180: commas, quotes doubled inside quotes"
        except _DoesNotEnd:
            fault = "a quoted cell does not end", f"a row of at most {MAX_RECORD:,} bytes"
        except _NoText:
            if len(taken) > 1:
                fault = f"line {taken[-1].line} in a quoted cell is too long, or not UTF-8", "each line a row, or text"
        if cells is None and len(taken) > 1:
            patience -= sum(line.size for line in taken[1:])
            again.extendleft(reversed(taken[1:]))
            del taken[1:]
        first = taken[0]
        patience += first.size
        if cells or cells is None:
            has_header = True
            data = b"".join(line.data for line in taken).rstrip(b"\r\n")
            yield Row(first.line, data, first.size, cells, fault)


def _separator_of(header: Row) -> str:
    for separator in _SEPARATORS:
        with suppress(_NoText, csv.Error, StopIteration):
            if len(next(csv.reader([_text(header)], strict=True, delimiter=separator))) > 1:
                return separator
    return _SEPARATORS[0]


def _text(line: Row) -> str:
    if line.size > MAX_RECORD:
        raise _NoText
    try:
        return line.data.decode()
    except UnicodeDecodeError:
        raise _NoText from None


def _lines(stream: LineStream) -> Iterator[Row]:
    """The lines with their newlines. Of one that is longer than `MAX_RECORD` the beginning is kept. A byte order mark
    at the start is dropped.
    """
    number = 0
    while data := stream.readline(MAX_RECORD + 1):
        number += 1
        size = len(data)
        if size > MAX_RECORD:
            size += _skip_rest(stream) if not data.endswith(b"\n") else 0
            data = data[:_KEPT]
        yield Row(number, data.removeprefix(_BYTE_ORDER_MARK) if number == 1 else data, size)


def _skip_rest(stream: LineStream) -> int:
    skipped = 0
    while data := stream.readline(MAX_RECORD):
        skipped += len(data)
        if data.endswith(b"\n"):
            break
    return skipped
