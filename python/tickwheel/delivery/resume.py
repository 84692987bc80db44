"""Reading an input on from where an earlier run stopped (rules D5, D11).

An input is taken for the one that was read before if it still begins with the bytes that were read then; else it is
another one under the same name and read whole, and what is known of it are duplicates. Records that were taken are
passed over. Standard input has no past.
"""

from hashlib import blake2b
from typing import BinaryIO

from tickwheel.delivery.store.inputs import Progress

_CHUNK = 1 << 20


class Watched:
    """A stream opened for reading, that knows a digest of what was read of it so far."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._digest = blake2b(digest_size=16)
        self._size = 0

    def readline(self, limit: int = -1, /) -> bytes:
        """As of the stream."""
        data = self._stream.readline(limit)
        self._digest.update(data)
        self._size += len(data)
        return data

    def progress(self, name: str, line: int) -> Progress:
        """What to keep once the record of this line is taken, and all before it."""
        return Progress(name, line, self._size, self._digest.digest())


class WatchedWhole:
    """A file that isn't read from one end to the other: it is the same while size and digest of the whole are."""

    def __init__(self, stream: BinaryIO) -> None:
        digest, self._size = blake2b(digest_size=16), 0
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
            self._size += len(chunk)
        self._digest = digest.digest()
        stream.seek(0)

    def progress(self, name: str, line: int) -> Progress:
        """What to keep once the record of this line is taken, and all before it."""
        return Progress(name, line, self._size, self._digest)


def lines_taken(stream: BinaryIO, before: Progress | None) -> int:
    """The last line that an earlier run took of this input; 0 if it is another one. Leaves the stream at its start."""
    if before is None:
        return 0
    digest, left = blake2b(digest_size=16), before.size
    while left and (chunk := stream.read(min(left, _CHUNK))):
        digest.update(chunk)
        left -= len(chunk)
    stream.seek(0)
    return before.line if not left and digest.digest() == before.digest else 0
