"""A file that is written beside its path and put in place when it is whole: one writer at a time, whatever crashes.

The lock is the kernel's (`flock`) on the part file itself. It is gone the moment its process is, so a part file without
a lock is what a crash left, and is written over. A forked child has a copy of the descriptor, which would keep the lock
after its parent's end: so the child closes it.
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
    """`path` with `.part` behind it, empty and locked, until `place` or `release`.

    Errors: `ValueError` if another writer has it, `OSError` if it can't be made.
    """

    def __init__(self, target: Path) -> None:
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
        self._target, self._fd = target, _CLOSED
        self.path = target.with_name(f"{target.name}.part")
        while True:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._is_there():
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
            self._close()  # between the open and the lock its writer put it in place: it is whole, and not ours

    def place(self) -> None:
        """Put it in place. Nothing may be written to it any more."""
        self.path.replace(self._target)
        self.release()

    def release(self) -> None:
        """Leave it where it is; the next writer may have it."""
        if self._fd == _CLOSED:
            return
        with contextlib.suppress(OSError):
            fcntl.flock(self._fd, fcntl.LOCK_UN)  # for the copies of a child that C code forked too
        self._close()

    def discard(self) -> None:
        """Take it away. Nothing has been written to it."""
        self.path.unlink(missing_ok=True)
        self.release()

    def _is_there(self) -> bool:
        """Whether the file that is locked is the one that has the name."""
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
