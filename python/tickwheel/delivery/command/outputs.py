"""Checks the output files before anything is read: each in an existing folder, and none used for two purposes.

A file is known by its path without symbolic links.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.delivery.read.sources import Source
from tickwheel.delivery.sinks.sqlite import holds_no_row


class NewOutputs:
    """The outputs among these paths that are not there yet: a start that fails leaves none of them behind (D13)."""

    def __init__(self, *paths: Path | None) -> None:
        self._new = [path for path in paths if path is not None and not _is_there(path)]

    def remove_unused(self) -> None:
        """Remove each new file that holds nothing: an empty file, or a database without a row."""
        for path in self._new:
            with suppress(OSError, ValueError):
                if path.is_file() and (path.stat().st_size == 0 or holds_no_row(path)):
                    path.unlink()


def _is_there(path: Path) -> bool:
    try:
        path.lstat()
    except (OSError, ValueError):  # no name that a file can have
        return False
    return True


def check_outputs(outputs: Mapping[str, Path | None], sources: Sequence[Source]) -> None:
    """`outputs` by option; `None`: not used. Errors: `WrongUsage`."""
    taken = {source.path.resolve(): "an input" for source in sources if source.path is not None}
    for option, path in outputs.items():
        if path is None:
            continue
        if "\0" in str(path):
            raise WrongUsage(f"{option}: {str(path)!r} has a NUL byte, which no path can have: name another file")
        try:
            path.lstat()
        except FileNotFoundError:
            pass
        except OSError as error:
            raise WrongUsage(f"{option}: {path} can't be used: {error.strerror}: name another file") from error
        if not path.parent.is_dir():
            raise WrongUsage(f"{option}: there is no folder {path.parent}: make it, or name another file")
        if path.is_dir():
            raise WrongUsage(f"{option}: {path} is a folder: name a file")
        if (name := path.resolve()) in taken:
            raise WrongUsage(f"{option}: {path} is already {taken[name]}: name another file")
        taken[name] = f"the file of {option}"
