"""Many rows in one statement, so that SQLite works through them in C without the GIL.

`executemany` and a loop over rows give the GIL away and wait for it again at every row, which under load takes ten times
as long as the row itself. So what a transaction does to a table is one statement, whatever its number of rows.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

Value: TypeAlias = int | float | str | bytes | None

_MOST_VALUES = 16_000  # of one statement; SQLite takes 32,766


def insert(db: sqlite3.Connection, into: str, values: Sequence[Value], width: int) -> None:
    """`into` is a statement up to its VALUES, as `INSERT INTO t (a, b)`; `values` are those of all rows in turn."""
    execute_many(db, f"{into} VALUES {{}}", values, width)


def execute_many(db: sqlite3.Connection, statement: str, values: Sequence[Value], width: int) -> None:
    """Run `statement`, in which `{}` stands for a list of rows, for all rows."""
    most = _MOST_VALUES // width * width
    for start in range(0, len(values), most):
        part = values[start : start + most]
        db.execute(_with_rows(statement, len(part) // width, width), part)


def select_in(db: sqlite3.Connection, statement: str, values: Iterable[Value]) -> list[Any]:
    """The rows of `statement`, in which `{}` stands for a list of values, for all values."""
    left, found = list(values), []
    for start in range(0, len(left), _MOST_VALUES):
        part = left[start : start + _MOST_VALUES]
        found += db.execute(_with_values(statement, len(part)), part).fetchall()
    return found


@lru_cache(64)
def _with_rows(statement: str, size: int, width: int) -> str:
    row = f"({', '.join('?' * width)})"
    return statement.format(", ".join([row] * size))


@lru_cache(64)
def _with_values(statement: str, size: int) -> str:
    return statement.format(", ".join("?" * size))
