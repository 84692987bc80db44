"""The sources to read: files, folders and standard input, in a fixed order. The suffix of a file is its format.

A folder stands for all files in it and below with such a suffix, by name, except names that begin with a dot or an
underscore, as in Spark; `folders` says which files are left out. Standard input (`-`) is NDJSON or CSV, and may never
end.
"""

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from tickwheel._native import CsvRows, NdjsonLines, Records
from tickwheel.delivery.base.errors import DeliveryFailed, WrongUsage
from tickwheel.delivery.model.entries import Progress
from tickwheel.delivery.model.message import MAX_PAYLOAD, Columns
from tickwheel.delivery.read.blocks import Block, LineBlocks, WallNs
from tickwheel.delivery.read.folders import SUFFIXES, files_of, path_as_text, way_to_read
from tickwheel.delivery.read.parquet import need_pyarrow, read_parquet
from tickwheel.delivery.read.resume import WatchedWhole, lines_taken

_STDIN = 0


class Source(NamedTuple):
    """One stream of records; `path` is `None` for standard input, whose format is `stdin_format`."""

    name: str
    path: Path | None
    stdin_format: str = "ndjson"


def find_sources(
    inputs: Sequence[str], say: Callable[[str], object] = lambda _: None, stdin_format: str | None = None
) -> list[Source]:
    """Every file that the inputs stand for, in their order; `say` tells which files of a folder are left out. Errors:
    `WrongUsage`, before anything is read.
    """
    if stdin_format is not None and "-" not in inputs:
        raise WrongUsage("--format is for standard input (-) only: the format of a file is its suffix")
    if inputs.count("-") > 1:
        raise WrongUsage("standard input (-) is given twice, but it can be read only once: give it once")
    if "-" in inputs and sys.__stdin__ is None:
        raise WrongUsage("standard input is closed: open it, or name files")
    return [source for given in inputs for source in _expand(given, say, stdin_format or "ndjson")]


class Part(NamedTuple):
    """Some records of a source, in order. `line`: the line of the last record. `progress`: to be kept once these
    records, and all before them, are taken; `None` if the source can't be continued.
    """

    records: Records
    line: int
    progress: Progress | None


class OpenSource:
    """The records of a source that no earlier run took. `before`: the progress of the earlier run, by name. `now_ns`:
    the wall time from which delays count; it returns `None` in a replay. `max_payload`: bytes.
    """

    def __init__(
        self,
        source: Source,
        columns: Columns,
        before: Mapping[str, Progress],
        now_ns: WallNs = time.time_ns,
        max_payload: int = MAX_PAYLOAD,
    ) -> None:
        self._most = max_payload
        self.source = source
        self._columns = columns
        self._name = path_as_text(source.path.resolve()) if source.path else ""
        self._before = before.get(self._name)
        self._now_ns = now_ns

    @property
    def was_read(self) -> bool:
        """Whether an earlier run has read some or all of it."""
        return self._before is not None

    def __iter__(self) -> Iterator[Part]:
        """The records; can be used once. Errors: `DeliveryFailed` if the source can't be read."""
        path = self.source.path
        suffix = f".{self.source.stdin_format}" if path is None else path.suffix.lower()
        is_parquet = suffix == ".parquet"
        try:
            # Not sys.stdin: a thread waiting in its lock would abort the interpreter at exit.
            with open(
                _STDIN if path is None else path, "rb", buffering=-1 if is_parquet else 0, closefd=path is not None
            ) as stream:
                after = 0 if path is None else lines_taken(stream, self._before)
                read = {".csv": self._csv, ".parquet": self._parquet}.get(suffix, self._lines)
                yield from read(stream, after)
        except OSError as error:
            raise DeliveryFailed(f"{self.source.name} can't be read: {error.strerror}") from error

    def _lines(self, stream: Any, after: int) -> Iterator[Part]:
        lines = NdjsonLines(self.source.name, self._columns, self._most, after=after)
        blocks = LineBlocks(stream.read, 2 * self._most)
        for block in blocks:
            records = lines.read(
                block.data, first_line=block.first_line, left_out=block.left_out, now_ns=self._now_ns()
            )
            yield Part(records, block.line, blocks.progress(self._name) if self.source.path is not None else None)

    def _csv(self, stream: Any, after: int) -> Iterator[Part]:
        blocks = LineBlocks(stream.read, 2 * self._most)
        for records, line in read_csv(self.source.name, blocks, self._columns, self._now_ns, after, self._most):
            progress = blocks.progress(self._name)._replace(line=line) if self.source.path is not None else None
            yield Part(records, line, progress)

    def _parquet(self, stream: BinaryIO, after: int) -> Iterator[Part]:
        watched = WatchedWhole(stream)
        for records, line in read_parquet(self.source.name, stream, self._columns, self._now_ns, after, self._most):
            yield Part(records, line, watched.progress(self._name, line))


def read_csv(
    source: str, blocks: LineBlocks, columns: Columns, now_ns: WallNs, after: int = 0, max_payload: int = MAX_PAYLOAD
) -> Iterator[tuple[Records, int]]:
    """The records that begin after the line `after`, each time with the line where the last one begins. After a header
    that can't be used, which is one bad record, nothing of the file is read.
    """
    rows = CsvRows(source, columns, max_payload, after=after)
    for block in chain(blocks, [Block(b"", 0, 0)]):  # no bytes are the end
        records, line, is_refused = rows.read(block.data, left_out=block.left_out, now_ns=now_ns())
        if len(records):
            yield records, line
        if is_refused:
            return


def _expand(given: str, say: Callable[[str], object], stdin_format: str) -> list[Source]:
    if given == "-":
        return [Source("-", None, stdin_format)]
    path = Path(given)
    return [_source(file) for file in (files_of(path, say) if path.is_dir() else [path])]


def _source(path: Path) -> Source:
    if path.suffix.lower() not in SUFFIXES:
        raise WrongUsage(
            f"{path}: the suffix says the format, and may be {', '.join(SUFFIXES)}: {way_to_read(path) or 'rename it'}"
        )
    if not path.exists():
        raise WrongUsage(f"{path} does not exist: give files, folders, or - for standard input")
    if path.suffix.lower() == ".parquet":
        need_pyarrow()
    return Source(path_as_text(path), path)
