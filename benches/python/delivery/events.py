"""What messages that wait for events cost, and how long an event takes, with others on time beside it (rule D22).

    python -m benches.python.delivery.events [--messages 3000000] [--names 3] [--seconds 30] [--without] [--check]

First messages are put that are due in a day, each with a key of its own and these names, or without names for
comparison: the rate, the processor's time, and bytes in the store. Then events come, one after the other, while 1,000
other messages a second are delivered. At last a key has 1,000 messages that wait, and one event lets all of them go.
"""

import json
import logging
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Final

import click
from rich.console import Console
from rich.table import Table

from tickwheel.delivery import Delivery, DeliveryQueue
from tickwheel.delivery.model.summary import percentiles
from tickwheel.delivery.sinks.sink import Refusals, Sink

BLOCK: Final = 10_000
DAY_MS: Final = 86_400_000
RATE: Final = 1_000
MANY: Final = 1_000
PAYLOAD: Final = '{"to":"somebody","text":"' + "x" * 69 + '"}'
EVENT_MS: Final = 20.0
LATE_MS: Final = 20.0


class Notes(Sink):
    """Notes how late the messages of the steady rate are, and those that an event let go."""

    max_batch: ClassVar[int] = 1_000
    late_ms: ClassVar[dict[bool, list[float]]] = {False: [], True: []}

    def send(self, deliveries: Sequence[Delivery]) -> Refusals:
        """Takes them all."""
        for delivery in deliveries:
            self.late_ms[delivery.cause == "event"].append(delivery.lateness_ms)
        return {}


def line(id_: str, key: str, due_ms: int, names: str) -> str:
    """A message as NDJSON."""
    return f'{{"id":"{id_}","key":"{key}","due":{due_ms},"payload":{PAYLOAD}{names}}}\n'


def fill(queue: DeliveryQueue, messages: int, names: str) -> float:
    """Puts messages that are due in a day. Returns the rate."""
    due_ms, started = time.time_ns() // 1_000_000 + DAY_MS, time.perf_counter()
    left = []
    for first in range(0, messages, BLOCK):
        lines = (line(f"m{n}", f"order {n}", due_ms + n, names) for n in range(first, min(messages, first + BLOCK)))
        left.append(queue.submit_ndjson("".join(lines).encode()))
        if len(left) == 4:
            left.pop(0).result(600)
    for receipt in left:
        receipt.result(600)
    return messages / (time.perf_counter() - started)


def size_of(store: Path) -> int:
    """The bytes of the store and of its log."""
    return sum(part.stat().st_size for part in store.parent.glob(store.name + "*"))


def steadily(queue: DeliveryQueue, ends: threading.Event) -> None:
    """A thousand messages a second, each due in half a second."""
    started, count = time.perf_counter(), 0
    while not ends.is_set():
        due = int((time.perf_counter() - started) * RATE)
        due_ms = time.time_ns() // 1_000_000 + 500
        lines = (line(f"s{n}", f"other {n % 100}", due_ms, "") for n in range(count, due))
        queue.submit_ndjson("".join(lines).encode())
        count = due
        time.sleep(0.01)


def events(queue: DeliveryQueue, messages: int, seconds: float) -> list[float]:
    """Events one after the other. Returns how long each answer took, in milliseconds."""
    took_ms, ends, number = [], time.perf_counter() + seconds, 0
    while time.perf_counter() < ends:
        of = number * 7_919 % messages  # all over the store
        started = time.perf_counter()
        assert queue.event(f"order {of}", "n0", id=f"e{number}", payload={"sum": number}) == 1
        took_ms.append((time.perf_counter() - started) * 1_000)
        number += 1
        time.sleep(0.01)
    return took_ms


def at_once(queue: DeliveryQueue, count: int) -> float:
    """Events that are given together. Returns the rate."""
    lines = "".join(f'{{"op":"event","id":"t{n}","key":"order {n}","event":"n1","payload":1}}\n' for n in range(count))
    started = time.perf_counter()
    queue.submit_ndjson(lines.encode()).result(600)
    return count / (time.perf_counter() - started)


def ranks(values: Sequence[float]) -> str:
    """p50, p99 and the largest."""
    found = percentiles(values)
    return ", ".join(f"{name} {found[name]:.2f}" for name in ("p50", "p99", "max") if found.get(name) is not None)


@click.command()
@click.option("--messages", default=3_000_000, show_default=True)
@click.option("--names", "count", default=3, show_default=True)
@click.option("--seconds", default=30.0, show_default=True)
@click.option("--folder", type=click.Path(path_type=Path), default="build", show_default=True)
@click.option("--without", is_flag=True, help="Only put messages without names, as other versions can: bytes and rate.")
@click.option("--check", is_flag=True, help="Fail if a target is missed.")
def main(messages: int, count: int, seconds: float, folder: Path, *, without: bool, check: bool) -> None:
    """Measure, and print a table."""
    logging.getLogger("tickwheel").setLevel(logging.ERROR)
    folder.mkdir(exist_ok=True)
    table = Table("what", "result", title=f"{messages:,} messages that wait for {count} names each")
    sizes, took_ms = {}, []
    for names in ("",) if without else ("", ',"until_event":' + json.dumps([f"n{n}" for n in range(count)])):
        with tempfile.TemporaryDirectory(dir=folder) as part:
            store = Path(part) / "store.db"
            used_s = time.process_time()
            with DeliveryQueue(store, Notes) as queue:
                rate = fill(queue, messages, names)
                used_s = time.process_time() - used_s
                sizes[names] = size_of(store) / messages
                title = "with names" if names else "without names"
                each = f"{rate:,.0f}/s, {used_s / messages * 1e6:.1f} µs of the processor, {sizes[names]:.0f} bytes"
                table.add_row(f"put, {title}", each)
                if not names:
                    continue
                beside = threading.Event()
                other = threading.Thread(target=steadily, args=(queue, beside))
                other.start()
                time.sleep(2)
                took_ms = events(queue, messages, seconds)
                queue.wait_until_empty(1)  # what they let go arrives
                of_each = ranks(Notes.late_ms[True])
                queue.put_many(
                    [{"id": f"{n}", "key": "busy", "delay_ms": DAY_MS, "until_event": "n0"} for n in range(MANY)]
                )
                started = time.perf_counter()
                assert queue.event("busy", "n0", id="all") == MANY
                many_ms = (time.perf_counter() - started) * 1_000
                time.sleep(2)
                beside.set()
                other.join()
                table.add_row("an event's answer, ms", ranks(took_ms))
                table.add_row(f"the answer of one that lets {MANY:,} go, ms", f"{many_ms:.1f}")
                table.add_row("1,000 others a second beside these, ms late", ranks(Notes.late_ms[False]))
                table.add_row("what these events let go, ms late", of_each)
                table.add_row("events given together", f"{at_once(queue, min(messages, 100_000)):,.0f}/s")
    if not without:
        more = sizes[names] - sizes[""]
        table.add_row("bytes in the store", f"{more:.0f} more a message, {more / count:.0f} a name")
    Console(width=120).print(table)
    p99 = [percentiles(values)["p99"] or 0 for values in (took_ms, Notes.late_ms[False])]
    sys.exit(check and not without and (p99[0] > EVENT_MS or p99[1] > LATE_MS))


if __name__ == "__main__":
    main()
