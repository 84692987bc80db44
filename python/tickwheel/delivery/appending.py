"""Appends whole lines to a file: what earlier runs wrote is never lost.

If a crash truncated the last line, it gets a newline first, so that it can't join a new one. Writes go directly to the
operating system: once `write_lines` has returned, another process sees them, though they may not be on disk yet.
"""

import errno
import os
from pathlib import Path

_NO_DISK = {errno.EINVAL, errno.EROFS, errno.ENOTSUP}  # a sync of a pipe, a terminal or /dev/null


def open_to_append(path: Path) -> int:
    """The file descriptor of `path`, which is created if it does not exist. Errors: `OSError`."""
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    size = os.fstat(fd).st_size
    if size and os.pread(fd, 1, size - 1) != b"\n":
        write_lines(fd, b"\n")
    return fd


def write_lines(fd: int, lines: bytes) -> None:
    """Write all of `lines`. Errors: `OSError`, and then a part may have been written."""
    left = memoryview(lines)
    while left:
        left = left[os.write(fd, left) :]


def sync(fd: int) -> None:
    """Sync it to disk, if it is on one. Errors: `OSError`."""
    try:
        os.fdatasync(fd)
    except OSError as error:
        if error.errno not in _NO_DISK:
            raise
