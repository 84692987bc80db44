"""Arrow batches for tests, and the results of their rows."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pyarrow as pa

from delivery.records import DUE_MS, Found, Item, found_in
from tickwheel._native import ArrowRows, Records
from tickwheel.delivery.base.errors import BadRecord
from tickwheel.delivery.model.message import MAX_PAYLOAD, Cancel, Columns, Message
from tickwheel.delivery.read.arrow import read_batch

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
"""D1's schema in Arrow. JSON goes into `payload`, bytes into `payload_base64`."""


def pieces(given_: Any, columns: Columns | None = None) -> Iterator[Records]:
    """A piece is made when it is asked for."""
    rows = ArrowRows("rows", columns or Columns(), MAX_PAYLOAD)
    for batch_ in [given_] if isinstance(given_, pa.RecordBatch) else given_.to_batches():
        yield from read_batch(rows, batch_, now_ns=0)


def found(given_: Any, columns: Columns | None = None) -> list[Found]:
    return [*found_in(pieces(given_, columns))]


def items(given_: Any, columns: Columns | None = None) -> list[Item]:
    return [each.item for each in found(given_, columns)]


def batch(**columns: Any) -> Any:
    arrays = {name: cells if isinstance(cells, pa.Array) else pa.array(cells) for name, cells in columns.items()}
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def only(**columns: Any) -> Item:
    """Of a batch with one row, which has an id and a due time."""
    [item] = items(batch(**{"id": ["a"], "due": [DUE_MS]} | columns))
    return item


def message(**columns: Any) -> Message:
    item = only(**columns)
    assert isinstance(item, Message), item
    return item


def reason(**columns: Any) -> str:
    item = only(**columns)
    assert isinstance(item, BadRecord), item
    assert item.allowed
    return item.reason


def payload(cells: Any) -> bytes:
    kept = message(payload=cells).payload
    assert isinstance(kept, msgspec.Raw)
    return bytes(kept)


def invalid_utf8(*cells: bytes | None) -> Any:
    return pa.array(cells, pa.binary()).view(pa.string())


def stream(*batches_: Any, compression: str | None = None) -> bytes:
    """An Arrow IPC stream of these batches, of which there is one at least."""
    out = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression, allow_64bit=True)
    with pa.ipc.new_stream(out, batches_[0].schema, options=options) as writer:
        for each in batches_:
            writer.write_batch(each)
    written: bytes = out.getvalue().to_pybytes()
    return written


def to_arrow(given_: Iterable[Message | Cancel]) -> Any:
    """Messages and cancels as a batch of `MESSAGE_SCHEMA`, from which the same ones are read back."""
    return pa.RecordBatch.from_pylist([_row(item) for item in given_], schema=MESSAGE_SCHEMA)


def _row(item: Message | Cancel) -> dict[str, object]:
    if isinstance(item, Cancel):
        return {"id": item.id, "key": item.key, "op": "cancel"}
    when = {"due": item.due_ms} if item.delay_ms is None else {"delay_ms": item.delay_ms}
    if isinstance(item.payload, bytes):
        return {"id": item.id, "key": item.key, **when, "payload_base64": msgspec.to_builtins(item.payload)}
    return {"id": item.id, "key": item.key, **when, "payload": bytes(item.payload)}
