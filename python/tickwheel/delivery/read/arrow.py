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
from tickwheel.delivery.base.errors import BadRecord

_NAMES = "the schema has a name that is not UTF-8", "names in UTF-8"
_AS_BYTES = [
    (types.is_string, pa.binary()),
    (types.is_large_string, pa.large_binary()),
    (types.is_string_view, pa.binary_view()),
]


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
    """Reads its text as bytes. If the batch is broken for another reason, every row becomes a bad record."""
    try:
        names, columns = batch.schema.names, [_bytes_of(column) for column in batch.columns]
        as_bytes = [name for name, (_, is_text) in zip(names, columns, strict=True) if is_text]
        plain = pa.RecordBatch.from_arrays([column for column, _ in columns], names=names)
        plain.validate(full=True)
        return rows.read(stream_of(plain), first_line=first_line, now_ns=now_ns, as_bytes=as_bytes)
    except UnicodeDecodeError:
        fault = _NAMES
    except (pa.ArrowException, BadRecord) as error:
        reason = error.reason if isinstance(error, BadRecord) else str(error)
        fault = f"the batch is broken: {' '.join(reason.split())[:200]}", "arrays that pass validate(full=True)"
    nothing = pa.RecordBatch.from_arrays([pa.nulls(batch.num_rows)], names=["nothing"])
    return rows.read(stream_of(nothing), first_line=first_line, now_ns=now_ns, fault=fault)


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
