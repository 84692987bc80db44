"""The file of `--log-file`: the lines of tickwheel alone, which are between Spark's on standard error (D15)."""

import logging
import os
from contextlib import suppress
from io import TextIOWrapper
from logging.handlers import WatchedFileHandler
from pathlib import Path

from tickwheel.delivery.base.appending import open_to_append
from tickwheel.delivery.base.errors import WrongUsage


class LogFile(WatchedFileHandler):
    """Appends lines to `path`, for its owner alone. A file that was moved, as by logrotate, is made anew.

    A line that can't be written is only on standard error. Errors: `WrongUsage` if the file can't be opened.
    """

    def __init__(self, path: Path) -> None:
        try:
            super().__init__(path)
        except OSError as error:
            raise WrongUsage(
                f"--log-file {path} can't be written: {error.strerror}: name a file that the driver can write"
            ) from error

    def _open(self) -> TextIOWrapper:
        return os.fdopen(open_to_append(Path(self.baseFilename)), "a", encoding="utf-8")

    def emit(self, record: logging.LogRecord) -> None:
        """Write the line, if that is possible now."""
        with suppress(OSError):
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Say nothing: the line is on standard error, and so is a full disk soon."""
