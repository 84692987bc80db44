"""What the store does besides: payloads that are done with go, old names go, the write-ahead log is moved to its place.

All in small steps between other work, so that no group of commits waits long.

- Payloads are removed in the order of the ledger, thousands at a time, by ascending number: whole pages at once.
- A message is forgotten `keep_ids` after its outcome, oldest first; so is a cancel whose message never came.
- Checkpoints: a thread with a connection of its own moves the log to its place while the writer goes on. It can't start
  the log anew; once it has moved nearly all of a long log, the writer moves the rest, which does.
"""

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tickwheel.delivery.store import meta
from tickwheel.delivery.store.store import Store

_BODIES: Final = 5_000
_OLD: Final = 2_000
_PRUNE_EVERY_S: Final = 3600
_CHECKPOINT_EVERY_S: Final = 1
_LONG_LOG: Final = 4_000  # pages


class Housekeeping:
    """Called by the writer inside its transactions; `keep_ids_ms` is how long a message stays known."""

    def __init__(self, store: Store, keep_ids_ms: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._db = store.db
        self._keep_ids_ms = keep_ids_ms
        self._monotonic = monotonic
        self._next_prune_s = monotonic()
        self._collected = meta.get_int(self._db, "collected")

    def step(self, now_ms: int, *, is_idle: bool) -> bool:
        """A little of what there is to do; whether there is more."""
        self._store.ids.merge_some()
        more = self._collect(1 if is_idle else 2 * _BODIES)
        if self._monotonic() < self._next_prune_s:
            return more
        if self._prune(now_ms - self._keep_ids_ms):
            return True
        self._store.forget_cancels(now_ms - self._keep_ids_ms, now_ms)
        self._next_prune_s = self._monotonic() + _PRUNE_EVERY_S
        return more

    def _collect(self, least: int) -> bool:
        """Remove payloads, if there are so many to remove."""
        [(last,)] = self._db.execute("SELECT max(n) FROM ledger")
        left = (last or 0) - self._collected
        if left < least:
            return False
        through = self._collected + min(left, _BODIES)
        self._db.execute(
            "DELETE FROM bodies WHERE seq IN (SELECT seq FROM ledger WHERE n > ? AND n <= ?)",
            (self._collected, through),
        )
        self._collected = through
        meta.put(self._db, "collected", through)
        return left > 2 * _BODIES

    def _prune(self, before_ms: int) -> bool:
        """Forget the oldest; whether there may be more."""
        rows = self._db.execute("SELECT n, seq, at_ms FROM ledger ORDER BY n LIMIT ?", (_OLD,)).fetchall()
        last = last_seq = 0
        for n, seq, at_ms in rows:
            if at_ms >= before_ms or n > self._collected:
                break
            last, last_seq = n, max(last_seq, seq)
        if not last:
            return False
        if last_seq > self._store.ids.merged_seq:
            self._store.ids.merge_all()
        old = "SELECT seq FROM ledger WHERE n <= ?"
        meta.put(self._db, "last_seq", self._store.last_seq)
        self._db.execute(
            f"DELETE FROM ids WHERE (name, seq) IN (SELECT name, seq FROM messages WHERE seq IN ({old}))", (last,)
        )
        self._db.execute(f"DELETE FROM messages WHERE seq IN ({old})", (last,))
        # Its very last row stays, as numbers go on from it.
        self._db.execute("DELETE FROM ledger WHERE n <= ? AND n < (SELECT max(n) FROM ledger)", (last,))
        return len(rows) == _OLD and last == rows[-1][0]


class Checkpoints:
    """A thread that moves the write-ahead log to its place, once a second while anything is written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written = threading.Event()
        self._stop = threading.Event()
        self._is_long = False
        self._thread = threading.Thread(target=self._run, name="checkpoints-deliver", daemon=True)
        self._thread.start()

    def after_commit(self, db: sqlite3.Connection) -> None:
        """Called by the writer; moves the rest where the log has become long."""
        if self._is_long:
            self._is_long = False
            with contextlib.suppress(sqlite3.Error):  # the next commit tells what is wrong
                db.execute("PRAGMA wal_checkpoint(PASSIVE)")
        self._written.set()

    def close(self) -> None:
        """Waits for what is being moved."""
        self._stop.set()
        self._written.set()
        self._thread.join()

    def _run(self) -> None:
        db = sqlite3.connect(self._path, isolation_level=None)
        while self._written.wait() and not self._stop.is_set():
            self._written.clear()
            with contextlib.suppress(sqlite3.Error):
                _, pages, _ = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                self._is_long = pages > _LONG_LOG
            self._stop.wait(_CHECKPOINT_EVERY_S)
        db.close()
