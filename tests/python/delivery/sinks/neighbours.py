"""Measures what bad rows cost their neighbours: `python -m delivery.sinks.neighbours CASE [SECONDS]` in `tests/python`.

sqlite      60 rows for which a trigger fails with an `OperationalError`, beside 2,000 others
postgresql  6 rows that wait for a lock of another session, beside 2,000 others
foreign     an outbox of PostgreSQL: 1 row that a foreign key keeps, before 10,000 others
locked      the same, and the row is locked by another session
"""

import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import psycopg

from delivery.postgres_server import PostgresServer, _program
from delivery.sinks.making import opened
from tickwheel.delivery import DeliveryQueue, Message
from tickwheel.delivery.outbox import create_table, enqueue_many

BAD_JSON = b'"bad"'


def put_all(folder: Path, to: str, bad: int, good: int, within_s: float, is_bad_first: bool = True) -> None:
    due_ms = time.time_ns() // 1_000_000
    rows = [Message(f"bad{n}", f"bad{n}", due_ms, msgspec.Raw(BAD_JSON)) for n in range(bad)]
    rows += [Message(f"good{n}", f"good{n}", due_ms + n // 4, msgspec.Raw(b"1")) for n in range(good)]
    letters: list[object] = []
    began_s = time.monotonic()
    with DeliveryQueue(folder / "store.db", to=to, on_dead_letter=letters.append) as queue:
        queue.put_many(rows)
        report(began_s, within_s, good, lambda: queue.summary.delivered)
        print(f"  dead letters: {len(letters)}")


def report(began_s: float, within_s: float, wanted: int, count: object) -> None:
    """Prints how many came, and when the last one did."""
    came, at_s = 0, 0.0
    while time.monotonic() - began_s < within_s and came < wanted:
        now = count()  # type: ignore[operator]
        if now != came:
            came, at_s = now, time.monotonic() - began_s
        time.sleep(0.02)
    print(f"  {came} of {wanted} came, the last after {at_s:.1f} s (waited {time.monotonic() - began_s:.0f} s)")


def of_sqlite(folder: Path, within_s: float) -> None:
    to = f"sqlite:{folder / 'out.db'}?table=t"
    opened(to).close()
    with sqlite3.connect(folder / "out.db") as database:
        database.execute(
            "CREATE TRIGGER no BEFORE INSERT ON t WHEN new.id LIKE 'bad%'"
            " BEGIN SELECT json_extract('no JSON', '$'); END"
        )
    database.close()
    put_all(folder, to, 60, 2_000, within_s)


@contextmanager
def server() -> Iterator[str]:
    initdb, pg_ctl = _program("initdb"), _program("pg_ctl")
    assert initdb is not None
    assert pg_ctl is not None
    made = PostgresServer(initdb, pg_ctl)
    try:
        made.start()
        try:
            yield made.url
        finally:
            made.stop()
    finally:
        made.remove()


def of_postgresql(folder: Path, within_s: float) -> None:
    with server() as url, psycopg.connect(url, autocommit=True) as beside:
        to = f"{url}&table=t"
        opened(to).close()
        beside.execute("CREATE UNIQUE INDEX once ON t (id)")
        with beside.transaction(force_rollback=True):
            for n in range(6):
                beside.execute(
                    "INSERT INTO t (id, due, delivered_at, lateness_ms, attempt, redelivered)"
                    " VALUES (%s, now(), now(), 0, 1, false)",
                    (f"bad{n}",),
                )
            put_all(folder, to, 6, 2_000, within_s)


def of_outbox(folder: Path, within_s: float, is_locked: bool) -> None:
    with server() as url, psycopg.connect(url) as beside:
        create_table(beside, "o")
        enqueue_many(beside, [(f"m{n}", 400_000_000_000, n) for n in range(10_001)], table="o")
        if not is_locked:
            beside.execute("CREATE TABLE uses (n bigint REFERENCES o (n))")
            beside.execute("INSERT INTO uses VALUES (1)")
        beside.commit()
        if is_locked:
            beside.execute("SELECT FROM o WHERE n = 1 FOR UPDATE")
        came: list[object] = []
        began_s = time.monotonic()
        with DeliveryQueue(folder / "store.db", to=came.append, outbox=f"{url}&table=o"):
            report(began_s, within_s, 10_001, lambda: len(came))
        beside.rollback()
        print("  rows left:", beside.execute("SELECT count(*) FROM o").fetchone())


CASES = {
    "sqlite": of_sqlite,
    "postgresql": of_postgresql,
    "foreign": lambda folder, within_s: of_outbox(folder, within_s, False),
    "locked": lambda folder, within_s: of_outbox(folder, within_s, True),
}

if __name__ == "__main__":
    name, seconds = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 30.0
    with tempfile.TemporaryDirectory() as made_folder:
        print(f"{name}:")
        CASES[name](Path(made_folder), seconds)
