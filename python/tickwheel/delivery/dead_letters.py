"""Where bad records go (rule D2): NDJSON `source, line, reason, allowed, record`, in the order of reading.

`record` is the text as it stood, so that it can be mended and given again; `{"base64": ...}` where it is not UTF-8.
"""

from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Self

import msgspec

from tickwheel.delivery.appending import open_to_append, write_lines
from tickwheel.delivery.errors import BadRecord, DeliveryFailed, WrongUsage
from tickwheel.delivery.record import Record


class DeadLetters:
    """Writes each bad record by `write(line)`, a line without its newline."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write

    @classmethod
    def to_file(cls, path: Path) -> Self:
        """Appends to `path`, until the process ends. Errors: `WrongUsage` if it can't be opened."""
        try:
            fd = open_to_append(path)
        except OSError as error:
            raise WrongUsage(f"{path} can't be written: {error.strerror}") from error
        return cls(lambda line: write_lines(fd, line.encode() + b"\n"))

    def put(self, record: Record, bad: BadRecord) -> None:
        """Errors: `DeliveryFailed` if it can't be written, as a bad record must not be lost in silence."""
        letter = {
            "source": record.source,
            "line": record.line,
            "reason": bad.reason,
            "allowed": bad.allowed,
            "record": _readable(record.data),
        }
        try:
            self._write(msgspec.json.encode(letter).decode())
        except OSError as error:
            raise DeliveryFailed(f"the dead letters can't be written: {error.strerror}") from error


def _readable(data: bytes) -> str | dict[str, str]:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}
