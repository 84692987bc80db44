"""Hands Arrow batches to the native reader of rows, as streams of Arrow's IPC format (rules D1, D2, D12).

A batch may come from any source, and is checked first. Text outside UTF-8 is an error of its row. Any other broken
array is an error of the whole batch: every row becomes a bad record, and reading goes on.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
from pyarrow import types

from tickwheel._native import ArrowRows, Records
from tickwheel.delivery.base.errors import BadRecord, WrongUsage

MESSAGE_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("key", pa.string()),
        pa.field("due", pa.timestamp("ms", tz="UTC")),
        pa.field("delay_ms", pa.float64()),
        pa.field("expires", pa.timestamp("ms", tz="UTC")),
        pa.field("op", pa.string()),
        pa.field("payload", pa.binary()),
        pa.field("payload_base64", pa.string()),
        pa.field("traceparent", pa.string()),
    ]
)
"""D1's schema in Arrow; any schema with an id can be read. JSON goes into `payload`. Bytes go into `payload_base64`,
because in `payload` bytes that happen to be text or JSON are read as text or JSON.
"""

_NAMES = "the schema has a name that is not UTF-8", "names in UTF-8"
_AS_BYTES = [
    (types.is_string, pa.binary()),
    (types.is_large_string, pa.large_binary()),
    (types.is_string_view, pa.binary_view()),
]


def batches_of(given: Any) -> list[Any]:
    """The batches: the given batch, or all batches of a table. Errors: `WrongUsage` if it is neither."""
    if isinstance(given, pa.RecordBatch):
        return [given]
    if isinstance(given, pa.Table):
        batches: list[Any] = given.to_batches()
        return batches
    raise WrongUsage(f"{given!r:.200} can't be submitted: give a pyarrow.RecordBatch or a pyarrow.Table")


def read_batch(rows: ArrowRows, batch: Any, *, first_line: int = 1, now_ns: int | None = None) -> Iterator[Records]:
    """The records of a batch, in pieces of at most some megabytes. `first_line`: the line of its first row; 0 for rows
    without an order.
    """
    try:
        batch.validate(full=True)
        return rows.read(stream_of(batch), first_line=first_line, now_ns=now_ns)
    except (pa.ArrowException, BadRecord):
        return _read_broken(rows, batch, first_line, now_ns)


def check_names(rows: ArrowRows, schema: Any) -> None:
    """Errors: `BadRecord` if no message can be read with these columns."""
    try:
        names = schema.names
    except UnicodeDecodeError:
        raise BadRecord(*_NAMES) from None
    rows.check(names)


def stream_of(batch: Any) -> bytes:
    """The batch in Arrow's IPC format. It must be valid."""
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    stream: bytes = out.getvalue().to_pybytes()
    return stream


def _read_broken(rows: ArrowRows, batch: Any, first_line: int, now_ns: int | None) -> Iterator[Records]:
    """Reads the batch without its broken columns."""
    fault: tuple[str, str] | None = None
    names: list[str] = []
    sound: list[Any] = []
    as_bytes: list[str] = []
    try:
        given = batch.schema.names
    except UnicodeDecodeError:
        fault = _NAMES
        given = [f"column {number}" for number in range(1, batch.num_columns + 1)]
        batch = batch.rename_columns(given)
    for name, column in zip(given, batch.columns, strict=True):
        why = _broken(rows, column)
        if why is not None:
            column, is_text = _bytes_of(column)
            if not is_text or _broken(rows, column) is not None:
                fault = fault or (f"the column {name} is broken: {why}", "arrays that pass validate(full=True)")
                continue
            as_bytes.append(name)
        names.append(name)
        sound.append(column)
    if not sound:
        names, sound = ["nothing"], [pa.nulls(batch.num_rows)]
    stream = stream_of(pa.RecordBatch.from_arrays(sound, names=names))
    return rows.read(stream, first_line=first_line, now_ns=now_ns, as_bytes=as_bytes, fault=fault)


def _broken(rows: ArrowRows, column: Any) -> str | None:
    """Why the array can't be read, or `None`."""
    try:
        column.validate(full=True)
        rows.read(stream_of(pa.RecordBatch.from_arrays([column], names=["x"])))
    except (pa.ArrowException, BadRecord) as error:
        reason = error.reason if isinstance(error, BadRecord) else str(error)
        return " ".join(reason.split())[:200]
    return None


def _bytes_of(array: Any) -> tuple[Any, bool]:
    """Text as bytes, and whether it is text."""
    if types.is_dictionary(array.type):
        values, is_text = _bytes_of(array.dictionary)
        if is_text:
            with suppress(pa.ArrowException):  # an index may be out of bounds
                return pa.DictionaryArray.from_arrays(array.indices, values), True
    for is_kind, kind in _AS_BYTES:
        if is_kind(array.type):
            return array.view(kind), True
    return array, False
