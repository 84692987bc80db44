"""What Spark does not read in an input folder, told in the log (rules S1, D2).

Spark reads a file once, when it appears. It leaves out without a word: a file that changes later, hidden names, other
suffixes, and files that are a week older than the newest. A name of a folder such as `country=de` is no column.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from tickwheel._printable import logger_of
from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.delivery.model.message import Columns
from tickwheel.delivery.read.folders import SUFFIXES, some_of
from tickwheel.spark.file_log import entries, names_of
from tickwheel.spark.shape import Folder

_LOOK_EVERY_S: Final = 60.0
_SHARE: Final = 20
"""Between two looks is at least this many times the duration of one."""
_FIRST_WITHIN_S: Final = 10.0
_OLD_MS: Final = 7 * 86_400_000
_FIELDS: Final = ("id", "key", "due", "delay_ms", "expires", "payload", "payload_base64")

_log = logger_of(__name__)


class File(NamedTuple):
    """A file: its path below the folder, its full address, and when it was changed, in milliseconds since 1970."""

    name: str
    address: str
    changed_ms: int


class InputFolder:
    """Compares a folder with Spark's list of files that were read. `query`: the folder of the query.

    `keeps_age`: whether Spark leaves out old files by its own default. Each file is told once, and again if it changes.
    """

    def __init__(
        self, name: str, files: Callable[[], Iterator[File]], query: Folder, columns: Columns, *, keeps_age: bool = True
    ) -> None:
        self._name = name
        self._files = files
        self._query = query
        self._columns = columns
        self._keeps_age = keeps_age
        self._read: dict[str, int] = {}
        self._next = 0
        self._told: set[tuple[str, int]] = set()
        self._wrong: str | None = None

    def check(self) -> None:
        """Errors: `WrongUsage` if a folder has the name of a field: its messages would lack that field."""
        if self._wrong:
            raise WrongUsage(self._wrong)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Look at it from time to time, in a thread. Returns after the first look, if that ends soon."""
        first, over = threading.Event(), threading.Event()
        thread = threading.Thread(target=self._watch, args=(first, over), name="input-folder", daemon=True)
        thread.start()
        try:
            first.wait(_FIRST_WITHIN_S)
            yield
        finally:
            over.set()
            thread.join()

    def _watch(self, first: threading.Event, over: threading.Event) -> None:
        wait_s = 0.0
        while not over.wait(wait_s):
            began_s = time.monotonic()
            try:
                self.look(over.is_set)
            except OSError as error:
                _log.warning("the files in %s can't be listed: %s", self._name, error.strerror)
            except WrongUsage as error:
                _log.warning("what is not read in %s can't be told: %s", self._name, error)
            first.set()
            wait_s = max(_LOOK_EVERY_S, _SHARE * (time.monotonic() - began_s))

    def look(self, is_over: Callable[[], bool] = lambda: False) -> None:
        """List the folder once, and tell what is new. Some ms for a file on remote storage. Errors: `OSError`."""
        self._note_read()
        newest_ms = max(self._read.values(), default=0)
        columns: set[str] = set()
        found: dict[str, list[str]] = {}
        for file in self._files():
            if is_over():
                return
            columns.update(part for part in PurePosixPath(file.name).parts[:-1] if "=" in part)
            why = self._why(file, newest_ms)
            if why and (file.address, file.changed_ms) not in self._told:
                self._told.add((file.address, file.changed_ms))
                found.setdefault(why, []).append(file.name)
        for why, names in found.items():
            _log.warning(why, self._name, some_of(sorted(names)))
        self._judge(columns)

    def _why(self, file: File, newest_ms: int) -> str | None:
        path = PurePosixPath(file.name)
        is_format = path.suffix.lower() in SUFFIXES
        if any(part.startswith((".", "_")) for part in path.parts):
            return "not read in %s, as the name begins with . or _: %s" if is_format else None
        if not is_format:
            return f"not read in %s, as the suffix is none of {', '.join(SUFFIXES)}: %s"
        read_ms = self._read.get(file.address)
        if read_ms is not None and read_ms != file.changed_ms:
            return (
                "files in %s have changed since they were read, and are not read again: %s. Give what is new in a new "
                "file, which is complete when it appears"
            )
        if read_ms is None and self._keeps_age and file.changed_ms < newest_ms - _OLD_MS:
            return "not read in %s, as they are a week older than the newest file: %s. Touch them, and they are read"
        return None

    def _judge(self, columns: set[str]) -> None:
        named = {*_FIELDS, *(it.removesuffix("?") for it in self._columns[:4] if it)}
        fields = sorted(it for it in columns if it.partition("=")[0] in named)
        if fields:
            self._wrong = (
                f"folders in {self._name} have names of fields, and no message has their values: {some_of(fields)}: "
                "write the field into the files too, and rename the folders"
            )
        new = {it for it in columns if (it, 0) not in self._told}
        self._told |= {(it, 0) for it in new}
        if new and not fields:
            told = "folders in %s are no columns, and no message has their values: %s"
            _log.warning(told, self._name, some_of(sorted(new)))

    def _note_read(self) -> None:
        """Read what Spark has added to its list."""
        for number, name in names_of(self._query, 0, after=self._next - 1).items():
            for entry in entries(self._query, name):
                self._read[entry.path.replace("file:///", "file:/", 1)] = entry.changed_ms
            self._next = number + 1
