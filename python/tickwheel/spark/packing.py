"""Packs rows of `MESSAGES` into one piece of bytes, an Arrow batch, for the hold, and merges and unpacks such pieces.

A piece begins with a version byte, so that a checkpoint of another version is refused, not misread. The schema is
`HANDED` and is not stored: a piece with one row takes some 700 bytes.

Example: three pieces of the same second, from three micro-batches, are merged into one: in order of due time, then of
position in the input. A message that came twice is in it twice: the deliverer drops the second, and counts it.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tickwheel.delivery.errors import DeliveryFailed
from tickwheel.delivery.handed import HANDED

_VERSION: Final = b"\x03"
_ROWS: Final = 50_000
_BYTES: Final = 32 << 20
NO_SECOND: Final = -1
"""The second of cancels, reschedules and dead letters, which pass at once."""


def gather(batches: Iterable[Any]) -> Iterator[Any]:
    """Join small batches up to some ten thousand rows: a piece costs as much as ten rows, however few it holds."""
    gathered: list[Any] = []
    rows = size = 0
    for batch in batches:
        gathered.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _ROWS or size >= _BYTES:
            yield pa.concat_batches(gathered)
            gathered, rows, size = [], 0, 0
    if gathered:
        yield pa.concat_batches(gathered)


def pack(batch: Any, shards: int) -> Any:
    """From a batch of `HANDED` with a column `partition` to one of `PACKED`: a row for each shard and second."""
    table = pa.table(batch.select(range(len(HANDED))))
    is_message = pc.is_valid(batch.column("payload"))
    due_ms = pc.if_else(is_message, batch.column("due_ms"), None)
    due_ms = pc.fill_null(due_ms, NO_SECOND * 1000).to_numpy(zero_copy_only=False)
    second = due_ms // 1000
    shard = batch.column("partition").to_numpy(zero_copy_only=False) % shards
    order = np.lexsort((second, shard))
    second, shard = second[order], shard[order]
    rows = table.take(order).combine_chunks()
    is_first = np.r_[True, (second[1:] != second[:-1]) | (shard[1:] != shard[:-1])][: len(order)]
    starts = np.flatnonzero(is_first)
    ends = np.r_[starts[1:], len(order)][: len(starts)]
    pieces = [_piece(rows.slice(start, end - start)) for start, end in zip(starts, ends, strict=True)]
    return pa.record_batch(
        [
            pa.array(shard[starts], pa.int32()),
            pa.array(second[starts], pa.int64()),
            pa.array(pieces, pa.binary()),
        ],
        ["shard", "second", "rows"],
    )


def merge(pieces: Iterable[bytes]) -> bytes:
    """Merge pieces of the same shard and second into one, in order. O(rows log rows)."""
    table = pa.Table.from_batches([unpack(piece) for piece in pieces], HANDED)
    columns = (table.column(name).to_pylist() for name in ("due_ms", "source", "line"))
    places = [(due_ms or 0, source or "", line or 0) for due_ms, source, line in zip(*columns, strict=True)]
    order = sorted(range(len(places)), key=places.__getitem__)  # mostly few rows, where Arrow's own sort is slow
    return _piece(table.take(order))


def unpack(piece: bytes) -> Any:
    """The rows of a piece, as an Arrow batch. Errors: `DeliveryFailed` for a piece of another version."""
    if piece[:1] != _VERSION:
        raise DeliveryFailed(
            f"the checkpoint holds messages in the format {piece[:1].hex()}, this version reads {_VERSION.hex()}: "
            "go on with the version that wrote it until all of them are delivered"
        )
    return pa.ipc.read_record_batch(pa.py_buffer(piece)[1:], HANDED)


def _piece(table: Any) -> bytes:
    [batch] = table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], HANDED)]
    piece: bytes = batch.serialize().to_pybytes()
    return _VERSION + piece
