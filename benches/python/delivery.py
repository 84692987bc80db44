"""The lateness of deliveries at a steady rate, from a durable store to a file; beside it, that of polling a table.

A thread submits messages in batches, due one to three seconds later. The result is read from the file: the lateness in
each line, and whether every message is there. `wheel` is `DeliveryQueue`: it reads the store once per interval, and the
wheel waits for the millisecond. `poll` is the usual way: it reads the due messages from a table every 100 ms or every
1 ms (rules D3, D5, D8). Everything runs in one process on this machine, with the load generator.

    python benches/python/delivery.py [--rate 20000]... [--seconds 20] [--check]
"""

import gc
import json
import resource
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec
from rich.console import Console
from rich.table import Table

from tickwheel.delivery import DeliveryQueue, Message
from tickwheel.delivery.summary import percentiles

BATCH_S = 0.02
PAYLOAD = msgspec.Raw(json.dumps({"to": "somebody", "text": "x" * 100}).encode())
KEYS = 5_000

Submit = Callable[[Sequence[Message]], "Future[Any]"]


class Row(NamedTuple):
    """A line of the table. Times are in milliseconds, `cpu` is in cores."""

    messages: int
    per_second: float
    p50: float
    p99: float
    p999: float
    max: float
    early: int
    answer_p50: float
    answer_max: float
    cpu: float
    mib: float


def feed(submit: Submit, rate: int, seconds: float, *, keys: int = KEYS) -> list[float]:
    """Submit `rate` messages a second. Returns how long each batch waited until it was on disk."""
    batch, number, start = round(rate * BATCH_S), 0, time.monotonic()
    answered_ms: list[float] = []
    tickets = []

    def note(asked: float, _: object) -> None:
        answered_ms.append((time.monotonic() - asked) * 1000)

    for tick in range(round(seconds / BATCH_S)):
        time.sleep(max(0, start + tick * BATCH_S - time.monotonic()))
        now_ms = time.time_ns() // 1_000_000
        messages = [
            Message(f"message {n}", f"key {n % keys}", now_ms + 1000 + (n * 7919) % 2000, PAYLOAD)
            for n in range(number, number + batch)
        ]
        number += batch
        asked = time.monotonic()
        ticket = submit(messages)
        ticket.add_done_callback(partial(note, asked))
        tickets.append(ticket)
    for ticket in tickets:
        ticket.result()
    return answered_ms


def wheel(folder: Path, rate: int, seconds: float) -> Row:
    with DeliveryQueue(folder / "store.db", to=f"file:{folder / 'out'}") as queue:
        return measure(folder, lambda: feed(queue.submit, rate, seconds), lambda: queue.wait_until_empty(60), seconds)


def poll(folder: Path, rate: int, seconds: float, every_ms: int) -> Row:
    """Poll a table with an index on the due time, every `every_ms`."""
    db = sqlite3.connect(folder / "store.db", isolation_level=None, check_same_thread=False)
    db.executescript("""
        PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
        CREATE TABLE messages (id TEXT PRIMARY KEY, key TEXT, due_ms INTEGER, payload TEXT);
        CREATE INDEX by_due ON messages (due_ms);
    """)
    lock, stop = threading.Lock(), threading.Event()

    def submit(messages: Sequence[Message]) -> "Future[Any]":
        rows = [(message.id, message.key, message.due_ms, bytes(message.payload).decode()) for message in messages]
        with lock:
            db.execute("BEGIN")
            db.executemany("INSERT OR IGNORE INTO messages VALUES (?, ?, ?, ?)", rows)
            db.execute("COMMIT")
        done: Future[Any] = Future()
        done.set_result(None)
        return done

    def deliver() -> None:
        with (folder / "out").open("ab", buffering=0) as out:
            while not stop.wait(every_ms / 1000):
                with lock:
                    due = "FROM messages WHERE due_ms <= ?"
                    now_ms = time.time_ns() // 1_000_000
                    rows = db.execute(f"SELECT id, key, due_ms, payload {due} ORDER BY due_ms", (now_ms,)).fetchall()
                    if not rows:
                        continue
                    lines = []
                    for id_, key, due_ms, payload in rows:
                        line = {"id": id_, "key": key, "payload": payload}
                        lines.append(json.dumps(line | {"lateness_ms": time.time_ns() / 1e6 - due_ms}))
                    out.write(("\n".join(lines) + "\n").encode())
                    db.execute(f"DELETE {due}", (now_ms,))

    def wait() -> bool:
        for _ in range(6_000):
            with lock:
                if db.execute("SELECT count(*) FROM messages").fetchone() == (0,):
                    return True
            time.sleep(0.01)
        return False

    thread = threading.Thread(target=deliver)
    thread.start()
    try:
        return measure(folder, lambda: feed(submit, rate, seconds), wait, seconds)
    finally:
        stop.set()
        thread.join()
        db.close()


