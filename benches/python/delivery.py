"""How late deliveries are, at a steady rate, from acceptance in a durable store to a file (rules D3, D5).

A thread hands in messages in batches, due one to three seconds later; the store commits them, the wheel waits, and a
file gets them. Everything is one process on this machine, and the judge is the file: each line says when it was due,
and the time it was written is read right before the write.

    python benches/python/delivery.py [--rate 20000] [--seconds 20] [--check]
"""

import json
import resource
import tempfile
import threading
import time
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.table import Table

from tickwheel.delivery import DeliveryQueue, Message
from tickwheel.delivery.summary import percentiles

BATCH_S = 0.02
PAYLOAD = msgspec.Raw(json.dumps({"to": "somebody", "text": "x" * 100}).encode())


def feed(queue: DeliveryQueue, rate: int, seconds: float, accept_ms: list[float]) -> int:
    """Hand in `rate` messages a second; returns how many. `accept_ms`: how long each batch waited for its answer."""
    batch = round(rate * BATCH_S)
    start = time.monotonic()
    number = 0
    pending = []
    for tick in range(round(seconds / BATCH_S)):
        pause = start + tick * BATCH_S - time.monotonic()
        if pause > 0:
            time.sleep(pause)
        now_ms = time.time_ns() // 1_000_000
        messages = [
            Message(f"message {n}", f"key {n % 5000}", now_ms + 1000 + (n * 7919) % 2000, PAYLOAD)
            for n in range(number, number + batch)
        ]
        number += batch
        asked = time.monotonic()
        ticket = queue.submit(messages)
        ticket.add_done_callback(lambda _, asked=asked: accept_ms.append((time.monotonic() - asked) * 1000))
        pending.append(ticket)
    for ticket in pending:
        ticket.result()
    return number


def run(rate: int, seconds: float) -> dict[str, float | None]:
    with tempfile.TemporaryDirectory(dir="build") as folder:
        out = Path(folder, "out.ndjson")
        cpu = resource.getrusage(resource.RUSAGE_SELF)
        started = time.monotonic()
        accept_ms: list[float] = []
        with DeliveryQueue(Path(folder, "store.db"), to=f"file:{out}") as queue:
            feeder = threading.Thread(target=lambda: feed(queue, rate, seconds, accept_ms))
            feeder.start()
            feeder.join()
            fed = time.monotonic() - started
            if not queue.wait_until_empty(60):
                raise SystemExit("not all was delivered within a minute")
            took = time.monotonic() - started
        used = resource.getrusage(resource.RUSAGE_SELF)
        late = [json.loads(line)["lateness_ms"] for line in out.read_bytes().splitlines()]
        return {
            "messages": len(late),
            "reached": len(late) / fed,
            **percentiles(late),
            "early": sum(ms < 0 for ms in late),
            "accept p50": percentiles(accept_ms)["p50"],
            "accept max": percentiles(accept_ms)["max"],
            "cpu": (used.ru_utime + used.ru_stime - cpu.ru_utime - cpu.ru_stime) / took,
            "rss": used.ru_maxrss / 1024,
        }


@click.command()
@click.option("--rate", "rates", multiple=True, type=int, default=(1000, 8000, 20000), show_default=True)
@click.option("--seconds", default=20.0, show_default=True)
def main(rates: tuple[int, ...], seconds: float) -> None:
    """Deliver at each rate, and print a table."""
    import sys

    sys.setswitchinterval(0.0005)
    Path("build").mkdir(exist_ok=True)
    table = Table(title="Accepted durably and delivered to a file")
    rows = [(rate, run(rate, seconds)) for rate in rates]
    table.add_column("asked/s", justify="right")
    for name in rows[0][1]:
        table.add_column(name, justify="right")
    for rate, row in rows:
        table.add_row(str(rate), *("-" if value is None else f"{value:,.2f}" for value in row.values()))
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
