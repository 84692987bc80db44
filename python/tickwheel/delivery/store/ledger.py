"""What can be asked of the ledger."""

import sqlite3

from tickwheel.delivery.store.store import Outcome
from tickwheel.delivery.summary import PERCENTILES, percentiles, rank


def last(db: sqlite3.Connection) -> int:
    """The number of its last row."""
    [(n,)] = db.execute("SELECT max(n) FROM ledger")
    return n or 0


def lateness_ms(db: sqlite3.Connection, after: int) -> dict[str, float | None]:
    """Percentiles of what was delivered after that row. O(rows)."""
    delivered = "FROM ledger WHERE n > ? AND outcome = ? AND lateness_us IS NOT NULL"
    [(count,)] = db.execute(f"SELECT count(*) {delivered}", (after, Outcome.DELIVERED))
    if not count:
        return percentiles([])
    nth = f"SELECT lateness_us {delivered} ORDER BY lateness_us LIMIT 1 OFFSET ?"
    return {
        name: db.execute(nth, (after, Outcome.DELIVERED, rank(q, count))).fetchone()[0] / 1000
        for name, q in PERCENTILES.items()
    }
