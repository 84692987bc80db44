"""A file that is only ever appended to, a whole line at a time: what earlier runs wrote is never lost.

A last line that a crash cut off is ended first, so that it can't run together with a new one. Writes go straight to the
operating system: once `write_lines` has returned, another process sees them, though they may not be on disk yet.
"""

import errno
import os
from pathlib import Path

_NO_DISK = {errno.EINVAL, errno.EROFS, errno.ENOTSUP}  # what pipes, terminals and /dev/null answer to a sync


def open_to_append(path: Path) -> int:
    """The file descriptor of `path`, made if it is not there. Errors: `OSError`."""
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    size = os.fstat(fd).st_size
    if size and os.pread(fd, 1, size - 1) != b"\n":
        write_lines(fd, b"\n")
    return fd


def write_lines(fd: int, lines: bytes) -> None:
    """All of `lines`, or an `OSError`; a part may have been written then."""
    left = memoryview(lines)
    while left:
        left = left[os.write(fd, left) :]


def sync(fd: int) -> None:
    """Have it on disk, where there is one. Errors: `OSError`."""
    try:
        os.fdatasync(fd)
    except OSError as error:
        if error.errno not in _NO_DISK:
            raise
