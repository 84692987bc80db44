"""Splits a byte stream into lines, for text formats: each line as soon as it is complete, in bounded memory.

A line keeps its newline. If it is longer than `MAX_RECORD`, only its beginning is kept, and `size` is still the whole
length. A byte order mark at the start of the stream is dropped.
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from tickwheel.delivery.errors import BadRecord
from tickwheel.delivery.message import MAX_PAYLOAD

MAX_RECORD = 2 * MAX_PAYLOAD
"""Bytes of one record: written as base64 or with doubled quotes, a payload may take twice its size."""

_KEPT = 1024
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Line(NamedTuple):
    """`number` counts from 1; `size` is the whole length in bytes, also where `data` is only the beginning."""

    number: int
    data: bytes
    size: int

    def text(self) -> str:
        """The line as text. Errors: `BadRecord` if it is too long or not UTF-8."""
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
    """The part of a byte stream's interface that is needed."""

    def readline(self, limit: int = -1, /) -> bytes:
        """A line with its newline, or `limit` bytes of it; empty at the end."""


def read_lines(stream: LineStream) -> Iterator[Line]:
    """The lines of `stream`, each as soon as it is complete."""
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
