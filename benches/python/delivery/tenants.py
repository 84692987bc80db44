"""How late a tenant is beside the backlog of another, how evenly tenants are served, and what both cost (rule D24).

    python -m benches.python.delivery.tenants [--only "a million beside one a second"]... [--seconds 30] [--check]

Each case runs in a process of its own. The destination is a sink of that process.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

import click
from rich.console import Console
from rich.table import Table

from tickwheel.delivery import Delivery, DeliveryQueue
from tickwheel.delivery.model.summary import percentiles
from tickwheel.delivery.sinks.sink import Refusals, Sink

MILLION: Final = 1_000_000
MANY: Final = 1_000
BLOCK: Final = 10_000
PAYLOAD: Final = '{"to":"somebody","text":"' + "x" * 69 + '"}'
LATE_MS: Final = 100.0
ROUNDS_MS: Final = 25.0  # two rounds of 10 ms, and the time of the program
SPREAD: Final = 0.05

Row = dict[str, Any]


def line(id_: str, due_ms: int, tenant: str | None) -> str:
    """A message as NDJSON."""
    of = f',"tenant":"{tenant}"' if tenant else ""
    return f'{{"id":"{id_}","due":{due_ms}{of},"payload":{PAYLOAD}}}\n'


def give(queue: DeliveryQueue, count: int, tenant: Callable[[int], str | None]) -> None:
    """Gives so many messages that are due now."""
    due_ms = time.time_ns() // 1_000_000
    for first in range(0, count, BLOCK):
        lines = (line(f"m{n}", due_ms, tenant(n)) for n in range(first, min(count, first + BLOCK)))
        queue.submit_ndjson("".join(lines).encode()).result(60)


class Fast(Sink):
    """Notes how late tenant b is, and how many messages each tenant has got."""

    max_batch: ClassVar[int] = 1_000
    of: ClassVar[Counter[str | None]] = Counter()
    late_ms: ClassVar[list[float]] = []

    def send(self, deliveries: Sequence[Delivery]) -> Refusals:
        """Takes them all."""
        self.of.update(delivery.message.tenant for delivery in deliveries)
        self.late_ms.extend(delivery.lateness_ms for delivery in deliveries if delivery.message.tenant == "b")
        return {}


class TwoPlaces(Fast):
    """Takes 10 ms for a message, in two places."""

    max_batch: ClassVar[int] = 1
    threads: ClassVar[int] = 2

    def send(self, deliveries: Sequence[Delivery]) -> Refusals:
        """Takes one."""
        time.sleep(0.01)
        return super().send(deliveries)


class Thousands(Fast):
    """Takes about 4,000 a second."""

    max_batch: ClassVar[int] = 100

    def send(self, deliveries: Sequence[Delivery]) -> Refusals:
        """Takes a batch."""
        time.sleep(0.025)
        return super().send(deliveries)


def one_a_second(queue: DeliveryQueue, seconds: float) -> None:
    """Tenant b's messages."""
    for number in range(round(seconds)):
        queue.put(f"b{number}", delay_ms=200, payload=1, tenant="b")
        time.sleep(1)


def beside(store: Path, seconds: float, sink: type[Fast], backlog: int, tenant: str | None) -> Row:
    """The backlog of one tenant, or of none, and tenant b beside it, for as long as the backlog or the time lasts."""
    with DeliveryQueue(store, sink) as queue:
        queue.pause()
        give(queue, backlog, lambda _: tenant)
        start, used_s = time.monotonic(), time.process_time()
        queue.resume()
        other = threading.Thread(target=partial(one_a_second, queue, seconds if sink is TwoPlaces else 5), daemon=True)
        other.start()
        while sink.of[tenant] < backlog and time.monotonic() - start < max(seconds, 200 * (sink is Fast)):
            time.sleep(0.01)
        took_s = time.monotonic() - start
        came, ranks = sum(sink.of.values()), percentiles(sink.late_ms)
        return {"per_second": came / took_s, "cpu_us": (time.process_time() - used_s) / came * 1e6, **ranks}


def evenly(store: Path, seconds: float, weights: dict[str, int] | None = None) -> Row:
    """Many tenants with equal loads, more than can be sent: how many messages each has got."""
    with DeliveryQueue(store, Thousands) as queue:
        for name, weight in (weights or {}).items():
            queue.set_tenant(name, weight=weight)
        queue.pause()
        names = [*weights] if weights else [f"t{number}" for number in range(MANY)]
        each = round(5_000 * seconds * (4 if weights else 1) / len(names))
        give(queue, each * len(names), lambda n: names[n % len(names)])
        queue.resume()
        time.sleep(seconds)
        total = sum(Thousands.of.values())
        counts = {name: Thousands.of[name] / (weights or {}).get(name, 1) for name in names}
    least, most = min(counts.values()), max(counts.values())
    return {
        "per_second": total / seconds,
        "least": least,
        "most": most,
        "spread": most / least - 1,
    }


CASES: dict[str, Callable[[Path, float], Row]] = {
    "a million of none beside one a second": lambda store, s: beside(store, s, Fast, MILLION, None),
    "a million of a beside one a second": lambda store, s: beside(store, s, Fast, MILLION, "a"),
    "two places of 10 ms, of a": lambda store, s: beside(store, s, TwoPlaces, 20_000, "a"),
    "1,000 with equal loads": evenly,
    "weights 1, 2 and 4": lambda store, s: evenly(store, s, {"one": 1, "two": 2, "four": 4}),
}
AIMS: Final = {
    "a million of a beside one a second": lambda row: row["p99"] <= LATE_MS,
    "two places of 10 ms, of a": lambda row: row["p99"] <= ROUNDS_MS,
    "1,000 with equal loads": lambda row: row["spread"] <= SPREAD,
    "weights 1, 2 and 4": lambda row: row["spread"] <= 2 * SPREAD,
}


@click.command()
@click.option("--only", "names", multiple=True, type=click.Choice([*CASES]), help="This case; may be repeated.")
@click.option("--seconds", default=30.0, show_default=True)
@click.option("--check", is_flag=True, help="Fail if a target is missed.")
@click.option("--case", "one", nargs=2, hidden=True)
def main(names: tuple[str, ...], seconds: float, one: tuple[str, str] | None, *, check: bool) -> None:
    """Measure each case, and print a table."""
    if one is not None:
        print(json.dumps(CASES[one[0]](Path(one[1]), seconds)), flush=True)
        os._exit(0)
    table = Table("case", "result", title="Tenants: milliseconds late of b, or messages of each")
    missed = False
    Path("build").mkdir(exist_ok=True)
    for name in names or CASES:
        with tempfile.TemporaryDirectory(dir="build") as folder:
            command = [sys.executable, "-m", "benches.python.delivery.tenants", "--case", name, f"{folder}/store"]
            command += ["--seconds", str(seconds)]
            row = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
        missed |= name in AIMS and not AIMS[name](row)
        table.add_row(name, ", ".join(f"{part} {value:,.3f}" for part, value in row.items() if value is not None))
    Console(width=120).print(table)
    if check and missed:
        sys.exit(1)


if __name__ == "__main__":
    main()
