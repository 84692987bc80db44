"""Many rows in one statement, so that SQLite works through them in C without the GIL.

`executemany` and a loop over rows give the GIL away and wait for it again at every row, which takes ten times as long
under load as the row itself. So what a transaction does to a table is one statement. Statements are prepared for a few
numbers of rows only, as preparing takes five times as long as running, and filled up with the key of the last row: to
find or to remove that twice is no different, and `INSERT OR IGNORE` leaves out a row that is there.

Values are best `int`, `float`, `str` and `bytearray`: for all others, `None` and `bytes` among them, the `sqlite3`
module looks for an adapter, which takes 0.5 to 1 µs, ten times what it needs for the value itself.
"""

import sqlite3
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

Value: TypeAlias = int | float | str | bytes | bytearray | None

_SIZES: Final = (1, 4, 16, 64, 128, 192, 256, 320, 384, 448, 512, 640, 768, 1024, 1536, 2048)


def insert(db: sqlite3.Connection, into: str, values: Sequence[Value], width: int, key: int = 1) -> None:
    """`into` is as `t (a, b)`, the first `key` columns are the primary key; `values` are of all rows, which are new."""
    inserted = execute_many(db, f"INSERT OR IGNORE INTO {into} VALUES {{}}", values, width, key)
    if inserted != len(values) // width:
        raise sqlite3.IntegrityError(f"{into}: a row is there already")


def execute_many(
    db: sqlite3.Connection, statement: str, values: Sequence[Value], width: int, key: int | None = None
) -> int:
    """Run `statement`, in which `{}` stands for a list of rows, for all rows; returns how many rows it changed."""
    changed = 0
    for part, size in _parts(values, width, width if key is None else key):
        changed += db.execute(_with_rows(statement, size, width), part).rowcount
    return changed


def select_in(db: sqlite3.Connection, statement: str, values: Iterable[Value]) -> list[Any]:
    """The rows of `statement`, in which `{}` stands for a list of values, for all values."""
    found = []
    for part, size in _parts(list(values), 1, 1):
        found += db.execute(_with_values(statement, size), part).fetchall()
    return found


def _parts(values: Sequence[Value], width: int, key: int) -> Iterable[tuple[Sequence[Value], int]]:
    """The values in parts of as many rows as there are statements for, the last part filled up."""
    most = _SIZES[-1] * width
    for start in range(0, len(values), most):
        part = values[start : start + most]
        rows = len(part) // width
        size = _SIZES[bisect_left(_SIZES, rows)]
        fill = [*part[-width:][:key], *[0] * (width - key)]
        yield [*part, *fill * (size - rows)], size


@lru_cache(256)
def _with_rows(statement: str, size: int, width: int) -> str:
    row = f"({', '.join('?' * width)})"
    return statement.format(", ".join([row] * size))


@lru_cache(256)
def _with_values(statement: str, size: int) -> str:
    return statement.format(", ".join("?" * size))
