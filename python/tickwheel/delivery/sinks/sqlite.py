"""The sink `sqlite:PATH?table=T` (rule D10): a row of `T` for each message, exactly one, whatever crashes (D5).

- Each `send` is a transaction. The digest of each message goes into `T_ids`; if the digest is new there, the row goes
  into `T`. After a crash `arrived` returns the messages whose rows exist. If a message is sent again, also from another
  store, it gets no second row.
- The rows of a batch are written together. If some exist already, or one fails, all are written one by one, each in
  a savepoint. If a row ends the transaction, the rows before it and after it get transactions of their own.
- `T` may already exist, with more columns, constraints and triggers. A row for which they fail is refused alone, and a
  full disk is no answer about the row that does not fit (D6). If no row can be written, because the file is locked or
  `T` is missing, that is no answer about all of them. After such an error the next `send` opens the file again.
- A row that computes for long, as in a trigger, is interrupted. The others of its batch are written without it, and it
  gets no answer. A row that is sent alone has most of the time. A lock is always of the whole file, and is waited for.
- If a sink hangs and is replaced, the old sink writes nothing any more (`writers.py`).
- A file that was moved, removed or replaced is noticed before the next `send` (D10). Its log is written into it
  first. Then the file at the path is opened, or made anew. If that fails, or if another connection reads the old file
  so that its log can't be written into it, the destination is away.
- The file is in WAL mode, and each transaction is on disk when `send` returns (`synchronous=FULL`).
"""

import itertools
import sqlite3
import time
from collections.abc import Container, Iterable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from tickwheel._native import refuse_open_store, rfc_3339
from tickwheel.delivery.base.appending import file_at, make
from tickwheel.delivery.base.errors import DeliveryFailed, Unanswered, Unavailable, WrongUsage
from tickwheel.delivery.sinks.interrupting import TimeLimit, was_interrupted
from tickwheel.delivery.sinks.sink import Delivery, Refusals, SinkOpener, SinkSettings
from tickwheel.delivery.sinks.tables import (
    COLUMNS,
    EARLIER_AT_ONCE,
    IF_THERE,
    TableSink,
    Verdicts,
    check_columns,
    file_and_table,
    row_of,
)
from tickwheel.delivery.sinks.writers import Runs, Writer

FORM = "sqlite:PATH?table=T"

_PROBE: Final = "SELECT 1"
_OF_A_ROW: Final = (sqlite3.Error, OverflowError, UnicodeError)  # if the connection answers after it
_REFUSALS: Final = {
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_TOOBIG,
    sqlite3.SQLITE_RANGE,
    sqlite3.SQLITE_ERROR,  # of a trigger, as the statement itself has no error
}
_TOO_LONG: Final = (
    "the row takes too long, and was interrupted: mend its trigger, or give it more time by --sink-timeout"
)
_TOGETHER_SHARE: Final = 0.25  # of the time of a send: for all rows of a batch together


