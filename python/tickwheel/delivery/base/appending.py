"""Appends whole lines to a file: what earlier runs wrote is never lost.

If a crash truncated the last line, it gets a newline first, so that it can't join a new one. Writes go directly to the
operating system: once `write_lines` has returned, another process sees them, though they may not be on disk yet.
"""

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

_NO_DISK = {errno.EINVAL, errno.EROFS, errno.ENOTSUP}  # a sync of a pipe, a terminal or /dev/null


def open_to_append(path: Path) -> int:
    """The file descriptor of `path`, which is created if it does not exist: for its owner alone, and not behind a link
    (D12). Errors: `OSError`.
    """
    with suppress(FileExistsError):
        make(path)
    if stat.S_ISFIFO(path.stat().st_mode):
        return _open_pipe(path)
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
    status = os.fstat(fd)
    if status.st_size and os.pread(fd, 1, status.st_size - 1) != b"\n":
        write_lines(fd, b"\n")
    if not status.st_size and stat.S_ISREG(status.st_mode):
        _sync_folder(path)
    return fd


def _open_pipe(path: Path) -> int:
    """Opens a pipe that has a reader. If this process could read it too, a pipe without a reader would take lines,
    which would be lost at its close.
    """
    try:
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # it does not wait for a reader
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise OSError(errno.ENXIO, "it is a pipe without a reader") from None
        raise
    os.set_blocking(fd, True)
    return fd


def make(path: Path) -> None:
    """Make an empty file that only its owner may read. Errors: `OSError`, as if something is there, also a link."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))


def file_at(path: Path) -> tuple[int, int] | None:
    """The device and the inode of the file that is at `path` now. If they change, the file was moved or removed."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _sync_folder(path: Path) -> None:
    """Sync the name of a new file, which can be lost when the power fails, though its contents were synced."""
    try:
        folder = os.open(path.resolve().parent, os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError:  # files may be made in it, but not listed
        return
    try:
        sync(folder)
    finally:
        os.close(folder)


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
