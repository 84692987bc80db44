"""A file that is written beside its path and put in place when it is whole: one writer at a time, whatever crashes.

The lock is the kernel's (`flock`) on the part file itself. It is gone the moment its process is, so a part file without
a lock is what a crash left, and is written over.
"""

import contextlib
import errno
import fcntl
import os
from pathlib import Path


class PartFile:
    """`path` with `.part` behind it, empty and locked, until `place` or `release`.

    Errors: `ValueError` if another writer has it, `OSError` if it can't be made.
    """

    def __init__(self, target: Path) -> None:
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
        self._target = target
        self.path = target.with_name(f"{target.name}.part")
        while True:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._is_there():
                    os.ftruncate(self._fd, 0)
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
        with contextlib.suppress(OSError):
            fcntl.flock(self._fd, fcntl.LOCK_UN)  # for the copies of a forked child too
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
        os.close(self._fd)
