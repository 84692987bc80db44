"""The thread that moves rows from an outbox into the engine.

    read the first rows -> submit -> their accept is on disk -> delete the rows -> read again

Rows are deleted only after the accept is on disk. After a crash in between they are read again, and are duplicates by
key and id (D5). If a database is down, only its outbox waits. The reader tries again by back-off. The log says once
that the database is down, and once that it is up again (as D6).

A row is the trouble of that row alone. If a delete fails and the database answers, it is halved until the rows are
found that can't be deleted: a foreign key or a trigger keeps them, another session has locked them, or it takes too
long. The reader remembers these rows, passes over them, and tries them again, some each second. The search takes about
a second. The rows that it has not come to are read again, together with new ones, and the search goes on.

If a row can't be fetched, it becomes a dead letter. It is deleted if its data is lost. It stays if a view or a policy
fails for it, and is read as a new row once it can be fetched. Memory: one batch, after a failed delete another one, and
`_MOST_KEPT` numbers.
"""

import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from itertools import islice
from typing import Any, Final, TypeAlias

from tickwheel._event import Event
from tickwheel._native import NdjsonLines, Records
from tickwheel.delivery.base.errors import DeliveryFailed, StoreUnavailable
from tickwheel.delivery.model.message import Columns
from tickwheel.delivery.observe.log import logger
from tickwheel.delivery.outbox.fetching import fetch_row, read_batch, text_of
from tickwheel.delivery.outbox.source import Row, Source
from tickwheel.delivery.sinks.patience import Patience

Submit: TypeAlias = Callable[..., "Future[list[Any]]"]
"""Submits records; the future gets the answers once they are on disk."""

_FIRST_WAIT_S: Final = 0.1
_LONGEST_WAIT_S: Final = 30.0
_STOP_WITHIN_S: Final = 5.0
_LOOK_FOR_LOCK_EVERY_S: Final = 1.0
_TRY_KEPT_EVERY_S: Final = 1.0
_TRY_KEPT_WITHIN_S: Final = 0.25
_TRY_KEPT_SHARE: Final = 0.1  # of the time, at most
_LONGEST_DELETE_S: Final = 1.0
_SEARCH_TIMES: Final = 4  # the time that the delete of a batch may take
_KEPT_TRIED: Final = 64
_MOST_KEPT: Final = 10_000
_TELL_KEPT_EVERY_S: Final = 60.0
_LONG_S: Final = 3_600.0
_LOCKED: Final = "another session has locked it, or a trigger keeps it"


