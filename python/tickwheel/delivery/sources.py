"""The sources to read: files, folders and standard input, in a fixed order. The suffix of a file is its format.

A folder stands for all files in it and below, by name, except names that begin with a dot or an underscore, as in
Spark. Standard input (`-`) is NDJSON and may never end.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from tickwheel.delivery.blocks import Block, LineBlocks
from tickwheel.delivery.csv_rows import read_csv
from tickwheel.delivery.entries import Progress
from tickwheel.delivery.errors import DeliveryFailed, WrongUsage
from tickwheel.delivery.message import Columns
from tickwheel.delivery.ndjson import read_ndjson
from tickwheel.delivery.parquet import need_pyarrow, read_parquet
from tickwheel.delivery.record import Record
from tickwheel.delivery.resume import Watched, WatchedWhole, lines_taken

_LINES = (".ndjson", ".jsonl")
_TEXT = {".ndjson": read_ndjson, ".jsonl": read_ndjson, ".csv": read_csv}
_SUFFIXES = [*_TEXT, ".parquet"]
_STDIN = 0


class Source(NamedTuple):
    """One stream of records; `path` is `None` for standard input."""

    name: str
    path: Path | None


def find_sources(inputs: Sequence[str]) -> list[Source]:
    """Every file that the inputs stand for, in their order. Errors: `WrongUsage`, before anything is read."""
    if inputs.count("-") > 1:
        raise WrongUsage("standard input (-) is given twice, but it can be read only once: give it once")
    return [source for given in inputs for source in _expand(given)]


class OpenSource:
    """The records of a source, without those that an earlier run took. `before`: the progress of that run, by name."""

    def __init__(self, source: Source, columns: Columns, before: Mapping[str, Progress]) -> None:
        self.source = source
        self._columns = columns
        self._name = shown(source.path.resolve()) if source.path else ""
        self._before = before.get(self._name)
        self._watched: Watched | WatchedWhole | None = None
        self.is_ndjson = source.path is None or source.path.suffix.lower() in _LINES
        self.after = 0

    def __iter__(self) -> Iterator[Record]:
        """The records; can be used once, instead of `lines`. Errors: `DeliveryFailed` if the source can't be read."""
        try:
            if self.source.path is None:
                # Not sys.stdin: a thread that waits in its lock aborts the interpreter at exit.
                with open(_STDIN, "rb", closefd=False) as stream:
                    yield from read_ndjson(self.source.name, stream, self._columns)
            else:
                with self.source.path.open("rb") as stream:
                    yield from self._of_file(self.source.path, stream)
        except OSError as error:
            raise DeliveryFailed(f"{self.source.name} can't be read: {error.strerror}") from error

    def lines(self, max_line: int) -> "Iterator[tuple[Block, Progress | None]]":
        """The blocks of a source that is NDJSON, each with what to keep once it is taken. `after` is known from then on.

        Errors: `DeliveryFailed` if the source can't be read.
        """
        path = self.source.path
        try:
            # Not sys.stdin: a thread that waits in its lock aborts the interpreter at exit.
            with open(_STDIN if path is None else path, "rb", buffering=0, closefd=path is not None) as stream:
                if path is not None:
                    self.after = lines_taken(stream, self._before)
                blocks = LineBlocks(stream.read, max_line)
                for block in blocks:
                    yield block, blocks.progress(self._name) if path is not None else None
        except OSError as error:
            raise DeliveryFailed(f"{self.source.name} can't be read: {error.strerror}") from error

    def progress(self, line: int) -> Progress | None:
        """What to keep once the record of this line is taken, and all before it; `None` where there is no way back."""
        return self._watched.progress(self._name, line) if self._watched else None

    def _of_file(self, path: Path, stream: BinaryIO) -> Iterator[Record]:
        taken = lines_taken(stream, self._before)
        read_text = _TEXT.get(path.suffix.lower())
        if read_text is None:
            self._watched = WatchedWhole(stream)
            return read_parquet(self.source.name, stream, self._columns, taken)
        self._watched = watched = Watched(stream)
        return read_text(self.source.name, watched, self._columns, taken)


def _expand(given: str) -> list[Source]:
    if given == "-":
        return [Source("-", None)]
    path = Path(given)
    if not path.is_dir():
        return [_source(path)]
    found = [_source(file) for file in sorted(path.rglob("*")) if file.is_file() and not _is_hidden(file, path)]
    if not found:
        raise WrongUsage(f"{given} holds no files: give a folder with {', '.join(_SUFFIXES)} files")
    return found


def _source(path: Path) -> Source:
    if path.suffix.lower() not in _SUFFIXES:
        raise WrongUsage(
            f"{path}: the suffix says the format, and may be {', '.join(_SUFFIXES)}: rename it, or pipe it to -"
        )
    if not path.exists():
        raise WrongUsage(f"{path} does not exist: give files, folders, or - for standard input")
    if path.suffix.lower() == ".parquet":
        need_pyarrow()
    return Source(shown(path), path)


def shown(path: Path) -> str:
    """A path as text that can be written, whatever bytes it holds."""
    return os.fsencode(path).decode(errors="backslashreplace")


def _is_hidden(file: Path, folder: Path) -> bool:
    return any(part.startswith((".", "_")) for part in file.relative_to(folder).parts)
