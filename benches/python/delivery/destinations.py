"""How late the messages of 958 named destinations are beside bad ones, and what 100,000 of them cost (rule D23).

    python -m benches.python.delivery.destinations [--only "beside bad ones"]... [--seconds 30] [--rate 5000] [--check]

Two cases are to be compared: the same messages to the same 958 destinations, alone, and beside 42 others. Of these, 40
are dead in four ways, one has ten times the messages that its rate allows, and one is down with a million overdue. Each
case runs in a process of its own, with the receivers in two others.
"""

import asyncio
import json
import logging
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.table import Table

from tickwheel.delivery import DeliveryQueue
from tickwheel.delivery.model.summary import percentiles

from .receiver import ANSWER, Receiver

GOOD: Final = 958
DEAD: Final = ("refused", "hangs", "answers 503", "answers 404")
EACH: Final = 10
OVERDUE: Final = 1_000_000
KEYS: Final = 5_000
PACE: Final = 20  # messages a second of the one that gets ten times as many
BLOCK_S: Final = 0.02
MANY, BUSY = 100_000, 100
P99_FACTOR: Final = 1.5  # above what is measured alone, and a millisecond
PAYLOAD: Final = '{"to":"somebody","text":"' + "x" * 69 + '"}'


@dataclass(frozen=True)
class Row:
    """Milliseconds late of what the good destinations got; `cpu` in cores; `mib` above the process before."""

    given: int
    came: int
    p50: float
    p99: float
    p999: float
    max: float
    early: int
    cpu: float
    mib: float


class Bad(Receiver):
    """A connection to a destination that is dead: the message's id says how."""

    def answer(self, body: bytes, transport: asyncio.Transport) -> None:
        """Answers as the id says, or never."""
        if b"answers " in body[:60]:
            status = body[body.index(b"answers ") + 8 :][:3]
            transport.write(b"HTTP/1.1 " + status + b" No\r\ncontent-length: 0\r\n\r\n")
        elif b'"id":"paced' in body[:60]:
            transport.write(ANSWER)


async def receive_bad() -> None:
    """The bad receivers' process: prints its port, and ends with its input."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Bad, "127.0.0.1", 0, backlog=4_096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


@contextmanager
def receiver(*command: str) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """A process that receives, and its address."""
    with subprocess.Popen(
        [sys.executable, "-m", *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}", process
        finally:
            process.kill()


def bad_names() -> list[tuple[str, str]]:
    """The dead destinations: a name, and its kind."""
    return [(f"{kind} {number}".replace(" ", "-"), kind) for kind in DEAD for number in range(EACH)]


def line(id_: str, key: str, due_ms: int, destination: str) -> str:
    """A message as NDJSON."""
    return f'{{"id":"{id_}","key":"{key}","due":{due_ms},"destination":"{destination}","payload":{PAYLOAD}}}\n'


def load(queue: DeliveryQueue, rate: int, seconds: float, *, beside: bool) -> int:
    """Give the messages at this rate, due one to three seconds later; returns how many are of good destinations."""
    start, number, given, tickets = time.monotonic(), 0, 0, []
    bad = bad_names()
    for tick in range(round(seconds / BLOCK_S)):
        time.sleep(max(0, start + tick * BLOCK_S - time.monotonic()))
        now_ms = time.time_ns() // 1_000_000
        lines = []
        for _ in range(round(rate * BLOCK_S)):
            place, number = number % (GOOD + len(bad)), number + 1
            due_ms = now_ms + 1_000 + number * 7919 % 2_000
            if place < GOOD:
                lines.append(line(f"good {number}", f"key {number % KEYS}", due_ms, f"good-{place}"))
                given += 1
            elif beside:
                name, kind = bad[place - GOOD]
                lines.append(line(f"{kind} {number}", f"key {number % KEYS}", due_ms, name))
        if beside:
            lines += [
                line(f"paced {tick} {each}", f"key {each}", now_ms + 1_000, "paced")
                for each in range(round(10 * PACE * BLOCK_S))
            ]
        tickets.append(queue.submit_ndjson("".join(lines).encode()))
    for ticket in tickets:
        ticket.result(60)
    return given


def put_overdue(queue: DeliveryQueue) -> None:
    """A million messages of the destination that is down."""
    due_ms = time.time_ns() // 1_000_000
    for first in range(0, OVERDUE, 10_000):
        lines = (line(f"down {n}", f"key {n % KEYS}", due_ms, "down") for n in range(first, first + 10_000))
        queue.submit_ndjson("".join(lines).encode()).result(60)


def resident_mib() -> float:
    """What this process has in memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / (1 << 20)


def row_of(given: int, late_ms: list[float], cpu: float, mib: float) -> Row:
    """The row of what came so late."""
    p50, p99, p999, longest = (percentiles(late_ms)[part] or 0.0 for part in ("p50", "p99", "p999", "max"))
    return Row(given, len(late_ms), p50, p99, p999, longest, sum(ms < 0 for ms in late_ms), cpu, mib)


