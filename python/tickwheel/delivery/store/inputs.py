"""How far each input was read, committed together with what was read (rules D5, D11).

An input is known by its name, and taken for the same one as before if it still begins with the same bytes. So a file
that has grown is read on from where reading stopped, and another file under the same name is read whole.
"""

import sqlite3

from tickwheel.delivery.entries import Progress as Progress


def every(db: sqlite3.Connection) -> dict[str, Progress]:
    """Of all inputs, by name."""
    rows = db.execute("SELECT source, line, size, digest FROM inputs")
    return {row[0]: Progress(*row) for row in rows}


def put(db: sqlite3.Connection, progress: Progress) -> None:
    """Takes the place of what was there."""
    db.execute("INSERT OR REPLACE INTO inputs VALUES (?, ?, ?, ?)", progress)
