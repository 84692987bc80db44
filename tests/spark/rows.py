"""Rows of `HANDED` for tests."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from tickwheel.delivery.base.errors import BadRecord
from tickwheel.delivery.model.entries import Reschedule
from tickwheel.delivery.model.message import Cancel, Message
from tickwheel.delivery.read.hand_off_rows import HANDED

NOW_MS = 1_700_000_000_000


def row(
    found: Message | Cancel | Reschedule | BadRecord, line: int = 1, source: str = "test", *, again: bool = False
) -> tuple[Any, ...]:
    match found:
        case Message():
            texts = ("id", "key", "due_ms", "delay_ms", "expires_ms", "traceparent", "destination", "tenant")
            cells = {name: getattr(found, name) for name in texts}
            cells |= {"payload": bytes(found.payload), "is_json": isinstance(found.payload, msgspec.Raw)}
        case Cancel():
            cells = {"id": found.id, "key": found.key}
        case BadRecord():
            cells = {"payload": b'{"raw": 1}', "reason": found.reason, "allowed": found.allowed}
        case Reschedule():
            cells = {"id": found.id, "key": found.key, "due_ms": found.due_ms}
    cells |= {"source": source, "line": line, "again": again}
    return tuple(cells.get(name) for name in HANDED.names)


def batch_of(rows: Sequence[tuple[Any, ...]]) -> Any:
    columns = zip(*rows, strict=True) if rows else [()] * len(HANDED)
    return pa.record_batch([pa.array(column, kind.type) for column, kind in zip(columns, HANDED, strict=True)], HANDED)


def message(id_: str, after_ms: int = 0, *, key: str | None = None, payload: bytes = b"1", **more: Any) -> Message:
    return Message(id_, key, NOW_MS + after_ms, msgspec.Raw(payload), **more)


def with_partition(*rows: tuple[Any, ...], partition: int | None = None) -> Any:
    """A batch for the hold's first step. The partition is the id's last digit, unless it is given."""
    batch = batch_of(rows)
    numbers = [partition if partition is not None else int((one[0] or "0")[-1]) for one in rows]
    return pa.record_batch([*batch.columns, pa.array(numbers, pa.int32())], [*batch.schema.names, "partition"])
