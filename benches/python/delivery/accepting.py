"""What it costs to hand messages in: the rate, and the processor's time of each thread for one message.

    python -m benches.python.delivery.accepting [--messages 300000] [--batch 1000] [--folder FOLDER]

Nothing is sent meanwhile: sending is paused. A call of `put_many` returns when its messages are on disk, so a producer
and the writer work by turns.
"""

import logging
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.table import Table

from tickwheel.delivery import DeliveryQueue

_HOUR_MS = 3_600_000
_PAYLOAD = {"text": "x" * 100}


@click.command()
@click.option("--messages", default=300_000, show_default=True)
@click.option("--batch", default=1_000, show_default=True)
@click.option("--folder", type=click.Path(path_type=Path), default="build", show_default=True)
def main(messages: int, batch: int, folder: Path) -> None:
    """Measure each way in, and print a table."""
    logging.getLogger("tickwheel").setLevel(logging.ERROR)  # it warns that sending is paused
    folder.mkdir(exist_ok=True)
    table = Table("way", "messages/s", "µs each", "µs of the processor, by thread", title=f"{batch:,} in a call")
    batches = [range(start, min(start + batch, messages)) for start in range(0, messages, batch)]
    bodies = [b"".join(map(_line, _rows(numbers))) for numbers in batches]
    _measure(table, "put_many, 1 thread", folder, messages, lambda queue: _puts(queue, batches))
    _measure(table, "put_many, 2 threads", folder, messages, lambda queue: _puts(queue, batches, threads=2))
    _measure(table, "submit_ndjson", folder, messages, lambda queue: _submits(queue, bodies))
    Console(width=120).print(table)


def _measure(table: Table, way: str, folder: Path, messages: int, hand_in: Callable[[DeliveryQueue], None]) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as part, DeliveryQueue(Path(part) / "store.db", to=print) as queue:
        queue.pause()
        before, started = _busy_ns(), time.perf_counter()
        hand_in(queue)
        each_us = (time.perf_counter() - started) * 1e6 / messages
        busy = _busy_ns() - before
    by_thread = ", ".join(f"{thread} {ns / 1000 / messages:.2f}" for thread, ns in busy.most_common(4))
    table.add_row(way, f"{1e6 / each_us:,.0f}", f"{each_us:.2f}", by_thread)


def _busy_ns() -> Counter[str]:
    """What each thread of this process has had of the processors until now. Threads that have ended are not in it."""
    busy: Counter[str] = Counter()
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has just ended
            busy[(task / "comm").read_text().strip()] += int((task / "schedstat").read_text().split()[0])
    return busy


def _rows(numbers: range) -> Iterator[tuple[str, int, dict[str, str]]]:
    due_ms = int(time.time() * 1000) + _HOUR_MS
    return ((str(number), due_ms, _PAYLOAD) for number in numbers)


def _line(row: tuple[str, int, dict[str, str]]) -> bytes:
    id_, due, payload = row
    return msgspec.json.encode({"id": id_, "due": due, "payload": payload}) + b"\n"


def _puts(queue: DeliveryQueue, batches: list[range], threads: int = 1) -> None:
    def put(batches: list[range]) -> None:
        for numbers in batches:
            queue.put_many(_rows(numbers))

    if threads == 1:
        put(batches)
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(put, [batches[start::threads] for start in range(threads)]))


def _submits(queue: DeliveryQueue, bodies: list[bytes]) -> None:
    for answers in [queue.submit_ndjson(body) for body in bodies]:
        answers.result()


if __name__ == "__main__":
    main()
