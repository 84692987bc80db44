"""What was accepted, what waits, and what became of it, in one SQLite file (rules D5, D7).

One thread uses it, inside `transaction()`: what a transaction did is on disk when it has ended, or not at all. After an
error the store is not used again; what memory holds (`ids`) may be ahead of the file then.

- A message is known from its acceptance until `keep_ids` after its outcome.
- Positions are `(due_ms, seq)`, the order in which messages of a key are delivered (D4).
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple, Self, TypeAlias

import msgspec

from tickwheel.delivery.errors import StoreFailed
from tickwheel.delivery.message import Message
from tickwheel.delivery.names import content_of, lane_of, name_of
from tickwheel.delivery.store import meta
from tickwheel.delivery.store.ids import Ids
from tickwheel.delivery.store.rows import execute_many, insert, select_in
from tickwheel.delivery.store.schema import connect

Position: TypeAlias = tuple[int, int]

_ENTRY_BYTES = 700  # of a message in memory, beside its payload: entry, task on the timer, texts


class Outcome(IntEnum):
    """How it ended for a message, as it stands in the ledger."""

    DELIVERED = 1
    CANCELLED = 2
    DEAD = 3


class Incoming(NamedTuple):
    """A message on its way into the store, with what the store asks about it."""

    message: Message
    name: int
    content: bytes
    lane: int | None
    size: int

    @classmethod
    def of(cls, message: Message) -> Self:
        """Costs some microseconds, so it is done in the thread that accepts."""
        return cls(
            message, name_of(message.key, message.id), content_of(message), lane_of(message.key), size_of(message)
        )


class Known(NamedTuple):
    """A message that was accepted before; `outcome` is `None` while it waits."""

    seq: int
    due_ms: int
    content: bytes
    outcome: Outcome | None


class Waiting(NamedTuple):
    """A message that waits, without its text."""

    due_ms: int
    seq: int
    lane: int | None
    size: int
    redelivered: bool

    @property
    def position(self) -> Position:
        """Where it stands in the order of delivery."""
        return self.due_ms, self.seq


class Done(NamedTuple):
    """A message that has its outcome."""

    seq: int
    due_ms: int
    outcome: Outcome
    at_ms: int
    lateness_us: int | None = None
    attempts: int = 0
    redelivered: bool = False


class Store:
    """Open until `close`. Errors of all methods: `StoreFailed`, out of `transaction`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._db = connect(path)
        with self.transaction():
            self.store_id = str(meta.get(self._db, "store_id"))
            self.ids = Ids(self._db)
            [(last_seq,)] = self._db.execute("SELECT max(seq) FROM messages")
            self._next_seq: int = max(last_seq or 0, meta.get_int(self._db, "last_seq")) + 1
            self.waiting: int
            [(self.waiting,)] = self._db.execute("SELECT count(*) FROM waiting")
            [(self._cancels,)] = self._db.execute("SELECT count(*) FROM cancels")

    @property
    def db(self) -> sqlite3.Connection:
        """For the parts of this package."""
        return self._db

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing. On disk when it has ended."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            raise StoreFailed.because(self.path, error) from error

    def close(self) -> None:
        """What is not committed is undone."""
        self._db.close()

    def accept(self, incoming: Sequence[Incoming], now_ms: int) -> list[tuple[Known, bool]]:
        """Take messages in, in this order; for each, as it is known now, and whether it is new.

        One that was cancelled before it came is new and has its outcome.
        """
        hits = self.ids.find([item.name for item in incoming])
        fresh: dict[int, Incoming] = {}
        answers = []
        cancelled = []
        for item in incoming:
            seqs = hits.get(item.name)
            if seqs and (known := self._same_name(seqs, item.message, fresh)):
                answers.append((known, False))
                continue
            seq = self._next_seq
            self._next_seq += 1
            outcome = Outcome.CANCELLED if self._cancels and self._forget_cancel(item) else None
            if outcome:
                cancelled.append(Done(seq, item.message.due_ms, outcome, now_ms))
            fresh[seq] = item
            hits.setdefault(item.name, []).append(seq)
            answers.append((Known(seq, item.message.due_ms, item.content, outcome), True))
        self._write(fresh, {done.seq for done in cancelled})
        self._write_outcomes(cancelled)
        return answers

    def find(self, key: str | None, id_: str) -> Known | None:
        """The message with this name."""
        name = name_of(key, id_)
        for seq in self.ids.find([name]).get(name, ()):
            if known := self._known(seq, key, id_):
                return known
        return None

    def remember_cancel(self, key: str | None, id_: str, now_ms: int) -> None:
        """For a message that is not known: when it comes it is cancelled (D7)."""
        name = name_of(key, id_)
        if (
            not self._cancels
            or not self._db.execute(
                "SELECT 1 FROM cancels WHERE name = ? AND id = ? AND key IS ?", (name, id_, key)
            ).fetchone()
        ):
            self._db.execute("INSERT INTO cancels VALUES (?, ?, ?, ?)", (name, key, id_, now_ms))
            self._cancels += 1

    def forget_cancels(self, before_ms: int) -> None:
        """Those whose message has not come since then."""
        self._cancels -= self._db.execute("DELETE FROM cancels WHERE at_ms < ?", (before_ms,)).rowcount

    @property
    def remembered_cancels(self) -> int:
        """Cancels whose message has not come."""
        return self._cancels

    def finish(self, done: Sequence[Done]) -> None:
        """These have their outcome."""
        gone = "DELETE FROM waiting WHERE (due_ms, seq) IN (SELECT column1, column2 FROM (VALUES {}))"
        execute_many(self._db, gone, [(one.due_ms, one.seq) for one in done])
        self.waiting -= len(done)
        self._write_outcomes(done)
        for one in done:
            if one.outcome is not Outcome.DELIVERED:
                self._db.execute("UPDATE messages SET outcome = ? WHERE seq = ?", (one.outcome, one.seq))

    @property
    def last_seq(self) -> int:
        """Of the message that was accepted last."""
        return self._next_seq - 1

    def hand(self, until_ms: int | None) -> None:
        """From now on anything due until then may be sent at any moment; `None`: all that was sent is committed."""
        meta.put(self._db, "handed_until_ms", until_ms)

    def suspects(self) -> list[Waiting]:
        """What a run that crashed may have sent; marked as such until it has its outcome."""
        until_ms = meta.get(self._db, "handed_until_ms")
        if until_ms is not None:
            self._db.execute("UPDATE waiting SET redelivered = 1 WHERE due_ms <= ?", (until_ms,))
            self.hand(None)
        return self._plan("redelivered", ())

    def mark_redelivered(self, positions: Sequence[Position]) -> None:
        """These were tried, and may have arrived."""
        mark = "UPDATE waiting SET redelivered = 1 WHERE (due_ms, seq) IN (SELECT column1, column2 FROM (VALUES {}))"
        execute_many(self._db, mark, positions)

    def is_waiting(self, known: Known) -> bool:
        """Whether it has no outcome that is written."""
        where = "due_ms = ? AND seq = ?"
        return bool(self._plan(where, (known.due_ms, known.seq)))

    def first_due_ms(self) -> int | None:
        """Of what waits."""
        due_ms: int | None
        [(due_ms,)] = self._db.execute("SELECT min(due_ms) FROM waiting")
        return due_ms

    def plan(self, after: Position, until_ms: int, limit: int) -> list[Waiting]:
        """The next that wait after this position and are due until then, in order."""
        where = "(due_ms, seq) > (?, ?) AND due_ms <= ? ORDER BY due_ms, seq LIMIT ?"
        return self._plan(where, (*after, until_ms, limit))

    def plan_lanes(
        self, lanes: Sequence[int], start: Position, through: Position, limit: int
    ) -> tuple[list[Waiting], Position]:
        """Those of these lanes among the next `limit` from `start` on, and how far that was; at most to `through`."""
        between = "(due_ms, seq) >= (?, ?) AND (due_ms, seq) <= (?, ?)"
        last = self._db.execute(
            f"SELECT due_ms, seq FROM waiting WHERE {between} ORDER BY due_ms, seq LIMIT 1 OFFSET ?",
            (*start, *through, limit - 1),
        ).fetchone()
        end = last or through
        marks = ", ".join("?" * len(lanes))
        return self._plan(f"{between} AND lane IN ({marks}) ORDER BY due_ms, seq", (*start, *end, *lanes)), end

    def messages(self, seqs: Iterable[int]) -> Mapping[int, Message]:
        """These, with their payloads."""
        select = "SELECT seq, id, key, due_ms, payload FROM messages JOIN bodies USING (seq) WHERE seq IN ({})"
        return {
            seq: Message(id_, key, due_ms, msgspec.Raw(payload.encode()) if isinstance(payload, str) else payload)
            for seq, id_, key, due_ms, payload in select_in(self._db, select, seqs)
        }

    def _write(self, fresh: Mapping[int, Incoming], cancelled: Iterable[int]) -> None:
        insert(
            self._db,
            "INSERT INTO messages (seq, name, due_ms, key, id, content, outcome)",
            [
                (
                    seq,
                    item.name,
                    item.message.due_ms,
                    item.message.key,
                    item.message.id,
                    item.content,
                    Outcome.CANCELLED if seq in cancelled else None,
                )
                for seq, item in fresh.items()
            ],
        )
        for seq, item in fresh.items():
            self.ids.add(item.name, seq)
        waiting = {seq: item for seq, item in fresh.items() if seq not in cancelled} if cancelled else fresh
        insert(
            self._db,
            "INSERT INTO bodies (seq, payload)",
            [(seq, _stored(item.message.payload)) for seq, item in waiting.items()],
        )
        insert(
            self._db,
            "INSERT INTO waiting (due_ms, seq, lane, size)",
            sorted((item.message.due_ms, seq, item.lane, item.size) for seq, item in waiting.items()),
        )
        self.waiting += len(waiting)

    def _write_outcomes(self, done: Sequence[Done]) -> None:
        insert(
            self._db,
            "INSERT INTO ledger (seq, outcome, at_ms, lateness_us, attempts, redelivered)",
            [(one.seq, one.outcome, one.at_ms, one.lateness_us, one.attempts, one.redelivered) for one in done],
        )

    def _same_name(self, seqs: Iterable[int], message: Message, fresh: Mapping[int, Incoming]) -> Known | None:
        for seq in seqs:
            if item := fresh.get(seq):
                if (item.message.key, item.message.id) == (message.key, message.id):
                    return Known(seq, item.message.due_ms, item.content, None)
            elif known := self._known(seq, message.key, message.id):
                return known
        return None

    def _known(self, seq: int, key: str | None, id_: str) -> Known | None:
        row = self._db.execute(
            "SELECT seq, due_ms, content, outcome FROM messages WHERE seq = ? AND id = ? AND key IS ?", (seq, id_, key)
        ).fetchone()
        return Known(row[0], row[1], row[2], Outcome(row[3]) if row[3] else None) if row else None

    def _forget_cancel(self, item: Incoming) -> bool:
        deleted = self._db.execute(
            "DELETE FROM cancels WHERE name = ? AND id = ? AND key IS ?", (item.name, item.message.id, item.message.key)
        )
        self._cancels -= deleted.rowcount
        return deleted.rowcount > 0

    def _plan(self, where: str, values: Sequence[int]) -> list[Waiting]:
        rows = self._db.execute(f"SELECT due_ms, seq, lane, size, redelivered FROM waiting WHERE {where}", values)
        return [Waiting(due_ms, seq, lane, size, bool(again)) for due_ms, seq, lane, size, again in rows.fetchall()]


def _stored(payload: msgspec.Raw | bytes) -> str | bytes:
    return payload if isinstance(payload, bytes) else bytes(payload).decode()


def size_of(message: Message) -> int:
    """Bytes that it takes in memory, near enough for the bounds of D8."""
    return _ENTRY_BYTES + len(bytes(message.payload)) + len(message.id)
