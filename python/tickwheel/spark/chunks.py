"""The chunks of a shard during a visit: some rows each, written once."""

from collections.abc import Set
from typing import Any, Protocol

from tickwheel.spark.packing import pack, unpack
from tickwheel.spark.shard_index import Index


class ChunkState(Protocol):
    """Keeps chunks by number: in Spark a map state."""

    def get(self, number: int) -> bytes:
        """A chunk that was put."""

    def put(self, number: int, chunk: bytes) -> None:
        """Keep a chunk."""

    def remove(self, number: int) -> None:
        """Forget a chunk."""


class Chunks:
    """Writes and reads them, each at most once in a visit. `index` has their numbers."""

    def __init__(self, index: Index, state: ChunkState) -> None:
        self._index = index
        self._state = state
        self._before: set[int] = index.chunks()
        self._read: dict[int, Any] = {}

    def put(self, rows: Any) -> int:
        """Keep rows; their number."""
        number = self._index.next_chunk
        self._index.next_chunk += 1
        self._state.put(number, pack(rows))
        self._before.add(number)
        self._read[number] = rows
        return number

    def get(self, number: int) -> Any:
        """The rows of a chunk."""
        if number not in self._read:
            self._read[number] = self.peek(number)
        return self._read[number]

    def peek(self, number: int) -> Any:
        """The same, without keeping them in memory."""
        return unpack(self._state.get(number))

    def keep_only(self, needed: Set[int]) -> None:
        """Forget the others."""
        for number in self._before - needed:
            self._state.remove(number)
