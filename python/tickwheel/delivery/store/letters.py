"""Dead letters in the store (rule D2): each is committed with what it came from, and written out after that.

After a crash those whose writing out was not noted are written once more: a dead letter may be there twice, never not.
"""

import sqlite3
from collections.abc import Sequence

from tickwheel.delivery.entries import Letter as Letter
from tickwheel.delivery.store import meta
from tickwheel.delivery.store.rows import Value, insert

KEPT = 10_000
"""How many that were written out are kept, for the report."""


def put(db: sqlite3.Connection, letters: Sequence[Letter], at_ms: int) -> None:
    """To be written out after the commit."""
    if not letters:
        return
    [(last,)] = db.execute("SELECT ifnull(max(n), 0) FROM dead_letters")
    values: list[Value] = []
    for n, letter in enumerate(letters, last + 1):
        texts = map(_text, (letter.reason, letter.allowed))
        values += (n, at_ms, _text(letter.source), letter.line, *texts, letter.record)
    insert(db, "dead_letters (n, at_ms, source, line, reason, allowed, record)", values, 7)


def _text(text: str) -> str:
    """Without what no UTF-8 can write, as the words of an error may hold."""
    return text.encode(errors="backslashreplace").decode()


def unwritten(db: sqlite3.Connection, most: int = 1_000) -> tuple[list[Letter], int]:
    """The next to be written out, and the number to give to `written` then."""
    since = meta.get_int(db, "letters_written")
    rows = db.execute(
        "SELECT n, source, line, reason, allowed, record FROM dead_letters WHERE n > ? ORDER BY n LIMIT ?",
        (since, most),
    ).fetchall()
    return [Letter(*row[1:]) for row in rows], rows[-1][0] if rows else since


def written(db: sqlite3.Connection, through: int) -> None:
    """All up to this one are written out; old ones go."""
    meta.put(db, "letters_written", through)
    db.execute("DELETE FROM dead_letters WHERE n <= ?", (through - KEPT,))
