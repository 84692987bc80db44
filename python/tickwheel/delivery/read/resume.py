"""Continues an input where an earlier run stopped (rules D5, D11).

If an input still begins with the bytes that the earlier run has read, the records taken then are skipped.
Otherwise it is another input under the same name: it is read whole, and its known messages are duplicates. Standard
input can't be continued.
"""

from hashlib import blake2b
from typing import BinaryIO

from tickwheel.delivery.model.entries import Progress

_CHUNK = 1 << 20


class WatchedWhole:
    """A file not read from start to end. It is the same file if size and digest of the whole file are the same."""

    def __init__(self, stream: BinaryIO) -> None:
        digest, self._size = blake2b(digest_size=16), 0
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
            self._size += len(chunk)
        self._digest = digest.digest()
        stream.seek(0)

    def progress(self, name: str, line: int) -> Progress:
        """The progress to keep once the record of this line, and all before it, are taken."""
        return Progress(name, line, self._size, self._digest)


def lines_taken(stream: BinaryIO, before: Progress | None, *, is_text: bool = True) -> int:
    """The last line that an earlier run took from this input; 0 for another input. Leaves the stream at its start.

    A last line of text without its newline was perhaps not finished then: if there is more now, it is read again.
    """
    if before is None:
        return 0
    digest, left, last = blake2b(digest_size=16), before.size, b""
    while left and (chunk := stream.read(min(left, _CHUNK))):
        digest.update(chunk)
        left -= len(chunk)
        last = chunk[-1:]
    has_grown = stream.read(1) != b""
    stream.seek(0)
    if left or digest.digest() != before.digest:
        return 0
    return before.line - 1 if has_grown and is_text and last != b"\n" else before.line
