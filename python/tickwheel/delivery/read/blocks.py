"""Reads a byte stream in blocks of whole lines, for the engine, which splits and parses them (rules D8, D11).

Lines that have come are given out before more is waited for. Only the beginning of a line is kept if the line is longer
than a record may be.
"""

from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import NamedTuple, TypeAlias

from tickwheel.delivery.model.entries import Progress

_SIZE = 1 << 18
_MANY_LINES = 1 << 12  # a record takes some 500 bytes, however short its line is
_KEPT = 1024  # bytes of a line that is too long
WallNs: TypeAlias = Callable[[], int | None]


class Block(NamedTuple):
    """`left_out`: bytes of the last line that are not in `data`. `line`: the number of the last line, from 1."""

    data: bytes
    first_line: int
    line: int
    left_out: int = 0


class LineBlocks:
    """The blocks of a stream. `read` gives what has come, at most so many bytes, and nothing at the end."""

    def __init__(self, read: Callable[[int], bytes], max_line: int) -> None:
        self._read = read
        self._max_line = max_line
        self._digest = blake2b(digest_size=16)
        self._size = 0
        self._line = 0

    def __iter__(self) -> Iterator[Block]:
        rest, size = b"", _SIZE >> 5
        while data := self._read(size):
            end = data.rfind(b"\n") + 1
            if end:
                block = self._block(rest + data[:end] if rest else data[:end])
                size = size >> 1 if block.line - block.first_line >= _MANY_LINES else min(size << 1, _SIZE)
                yield block
                rest = data[end:]
            else:
                rest += data
            if len(rest) > self._max_line:
                kept, size = rest[:_KEPT], len(rest)
                more, rest = self._skip(rest)
                self._line += 1
                yield Block(kept, self._line, self._line, size + more - _KEPT)
        if rest:
            yield self._block(rest)

    def progress(self, name: str) -> Progress:
        """What to keep once the last block is taken, and all before it."""
        return Progress(name, self._line, self._size, self._digest.digest())

    def _block(self, data: bytes) -> Block:
        self._take(data)
        first = self._line + 1
        self._line += data.count(b"\n") + (not data.endswith(b"\n"))
        return Block(data, first, self._line)

    def _take(self, data: bytes) -> None:
        self._digest.update(data)
        self._size += len(data)

    def _skip(self, beginning: bytes) -> tuple[int, bytes]:
        """Reads to the end of the line: how many bytes that were, and what was read beyond it."""
        self._take(beginning)
        skipped = 0
        while data := self._read(_SIZE):
            end = data.find(b"\n") + 1
            self._take(data[: end or None])
            skipped += end or len(data)
            if end:
                rest = data[end:]
                return skipped, rest
        return skipped, b""
