"""The names of messages that are cancelled (rules S2, D7): a message that waits ends when its shard reads it.

    a cancel --> its name, 400 days --meets the message--> both end --> its name, 7 days --> gone

No search: a message meets its cancel where it comes, where runs are merged, and before it leaves. So a name also stays
until each chunk that is older than its cancel is gone, or written again. A run is written again once so many cancels
came since that they are half of all that waits.

Names are in sorted batches, the oldest first. A visit without rows reads none. Once a day, if a name is over, all
batches are joined.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tickwheel.spark.packing import digests_of
from tickwheel.spark.shard_index import Chunks, Index, Names

_DAY_MS: Final = 86_400_000
_UNMET_MS: Final = 400 * _DAY_MS
_MET_MS: Final = 7 * _DAY_MS
"""As a deliverer's `--keep-ids` if it is not given."""
_LARGER: Final = 8
_NAMES: Final = np.dtype([("name", "S16"), ("until_ms", "<i8"), ("chunk", "<i8")])
"""A name stays until `until_ms`, and while a message waits in a chunk before `chunk`."""


class Cancels:
    """The cancelled names of a shard in one visit. They are written by `write`, at its end."""

    def __init__(self, index: Index, chunks: Chunks, number: int, now_ms: int) -> None:
        self._index = index
        self._chunks = chunks
        self._now_ms = now_ms
        self._hour_ms = number * _DAY_MS // 64  # each shard joins its names at another time of the day
        self._new: dict[bytes, tuple[int, int]] = {}
        self.write()

    def keep(self, controls: Any) -> None:
        """Note the cancels among these rows."""
        is_cancel = pc.and_(pc.is_valid(controls.column("id")), pc.is_null(controls.column("due_ms")))
        names = np.array(digests_of(controls.filter(is_cancel)), "S16").tolist()
        until_ms, chunk = self._until(_UNMET_MS), self._index.next_chunk
        self._new |= dict.fromkeys(names, (until_ms, chunk))
        for run in self._index.runs:
            run.cancels += len(names)

    def stay(self, messages: Any) -> Any:
        """Which of these messages, of which no taker has any, are not cancelled, as an array. The others have met their
        cancels, and end: forget their new due times.
        """
        stays = np.ones(messages.num_rows, bool)
        if not (self._new or self._index.cancels):
            return stays
        digests = np.array(whole := digests_of(messages), "S16")
        for table in [*map(self._read, self._index.cancels), self._table()]:
            at = np.searchsorted(table["name"], digests)
            found = np.flatnonzero(np.append(table["name"], b"")[at] == digests)
            stays[found] = False
            for place in found.tolist():
                chunk = int(table["chunk"][at[place]])
                self._new[digests[place].item()] = self._until(_MET_MS), chunk
        for place in np.flatnonzero(~stays).tolist():
            self._index.moved.pop(whole[place], None)
        return stays

    def without(self, messages: Any) -> Any:
        """The messages that stay."""
        stays = self.stay(messages)
        return messages if stays.all() else messages.filter(pa.array(stays))

    def write(self) -> None:
        """Write the names that are new. Join small batches, and all of them if a name is over, which is forgotten."""
        batches, now_ms = self._index.cancels, self._now_ms
        has_over = any(it.until_ms <= now_ms for it in batches)
        tables = [self._table()] if self._new else []
        while batches and (has_over or (tables and batches[-1].rows < _LARGER * sum(map(len, tables)))):
            tables.insert(0, self._read(batches.pop()))
        if tables:
            self._write(_last_of(tables))

    def _write(self, names: Any) -> None:
        oldest = min((part.chunk for part in self._index.parts()), default=self._index.next_chunk)
        is_over = names["until_ms"] <= self._now_ms
        names["until_ms"][is_over] = self._until(0)
        names = names[~is_over | (names["chunk"] > oldest)]
        if len(names):
            chunk = self._chunks.put(names, np.ndarray.tobytes)
            self._index.cancels.append(Names(chunk, len(names), int(names["until_ms"].min())))

    def _until(self, for_ms: int) -> int:
        """The day's end after that."""
        return (self._now_ms + for_ms - self._hour_ms) // _DAY_MS * _DAY_MS + _DAY_MS + self._hour_ms

    def _read(self, batch: Names) -> Any:
        return self._chunks.get(batch.chunk, lambda data: np.frombuffer(data, _NAMES))

    def _table(self) -> Any:
        return np.array([(name, *it) for name, it in sorted(self._new.items())], _NAMES)


def _last_of(tables: Sequence[Any]) -> Any:
    """These in one, sorted; of the same name the last counts: one that met its message, or a cancel after that."""
    names = np.concatenate(tables)
    names = names[np.argsort(names["name"], kind="stable")]
    return names[np.append(names["name"][1:] != names["name"][:-1], True)]
