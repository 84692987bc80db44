"""Rows of `HANDED` for tests."""

from typing import Any

import msgspec
import pyarrow as pa

from tickwheel.delivery.errors import BadRecord
from tickwheel.delivery.handed import batch_of, row_of
from tickwheel.delivery.message import Cancel, Fields, Message
from tickwheel.delivery.record import Record

NOW_MS = 1_700_000_000_000


def row(found: Message | Cancel | BadRecord, line: int = 1, source: str = "test") -> tuple[Any, ...]:
    return row_of(found, Record(source, line, b'{"raw": 1}', Fields()))


def message(id_: str, after_ms: int = 0, *, key: str | None = None, payload: bytes = b"1", **more: Any) -> Message:
    return Message(id_, key, NOW_MS + after_ms, msgspec.Raw(payload), **more)


def with_partition(*rows: tuple[Any, ...], partition: int | None = None) -> Any:
    """A batch for the hold's first step. The partition is the id's last digit, unless it is given."""
    batch = batch_of(rows)
    numbers = [partition if partition is not None else int((one[0] or "0")[-1]) for one in rows]
    return pa.record_batch([*batch.columns, pa.array(numbers, pa.int32())], [*batch.schema.names, "partition"])
