"""Many rows in one statement, so that SQLite works through them in C without the GIL.

`executemany` and a loop over rows give the GIL away and fight for it again at every row, which under load takes ten
times as long as the row itself. A statement for 250 rows does so once. Statements are prepared once for a few sizes.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, TypeAlias

Value: TypeAlias = int | float | str | bytes | None
Row: TypeAlias = Sequence[Value]

_SIZES = (250, 50, 10, 1)


def insert(db: sqlite3.Connection, into: str, rows: Sequence[Row]) -> None:
    """`into` is a statement up to its VALUES, as `INSERT INTO t (a, b)`."""
    execute_many(db, f"{into} VALUES {{}}", rows)


def execute_many(db: sqlite3.Connection, statement: str, rows: Sequence[Row]) -> None:
    """Run `statement`, in which `{}` stands for a list of rows, for all rows."""
    start, width = 0, len(rows[0]) if rows else 0
    for size in _SIZES:
        while len(rows) - start >= size:
            db.execute(_with_rows(statement, size, width), list(chain.from_iterable(rows[start : start + size])))
            start += size


def select_in(db: sqlite3.Connection, statement: str, values: Iterable[Value]) -> list[Any]:
    """The rows of `statement`, in which `{}` stands for a list of values, for all values."""
    left, found = list(values), []
    start = 0
    for size in _SIZES:
        while len(left) - start >= size:
            found += db.execute(_with_values(statement, size), left[start : start + size]).fetchall()
            start += size
    return found


@lru_cache(256)
def _with_rows(statement: str, size: int, width: int) -> str:
    row = f"({', '.join('?' * width)})"
    return statement.format(", ".join([row] * size))


@lru_cache(256)
def _with_values(statement: str, size: int) -> str:
    return statement.format(", ".join("?" * size))