class SqliteSink(TableSink):
    """Writes to `table`, and creates it if it is missing."""

    def __init__(self, path: Path, table: str, settings: SinkSettings, writer: Writer) -> None:
        super().__init__(settings, writer)
        self._path = path
        self._table = table
        self._insert = ""  # for the columns that the table has, as `_open` finds them
        self._if_there: Sequence[str] = ()
        # A cached EXPLAIN would not notice that the table is gone.
        self._insert_none = (
            f'INSERT INTO "{table}" ({", ".join(COLUMNS)}) SELECT {", ".join("?" * len(COLUMNS))} WHERE 0'
        )
        self._note = (
            f'INSERT INTO "{table}_ids" AS it (digest, store, run, first_seq) VALUES (?, ?, ?, ?)'  # noqa: S608
            " ON CONFLICT (digest) DO UPDATE SET run = excluded.run, first_seq = excluded.first_seq"
            " WHERE it.store = excluded.store AND it.first_seq < excluded.first_seq"
        )
        self._raise = (
            f'INSERT INTO "{table}_ids" AS it (digest, store, run, first_seq) VALUES (?, ?, ?, ?)'  # noqa: S608
            " ON CONFLICT (digest) DO UPDATE SET first_seq = max(it.first_seq, excluded.first_seq) RETURNING first_seq"
        )
        self._drop = f'DELETE FROM "{table}_ids" WHERE digest = ? AND (store <> ? OR first_seq = ?)'  # noqa: S608
        self._drop_earlier = (
            f'DELETE FROM "{table}_ids" WHERE digest IN'  # noqa: S608
            f' (SELECT digest FROM "{table}_ids" WHERE store = ? AND run <> ? LIMIT {EARLIER_AT_ONCE})'
        )
        self._will_have_earlier = True  # once the open transaction is committed
        self._database: sqlite3.Connection | None = None
        self._limit: TimeLimit
        self._file: tuple[int, int] | None = None  # that has the tables
        try:
            database = self._open()
            for statement in (self._insert, self._note, self._drop):  # fails now if they can't work, as on a view
                database.execute(f"EXPLAIN {statement}", (None,) * statement.count("?"))
        except sqlite3.Error as error:
            self.close()
            problem = f"{path} can't be used: {error}"
            raise DeliveryFailed(f"{problem}: name a SQLite file, or a new one, where it can be written") from error
        except BaseException:
            self.close()
            raise

    def _send(self, deliveries: Sequence[Delivery]) -> Refusals:
        verdicts: Verdicts = {}
        parts = [range(len(deliveries))]  # the next one last
        part = range(0)
        until_s = time.monotonic() + self._own_s
        has_committed = False
        if self._database is not None and file_at(self._path) != self._file:
            self._leave(self._database)
        try:
            database = self._open()
        except (sqlite3.Error, DeliveryFailed, WrongUsage) as error:
            raise Unavailable(_text(error)) from error
        try:
            if self._write_together(database, deliveries):
                parts.clear()
            while parts:
                part = parts.pop()
                rest = self._write_part(database, deliveries, part, until_s, verdicts)
                has_committed = has_committed or not rest
                parts += reversed(rest)
        except sqlite3.Error as error:
            reason = self._of_all(database, error)
            self._close()  # rolls back, whatever the state
            if not has_committed:
                raise reason from error
            for place in itertools.chain(part, *parts):
                verdicts.setdefault(place, reason)
        except BaseException:
            self._close()
            raise
        return verdicts

    def _there(self, digests: Sequence[bytes]) -> Iterable[tuple[bytes, str, int]]:
        database = self._open()
        of_digest = f'SELECT digest, store, first_seq FROM "{self._table}_ids" WHERE digest = ?'  # noqa: S608
        return [row for digest in digests for row in database.execute(of_digest, (digest,))]

    def close(self) -> None:
        """Close the file; an open transaction is rolled back."""
        self._writer.close()
        self._close()

    def _close(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            with suppress(sqlite3.Error):
                self._roll_back(database)  # a cursor in a traceback would keep the transaction open after `close`
            database.close()

    def _leave(self, database: sqlite3.Connection) -> None:
        """Close the file, which is not at its path any more, with its log written into it."""
        is_busy = False
        with suppress(sqlite3.Error):
            is_busy = bool(database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0])
        log = Path(f"{self._path}-wal")
        if is_busy and log.exists():  # a new file would take it, and the rows in it would be lost
            problem = f"{self._path} was moved or removed, and another connection still reads it"
            raise Unavailable(f"{problem}: end its transaction, or move {log.name} with the file")
        self._close()

    def _open(self) -> sqlite3.Connection:
        if self._database is None:
            refuse_open_store(self._path)
            with suppress(OSError):  # then it is there, or can't be opened
                make(self._path)
                self._file = None  # the new file may have the number of a removed one
            database = sqlite3.connect(
                f"{self._path.as_uri()}?mode=rw",
                timeout=self._own_s,
                isolation_level=None,
                check_same_thread=False,
                uri=True,
            )
            try:
                file = file_at(self._path)
                mode = database.execute("PRAGMA journal_mode=WAL").fetchone()[0]
                if mode != "wal":
                    raise sqlite3.OperationalError(f"it can't be put into WAL mode, and stays in {mode}")
                database.execute("PRAGMA synchronous=FULL")
                if file != self._file:
                    there = _make_tables(database, self._path, self._table)
                    self._if_there = [name for name in IF_THERE if name in there]
                    columns = (*COLUMNS, *self._if_there)
                    self._insert = (
                        f'INSERT INTO "{self._table}" ({", ".join(columns)}) VALUES ({", ".join("?" * len(columns))})'  # noqa: S608
                    )
            except BaseException:
                database.close()
                raise
            self._database, self._file = database, file
            self._limit = TimeLimit(database)
        return self._database

    def _begin(self, database: sqlite3.Connection) -> None:
        database.execute("BEGIN IMMEDIATE")
        if self._writer.is_replaced:  # and its successor waits for this transaction
            raise sqlite3.OperationalError("this sink was replaced")
        store = self._settings.store_id
        if self._owner is not None:
            self._check_epoch(database.execute(self._raise, self._epoch_row(self._owner)).fetchone()[0], self._owner[1])
        database.executemany(self._drop, ((digest, store, first_seq) for digest, first_seq in self._writer.free()))
        self._will_have_earlier = True
        if self._writer.has_earlier:
            earlier = (store, self._settings.run)
            self._will_have_earlier = database.execute(self._drop_earlier, earlier).rowcount == EARLIER_AT_ONCE

    def _write_together(self, database: sqlite3.Connection, deliveries: Sequence[Delivery]) -> bool:
        """Whether all are written, because none was there and none is refused. Otherwise none is written.

        Errors: `sqlite3.Error` if no row can be written, whatever is in it.
        """
        self._begin(database)
        try:
            with self._limit.within(_TOGETHER_SHARE * self._own_s):
                noted = database.executemany(self._note, (self._noted(it) for it in deliveries))
                are_new = noted.rowcount == len(deliveries)
                if are_new:
                    database.executemany(self._insert, (row_of(it, rfc_3339, self._if_there) for it in deliveries))
            if are_new:
                self._commit(database)
                return True
        except _OF_A_ROW:
            database.execute(_PROBE)
            database.execute(self._insert_none, (None,) * len(COLUMNS))
        self._roll_back(database)
        return False

    def _write_part(
        self,
        database: sqlite3.Connection,
        deliveries: Sequence[Delivery],
        part: range,
        until_s: float,
        verdicts: Verdicts,
    ) -> list[range]:
        """Write the rows in one transaction, each alone, in half of the time that is left. `verdicts` gets the error
        of each row that fails, and `None` for each row that no time was left for.

        If a row ends the transaction, or the commit fails, nothing is written. Then the result is the parts to write
        next; the row that failed is in none of them.
        """
        self._begin(database)
        for place in part:
            if place in verdicts:
                continue
            left_s = until_s - time.monotonic()
            if left_s < 0:
                verdicts[place] = None
                continue
            try:
                with self._limit.within(left_s if len(deliveries) == 1 else left_s / 2):
                    self._write_row(database, deliveries[place])
            except _OF_A_ROW as error:
                database.execute(_PROBE)
                verdicts[place] = _verdict(error)
                if not database.in_transaction:  # a trigger with RAISE(ROLLBACK), or a full disk
                    return [rest for rest in (range(part.start, place), range(place + 1, part.stop)) if rest]
                database.execute("ROLLBACK TO of_a_row")
                database.execute("RELEASE of_a_row")
        try:
            self._commit(database)
        except sqlite3.Error as error:
            database.execute(_PROBE)
            self._roll_back(database)
            open_ = [place for place in part if place not in verdicts]
            if len(open_) > 1:
                half = (part.start + part.stop) // 2
                return [range(part.start, half), range(half, part.stop)]
            verdicts.update(dict.fromkeys(open_, _verdict(error)))
        return []

    def _write_row(self, database: sqlite3.Connection, delivery: Delivery) -> None:
        """After an error the savepoint is open, unless the transaction has ended."""
        database.execute("SAVEPOINT of_a_row")  # a trigger with RAISE(FAIL) leaves what it has done
        if database.execute(self._note, self._noted(delivery)).rowcount:  # else it already has its row
            database.execute(self._insert, row_of(delivery, rfc_3339, self._if_there))
        database.execute("RELEASE of_a_row")

    def _noted(self, delivery: Delivery) -> tuple[bytes, str, str, int]:
        return delivery.digest, self._settings.store_id, self._settings.run, delivery.first_seq

    def _commit(self, database: sqlite3.Connection) -> None:
        database.execute("COMMIT")
        if not self._will_have_earlier:
            self._writer.no_earlier()
        self._writer.forget()

    def _roll_back(self, database: sqlite3.Connection) -> None:
        if database.in_transaction:
            database.execute("ROLLBACK")

    def _of_all(self, database: sqlite3.Connection, error: sqlite3.Error) -> Unanswered | Unavailable:
        """The verdict of all rows that are not written."""
        try:
            database.execute(_PROBE)
        except sqlite3.Error:
            return Unavailable(_text(error))
        return Unanswered(_text(error))


