"""Reads an outbox in a SQLite file: `sqlite:PATH?table=T`.

- The program that writes may have the file open in any journal mode; the reader does not change the mode. A missing
  file is not made.
- The reader asks `PRAGMA data_version` every `_LOOK_EVERY_S` whether something was committed. This reads no table.
- SQLite has no lock that outlives a transaction. So the reader locks a file beside it, `PATH-T.reader`, by `flock`; the
  system frees it when the process ends.
- Both files must still be the ones at their paths whenever rows are read or deleted. If one was replaced or removed,
  the outbox is opened again.
- The engine's own store is no outbox: Python's SQLite is another library, and would drop the locks of the engine's.
"""

import fcntl
import json
import os
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from tickwheel._event import Event
from tickwheel._native import refuse_open_store
from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.delivery.outbox.source import Row, Source, SourceOpener
from tickwheel.delivery.outbox.tables import BATCH_BYTES, BATCH_ROWS
from tickwheel.delivery.sinks.interrupting import TimeLimit
from tickwheel.delivery.sinks.tables import file_and_table

FORM: Final = "sqlite:PATH?table=T"

_LOOK_EVERY_S: Final = 0.05
_LOCKED_WITHIN_S: Final = 5.0  # how long a lock of another connection is waited for

# By hand any type may be written. A record becomes bytes, so no text is decoded before it is read as JSON.
_SELECT: Final = """
    SELECT n, CAST(written_ms AS INTEGER),
    CASE WHEN length(CAST(record AS BLOB)) <= {max_record} THEN CAST(record AS BLOB) END,
    length(CAST(record AS BLOB))
    FROM {table} WHERE n {which} (SELECT value FROM json_each(?)) ORDER BY n LIMIT {rows}
"""
_IS_ROWID: Final = "SELECT 1 FROM pragma_table_info(?) WHERE name = 'n' AND upper(type) = 'INTEGER' AND pk = 1"


class SqliteSource(Source):
    """The table `table` in the file `path`."""

    _lock: int | None = None  # a fork may come before `__init__` has ended

    def __init__(self, path: Path, table: str, max_payload: int) -> None:
        super().__init__(f"sqlite:{path}?table={table}", max_payload)
        refuse_open_store(path)
        self._path = path
        self._lock_path = Path(f"{path.resolve()}-{table.lower()}.reader")
        fields = {"table": f'"{table}"', "max_record": 2 * max_payload, "rows": BATCH_ROWS}
        self._select = _SELECT.format(which="NOT IN", **fields)
        self._one = _SELECT.format(which="IN", **fields)
        self._table = table
        self._delete = f'DELETE FROM "{table}" WHERE n IN (SELECT value FROM json_each(?))'  # noqa: S608
        self._still_there = f'SELECT n FROM "{table}" WHERE n IN (SELECT value FROM json_each(?))'  # noqa: S608
        self._database: sqlite3.Connection | None = None
        self._limit: TimeLimit
        self._file: os.stat_result | None = None
        self._version = -1

    def open(self) -> bool:
        """Connect, and lock the outbox."""
        if self._database is not None:
            return True
        refuse_open_store(self._path)
        self._file = self._path.stat()
        self._database = sqlite3.connect(
            f"{self._path.as_uri()}?mode=rw", uri=True, timeout=_LOCKED_WITHIN_S, isolation_level=None
        )
        self._limit = TimeLimit(self._database)
        if not self._database.execute(_IS_ROWID, (self._table,)).fetchone():
            raise WrongUsage(f"there is no table {self._table} whose n is INTEGER PRIMARY KEY: make it so")
        self._lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            return False
        return True

    def read(self, passed: Sequence[int] = ()) -> Sequence[Row]:
        """Run one statement, and read its rows until they fill a batch."""
        self._check_files()
        self._version = self._opened.execute("PRAGMA data_version").fetchone()[0]
        batch: list[Row] = []
        left = BATCH_BYTES
        with closing(self._opened.execute(self._select, (json.dumps(passed),))) as rows:
            for n, ms, record, size in rows:
                batch.append(Row(n, ms or 0, record, size))
                left -= len(record or b"")
                if left <= 0:
                    break
        return batch

    def fetch(self, n: int) -> Row | None:
        """One statement."""
        self._check_files()
        row = self._opened.execute(self._one, (json.dumps([n]),)).fetchone()
        return row and Row(n, row[1] or 0, *row[2:])

    def delete(self, numbers: Sequence[int], within_s: float) -> Sequence[int]:
        """One statement, which is a transaction."""
        self._check_files()
        given = json.dumps(numbers)
        with self._limit.within(within_s):
            count = self._opened.execute(self._delete, (given,)).rowcount
        if count == len(numbers):
            return numbers
        there = {n for (n,) in self._opened.execute(self._still_there, (given,))}
        return [n for n in numbers if n not in there]

    def wait(self, stopping: Event, at_most_s: float) -> None:
        """Wait until something was committed."""
        until_s = time.monotonic() + at_most_s
        while not stopping.wait(_LOOK_EVERY_S) and time.monotonic() < until_s:
            self._check_files()
            if self._opened.execute("PRAGMA data_version").fetchone()[0] != self._version:
                return

    def close(self) -> None:
        """Close the connection, which frees the lock."""
        database, self._database = self._database, None
        lock, self._lock = self._lock, None
        if database is not None:
            database.close()
        if lock is not None:
            fcntl.flock(lock, fcntl.LOCK_UN)  # a child that C code forked may have it too; closing frees nothing then
            os.close(lock)

    def leave_to_parent(self) -> None:
        """Close the lock, which the parent keeps."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def _check_files(self) -> None:
        """Errors: `OSError` if the database or the lock is not the file at its path any more."""
        assert self._file is not None, "it is open"
        assert self._lock is not None, "it is locked"
        for path, opened in ((self._path, self._file), (self._lock_path, os.fstat(self._lock))):
            if not os.path.samestat(path.stat(), opened):
                raise OSError(f"{path} is another file than the one that was opened: it was replaced")

    @property
    def _opened(self) -> sqlite3.Connection:
        assert self._database is not None, "it is open"
        return self._database


def opener_of(address: str, max_payload: int) -> SourceOpener:
    """Reads the address; the file is opened later. Errors: `WrongUsage`."""
    file, table = file_and_table(address, FORM)
    return lambda: SqliteSource(file, table, max_payload)
