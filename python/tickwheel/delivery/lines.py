"""Lines of a byte stream, each as soon as it is there, bounded in memory: what records of text formats are made of.

A line ends with a newline, which it keeps. Of one that is longer than `MAX_RECORD` only the beginning is kept, and
its `size` tells. A byte order mark at the start of the stream is dropped.
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from tickwheel.delivery.errors import BadRecord
from tickwheel.delivery.message import MAX_PAYLOAD

MAX_RECORD = 2 * MAX_PAYLOAD
"""Bytes of one record: a payload may be up to twice as long when written as base64 or with doubled quotes."""

_KEPT = 1024
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Line(NamedTuple):
    """`number` counts from 1; `size` is the whole length in bytes, also where `data` is only the beginning."""

    number: int
    data: bytes
    size: int

    def text(self) -> str:
        """The line as text; `BadRecord` if it is too long or not UTF-8."""
        if self.size > MAX_RECORD:
            raise BadRecord(
                f"the record has {self.size:,} bytes, only the first {_KEPT:,} are kept here",
                f"at most {MAX_RECORD:,} bytes",
            )
        try:
            return self.data.decode()
        except UnicodeDecodeError as error:
            raise BadRecord(
                f"byte {error.start + 1} of the line is not UTF-8", "UTF-8 text; other bytes as payload_base64"
            ) from None


class LineStream(Protocol):
    """What is needed of a stream of bytes."""

    def readline(self, limit: int = -1, /) -> bytes:
        """A line with its end, or so many bytes of it; nothing at the end."""


def read_lines(stream: LineStream) -> Iterator[Line]:
    """The lines of `stream`, each as soon as it is there."""
    number = 0
    while data := stream.readline(MAX_RECORD + 1):
        number += 1
        size = len(data)
        if size > MAX_RECORD:
            size += _skip_rest(stream) if not data.endswith(b"\n") else 0
            data = data[:_KEPT]
        yield Line(number, data.removeprefix(_BYTE_ORDER_MARK) if number == 1 else data, size)


def _skip_rest(stream: LineStream) -> int:
    skipped = 0
    while data := stream.readline(MAX_RECORD):
        skipped += len(data)
        if data.endswith(b"\n"):
            break
    return skipped
