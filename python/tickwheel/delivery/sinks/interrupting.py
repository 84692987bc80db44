"""Interrupts statements of SQLite that compute for too long (rule D6). SQLite has no time-out for them.

The limit is looked at after each million instructions of SQLite, which take some milliseconds: a look takes the GIL. A
wait for a lock has no instructions; `timeout=` of the connection limits it. If a statement that writes is interrupted,
its transaction is rolled back.
"""

import math
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_LOOK_EVERY: Final = 1_000_000


class TimeLimit:
    """The limit of one connection. There is none outside of `within`."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._until_s = math.inf
        database.set_progress_handler(lambda: time.monotonic() > self._until_s, _LOOK_EVERY)

    @contextmanager
    def within(self, limit_s: float) -> Iterator[None]:
        """Interrupts statements inside the block once this time is over."""
        self._until_s = time.monotonic() + limit_s
        try:
            yield
        finally:
            self._until_s = math.inf


def was_interrupted(error: Exception) -> bool:
    """Whether a statement took too long."""
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT
