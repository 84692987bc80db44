"""Reads files that hold secrets: tokens, keys, and the secrets that sign a webhook (rule D12).

If every user of the machine can read such a file, this is only a warning, because containers mount secrets this way. If
every user can write it, this is an error.
"""

import codecs
import os
import stat
from pathlib import Path
from typing import Final

from tickwheel._printable import logger_of
from tickwheel.delivery.base.errors import WrongUsage

_OTHERS: Final = stat.S_IROTH | stat.S_IXOTH

_log = logger_of("tickwheel.delivery")


def read_secret(option: str, path: Path, most: int) -> bytes:
    """As `read_file`, without a byte order mark at the begin. Errors: `WrongUsage`, which shows none of the bytes."""
    return read_file(option, path, most, is_secret=True).removeprefix(codecs.BOM_UTF8)


def read_file(option: str, path: Path, most: int, *, is_secret: bool = False) -> bytes:
    """The bytes of the file that an option names, at most `most`. Errors: `WrongUsage`."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(most + 1)
    except OSError as error:
        raise WrongUsage(f"{option} {path} can't be read: {error.strerror}") from error
    if len(data) > most:
        raise WrongUsage(f"{option} {path} is too large: it may have {most:,} bytes")
    if is_secret and mode & stat.S_IWOTH:
        raise WrongUsage(f"{option} {path} can be written by every user of this machine: run chmod 600 {path}")
    if is_secret and mode & _OTHERS:
        _log.warning("%s %s can be read by every user of this machine: run chmod 600 %s", option, path, path)
    return data
