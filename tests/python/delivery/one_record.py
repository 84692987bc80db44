"""The same record in each format: what its reader makes of it, in a form that can be compared.

A record is a dict of Python values. `payload` may be any JSON; the fields without a meaning must be text, because CSV
has nothing else.
"""

import csv
import io
import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from delivery.records import found_in, read_csv, read_parquet
from tickwheel._native import ArrowRows, NdjsonLines, Records, read_records
from tickwheel.delivery.base.errors import BadRecord
from tickwheel.delivery.model.message import MAX_PAYLOAD, Cancel, Columns, Message
from tickwheel.delivery.read.arrow import read_batch

NOW_NS = 10**18

Read = tuple[Any, ...] | str
"""What was read, or the reason why it was not."""

_USUAL = Columns()
_MEANT = ("id", "key", "due", "delay_ms", "expires", "op", "payload_base64", "traceparent", "every", "cron")


def as_ndjson(record: Mapping[str, Any], columns: Columns = _USUAL) -> Read:
    line = json_of(record)
    return _one(NdjsonLines("in", columns, MAX_PAYLOAD).read(line, now_ns=NOW_NS))


def as_http(record: Mapping[str, Any], columns: Columns = _USUAL) -> Read:
    """The body of a request with one record, on several lines."""
    body = json_of(record).replace(b"{", b"{\n", 1)
    assert columns == _USUAL, "a request has no names of its own"
    [records] = read_records(body, format="object")
    return _one(records)


def as_csv(record: Mapping[str, Any], columns: Columns = _USUAL) -> Read:
    """A field of the payload that is null is no column: CSV has no null, and its empty cell is an empty text there."""
    known = {*_MEANT, columns.id, columns.key, columns.due}
    cells = {name: _cell(name, value, columns) for name, value in record.items() if value is not None or name in known}
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([[*cells], [*cells.values()]])
    [found] = read_csv(out.getvalue().encode(), columns, NOW_NS)
    return shown(found.item)


def as_arrow(record: Mapping[str, Any], columns: Columns = _USUAL) -> Read:
    [records] = read_batch(ArrowRows("in", columns, MAX_PAYLOAD), batch_of(record, columns), now_ns=NOW_NS)
    return _one(records)


def as_parquet(record: Mapping[str, Any], columns: Columns = _USUAL) -> Read:
    out = io.BytesIO()
    pq.write_table(pa.Table.from_batches([batch_of(record, columns)]), out)
    [found] = read_parquet(out.getvalue(), columns, NOW_NS)
    return shown(found.item)


def as_put(record: Mapping[str, Any], columns: Columns = _USUAL) -> Read:
    """`put`, where the fields without a meaning are the payload."""
    assert columns == _USUAL, "put has no names of its own"
    given = {name: value for name, value in record.items() if value is not None}
    named = {name: value for name, value in given.items() if name in (*_MEANT, "payload", "tz", "missed")}
    others = {name: value for name, value in given.items() if name not in named}
    try:
        [records] = read_records({"id": None, "payload": others or None, **named}, format="item")
    except BadRecord as bad:
        return bad.reason
    return _one(records)


FORMATS: dict[str, Callable[..., Read]] = {
    it.__name__.removeprefix("as_"): it for it in (as_ndjson, as_http, as_csv, as_arrow, as_parquet)
}
"""The formats that have columns."""


def shown(item: Any) -> Read:
    """What can be compared. A delay counts from a time that `put` takes itself, so its due time is left out."""
    if isinstance(item, BadRecord):
        return item.reason
    if isinstance(item, Message):
        payload = item.payload
        data = json.loads(bytes(payload)) if isinstance(payload, msgspec.Raw) else payload
        due_ms = None if item.delay_ms is not None else item.due_ms
        return "message", item.id, item.key, due_ms, item.delay_ms, item.expires_ms, data
    if isinstance(item, Cancel):
        return "cancel", item.id, item.key
    return "reschedule", item.id, item.key, item.due_ms


def json_of(record: Mapping[str, Any]) -> bytes:
    """A `Decimal` is a number with its own digits."""
    return ("{" + ",".join(f"{json.dumps(name)}:{_json(value)}" for name, value in record.items()) + "}").encode()


def batch_of(record: Mapping[str, Any], columns: Columns = _USUAL) -> pa.RecordBatch:
    """One row."""
    payload = columns.payload or "payload"
    values = {
        name: json.dumps(value) if name == payload and value is not None else value for name, value in record.items()
    }
    return pa.RecordBatch.from_pylist([values])


def _json(value: Any) -> str:
    return format(value, "f") if isinstance(value, Decimal) else json.dumps(value)


def _cell(name: str, value: Any, columns: Columns) -> str:
    if name == (columns.payload or "payload"):
        return json.dumps(value)
    if value is None:
        return ""
    return value if isinstance(value, str) else _json(value)


def _one(records: Records) -> Read:
    if all(place is None for place in records.places()):
        [item] = records.to_list()
        return shown(item)
    [found] = found_in([records])
    return shown(found.item)
