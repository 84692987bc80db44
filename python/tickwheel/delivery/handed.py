"""The rows of a hand-off (rule S3): messages that were read and checked elsewhere, and go to a deliverer.

A row is one of three. Empty fields are null:

| | `id`, `key` | `due_ms`, `delay_ms` | `payload`, `is_json` | `source`, `line` | `reason`, `allowed` |
|---|---|---|---|---|---|
| a message | its name | due; the delay too, if it gave one | what is delivered | its place in the input | |
| a cancel | its name | | | its place in the input | |
| a dead letter | | | the original record | its place in the input | why, and what is allowed |

`copies` is the number of further messages with the same name and content that were dropped before the hand-off.
"""

from base64 import b64encode
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import msgspec
import pyarrow as pa

from tickwheel.delivery.entries import Dropped, Item, Letter, Read
from tickwheel.delivery.errors import BadRecord
from tickwheel.delivery.message import MAX_PAYLOAD, Cancel, Message, check_name, checked
from tickwheel.delivery.record import Record
from tickwheel.delivery.times import rfc_3339

HANDED: Final = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("key", pa.string()),
        pa.field("due_ms", pa.int64()),
        pa.field("delay_ms", pa.float64()),
        pa.field("payload", pa.binary()),
        pa.field("is_json", pa.bool_()),
        pa.field("source", pa.string()),
        pa.field("line", pa.int64()),
        pa.field("reason", pa.string()),
        pa.field("allowed", pa.string()),
        pa.field("copies", pa.int32(), nullable=False),
    ]
)

KEEP_CANCELS_DAYS: Final = 400
"""How long a cancel is remembered: it passes at once, while its message may be held for this long (rule D7)."""

Row: TypeAlias = tuple[Any, ...]


def row_of(found: Message | Cancel | BadRecord, record: Record) -> Row:
    """The row of a record. A cancel's payload is not kept."""
    where = record.source, record.line
    match found:
        case Message():
            is_json = isinstance(found.payload, msgspec.Raw)
            payload = bytes(found.payload)
            return (found.id, found.key, found.due_ms, found.delay_ms, payload, is_json, *where, None, None, 0)
        case Cancel():
            return (found.id, found.key, None, None, None, None, *where, None, None, 0)
        case BadRecord():
            return (None, None, None, None, record.data, None, *where, found.reason, found.allowed, 0)


def batch_of(rows: Sequence[Row]) -> Any:
    """Rows as an Arrow batch. O(rows)."""
    columns = zip(*rows, strict=True) if rows else [()] * len(HANDED)
    return pa.record_batch([pa.array(column, kind.type) for column, kind in zip(columns, HANDED, strict=True)], HANDED)


def items_of(batch: Any, max_payload: int = MAX_PAYLOAD) -> list[Item]:
    """The items for the writer, in order. A row that no deliverer can take becomes a dead letter. About 5 µs a row.

    Errors: `BadRecord` if the batch is not one of `HANDED`.
    """
    if not batch.schema.equals(HANDED):
        raise BadRecord(
            f"the columns are {', '.join(batch.schema.names)[:200]}", f"those of a hand-off: {HANDED.names}"
        )
    items: list[Item] = []
    dropped = 0
    for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
        items.append(_item(row, max_payload))
        dropped += row[-1]
    return [*items, Dropped(dropped)] if dropped else items


def _item(row: Row, max_payload: int) -> Item:
    id_, key, due_ms, delay_ms, payload, is_json, source, line, reason, allowed, _ = row
    source, line = source or "hand-off", line or 0
    data = payload or b""
    if reason is not None:
        return Letter(source, line, reason, allowed or "", data)
    try:
        if due_ms is None:
            check_name(id_, key)
            return Cancel(id_, key, KEEP_CANCELS_DAYS)
        message = checked(Message(id_, key, due_ms, msgspec.Raw(data) if is_json else data, delay_ms), max_payload)
        return Read(message, source, line, record_of(message))
    except BadRecord as bad:
        return Letter(source, line, bad.reason, bad.allowed, data)


def record_of(message: Message) -> bytes:
    """The message as a record of NDJSON that can be given again, without a newline (rule D1)."""
    is_bytes = isinstance(message.payload, bytes)
    payload = {"payload_base64": b64encode(message.payload).decode()} if is_bytes else {"payload": message.payload}
    return msgspec.json.encode({"id": message.id, "key": message.key, "due": rfc_3339(message.due_ms), **payload})
