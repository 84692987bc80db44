"""Arrow batches for tests, and the results of their rows."""

from typing import Any

import msgspec
import pyarrow as pa

from tickwheel.delivery.arrow_rows import read_rows
from tickwheel.delivery.errors import BadRecord
from tickwheel.delivery.message import Cancel, Columns, Message, check

Item = Message | Cancel | BadRecord


def items(given_: Any, columns: Columns | None = None) -> list[Item]:
    columns = columns or Columns()
    found: list[Item] = []
    for rows in read_rows(given_, columns):
        for content in rows.contents:
            try:
                if isinstance(content, BadRecord):
                    raise content
                found.append(check(content, columns, now_ns=0))
            except BadRecord as bad:
                found.append(bad)
    return found


def batch(**columns: Any) -> Any:
    arrays = {name: cells if isinstance(cells, pa.Array) else pa.array(cells) for name, cells in columns.items()}
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def message(**columns: Any) -> Message:
    [item] = items(batch(**{"id": ["a"], "due": [5]} | columns))
    assert isinstance(item, Message), item
    return item


def reason(**columns: Any) -> str:
    [item] = items(batch(**{"id": ["a"], "due": [5]} | columns))
    assert isinstance(item, BadRecord), item
    assert item.allowed
    return item.reason


def payload(cells: Any) -> bytes:
    kept = message(payload=cells).payload
    assert isinstance(kept, msgspec.Raw)
    return bytes(kept)


def invalid_utf8(*cells: bytes | None) -> Any:
    return pa.array(cells, pa.binary()).view(pa.string())
