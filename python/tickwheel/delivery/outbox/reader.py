"""The thread that moves rows from an outbox into the engine.

    read the first rows -> submit -> their accept is on disk -> delete the rows -> read again

Rows are deleted only after the accept is on disk. After a crash in between they are read again, and are duplicates by
key and id (D5). If a database is down, only its outbox waits. The reader tries again by back-off. The log says once
that the database is down, and once that it is up again (as D6).

A row that can't be deleted is the trouble of that row alone. If a delete fails and the database answers, it is halved
until the rows are found that stay: a foreign key or a trigger keeps them, another session has locked them, or it takes
too long. The reader remembers them, passes over them, and tries them again one by one, some each second.

    4,096 rows: not within 1 s -> 2,048: 0.5 s -> 1,024: 0.25 s -> 512: 0.13 s -> 256 to 2: 0.1 s each -> 1 row: 1 s

So a row that takes for ever is found within 4 s. A search that has found one ends after a second. The rows that it has
not come to are read again, together with new ones, and the search goes on. Memory: one batch, and the numbers of one
batch and of `_MOST_KEPT` rows.
"""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final, TypeAlias

from tickwheel._event import Event
from tickwheel._native import NdjsonLines, Records
from tickwheel.delivery.base.errors import DeliveryFailed, StoreUnavailable
from tickwheel.delivery.model.message import Columns
from tickwheel.delivery.observe.log import logger
from tickwheel.delivery.outbox.source import Row, Source

Submit: TypeAlias = Callable[..., "Future[list[Any]]"]
"""Submits records; the future gets the answers once they are on disk."""

_FIRST_WAIT_S: Final = 0.1
_LONGEST_WAIT_S: Final = 30.0
_STOP_WITHIN_S: Final = 5.0
_LOOK_FOR_LOCK_EVERY_S: Final = 1.0
_TRY_KEPT_EVERY_S: Final = 1.0
_TRY_KEPT_WITHIN_S: Final = 0.25  # then no further row is tried
_TRY_KEPT_TIMES: Final = 10  # of the time that this takes, at least, before it is tried again
_DELETE_WITHIN_S: Final = 1.0  # a batch, or one row
_DELETE_PART_WITHIN_S: Final = 0.1  # a part, at least
_SEARCH_WITHIN_S: Final = 1.0  # if it has found a row
_MOST_KEPT: Final = 1_000
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
        # By number: the hash of a row that is on disk in the store. A row counts as known only if all its values are
        # equal, because in a restored database another row may have the number.
        self._accepted: dict[int, int] = {}  # of the last batch, and not deleted yet
        self._kept: dict[int, int] = {}  # those that can't be deleted; the one that was tried last is the last
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
                self._try_kept_s = 0.0  # it may be another file
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
        if len(self._kept) > _MOST_KEPT:
            raise OSError(f"the database deletes none of {len(self._kept):,} rows that were read")
        rows = self._source.read([*self._kept])
        self._is_idle = False
        new = [row for row in rows if self._accepted.get(row.n) != hash(row)]
        self.oldest_ms = new[0].written_ms if new else None
        if rows:
            if not new or self._accept(new):
                self._accepted = {row.n: hash(row) for row in rows}
                self._delete_accepted(rows)
            self._note_up()
        else:
            self._note_up()
            self._is_idle = True
            self._source.wait(self._stopping, _TRY_KEPT_EVERY_S if self._kept else _LONG_S)

    def _try_kept(self) -> None:
        """Try to delete rows that could not be deleted, those first that were tried longest ago."""
        began_s = time.monotonic()
        for n, mark in [*self._kept.items()]:
            if self._stopping.is_set() or time.monotonic() > began_s + _TRY_KEPT_WITHIN_S:
                break
            row = self._source.fetch(n)
            if row is None or hash(row) != mark:
                del self._kept[n]
            else:
                self._delete_accepted([row])
        now_s = time.monotonic()
        self._try_kept_s = now_s + max(_TRY_KEPT_EVERY_S, _TRY_KEPT_TIMES * (now_s - began_s))

    def _accept(self, rows: Sequence[Row]) -> bool:
        """Submit the rows, and return whether they are on disk."""
        try:
            self._submit(self._records_of(rows)).result()
        except StoreUnavailable:  # the engine has told it; the rows are read again
            self._stopping.wait(_FIRST_WAIT_S)
            return False
        except (DeliveryFailed, RuntimeError) as error:
            raise _EngineEnded from error
        return True

    def _delete_accepted(self, rows: Sequence[Row]) -> None:
        """Delete rows that are accepted, as far as that is possible in time. Errors: of the source, if no row can be
        deleted.
        """
        began_s, has_found_any = time.monotonic(), False
        parts = [(rows, _DELETE_WITHIN_S)]  # the next one last
        while parts and not (has_found_any and time.monotonic() > began_s + _SEARCH_WITHIN_S):
            part, within_s = parts.pop()
            try:
                limit_s = within_s if len(part) > 1 else _DELETE_WITHIN_S
                deleted, why = frozenset(self._source.delete([row.n for row in part], limit_s)), _LOCKED
            except Exception as error:
                self._source.delete([], _DELETE_WITHIN_S)
                if len(part) > 1:
                    half, within_s = len(part) // 2, max(within_s / 2, _DELETE_PART_WITHIN_S)
                    parts += [(part[half:], within_s), (part[:half], within_s)]
                    continue
                deleted, why = frozenset(), _text_of(error)
                has_found_any = True
            self.rows += len(deleted)
            for row in part:
                self._accepted.pop(row.n, None)
                self._kept.pop(row.n, None)
                if row.n not in deleted:
                    self._kept[row.n] = hash(row)
                    self._tell_kept(row, why)

    def _tell_kept(self, row: Row, reason: str) -> None:
        now_s = time.monotonic()
        if now_s >= self._tell_kept_s:
            self._tell_kept_s = now_s + _TELL_KEPT_EVERY_S
            logger.error(
                "the outbox %s has rows that can't be deleted, and tries them again; row %d: %s",
                *(self.outbox, row.n, reason),
            )

    def _records_of(self, rows: Sequence[Row]) -> list[Records]:
        """A row that holds no record becomes a dead letter."""
        name, most = self.outbox, 2 * self._source.max_payload
        values: list[tuple[bytes | None, str | None, int | None, int]] = []
        bad = []
        for row in rows:
            line = max(row.n, 0)  # a row that was inserted by hand may have any number
            if row.size is None:
                bad.append(Records.bad(name, line, "the record is NULL", "a record", b""))
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
            logger.error("the outbox %s can't be read, and is tried again: %s", self.outbox, _text_of(error))

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


def _text_of(error: Exception) -> str:
    """The error in a line."""
    name = getattr(error, "sqlite_errorname", None)  # it says more than the text, which is "disk I/O error" for many
    return " ".join(f"{type(error).__name__}: {error}{f' ({name})' if name else ''}".split())


class _EngineEnded(Exception):
    """The engine has failed or is closed: rows that it has not accepted stay where they are."""
