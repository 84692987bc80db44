"""How fast a deliverer takes in what is handed off, and how late messages are meanwhile.

    python -m benches.python.delivery.hand_off [--rows 1000000] [--due 5000] [--folder FOLDER]

The first two lines are rows a second over one connection and over four. A request has 4,000 rows, as a request of Spark
has. Its answer comes when they are on disk. The rows are due in an hour. Then messages come due at a fixed rate and go
to a file: without a hand-off, and during hand-offs at 60,000 rows a second and at full speed. The other lines are the
lateness of these messages. The client is a process of its own, on the same machine.
"""

import http.client
import json
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import click
import pyarrow as pa

from tickwheel._native import NdjsonLines
from tickwheel.delivery import DeliveryQueue
from tickwheel.delivery.model.message import MAX_PAYLOAD, Columns
from tickwheel.delivery.model.summary import percentiles
from tickwheel.delivery.read.hand_off_rows import HANDED, batch_of
from tickwheel.delivery.serve.access import Access, Address
from tickwheel.delivery.serve.arrow_bodies import TYPE
from tickwheel.delivery.serve.ports import Listening, Ports

_BATCH = 4_000
_HOUR_MS = 3_600_000
_AIM = 60_000  # rows a second


@click.command()
@click.option("--rows", default=1_000_000, show_default=True, help="Rows of each hand-off.")
@click.option("--due", default=5_000, show_default=True, help="Messages a second that come due.")
@click.option("--seconds", default=10, show_default=True, help="How long they do.")
@click.option("--folder", type=click.Path(path_type=Path), default="build", show_default=True)
def main(rows: int, due: int, seconds: int, folder: Path) -> None:
    """Measure, and print."""
    folder.mkdir(exist_ok=True)
    for connections in (1, 4):
        with tempfile.TemporaryDirectory(dir=folder) as part, _deliverer(Path(part), lambda _: None) as (_, port):
            sent, took_s = _client(port, rows, connections)
            click.echo(f"{connections} connections: {sent / took_s:,.0f} rows/s")
    for connections, pace in ((0, 0), (4, _AIM), (1, 0), (4, 0)):
        how = f"at most {pace:,} rows/s" if pace else "full speed"
        with tempfile.TemporaryDirectory(dir=folder) as part:
            late = _lateness(Path(part), rows, due, seconds, connections, pace)
            click.echo(f"{due:,}/s due, {connections} connections, {how}: {late}")


def _lateness(folder: Path, rows: int, due: int, seconds: int, connections: int, pace: int) -> str:
    out = folder / "out"
    with _deliverer(folder, f"file:{out}") as (deliveries, port):
        from_ms = int(time.time() * 1000) + 8_000  # until then the client is ready
        lines = (
            b'{"id": "due%d", "key": "k%d", "due": %d, "payload": 1}' % (n, n % 997, from_ms + n * 1000 // due)
            for n in range(due * seconds)
        )
        deliveries.submit_ndjson(b"\n".join(lines)).result()
        sent, took_s = 0, float(seconds)
        if connections:
            sent, took_s = _client(port, rows, connections, pace, at_s=from_ms / 1000, for_s=seconds)
        while time.time() * 1000 < from_ms + seconds * 1000 + 1_000:
            time.sleep(0.1)
    # Only those that were due while rows came in: the rest would hide what these cost.
    until_s = from_ms / 1000 + took_s
    every = [json.loads(line) for line in out.read_bytes().splitlines()]
    found = [it["lateness_ms"] for it in every if datetime.fromisoformat(it["due"]).timestamp() < until_s]
    ranks = ", ".join(f"{rank} {ms} ms" for rank, ms in percentiles(found).items())
    return f"{ranks} ({len(found):,} of {len(every):,} messages); {sent / took_s:,.0f} rows/s for {took_s:.1f} s"


@contextmanager
def _deliverer(folder: Path, to: Any) -> Iterator[tuple[DeliveryQueue, int]]:
    with DeliveryQueue(folder / "store.db", to=to) as deliveries:
        address = Address.of("--listen", "127.0.0.1:0")
        listening = Listening(address)
        ports = Ports(listening, Access(None, address), None)
        try:
            ports.open(deliveries._running, MAX_PAYLOAD)
            yield deliveries, listening.port
        finally:
            ports.close()


def _batches(rows: int) -> Iterator[Any]:
    lines = NdjsonLines("rows", Columns(), MAX_PAYLOAD)
    due_ms = int(time.time() * 1000) + _HOUR_MS
    for first in range(0, rows, _BATCH):
        text = b"\n".join(
            b'{"id": "m%d", "key": "key %d", "due": %d, "payload": {"text": "%s"}}'
            % (n, n % 5_000, due_ms + n // 10, b"x" * 84)
            for n in range(first, min(first + _BATCH, rows))
        )
        yield batch_of(lines.read(text)).select(HANDED.names)


def _client(
    port: int, rows: int, connections: int, pace: int = 0, at_s: float = 0, for_s: float = 3_600
) -> tuple[int, float]:
    """A process that hands rows off, from this time on, at most `pace` a second: how many, and the seconds until all
    are answered.
    """
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(_hand_off, port, rows, connections, pace, at_s, for_s).result()


def _hand_off(port: int, rows: int, connections: int, pace: int, at_s: float, for_s: float) -> tuple[int, float]:
    batches, sent = [*_batches(rows)], [0] * connections
    time.sleep(max(0, at_s - time.time()))
    start_s = time.perf_counter()

    def send(number: int) -> None:
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
            for batch in batches[number::connections]:
                due_s = start_s + (sent[number] * connections / pace if pace else 0)
                time.sleep(max(0, due_s - time.perf_counter()))
                if time.perf_counter() > start_s + for_s:
                    break
                _post(connection, batch)
                sent[number] += batch.num_rows

    with ThreadPoolExecutor(connections) as threads:
        [*threads.map(send, range(connections))]
    return sum(sent), time.perf_counter() - start_s


def _post(connection: http.client.HTTPConnection, batch: Any) -> None:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    connection.request("POST", "/hand-off", memoryview(out.getvalue()), {"content-type": TYPE})
    answer = connection.getresponse()
    found = json.loads(answer.read())
    if found != {"rows": batch.num_rows}:
        raise OSError(f"{answer.status}: {found}")


if __name__ == "__main__":
    main()
