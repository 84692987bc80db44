"""The sink for standard output and files: one NDJSON line a message, appended, at once, with no buffer of its own.

A write that blocks, as the reader of a pipe is slow, waits: that is back-pressure, and cutting it off would cut a line.
A write that fails ends the run, as trying again would be likely to fail for every message there is. What was written
is synced to the disk before it counts as delivered.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Self

from tickwheel.delivery.appending import open_to_append, sync, write_lines
from tickwheel.delivery.errors import DeliveryFailed
from tickwheel.delivery.sinks.lines import line_of
from tickwheel.delivery.sinks.sink import NONE_REFUSED, Delivery, Refusals, Sink

_STDOUT = 1


class FileSink(Sink):
    """Writes to a file descriptor, and closes it at the end if it opened it."""

    max_batch: ClassVar[int] = 64  # so that the last one's time of sending is not stale
    is_cut_off: ClassVar[bool] = False

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

    def send(self, deliveries: Sequence[Delivery]) -> Refusals:
        """One write for all of them. Errors: `DeliveryFailed`."""
        try:
            write_lines(self._fd, b"".join(map(line_of, deliveries)))
        except OSError as error:
            part = f"the last {len(deliveries)} may be there in part"
            raise DeliveryFailed(f"the destination takes no more: {error.strerror}; {part}") from error
        return NONE_REFUSED

    def sync(self) -> None:
        """On disk, where there is one."""
        try:
            sync(self._fd)
        except OSError as error:
            raise DeliveryFailed(f"the destination can't be made durable: {error.strerror}") from error

    def close(self) -> None:
        """Errors: `OSError`, as some file systems tell only now that the disk is full."""
        if self._owned:
            os.close(self._fd)