def measure_late(store: Path, rate: int, seconds: float, *, beside: bool) -> Row:
    """One of the two cases that are compared."""
    before_mib = resident_mib()
    with ExitStack() as stack:
        good, process = stack.enter_context(receiver("benches.python.delivery.receiver"))
        bad, _ = stack.enter_context(receiver("benches.python.delivery.destinations", "--receive"))
        queue = DeliveryQueue(store, allow_addresses=["127.0.0.1"], on_dead_letter=lambda _: None)
        for number in range(GOOD):
            queue.set_destination(f"good-{number}", f"{good}/")
        if beside:
            for name, kind in bad_names():
                queue.set_destination(name, "http://127.0.0.1:9/" if kind == "refused" else f"{bad}/")
            queue.set_destination("paced", f"{bad}/", rate=f"{PACE}/s")
            queue.set_destination("down", "http://127.0.0.1:9/")
            put_overdue(queue)
        used, start = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
        given = load(queue, rate, seconds, beside=beside)
        end = resource.getrusage(resource.RUSAGE_SELF)
        cpu_s = end.ru_utime + end.ru_stime - used.ru_utime - used.ru_stime
        took_s = time.monotonic() - start
        time.sleep(5)  # what is due last is due in three seconds
        output, _ = process.communicate(timeout=60)
    late_ms = json.loads(output)
    return row_of(given, late_ms, cpu_s / took_s, end.ru_maxrss / 1024 - before_mib)


def measure_many(store: Path, rate: int, seconds: float) -> Row:
    """A hundred thousand destinations are set, and a hundred of them get all messages."""
    with receiver("benches.python.delivery.receiver") as (good, process):
        with DeliveryQueue(store, allow_addresses=["127.0.0.1"]) as queue:
            for number in range(MANY):
                queue.set_destination(f"good-{number}", f"{good}/")
        before_mib = resident_mib()
        queue = DeliveryQueue(store, allow_addresses=["127.0.0.1"])
        used, start, number, given = resource.getrusage(resource.RUSAGE_SELF), time.monotonic(), 0, 0
        for tick in range(round(seconds / BLOCK_S)):
            time.sleep(max(0, start + tick * BLOCK_S - time.monotonic()))
            now_ms = time.time_ns() // 1_000_000
            lines = []
            for _ in range(round(rate * BLOCK_S)):
                number += 1
                due_ms = now_ms + 1_000 + number * 7919 % 2_000
                lines.append(line(f"{number}", f"key {number % KEYS}", due_ms, f"good-{number % BUSY * 997}"))
            queue.submit_ndjson("".join(lines).encode()).result(60)
            given += len(lines)
        end = resource.getrusage(resource.RUSAGE_SELF)
        cpu_s = end.ru_utime + end.ru_stime - used.ru_utime - used.ru_stime
        took_s, mib = time.monotonic() - start, resident_mib() - before_mib
        queue.wait_until_empty(60)
        output, _ = process.communicate(timeout=60)
    late_ms = json.loads(output)
    return row_of(given, late_ms, cpu_s / took_s, mib)


CASES = {
    "alone": lambda store, rate, seconds: measure_late(store, rate, seconds, beside=False),
    "beside bad ones": lambda store, rate, seconds: measure_late(store, rate, seconds, beside=True),
    "100,000, of them 100 busy": measure_many,
}


@click.command()
@click.option("--only", "names", multiple=True, type=click.Choice([*CASES]), help="This case; may be repeated.")
@click.option("--seconds", default=30.0, show_default=True)
@click.option("--rate", default=5_000, show_default=True, help="Messages a second.")
@click.option("--check", is_flag=True, help="Fail if a target is missed.")
@click.option("--case", "one", nargs=2, hidden=True)
@click.option("--receive", is_flag=True, hidden=True)
def main(
    names: tuple[str, ...], seconds: float, rate: int, one: tuple[str, str] | None, *, check: bool, receive: bool
) -> None:
    """Measure each case, and print a table."""
    if receive:
        asyncio.run(receive_bad())
        return
    if one is not None:
        logging.disable()
        print(json.dumps(asdict(CASES[one[0]](Path(one[1]), rate, seconds))), flush=True)
        os._exit(0)  # sends that hang are not waited for
    table = Table(title=f"Messages of named destinations, {rate:,} a second, milliseconds late")
    for name in ("case", *Row.__dataclass_fields__):
        table.add_column(name, justify="right" if name != "case" else "left")
    rows: dict[str, Row] = {}
    Path("build").mkdir(exist_ok=True)
    for name in names or CASES:
        with tempfile.TemporaryDirectory(dir="build") as folder:
            command = [sys.executable, "-m", "benches.python.delivery.destinations", "--case", name, f"{folder}/store"]
            command += ["--seconds", str(seconds), "--rate", str(rate)]
            rows[name] = Row(**json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout))
        table.add_row(name, *(f"{value:,.2f}".removesuffix(".00") for value in asdict(rows[name]).values()))
    Console(width=120).print(table)
    alone, beside = rows.get("alone"), rows.get("beside bad ones")
    missed = any(row.came != row.given or row.early for row in rows.values())
    if alone and beside:
        missed |= beside.p99 > P99_FACTOR * alone.p99 + 1
    if check and missed:
        sys.exit(1)


if __name__ == "__main__":
    main()