def opener_of(spec: str) -> SinkOpener:
    """Reads the address; the file is opened later. Errors: `WrongUsage`."""
    file, table = file_and_table(spec, FORM)
    runs = Runs()
    return lambda settings: SqliteSink(file, table, settings, runs.join(settings))


def holds_no_row(path: Path) -> bool:
    """Whether this file is a database with empty tables, if any."""
    try:
        with closing(sqlite3.connect(path)) as db:
            tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            return not any(db.execute(f'SELECT 1 FROM "{name}"').fetchone() for name in tables)  # noqa: S608
    except sqlite3.Error:
        return False


def _verdict(error: Exception) -> str | Unanswered:
    """Of a row that failed alone."""
    if was_interrupted(error):
        return Unanswered(_TOO_LONG)
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF  # the rest says more exactly which
    return _text(error) if code in _REFUSALS else Unanswered(_text(error))


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _make_tables(database: sqlite3.Connection, path: Path, table: str) -> Container[str]:
    """Makes the missing tables, and returns the columns of the table. After an error none of them is made, because the
    caller closes the connection.
    """
    database.execute("BEGIN IMMEDIATE")
    database.execute(
        f'CREATE TABLE IF NOT EXISTS "{table}" (id TEXT NOT NULL, key TEXT, due TEXT NOT NULL, payload TEXT,'
        " payload_bytes BLOB, delivered_at TEXT NOT NULL, lateness_ms REAL NOT NULL, attempt INTEGER NOT NULL,"
        " redelivered INTEGER NOT NULL)"
    )
    database.execute(
        f'CREATE TABLE IF NOT EXISTS "{table}_ids" (digest BLOB PRIMARY KEY, store TEXT NOT NULL, run TEXT NOT NULL,'
        " first_seq INTEGER NOT NULL) WITHOUT ROWID"
    )
    there: set[str] = set()
    for name, needed in ((f"{table}_ids", ("digest", "store", "run", "first_seq")), (table, COLUMNS)):
        there = {row[1].lower() for row in database.execute(f'PRAGMA table_info("{name}")')}
        check_columns(f"{name} in {path}", needed, there)
    database.execute("COMMIT")
    return there
