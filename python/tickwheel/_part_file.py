"""A file that is written under another name. A complete file is moved to its path. There is one writer at a time.

The lock is the kernel's (`flock`) on the part file itself. The kernel releases it when the process ends, so a part
file without a lock was left by a crash, and is overwritten. A forked child has a copy of the descriptor, which would
keep the lock after the end of its parent: so the child closes it.
"""

import contextlib
import errno
import fcntl
import os
import weakref
from pathlib import Path
from typing import Final

_CLOSED: Final = -1
_open: "weakref.WeakSet[PartFile]" = weakref.WeakSet()


class PartFile:
    """The file `path` with `.part` appended, empty and locked, until `place` or `release`.

    Errors: `ValueError` if another writer has it, `OSError` if it can't be made, or would replace a device or a pipe.
    """

    def __init__(self, target: Path) -> None:
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
        if target.exists() and not target.is_file():
            raise FileExistsError(errno.EEXIST, "it is a device or a pipe, not a file: name a file", str(target))
        self._target, self._fd = target, _CLOSED
        self.path = target.with_name(f"{target.name}.part")
        while True:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._is_current():
                    os.ftruncate(self._fd, 0)
                    _open.add(self)
                    return
            except BlockingIOError:
                self._close()
                raise ValueError(
                    f"{target} is being recorded already: close that recording first, or name another file"
                ) from None
            except BaseException:
                self._close()
                raise
            self._close()  # its writer moved it to its path between the open and the lock: open a new one

    def place(self) -> None:
        """Move it to its path. It must be complete."""
        self.path.replace(self._target)
        self.release()

    def release(self) -> None:
        """Leave it where it is; the next writer may lock it."""
        if self._fd == _CLOSED:
            return
        with contextlib.suppress(OSError):
            fcntl.flock(self._fd, fcntl.LOCK_UN)  # also for the copy in a child that C code forked
        self._close()

    def discard(self) -> None:
        """Remove it. Nothing has been written to it."""
        self.path.unlink(missing_ok=True)
        self.release()

    def _is_current(self) -> bool:
        """Whether the locked file still has this name."""
        with contextlib.suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(self._fd), self.path.stat())
        return False

    def _close(self) -> None:
        _open.discard(self)
        fd, self._fd = self._fd, _CLOSED
        if fd != _CLOSED:
            os.close(fd)


def _close_in_child() -> None:
    for part in list(_open):
        part._close()


os.register_at_fork(after_in_child=_close_in_child)
