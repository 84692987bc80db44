"""Rows of `HANDED` for tests."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from tickwheel.delivery.entries import Reschedule
from tickwheel.delivery.errors import BadRecord
from tickwheel.delivery.handed import HANDED
from tickwheel.delivery.message import Cancel, Message

NOW_MS = 1_700_000_000_000


def row(found: Message | Cancel | Reschedule | BadRecord, line: int = 1, source: str = "test") -> tuple[Any, ...]:
    match found:
        case Message():
            is_json = isinstance(found.payload, msgspec.Raw)
            what = found.id, found.key, found.due_ms, found.delay_ms, bytes(found.payload), is_json
            return (*what, found.expires_ms, found.traceparent, source, line, None, None, None, False)
        case Cancel():
            return (found.id, found.key, None, None, None, None, None, None, source, line, None, None, None, False)
        case BadRecord():
            nothing, why = (None, None), (found.reason, found.allowed)
            return (*nothing, *nothing, b'{"raw": 1}', None, *nothing, source, line, *why, None, False)
        case Reschedule():
            return (
                found.id,
                found.key,
                found.due_ms,
                None,
                None,
                None,
                None,
                None,
                source,
                line,
                None,
                None,
                None,
                False,
            )


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
