"""Writes dead letters (rule D2): NDJSON `source, line, reason, allowed, record`, in order.

`record` is the original text, so that it can be corrected and given again; `{"base64": ...}` if it is not UTF-8.
"""

import errno
import os
from base64 import b64encode
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from tickwheel._native import refuse_open_store
from tickwheel.delivery.base.appending import file_at, open_to_append, sync, write_lines
from tickwheel.delivery.base.errors import DeliveryFailed, WrongUsage
from tickwheel.delivery.model.entries import Letter

PutLetters = Callable[[Sequence[Letter]], None]
"""Writes dead letters, durably where that is possible. Errors: `DeliveryFailed`: none may be lost silently."""


def to_file(path: Path) -> PutLetters:
    """Appends to `path`, until the process ends. A missing file is made with the first dead letter, and made anew if it
    was moved or removed (D10). Errors: `WrongUsage` if it can't be opened.
    """
    refuse_open_store(path)
    fd: int | None = None
    try:
        if path.exists() and path.samefile(os.devnull):
            raise WrongUsage(f"{path} keeps no dead letters: name a file, or leave them to standard error")
        if path.exists():
            fd = open_to_append(path)
        elif not os.access(path.parent, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise WrongUsage(f"{path} can't be written: {error.strerror}: name a file that can") from error

    def put(letters: Sequence[Letter]) -> None:
        nonlocal fd
        try:
            if fd is not None and not _is_at(fd, path):
                os.close(fd)
                fd = None
            fd = open_to_append(path) if fd is None else fd
            write_lines(fd, b"".join(line_of(letter) + b"\n" for letter in letters))
            sync(fd)
        except OSError as error:
            advice = f"make room for {path}, or name another file, and run again"
            raise DeliveryFailed(f"the dead letters can't be written: {error.strerror}: {advice}") from error

    return put


def _is_at(fd: int, path: Path) -> bool:
    """Whether the open file is still the one at `path`."""
    status = os.fstat(fd)
    return file_at(path) == (status.st_dev, status.st_ino)


def to_lines(say: Callable[[str], object], failure: Callable[[], OSError | None] = lambda: None) -> PutLetters:
    """Calls `say` with one line for each dead letter; then `failure` returns the error if this line was lost."""

    def put(letters: Sequence[Letter]) -> None:
        for letter in letters:
            say(line_of(letter).decode())
            if error := failure():
                raise DeliveryFailed(
                    f"the dead letters can't be written to standard error: {error.strerror}: run again with "
                    "--dead-letters FILE"
                )

    return put


def line_of(letter: Letter) -> bytes:
    """As JSON, without a newline."""
    return msgspec.json.encode(
        {
            "source": letter.source,
            "line": letter.line,
            "reason": letter.reason,
            "allowed": letter.allowed,
            "record": _readable(letter.record),
        }
    )


def _readable(data: bytes) -> str | dict[str, str]:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}
