"""The sink for standard output and files: appends one NDJSON line per message at once, without a buffer of its own.

If the reader of a pipe is slow, a write waits: that is back-pressure, and a time-out would leave a partial line. If a
write fails, the run ends, because a retry would probably fail for every message. Lines are synced to the disk before
their messages count as delivered.
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
    """Writes to a file descriptor, and closes it at the end if the sink opened it."""

    max_batch: ClassVar[int] = 64  # small, so that `delivered_at` is right for the last one too
    is_cut_off: ClassVar[bool] = False

    def __init__(self, fd: int, *, owned: bool) -> None:
        self._fd = fd
        self._owned = owned

    @classmethod
    def of_standard_output(cls) -> Self:
        """Writes directly, not to `sys.stdout`, whose buffer would fail again at exit if the reader has gone."""
        return cls(_STDOUT, owned=False)

    @classmethod
    def of_path(cls, path: Path) -> Self:
        """Opens a file to append to it. Errors: `OSError`."""
        return cls(open_to_append(path), owned=True)

    def send(self, deliveries: Sequence[Delivery]) -> Refusals:
        """One write for all deliveries. Errors: `DeliveryFailed`."""
        try:
            write_lines(self._fd, b"".join(map(line_of, deliveries)))
        except OSError as error:
            part = f"the last {len(deliveries)} may be written in part"
            raise DeliveryFailed(f"the destination can't be written: {error.strerror}; {part}") from error
        return NONE_REFUSED

    def sync(self) -> None:
        """Sync to disk, if there is one."""
        try:
            sync(self._fd)
        except OSError as error:
            raise DeliveryFailed(f"the destination can't be synced to disk: {error.strerror}") from error

    def close(self) -> None:
        """Errors: `OSError`, because some file systems report a full disk only now."""
        if self._owned:
            os.close(self._fd)
