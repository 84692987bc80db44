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
from itertools import chain
from pathlib import Path
from typing import Self, TypeAlias

import msgspec

from tickwheel.delivery.errors import StoreFailed
from tickwheel.delivery.message import Message
from tickwheel.delivery.names import content_of, lane_of, name_of
from tickwheel.delivery.store import meta
from tickwheel.delivery.store.ids import Ids
from tickwheel.delivery.store.rows import Value, execute_many, insert, select_in
from tickwheel.delivery.store.schema import connect

Position: TypeAlias = tuple[int, int]

_ENTRY_BYTES = 700  # of a message in memory, beside its payload: entry, task on the timer, texts


class Outcome(IntEnum):
    """How it ended for a message, as it stands in the ledger."""

    DELIVERED = 1
    CANCELLED = 2
    DEAD = 3


class Incoming(msgspec.Struct, frozen=True, gc=False):
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


class Known(msgspec.Struct, frozen=True, gc=False):
    """A message that was accepted before; `outcome` is `None` while it waits."""

    seq: int
    due_ms: int
    content: bytes
    outcome: Outcome | None


class Waiting(msgspec.Struct, frozen=True, gc=False):
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


class Done(msgspec.Struct, frozen=True, gc=False):
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
            self._cancels: int
            [(self._cancels,)] = self._db.execute("SELECT count(*) FROM cancels")
            self._last_n: int
            [(self._last_n,)] = self._db.execute("SELECT ifnull(max(n), 0) FROM ledger")

    @property
    def db(self) -> sqlite3.Connection:
        """For the parts of this package."""
        return self._db

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing. On disk when it has ended."""
        try:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise StoreFailed.because(self.path, error) from error

    def close(self) -> None:
        """What is not committed is undone."""
        self._db.close()

    def accept(self, incoming: Sequence[Incoming], now_ms: int) -> list[int | Known | None]:
        """Take messages in, in this order; for each its new `seq`, or what is known of it already; `None` for one that
        is new but was cancelled before it came.
        """
        names = [item.name for item in incoming]
        hits = self.ids.find(names)
        if not hits and len(set(names)) == len(names):
            new: Sequence[Incoming] = incoming
            answers: list[int | Known | None] = list(range(self._next_seq, self._next_seq + len(new)))
        else:
            new, answers = self._sift(incoming, hits)
        seqs = self._write(new)
        if self._cancels:
            rows = select_in(self._db, "SELECT name FROM cancels WHERE name IN ({})", [item.name for item in new])
            wanted = {name for (name,) in rows}
            for seq, item in zip(seqs, new, strict=True):
                if item.name in wanted and self._was_cancelled(item, seq, now_ms):
                    answers[answers.index(seq)] = None
        return answers

    def find(self, key: str | None, id_: str) -> Known | None:
        """The message with this name."""
        name = name_of(key, id_)
        for seq in self.ids.find([name]).get(name, ()):
            if known := self._known(seq, key, id_):
                return known
        return None

    def remember_cancel(self, key: str | None, id_: str, now_ms: int, until_ms: int | None = None) -> None:
        """For a message that is not known: when it comes it is cancelled (D7). It is kept until then at least."""
        name = name_of(key, id_)
        if (
            not self._cancels
            or not self._db.execute(
                "SELECT 1 FROM cancels WHERE name = ? AND id = ? AND key IS ?", (name, id_, key)
            ).fetchone()
        ):
            self._db.execute("INSERT INTO cancels VALUES (?, ?, ?, ?, ?)", (name, key, id_, now_ms, until_ms or 0))
            self._cancels += 1

    def forget_cancels(self, before_ms: int, now_ms: int) -> None:
        """Those whose message has not come since then, and that need not be kept any longer."""
        old = "DELETE FROM cancels WHERE at_ms < ? AND until_ms < ?"
        self._cancels -= self._db.execute(old, (before_ms, now_ms)).rowcount

    @property
    def remembered_cancels(self) -> int:
        """Cancels whose message has not come."""
        return self._cancels

    def finish(self, done: Sequence[Done]) -> None:
        """These have their outcome."""
        gone = "DELETE FROM waiting WHERE (due_ms, seq) IN (SELECT column1, column2 FROM (VALUES {}))"
        positions: list[Value] = []
        for one in done:
            positions += (one.due_ms, one.seq)
        execute_many(self._db, gone, positions, 2)
        self.waiting -= len(done)
        self._write_outcomes(done)
        usual = Outcome.DELIVERED
        for one in done:
            if one.outcome is not usual:
                self._db.execute("UPDATE messages SET outcome = ? WHERE seq = ?", (int(one.outcome), one.seq))

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
        execute_many(self._db, mark, list(chain.from_iterable(positions)), 2)

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

    def _sift(
        self, incoming: Sequence[Incoming], hits: dict[int, list[int]]
    ) -> tuple[list[Incoming], list[int | Known | None]]:
        """Those that are new, and the answers to all; `hits` are messages whose names have the same numbers."""
        new: list[Incoming] = []
        answers: list[int | Known | None] = []
        for item in incoming:
            same = hits.setdefault(item.name, [])
            known = next(filter(None, (self._same_name(seq, item, new) for seq in same)), None)
            if known is None:
                seq = self._next_seq + len(new)
                same.append(seq)
                new.append(item)
            answers.append(known or seq)
        return new, answers

    def _same_name(self, seq: int, item: Incoming, new: Sequence[Incoming]) -> Known | None:
        message = item.message
        if seq < self._next_seq:
            return self._known(seq, message.key, message.id)
        other = new[seq - self._next_seq]
        if (other.message.key, other.message.id) != (message.key, message.id):
            return None
        return Known(seq, other.message.due_ms, other.content, None)

    def _write(self, incoming: Sequence[Incoming]) -> Sequence[int]:
        """Messages that are all new; returns their numbers."""
        if not incoming:
            return []
        seqs = range(self._next_seq, self._next_seq + len(incoming))
        self._next_seq += len(incoming)
        messages: list[Value] = []
        bodies: list[Value] = []
        waiting: list[tuple[int, int, int | None, int]] = []
        for seq, item in zip(seqs, incoming, strict=True):
            message, due_ms, payload = item.message, item.message.due_ms, item.message.payload
            messages += (seq, item.name, due_ms, message.key, message.id, bytearray(item.content))
            bodies += (seq, bytearray(payload) if isinstance(payload, bytes) else str(payload, "utf-8"))
            waiting.append((due_ms, seq, item.lane, item.size))
        waiting.sort()
        insert(self._db, "messages (seq, name, due_ms, key, id, content)", messages, 6)
        insert(self._db, "bodies (seq, payload)", bodies, 2)
        insert(self._db, "waiting (due_ms, seq, lane, size)", list(chain.from_iterable(waiting)), 4, key=2)
        self.ids.add([item.name for item in incoming], seqs)
        self.waiting += len(incoming)
        return seqs

    def _was_cancelled(self, item: Incoming, seq: int, now_ms: int) -> bool:
        message = item.message
        same = "name = ? AND id = ? AND key IS ?"
        deleted = self._db.execute(f"DELETE FROM cancels WHERE {same}", (item.name, message.id, message.key))
        if not deleted.rowcount:
            return False
        self._cancels -= deleted.rowcount
        self.finish([Done(seq, message.due_ms, Outcome.CANCELLED, now_ms)])
        return True

    def _write_outcomes(self, done: Sequence[Done]) -> None:
        values: list[Value] = []
        for n, one in enumerate(done, self._last_n + 1):
            again = int(one.redelivered)
            values += (n, one.seq, int(one.outcome), one.at_ms, one.lateness_us, one.attempts, again)
        insert(self._db, "ledger (n, seq, outcome, at_ms, lateness_us, attempts, redelivered)", values, 7)
        self._last_n += len(done)

    def _known(self, seq: int, key: str | None, id_: str) -> Known | None:
        row = self._db.execute(
            "SELECT seq, due_ms, content, outcome FROM messages WHERE seq = ? AND id = ? AND key IS ?", (seq, id_, key)
        ).fetchone()
        return Known(row[0], row[1], row[2], Outcome(row[3]) if row[3] else None) if row else None

    def _plan(self, where: str, values: Sequence[int]) -> list[Waiting]:
        rows = self._db.execute(f"SELECT due_ms, seq, lane, size, redelivered FROM waiting WHERE {where}", values)
        return [Waiting(due_ms, seq, lane, size, bool(again)) for due_ms, seq, lane, size, again in rows.fetchall()]


def size_of(message: Message) -> int:
    """Bytes that it takes in memory, near enough for the bounds of D8."""
    name = len(message.id) + (len(message.key) if message.key else 0)
    return _ENTRY_BYTES + memoryview(message.payload).nbytes + name
