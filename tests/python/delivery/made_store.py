"""A store that no process has open, with rows as a test wants them. `store/file/schema.rs` has the tables.

Each call opens the file and closes it again, with Python's own SQLite: two SQLite libraries must not have it at once.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tickwheel.delivery import DeliveryQueue, Letter
from tickwheel.delivery.model.entries import Outcome


class Done(NamedTuple):
    """The outcome of a message, as a row of the ledger."""

    seq: int
    outcome: Outcome
    at_ms: int
    lateness_us: int | None = None
    attempts: int = 0
    redelivered: bool = False


class MadeStore:
    """A new store at `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.last_seq = 0
        DeliveryQueue(path, to=lambda delivery: None).close()

    @contextmanager
    def open(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path)) as db, db:
            yield db

    def accept(self, *names: tuple[str | None, str, int]) -> list[int]:
        """Messages that wait, as `(key, id, due_ms)`; returns their numbers."""
        seqs = [self.last_seq + n for n in range(1, len(names) + 1)]
        self.last_seq += len(names)
        known = [(seq, seq, due_ms, key, id_) for seq, (key, id_, due_ms) in zip(seqs, names, strict=True)]
        with self.open() as db:
            db.executemany(
                "INSERT INTO messages (seq, name, due_ms, key, id, content) VALUES (?, ?, ?, ?, ?, '')", known
            )
            db.executemany("INSERT INTO bodies (seq, payload) VALUES (?, '1')", [(seq,) for seq in seqs])
            waiting = [(row[2], row[0]) for row in known]
            db.executemany("INSERT INTO waiting (due_ms, seq, size) VALUES (?, ?, 1)", waiting)
            db.execute("INSERT OR REPLACE INTO meta VALUES ('near_floor_seq', ?)", (self.last_seq + 1,))
        return seqs

    def finish(self, *done: Done) -> None:
        with self.open() as db:
            rows = [
                (it.seq, int(it.outcome), it.at_ms, it.lateness_us, it.attempts, bool(it.redelivered)) for it in done
            ]
            columns = "seq, outcome, at_ms, lateness_us, attempts, redelivered"
            db.executemany(f"INSERT INTO ledger ({columns}) VALUES (?, ?, ?, ?, ?, ?)", rows)
            db.executemany("DELETE FROM waiting WHERE seq = ?", [(it.seq,) for it in done])

    def mark_redelivered(self, seqs: Sequence[int]) -> None:
        with self.open() as db:
            db.executemany("UPDATE waiting SET redelivered = 1 WHERE seq = ?", [(seq,) for seq in seqs])

    def put_letters(self, at_ms: int, *letters: Letter) -> None:
        with self.open() as db:
            columns = "at_ms, source, line, reason, allowed, record"
            db.executemany(
                f"INSERT INTO dead_letters ({columns}) VALUES (?, ?, ?, ?, ?, ?)", [(at_ms, *it) for it in letters]
            )

    def rows(self, table: str) -> list[dict[str, Any]]:
        with self.open() as db:
            cursor = db.execute(f"SELECT * FROM {table}")
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor]