class OutboxReader(threading.Thread):
    """Reads one outbox between `start` and `stop_all`."""

    def __init__(self, source: Source, submit: Submit) -> None:
        super().__init__(name="outbox-reader", daemon=True)
        self._source = source
        self._submit = submit
        self._lines = NdjsonLines("", Columns(), source.max_payload)
        self._accepted: Sequence[Row] = ()  # on disk in the store, and not deleted yet
        self._kept: dict[int, int] = {}  # by number: the mark of a row that is accepted and can't be deleted
        self._patience = Patience(_LONGEST_DELETE_S)
        self._try_kept_s = 0.0
        self._tell_kept_s = 0.0
        self._stopping = Event()
        self._down_since_s: float | None = None
        self._is_waiting = False
        self._is_idle = False  # from a wait for rows to the next read
        self.rows = 0
        """Rows that were accepted and deleted."""
        self.oldest_ms: int | None = None
        """When the first row of the last look was written; `None` if the look found no row."""

    @property
    def outbox(self) -> str:
        """Its address without user and password."""
        return self._source.name

    @property
    def is_up(self) -> bool:
        """Whether its database answers, as far as is known; also while another process reads it."""
        return self._down_since_s is None

    @staticmethod
    def stop_all(readers: "Sequence[OutboxReader]") -> None:
        """The readers submit nothing from now on. Waits for batches in the middle of a commit, 5 s at most in all."""
        for reader in readers:
            reader._stopping.set()
        until_s = time.monotonic() + _STOP_WITHIN_S
        for reader in readers:
            if reader.is_alive():
                reader.join(max(0.0, until_s - time.monotonic()))

    def run(self) -> None:
        """In the thread."""
        wait_s = _FIRST_WAIT_S
        while not self._stopping.is_set():
            try:
                self._move()
                wait_s = _FIRST_WAIT_S
            except _EngineEnded:
                break
            except Exception as error:
                was_idle, self._is_idle = self._is_idle, False
                is_lost = was_idle and self._source.has_lost_connection()
                self._source.close()
                if is_lost:  # an idle connection may be ended at any time, and nothing was sent: this is no outage
                    logger.info(
                        "the server has ended the idle connection to the outbox %s: opening it again", self.outbox
                    )
                    continue
                self._note_down(error)
                self._stopping.wait(wait_s)
                wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
        self._source.close()

    def _move(self) -> None:
        """One batch, or one wait for rows."""
        if not self._source.open():
            self._note_up()
            self._note_waiting(is_waiting=True)
            self._stopping.wait(_LOOK_FOR_LOCK_EVERY_S)
            return
        self._note_waiting(is_waiting=False)
        if self._kept and time.monotonic() >= self._try_kept_s:
            self._try_kept()
        rows = read_batch(self._source, [*self._kept])
        self._is_idle = False
        self.oldest_ms = next((row.written_ms for row in rows if not row.fault), None)
        if rows:
            if self._accept(rows):
                self._delete_accepted(rows)
            self._note_up()
        else:
            self._note_up()
            self._is_idle = True
            self._source.wait(self._stopping, _TRY_KEPT_EVERY_S if self._kept else _LONG_S)

    def _accept(self, rows: Sequence[Row]) -> bool:
        """Submit the rows, and return whether they are on disk. A row counts as accepted before only if all its values
        are equal, because in a restored database another row may have the same number.
        """
        known = frozenset(self._accepted)
        new = [row for row in rows if row not in known] if known else rows
        if new:
            try:
                self._submit(self._records_of(new)).result()
            except StoreUnavailable:  # the engine has told it; the rows are read again
                self._stopping.wait(_FIRST_WAIT_S)
                return False
            except (DeliveryFailed, RuntimeError) as error:
                raise _EngineEnded from error
        self._accepted = rows
        return True

    def _delete_accepted(self, rows: Sequence[Row]) -> None:
        room = _MOST_KEPT - len(self._kept)
        limit_s = self._patience.together_s
        # Without room, the next search would find the same rows.
        stay = self._delete_rows(rows, limit_s, time.monotonic() + (_SEARCH_TIMES * limit_s if room else math.inf))
        kept = [(row, reason) for row, reason in stay if reason]
        self._kept.update((row.n, _mark(row)) for row, _ in kept[:room])
        self._accepted = [row for row, _ in stay if row.n not in self._kept]
        if kept:
            self._tell_kept(*kept[0])
        if not room and len(stay) == len(rows):
            raise OSError(f"the database deletes none of the rows that were read, after {_MOST_KEPT:,} others")

    def _delete_rows(self, rows: Sequence[Row], limit_s: float, until_s: float = math.inf) -> list[tuple[Row, str]]:
        """Delete rows, all of them within `limit_s`. Returns those that stay, and why; without a reason if no time was
        left to find it. Errors: of the source, if no row can be deleted.
        """
        parts = [([row for row in rows if not row.stays], limit_s)]  # the next one last
        stay: list[tuple[Row, str]] = []
        has_found_any = False
        while parts:
            part, limit_s = parts.pop()
            began_s = time.monotonic()
            if has_found_any and began_s > until_s:
                stay += [(row, "") for row in part]
                continue
            try:
                deleted = frozenset(self._source.delete([row.n for row in part], limit_s))
            except Exception as error:
                self._source.delete([], _LONGEST_DELETE_S)
                if len(part) == 1:
                    stay.append((part[0], text_of(error)))
                    has_found_any = True
                    continue
                half, limit_s = len(part) // 2, max(limit_s / 2, self._patience.part_s(0.0))
                parts += [(part[half:], limit_s), (part[:half], limit_s)]
                continue
            has_found_any = True
            self._patience.note(time.monotonic() - began_s)
            self.rows += len(deleted)
            stay += [(row, _LOCKED) for row in part if row.n not in deleted]
        return [*stay, *((row, row.fault) for row in rows if row.stays)]

    def _try_kept(self) -> None:
        """Try to delete some of the rows that could not be deleted, those first that were tried longest ago."""
        began_s = time.monotonic()
        for n in [*islice(self._kept, _KEPT_TRIED)]:
            if time.monotonic() > began_s + _TRY_KEPT_WITHIN_S:
                break
            rows = fetch_row(self._source, n)
            # In a restored database it may be another row: then it is read as a new one.
            is_same = [_mark(row) for row in rows] == [self._kept[n]]
            stay = self._delete_rows(rows, _LONGEST_DELETE_S) if is_same else []
            mark = self._kept.pop(n)
            if stay:
                self._kept[n] = mark
                self._tell_kept(*stay[0])
        now_s = time.monotonic()
        self._try_kept_s = max(began_s + _TRY_KEPT_EVERY_S, now_s + (now_s - began_s) / _TRY_KEPT_SHARE)

    def _tell_kept(self, row: Row, reason: str) -> None:
        now_s = time.monotonic()
        if now_s >= self._tell_kept_s:
            self._tell_kept_s = now_s + _TELL_KEPT_EVERY_S
            logger.error(
                "the outbox %s has rows that can't be deleted or read, %d so far, and tries them again; row %d: %s",
                *(self.outbox, len(self._kept), row.n, reason),
            )

    def _records_of(self, rows: Sequence[Row]) -> list[Records]:
        """A row that holds no record becomes a dead letter."""
        name, most = self.outbox, 2 * self._source.max_payload
        values: list[tuple[bytes | None, str | None, int | None, int]] = []
        bad = []
        for row in rows:
            line = max(row.n, 0)  # a row that was inserted by hand may have any number
            if row.fault:
                bad.append(Records.bad(name, line, row.fault, "a record that the database gives as UTF-8", b""))
            elif row.size > most:
                reason = f"the record has {row.size:,} bytes"
                bad.append(Records.bad(name, line, reason, f"at most {most:,} bytes", b""))
            else:
                # A line break between two parts of JSON would end the record.
                record = (row.record or b"").replace(b"\n", b" ")
                values.append((record, name, line, row.written_ms))
        return [self._lines.read_values(values), *bad]

    def _note_down(self, error: Exception) -> None:
        if self._down_since_s is None and not self._stopping.is_set():
            self._down_since_s = time.monotonic()
            logger.error("the outbox %s can't be read, and is tried again: %s", self.outbox, text_of(error))

    def _note_up(self) -> None:
        if self._down_since_s is not None:
            down_ms = (time.monotonic() - self._down_since_s) * 1_000
            self._down_since_s = None
            logger.warning("the outbox %s can be read again, after %d ms", self.outbox, down_ms)

    def _note_waiting(self, *, is_waiting: bool) -> None:
        if is_waiting != self._is_waiting:
            self._is_waiting = is_waiting
            text = "another process reads the outbox %s: waiting for its end" if is_waiting else "reading the outbox %s"
            logger.warning(text, self.outbox)


def _mark(row: Row) -> int:
    return hash(row._replace(fault=""))  # the text may have a time


class _EngineEnded(Exception):
    """The engine has failed or is closed: rows that it has not accepted stay where they are."""
