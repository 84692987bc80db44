"""Checks the output files before anything is read: each in an existing folder, and none used for two purposes.

A file is known by its path without symbolic links, and by its number in the file system: two names may be one file. The
files that SQLite keeps beside a store are the store's too.
"""

import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.delivery.read.sources import Source
from tickwheel.delivery.sinks.sqlite import holds_no_row

_OF_SQLITE = b"SQLite format 3\0"  # a database begins so
_BESIDE_A_STORE = ("-wal", "-shm", "-journal", ".lock")


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
    taken = {name: "an input" for source in sources if source.path is not None for name in _names_of(source.path)}
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
        files = [path, *_beside_store(path)] if option in ("--store", "TARGET") else [path]
        names = [name for file in files for name in _names_of(file)]
        for name in names:
            if name in taken:
                raise WrongUsage(f"{option}: {path} is already {taken[name]}: name another file")
        taken |= dict.fromkeys(names, f"the file of {option}")
    for option, path in outputs.items():
        if path is not None and (main := _main_file(path)) is not None:
            raise WrongUsage(f"{option}: {path} is the name of a file that SQLite keeps for {main}: name another file")


def _beside_store(path: Path) -> list[Path]:
    store = path.resolve()
    return [store.with_name(f"{store.name}{suffix}") for suffix in _BESIDE_A_STORE]


def _main_file(path: Path) -> Path | None:
    for suffix in _BESIDE_A_STORE:
        main = path.with_name(path.name.removesuffix(suffix) or path.name)
        if main != path and main.is_file():
            with suppress(OSError), main.open("rb") as file:
                if file.read(len(_OF_SQLITE)) == _OF_SQLITE:
                    return main
    return None


def _names_of(path: Path) -> list[object]:
    """The names by which files are compared: the path, and for an existing regular file its device and inode."""
    try:
        found = path.stat()
    except OSError:
        return [path.resolve()]
    return [path.resolve(), *([(found.st_dev, found.st_ino)] if stat.S_ISREG(found.st_mode) else [])]
