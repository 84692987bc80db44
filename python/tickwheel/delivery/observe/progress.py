"""Shows the progress of long work on standard error (rule D13): a bar on a terminal, else a line every ten seconds.

`say` prints a line of text between. Both are safe from any thread.
"""

import time
from typing import Self, TypeAlias

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tickwheel._printable import printable
from tickwheel.delivery.model.summary import Summary

_PLAIN_EVERY_S = 10


class _Bar:
    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console
        )
        self._task = self._progress.add_task("reading", total=None)

    def show(self, summary: Summary, *, reading: bool) -> None:
        """While the input is read, its end is not known and the bar has no length."""
        total = summary.accepted - summary.cancelled
        description = "reading" if reading else "delivering"
        self._progress.update(self._task, total=total, completed=summary.delivered, description=description)

    def say(self, line: str) -> None:
        """Print above the bar."""
        self._progress.console.out(printable(line), highlight=False)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()


class _Lines:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._next_s = time.monotonic() + _PLAIN_EVERY_S

    def show(self, summary: Summary, *, reading: bool) -> None:
        """Most calls print nothing."""
        if time.monotonic() >= self._next_s:
            self._next_s += _PLAIN_EVERY_S
            more = ", reading on" if reading else ""
            self.say(f"{summary.delivered:,} delivered, {summary.not_delivered:,} waiting{more}")

    def say(self, line: str) -> None:
        """Print one line, never wrapped."""
        self._console.out(printable(line), highlight=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


Reporter: TypeAlias = _Bar | _Lines
"""Shows progress inside its block. `show`: the present state, where `reading` says that more may be accepted. `say`: a
line.
"""


def reporter(console: Console, *, live: bool) -> Reporter:
    """The reporter for this console. `live=False` if other output would overwrite a bar."""
    return _Bar(console) if console.is_terminal and live else _Lines(console)
