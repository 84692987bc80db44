"""Single values by name."""

import sqlite3

from tickwheel.delivery.store.rows import Value


def get(db: sqlite3.Connection, name: str) -> Value:
    """`None` if it was never put."""
    row = db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
    return row[0] if row else None


def get_int(db: sqlite3.Connection, name: str) -> int:
    """0 if it was never put."""
    value = get(db, name)
    assert value is None or isinstance(value, int)
    return value or 0


def put(db: sqlite3.Connection, name: str, value: Value) -> None:
    """Takes the place of what was there."""
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))
