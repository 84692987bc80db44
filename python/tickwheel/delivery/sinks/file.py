"""The sink for standard output and files: one NDJSON line a message, appended, at once, with no buffer of its own.

A line: `id, key, due, payload` (or `payload_base64`), `delivered_at, lateness_ms, attempt, redelivered`; times are RFC
3339 in UTC with milliseconds, and `lateness_ms` is rounded to the microsecond.
"""

import os
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import msgspec

from tickwheel.delivery.appending import open_to_append, write_lines
from tickwheel.delivery.sinks.sink import Delivery
from tickwheel.delivery.times import rfc_3339

_STDOUT = 1


class FileSink:
    """Writes to a file descriptor, and closes it at the end if it opened it."""

    def __init__(self, fd: int, *, owned: bool) -> None:
        self._fd = fd
        self._owned = owned

    @classmethod
    def of_standard_output(cls) -> Self:
        """Past `sys.stdout` and its buffer, which would fail once more at exit when the reader has gone."""
        return cls(_STDOUT, owned=False)

    @classmethod
    def of_path(cls, path: Path) -> Self:
        """What the file holds already is kept. Errors: `OSError`."""
        return cls(open_to_append(path), owned=True)

    def send(self, deliveries: Sequence[Delivery]) -> None:
        """One write for all of them. Errors: `OSError`."""
        write_lines(self._fd, b"".join(map(line, deliveries)))

    def close(self) -> None:
        """Errors: `OSError`, as some file systems tell only now that the disk is full."""
        if self._owned:
            os.close(self._fd)


def line(delivery: Delivery) -> bytes:
    """The NDJSON line of a delivery, with its newline."""
    message = delivery.message
    payload = (
        {"payload_base64": b64encode(message.payload).decode()}
        if isinstance(message.payload, bytes)
        else {"payload": message.payload}
    )
    return (
        msgspec.json.encode(
            {
                "id": message.id,
                "key": message.key,
                "due": rfc_3339(message.due_ms),
                **payload,
                "delivered_at": rfc_3339(delivery.delivered_at_ms),
                "lateness_ms": round(delivery.lateness_ms, 3),
                "attempt": delivery.attempt,
                "redelivered": delivery.redelivered,
            }
        )
        + b"\n"
    )
