"""What a replicated store costs (D21): rate, lateness, answers and bytes beside the same without, on one PostgreSQL.

    python -m benches.python.delivery.replicated [--rate 20000] [--seconds 20] [--held-s 60]

It starts PostgreSQL with fsync in a folder of its own. `1 ms away`: each direction of the network takes so long, by a
process between the two. `held open`: a transaction of somebody else is open for that time before and meanwhile.
"""

import asyncio
import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import psycopg
from benches.queues.servers import free_port, postgresql
from rich.console import Console
from rich.table import Table

from tickwheel.delivery import DeliveryQueue
from tickwheel.delivery.model.summary import percentiles

from .cases import Case, Row, deliver, late_in, to_file

_SINGLE = 500  # puts, one after another


async def _relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    """Passes on what comes, each piece so much later."""
    loop = asyncio.get_running_loop()
    while data := await reader.read(1 << 16):
        loop.call_later(delay_s, writer.write, data)
    loop.call_later(delay_s, writer.close)


def _serve(port: int, to: int, delay_s: float) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection("127.0.0.1", to)
        await asyncio.gather(_relay(reader, to_server, delay_s), _relay(from_server, writer, delay_s))

    async def serve() -> None:
        await (await asyncio.start_server(connected, "127.0.0.1", port)).serve_forever()

    asyncio.run(serve())


@contextmanager
def away(port: int, delay_s: float) -> Iterator[int]:
    """The port of a server that is so far away."""
    if not delay_s:
        yield port
        return
    here = free_port()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(here, port, delay_s), daemon=True)
    process.start()
    time.sleep(2)
    try:
        yield here
    finally:
        process.kill()
        process.join()


def measured(rate: int, seconds: float, replicate_to: str | None) -> tuple[Row, dict[str, float | None]]:
    """At this rate to a file; then the milliseconds of single puts, one after another."""
    with tempfile.TemporaryDirectory(dir="build") as name:
        folder = Path(name)
        out = folder / "out"
        case = Case(rate, to_file)
        row = deliver(
            case, seconds, f"file:{out}", folder / "store.db", lambda: late_in(out), replicate_to=replicate_to
        )
        took_ms = []
        with DeliveryQueue(folder / "store.db", to=f"file:{out}", replicate_to=replicate_to) as queue:
            for number in range(_SINGLE):
                began_s = time.perf_counter()
                queue.put(f"single {number}", 1, delay_ms=3_600_000)
                took_ms.append((time.perf_counter() - began_s) * 1000)
    return row, percentiles(took_ms)


def _in_process(*arguments: Any) -> tuple[Row, dict[str, float | None]]:
    """`measured` in a process of its own, so that its CPU and memory are its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measured, arguments)


def _bytes(port: int) -> tuple[int, int]:
    """Of all tables of stores, and of the log that was written so far."""
    with psycopg.connect(f"postgresql://queue@127.0.0.1:{port}/postgres", autocommit=True) as connection:
        row = connection.execute(
            "SELECT sum(pg_total_relation_size(c.oid))::bigint, pg_current_wal_lsn() - '0/0'::pg_lsn"
            " FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = 'tickwheel' AND relkind = 'r'"
        ).fetchone()
    assert row is not None
    return int(row[0] or 0), int(row[1])


@click.command()
@click.option("--rate", default=20_000, show_default=True, help="Messages a second.")
@click.option("--seconds", default=20.0, show_default=True)
@click.option("--held-s", default=60.0, show_default=True, help="How long a transaction of somebody else is open.")
@click.option("--json", "as_json", is_flag=True)
def main(rate: int, seconds: float, held_s: float, *, as_json: bool) -> None:
    """Measure each case, and print a table."""
    table = Table(title=f"A replicated store, {rate:,} messages a second to a file")
    for name in (
        "case",
        "per second",
        "p50 ms late",
        "p99",
        "us a message",
        "put p50 ms",
        "put p99",
        "table bytes",
        "WAL",
    ):
        table.add_column(name, justify="right")
    rows: dict[str, Any] = {}
    Path("build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tw-pg-") as name, ExitStack() as stack:
        Path(name).chmod(0o755)  # PostgreSQL may be another user
        url = stack.enter_context(postgresql(Path(name, "pg")))
        port = urlsplit(url).port or 0

        def add(name: str, delay_s: float | None) -> None:
            with away(port, delay_s or 0) as at:
                to = None if delay_s is None else f"postgresql://queue@127.0.0.1:{at}/postgres?store={time.time_ns()}"
                before = _bytes(port)
                row, single = _in_process(rate, seconds, to)
                grown = [(now - then) / row.messages for now, then in zip(_bytes(port), before, strict=True)]
            rows[name] = {**asdict(row), "put_p50": single["p50"], "put_p99": single["p99"], "bytes": grown}
            figures = (row.per_second, row.p50, row.p99, row.us, single["p50"] or 0, single["p99"] or 0, *grown)
            table.add_row(name, *(f"{it:,.2f}" for it in figures))

        add("alone", None)
        add("replicated", 0)
        add("1 ms away", 0.001)
        add("5 ms away", 0.005)
        with psycopg.connect(url) as held:
            held.execute("SELECT txid_current()")
            end_s = time.monotonic() + held_s
            count = 0
            while not count or time.monotonic() < end_s:
                count += 1
                add(f"held open, {count}", 0)
        add("alone again", None)
    if as_json:
        json.dump(rows, sys.stdout)
    else:
        Console(width=150).print(table)


if __name__ == "__main__":
    main()
