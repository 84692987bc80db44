"""The state of a shard in format 5: an index in MessagePack, and chunks of rows as Arrow batches.

Nothing here may change, and nothing is imported from the hold, because the hold of a later version has another format.
A value begins with a byte for the format. Earlier formats were in no released version, and are not read.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pyarrow as pa

from tickwheel.delivery.base.errors import DeliveryFailed
from tickwheel.spark.upgrade.kept import Controls, Messages, Shard

_ROWS: Final = pa.schema(
    [
        ("id", pa.string()),
        ("key", pa.string()),
        ("due_ms", pa.int64()),
        ("delay_ms", pa.float64()),
        ("payload", pa.binary()),
        ("is_json", pa.bool_()),
        ("expires_ms", pa.int64()),
        ("traceparent", pa.string()),
        ("source", pa.string()),
        ("line", pa.int64()),
        ("reason", pa.string()),
        ("allowed", pa.string()),
        ("moved_to_ms", pa.int64()),
        pa.field("again", pa.bool_(), nullable=False),
        ("recurrence", pa.string()),
        ("asked_ms", pa.int64()),
    ]
)


class _Part(msgspec.Struct, array_like=True):
    chunk: int
    start: int
    stop: int
    first_ms: int
    last_ms: int
    moved_to_ms: int | None = None
    is_again: bool = False


class _Run(msgspec.Struct, array_like=True):
    parts: list[_Part]
    given_to: str = ""


class _Controls(msgspec.Struct, array_like=True):
    chunk: int
    until_ms: int
    rules: int
    others: int
    given_to: str = ""
    is_given: bool = False
    is_taken: bool = False
    may_repeat: bool = False
    settled_ms: int | None = None


class _Index(msgspec.Struct, array_like=True):
    taker: str = ""
    address: str = ""
    moving_since_ms: int = 0
    lead_ms: int = 0
    next_chunk: int = 0
    runs: list[_Run] = []
    given: list[_Part] = []
    taken: list[_Part] = []
    controls: list[_Controls] = []


def shard_of(index: bytes) -> Shard:
    """What an index says. Errors: `DeliveryFailed` if it is damaged."""
    try:
        found = msgspec.msgpack.decode(memoryview(index)[1:], type=_Index)
    except msgspec.MsgspecError as error:
        raise DeliveryFailed(f"an index of the checkpoint is damaged ({error}): restore it from a copy") from error
    chunks = defaultdict[int, list[Messages | Controls]](list)
    for part, is_given in _parts(found):
        chunks[part.chunk].append(Messages(part.start, part.stop, part.moved_to_ms, is_given or part.is_again))
    for position, it in enumerate(found.controls):
        is_known = it.is_taken or not (it.may_repeat or it.settled_ms is not None)
        chunks[it.chunk].append(
            Controls(position, it.rules + it.others, it.is_given, it.is_taken, it.until_ms == 0, not is_known)
        )
    messages = sum(part.stop - part.start for part, _ in _parts(found))
    return Shard(found.address, messages, sum(it.rules + it.others for it in found.controls), dict(chunks))


def rows_of(chunk: bytes) -> Any:
    """The rows of a chunk, as an Arrow batch. Errors: `DeliveryFailed` if it is damaged."""
    try:
        rows = pa.ipc.read_record_batch(pa.py_buffer(chunk)[1:], _ROWS)
        rows.validate(full=True)
    except (pa.ArrowInvalid, OSError) as error:
        raise DeliveryFailed(f"a chunk of the checkpoint is damaged ({error}): restore it from a copy") from error
    return rows


def _parts(index: _Index) -> Iterator[tuple[_Part, bool]]:
    for run in index.runs:
        yield from ((part, run.given_to != "") for part in run.parts)
    yield from ((part, True) for part in (*index.taken, *index.given))
