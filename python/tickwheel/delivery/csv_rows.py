"""Reads CSV with a header row: comma, double quotes, rows that may span lines (RFC 4180), in UTF-8.

- An empty cell is absent, except in a payload. A payload that is JSON stays JSON, any other is text.
- A row that can't be read is a bad record of its first line, and reading goes on with the next line: a quote that is
  never closed costs one line, not the rest of the file. The lines of such rows are read again, in total at most as many
  bytes as were read so far, plus `_PATIENCE`. Beyond that, a row that does not end is given up earlier.
- If the header can't be used, every row is a bad record with the reason.
"""

import csv
from collections import deque
from collections.abc import Iterator

import msgspec

from tickwheel.delivery.errors import BadRecord
from tickwheel.delivery.lines import MAX_RECORD, Line, LineStream, read_lines
from tickwheel.delivery.message import Columns, Fields, json_or_text, json_text
from tickwheel.delivery.record import Record
from tickwheel.delivery.times import number_or_text

_PATIENCE = 2 * MAX_RECORD

_decode_number = msgspec.json.Decoder(int | float).decode


def read_csv(source: str, stream: LineStream, columns: Columns, after: int = 0) -> Iterator[Record]:
    """The records of `stream` after the line `after`, each as soon as its row is complete."""
    csv.field_size_limit(max(csv.field_size_limit(), MAX_RECORD))  # for the whole process; the default is 128 KiB
    header: list[str] | BadRecord | None = None
    for number, data, row in _rows(read_lines(stream)):
        if header is None:
            header = _header(row, columns)
            if not isinstance(row, BadRecord):
                continue
        if number <= after:
            continue
        try:
            yield Record(source, number, data, _fields(header, row, columns))
        except BadRecord as bad:
            yield Record(source, number, data, bad)


def _rows(lines: Iterator[Line]) -> Iterator[tuple[int, bytes, list[str] | BadRecord]]:
    again: deque[Line] = deque()  # lines that a row took before it turned out to be broken
    taken: list[Line] = []
    patience = _PATIENCE  # bytes that may be read again

    def texts() -> Iterator[str]:
        size, reach = 0, min(patience, MAX_RECORD)
        while (line := again.popleft() if again else next(lines, None)) is not None:
            taken.append(line)
            size += line.size
            if len(taken) > 1 and size > reach:
                raise BadRecord("a quoted cell does not end", f"a row of at most {MAX_RECORD:,} bytes")
            yield line.text()

    while True:
        taken.clear()
        try:
            row: list[str] | BadRecord = next(csv.reader(texts(), strict=True))
        except StopIteration:
            return
        except csv.Error as error:
            row = BadRecord(f"not a row of CSV: {error}", "RFC 4180: commas, quotes doubled inside quotes")
        except BadRecord as bad:
            row = bad
        if isinstance(row, BadRecord) and len(taken) > 1:
            patience -= sum(line.size for line in taken[1:])
            again.extendleft(reversed(taken[1:]))
            del taken[1:]
        patience += taken[0].size
        if row:
            yield taken[0].number, b"".join(line.data for line in taken).rstrip(b"\r\n"), row


def _header(row: list[str] | BadRecord, columns: Columns) -> list[str] | BadRecord:
    if isinstance(row, BadRecord):
        return BadRecord(f"the header can't be read: {row.reason}", row.allowed)
    return columns.fault("header", row) or row


def _fields(header: list[str] | BadRecord, row: list[str] | BadRecord, columns: Columns) -> Fields:
    for part in (row, header):
        if isinstance(part, BadRecord):
            raise part
    assert isinstance(header, list)
    assert isinstance(row, list)
    if len(row) != len(header):
        raise BadRecord(f"the row has {len(row)} cells", f"{len(header)}, as the header")
    cells = dict(zip(header, row, strict=True))
    if cells.get("op") == "cancel":
        cells = {name: cell for name, cell in cells.items() if cell}
    payload, base64 = cells.get(columns.name("payload")), cells.get("payload_base64")
    if base64 == "" and payload is not None:
        base64 = None
    elif payload == "" and base64 is not None:
        payload = None
    known = columns.known()
    return Fields(
        id=cells.get(columns.name("id")) or None,
        key=cells.get(columns.name("key")) or None,
        due=number_or_text(due) if (due := cells.get(columns.name("due"))) else None,
        delay_ms=_number(cells.get("delay_ms")),
        op=cells.get("op") or None,
        payload=None if payload is None else json_or_text(payload),
        payload_base64=base64,
        others={name: json_text(cell) for name, cell in cells.items() if name not in known},
    )


def _number(cell: str | None) -> object:
    try:
        return _decode_number(cell) if cell else None
    except msgspec.MsgspecError:
        return cell
