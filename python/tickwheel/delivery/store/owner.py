"""One process at a time works with a store (rule D9): an operating system's lock on a file beside it.

The lock is the kernel's (`flock`), and gone the moment its process is, however it ended; one that was paused still
has it. A lease, by contrast, runs out while its owner sleeps, who then wakes up as a second one. Network file systems
are refused, as their locks may be lost, or be those of one host alone; so are they for SQLite's own locks.
"""

import contextlib
import fcntl
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tickwheel.delivery.errors import StoreFailed, WrongUsage

_NETWORK: Final = {
    "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "fuse.ceph", "fuse.davfs", "fuse.gcsfuse", "fuse.glusterfs",
    "fuse.s3fs", "fuse.sshfs", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "smb3", "smbfs",
}  # fmt: skip
_OCTAL: Final = re.compile(r"\\([0-7]{3})")  # how a space is written, and a backslash
_MOUNTS: Final = Path("/proc/self/mountinfo")


class Ownership:
    """Held until `release`, or until the process ends. A forked child doesn't have it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        os.register_at_fork(after_in_child=self._close)

    @classmethod
    def of(cls, store: Path, waiting: Callable[[str], object] | None = None) -> "Ownership":
        """Wait until this process alone has the store; `waiting` is told once, if another has it.

        Errors: `WrongUsage` for a network file system, `StoreFailed` if the folder can't be written.
        """
        store = store.resolve()
        if not store.parent.is_dir():
            raise WrongUsage(f"there is no folder {store.parent}: make it, or name another store")
        if store.is_dir():
            raise WrongUsage(f"{store} is a folder: name a file for the store")
        refuse_network(store.parent)
        lock = store.with_name(store.name + ".lock")
        try:
            fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreFailed(f"{lock} can't be written: {error.strerror}; the store's folder must be") from error
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if waiting is not None:
                    waiting(f"another process works with {store}{_owner(fd)}: waiting for it to end")
                fcntl.flock(fd, fcntl.LOCK_EX)
            with contextlib.suppress(OSError):  # on a full disk; it is for people alone
                os.ftruncate(fd, 0)
                os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        except BaseException:
            os.close(fd)
            raise
        return cls(fd)

    def release(self) -> None:
        """Another process may have it now."""
        self._close()

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)  # in a forked child: its copy alone
            self._fd = -1


def refuse_network(folder: Path, mounts: str | None = None) -> None:
    """Errors: `WrongUsage` if `folder` is on a network file system. `mounts` is what Linux tells of its mounts."""
    if mounts is None:
        if not sys.platform.startswith("linux"):
            return
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    kind = _kind_of(folder.resolve(), mounts)
    if kind in _NETWORK:
        raise WrongUsage(
            f"{folder} is on a network file system ({kind}), whose locks can't be relied on: use a local disk"
        )


def _kind_of(folder: Path, mounts: str) -> str:
    """Of the mount with the longest path that leads to the folder; of equal ones the last, which hides the others."""
    best, kind = -1, ""
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        point = _OCTAL.sub(lambda found: chr(int(found[1], 8)), left.split(" ")[4])
        if folder.is_relative_to(point) and len(point) >= best:
            best, kind = len(point), right.split(" ")[0]
    return kind


def _owner(fd: int) -> str:
    pid = os.pread(fd, 20, 0).decode("ascii", "replace").strip()
    return f" (process {pid})" if pid.isdigit() else ""
