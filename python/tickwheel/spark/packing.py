"""Packs rows of `HANDED` into pieces of bytes, sorts them, and cuts them into chunks, for the hold.

A piece is a version byte and an Arrow batch without its schema. So a checkpoint of another format is refused, not
misread. The order of rows is that of delivery: by due time, then by position in the input (D4).
"""

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from tickwheel.delivery.base.errors import DeliveryFailed
from tickwheel.delivery.read.hand_off_rows import HANDED

VERSION: Final = 9
"""Of everything that a checkpoint's state holds. Each change of it takes another number."""
CHUNK_ROWS: Final = 2_000
CHUNK_BYTES: Final = 512 << 10
_SIZED: Final = [field.name for field in HANDED if types.is_string(field.type) or types.is_binary(field.type)]
_REPEATED: Final = " (given again, as it is not known whether the first one arrived: redelivered)"
_TOGETHER_ROWS: Final = 50_000
_TOGETHER_BYTES: Final = 32 << 20


def gather(batches: Iterable[Any]) -> Iterator[Any]:
    """Join small batches up to some ten thousand rows: a piece costs as much as ten rows, however few it holds."""
    gathered: list[Any] = []
    rows = size = 0
    for batch in batches:
        gathered.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _TOGETHER_ROWS or size >= _TOGETHER_BYTES:
            yield pa.concat_batches(gathered)
            gathered, rows, size = [], 0, 0
    if gathered:
        yield pa.concat_batches(gathered)


def split_by(batch: Any, column: str) -> Iterator[tuple[int, bytes]]:
    """A piece for each value of an integer column, with that value. The column is not in the pieces."""
    if not batch.num_rows:
        return
    numbers = batch.column(column).to_numpy(zero_copy_only=False)
    order = np.argsort(numbers, kind="stable")
    sorted_rows = batch.select(HANDED.names).take(pa.array(order))
    found, starts = np.unique(numbers[order], return_index=True)
    for number, start, stop in zip(found.tolist(), starts, [*starts[1:], len(order)], strict=True):
        yield number, pack(sorted_rows.slice(start, stop - start))


def pack(batch: Any) -> bytes:
    """The piece of a batch of `HANDED`."""
    piece: bytes = bytes([VERSION]) + batch.serialize().to_pybytes()
    return piece


def unpack(piece: bytes) -> Any:
    """The rows of a piece, as an Arrow batch that shares its memory. Errors: as `check_version`."""
    check_version(piece[0])
    return pa.ipc.read_record_batch(pa.py_buffer(piece)[1:], HANDED)


def check_version(found: int) -> None:
    """Errors: `DeliveryFailed` if a checkpoint's state has another format."""
    if found != VERSION:
        raise DeliveryFailed(not_this("the state of the checkpoint", "format", found, VERSION))


def not_this(where: str, what: str, found: object, known: int) -> str:
    """The error for a checkpoint that this version can't read."""
    return (
        f"{where} has the {what} {found}, and this version of tickwheel reads only {known}: let the version that wrote "
        "it deliver all that it holds, then name a new checkpoint"
    )


def in_order(batches: Iterable[Any]) -> tuple[Any, Any]:
    """All rows as one batch in the order of delivery; and for each row its number before, across all batches. Rows that
    are equal in order stay as they are.
    """
    rows = pa.concat_batches([pa.RecordBatch.from_pylist([], HANDED), *batches])
    due_ms = due_of(rows)
    if len(due_ms) < 2 or bool((due_ms[1:] > due_ms[:-1]).all()):
        return rows, np.arange(len(due_ms))
    source = rows.column("source").dictionary_encode()
    ranks = np.argsort(np.argsort(np.array(source.dictionary.to_pylist() or [""], object)))
    sources = ranks[source.indices.fill_null(0).to_numpy(zero_copy_only=False)]
    order = np.lexsort((rows.column("line").fill_null(0).to_numpy(zero_copy_only=False), sources, due_ms))
    return rows.take(pa.array(order)), order


def due_of(rows: Any) -> Any:
    """When they are due now, in milliseconds since 1970, as an array: a reschedule counts."""
    due_ms = pc.coalesce(rows.column("moved_to_ms"), rows.column("due_ms"))
    return due_ms.fill_null(0).to_numpy(zero_copy_only=False)


def chunks(rows: Any) -> Iterator[Any]:
    """Cut rows into chunks of at most `CHUNK_ROWS` rows and, unless a single row has more, some `CHUNK_BYTES`."""
    lengths = (pc.binary_length(rows.column(name)).fill_null(0) for name in _SIZED)
    sizes = np.cumsum(np.sum([length.to_numpy(zero_copy_only=False).astype(np.int64) for length in lengths], axis=0))
    start = 0
    while start < rows.num_rows:
        before = sizes[start - 1] if start else 0
        by_size = int(np.searchsorted(sizes, before + CHUNK_BYTES, "right"))
        stop = min(rows.num_rows, start + CHUNK_ROWS, max(by_size, start + 1))
        yield rows.slice(start, stop - start)
        start = stop


def replaced(rows: Any, **columns: Any) -> Any:
    """The rows with other values in these columns of `HANDED`."""
    for name, values in columns.items():
        field = HANDED.field(name)
        rows = rows.set_column(HANDED.get_field_index(name), field, pa.array(values, field.type))
    return rows


def as_repeats(rows: Any) -> Any:
    """The rows, whose dead letters say that they may be known. A deliverer drops a message that it knows, and a dead
    letter has no name to know it by.
    """
    is_letter = pc.is_valid(rows.column("reason"))
    reason = pc.binary_join_element_wise(rows.column("reason"), pa.scalar(_REPEATED), "", null_handling="emit_null")
    return replaced(rows, again=is_letter, reason=reason) if pc.any(is_letter).as_py() else rows


def names_of(rows: Any) -> list[tuple[str | None, str]]:
    """The key and the id of each row."""
    return [*zip(rows.column("key").to_pylist(), rows.column("id").to_pylist(), strict=True)]


def digest_of(name: tuple[str | None, str]) -> int:
    """64 bits for a key and an id."""
    key, id_ = name
    kept = b"-" if key is None else b"%d " % len(key) + key.encode()
    return int.from_bytes(blake2b(kept + id_.encode(), digest_size=8).digest())
