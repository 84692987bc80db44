"""Standard error, on which a command says what it does. If it can't be written, the command goes on (rule D13).

A reader of a pipe may go away, as `tee` does at a Ctrl-C, and the disk of a log may be full. Rich ends the process
then, and puts /dev/null in the place of standard output, which may be the destination.
"""

import sys
from typing import Any

from rich.console import Console


class StandardError:
    """`sys.stderr` as it is at each call, as a file that raises nothing. `failure`: why the last text is lost."""

    def __init__(self) -> None:
        self.failure: OSError | None = None

    def write(self, text: str) -> int:
        """Write the text. An `OSError` is kept in `failure`."""
        try:
            if (stderr := _real()) is not None:
                stderr.write(text)
                stderr.flush()
            self.failure = None
        except OSError as error:
            self.failure = error
        return len(text)

    def flush(self) -> None:
        """Nothing is left to write."""

    def __getattr__(self, name: str) -> Any:
        return getattr(_real(), name)

    def console(self) -> Console:
        """A console that prints here."""
        return Console(file=self)  # type: ignore[arg-type]  # it has what rich uses


def _real() -> Any:
    """While Rich shows a bar, it puts a file in the place of standard error that prints by a console, as this one."""
    return getattr(sys.stderr, "rich_proxied_file", sys.stderr)