def measure(folder: Path, run: Callable[[], list[float]], wait: Callable[[], bool], seconds: float) -> Row:
    before, start = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    answered_ms = run()
    fed_s = time.monotonic() - start
    if not wait():
        sys.exit("not all messages were delivered within a minute")
    took_s = time.monotonic() - start
    after = resource.getrusage(resource.RUSAGE_SELF)
    late = [json.loads(line)["lateness_ms"] for line in (folder / "out").read_bytes().splitlines()]
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    answers, ranks = percentiles(answered_ms), percentiles(late)
    return Row(
        messages=len(late),
        per_second=len(late) / max(fed_s, seconds),
        p50=ranks["p50"] or 0,
        p99=ranks["p99"] or 0,
        p999=ranks["p999"] or 0,
        max=ranks["max"] or 0,
        early=sum(ms < 0 for ms in late),
        answer_p50=answers["p50"] or 0,
        answer_max=answers["max"] or 0,
        cpu=cpu_s / took_s,
        mib=after.ru_maxrss / 1024,
    )


def one_key(folder: Path, seconds: float) -> float:
    """The number of messages in a second if all have one key."""
    messages = round(2_000 * seconds)
    with DeliveryQueue(folder / "store.db", to=f"file:{folder / 'out'}") as queue:
        queue.put_many(Message(f"{n}", "key", 5, PAYLOAD) for n in range(messages))
        start = time.monotonic()
        before = queue.summary.delivered
        queue.wait_until_empty(600)
        return (messages - before) / (time.monotonic() - start)


@click.command()
@click.option("--rate", "rates", multiple=True, type=int, default=(1000, 8000, 20000), show_default=True)
@click.option("--seconds", default=20.0, show_default=True)
@click.option("--polling/--no-polling", default=True, help="Measure polling too.")
@click.option("--check", is_flag=True, help="Fail if a target is missed.")
def main(rates: tuple[int, ...], seconds: float, *, polling: bool, check: bool) -> None:
    """Deliver at each rate, and print a table."""
    sys.setswitchinterval(0.0005)  # as the command sets it
    gc.freeze()
    table = Table(title="Accepted durably, delivered to a file; milliseconds late")
    for name in ("how", "asked/s", *Row._fields):
        table.add_column(name.replace("_", " "), justify="right")
    missed = []
    ways: list[tuple[str, Callable[[Path, int, float], Row]]] = [("wheel", wheel)]
    if polling:
        ways += [(f"poll {ms} ms", lambda *at, ms=ms: poll(*at, every_ms=ms)) for ms in (100, 1)]  # type: ignore[misc]
    Path("build").mkdir(exist_ok=True)
    for rate in rates:
        for name, way in ways:
            with tempfile.TemporaryDirectory(dir="build") as folder:
                row = way(Path(folder), rate, seconds)
            table.add_row(name, f"{rate:,}", *(f"{value:,.2f}".removesuffix(".00") for value in row))
            if name == "wheel":
                missed += misses(rate, row)
    console = Console(width=170)
    console.print(table)
    with tempfile.TemporaryDirectory(dir="build") as folder:
        console.print(f"one key alone: {one_key(Path(folder), seconds):,.0f} messages/s (aim 1,000)")
    for miss in missed:
        console.print(f"missed: {miss}")
    if check and missed:
        sys.exit(1)


def misses(rate: int, row: Row) -> list[str]:
    """The missed targets. They are: none early; at 8,000/s p99 5 ms and p99.9 15 ms, at 20,000/s p99 10 ms."""
    aims = {8_000: (5.0, 15.0), 20_000: (10.0, float("inf"))}
    p99, p999 = aims.get(rate, (float("inf"), float("inf")))
    found = [f"{row.early} early at {rate}/s"] if row.early else []
    found += [f"p99 {row.p99:.2f} ms at {rate}/s, aim {p99:g}"] if row.p99 > p99 else []
    found += [f"p99.9 {row.p999:.2f} ms at {rate}/s, aim {p999:g}"] if row.p999 > p999 else []
    return found + ([f"{row.per_second:,.0f}/s of {rate}/s"] if row.per_second < 0.98 * rate else [])


if __name__ == "__main__":
    main()
