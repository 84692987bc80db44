"""A destination that is away for minutes, at full rate (rule D6): nothing is lost, and its return is found soon.

    python -m benches.python.delivery.outage [--only refuses]... [--minutes 10] [--rate 8000] [--check]

Another process makes the load. The destination is a function in this process. It accepts for 10 s. Then it fails in
one way for these minutes. Then it accepts until everything has come. In the case `flaps` it fails every second second
for a minute. Each case runs in a process of its own.
"""

import json
import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from tickwheel.delivery import Delivery, DeliveryQueue

from .generator import SIZE
from .neighbours import raised

BEFORE_S, AFTER_S = 10.0, 10.0
FLAPS_S = 60.0
TIMEOUT_S = 2.0  # of a call, by the function itself: a call that is cut off keeps its place until it returns
KINDS = {  # as customers fail in `neighbours`
    "refuses": "refuses",
    "answers 503": "answers 503",
    "answers 503, Retry-After: 1": "answers 503, Retry-After: 1",
    "answers 500": "answers 500",
    "times out": "raises TimeoutError",
    "flaps": "refuses",
}
LONGEST_ROUND_S = 10.0


@dataclass(frozen=True)
class Row:
    """The result of a case. `tries`: calls while the destination failed. `back_s`: from then to the first message."""

    given: int
    came: int
    repeats: int
    dead: int
    tries: int
    most_attempts: int
    back_s: float
    caught_up_s: float
    peak: int


class Destination:
    """What came, and when. The count of a second is that of the clock's."""

    def __init__(self, kind: str, fails: Callable[[float], bool], until_s: float) -> None:
        self.kind, self.fails, self.until_s = kind, fails, until_s
        self.came: set[str] = set()
        self.repeats = self.tries = self.most_attempts = 0
        self.seconds: Counter[int] = Counter()
        self.first_back_s = 0.0
        self._ended = threading.Event()
        self._lock = threading.Lock()

    def send(self, delivery: Delivery) -> None:
        """One call."""
        now_s = time.monotonic()
        if self.fails(now_s):
            with self._lock:
                self.tries += 1
            if self.kind == "times out":
                self._ended.wait(TIMEOUT_S)
            raise raised(KINDS[self.kind])
        with self._lock:
            if delivery.message.id in self.came:
                self.repeats += 1
            self.came.add(delivery.message.id)
            self.most_attempts = max(self.most_attempts, delivery.attempt)
            self.seconds[int(now_s)] += 1
            if now_s >= self.until_s and not self.first_back_s:
                self.first_back_s = now_s


def load(queue: DeliveryQueue, rate: int, seconds: float) -> int:
    """Gives what the generator writes, as it comes; returns the number of messages."""
    command = [sys.executable, "-m", "benches.python.delivery.generator", str(rate), str(seconds)]
    given = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE) as generator:
        assert generator.stdout is not None
        while size := generator.stdout.read(SIZE.size):
            lines = generator.stdout.read(*SIZE.unpack(size))
            given += len(queue.submit_ndjson(lines).result(60))
    return given


def measure(kind: str, minutes: float, rate: int, store: str) -> Row:
    """Runs one case in this process, and ends without a wait for calls."""
    start_s = time.monotonic()
    from_s, until_s = start_s + BEFORE_S, start_s + BEFORE_S + (FLAPS_S if kind == "flaps" else 60 * minutes)

    def fails(now_s: float) -> bool:
        return from_s <= now_s < until_s and (kind != "flaps" or int(now_s - from_s) % 2 == 0)

    to, dead = Destination(kind, fails, until_s), list[str]()
    queue = DeliveryQueue(store, to=to.send, on_dead_letter=lambda letter: dead.append(letter.reason))
    given = load(queue, rate, until_s - start_s + AFTER_S)
    queue.wait_until_empty(60 * minutes + 120)
    ended_s = time.monotonic()
    after = {second: count for second, count in to.seconds.items() if second >= int(until_s)}
    return Row(
        given, len(to.came), to.repeats, len(dead), to.tries, to.most_attempts,
        to.first_back_s - until_s, ended_s - until_s - AFTER_S, max(after.values(), default=0),
    )  # fmt: skip


def is_met(row: Row, kind: str) -> bool:
    """Nothing is lost or given up; the destination is found a round and a time-out after it is back, at the latest."""
    within_s = LONGEST_ROUND_S + (TIMEOUT_S if kind == "times out" else 0.0) + 1.0
    return row.came == row.given and row.dead == 0 and (kind == "flaps" or row.back_s <= within_s)


@click.command()
@click.option("--only", "kinds", multiple=True, type=click.Choice([*KINDS]), help="This case; may be repeated.")
@click.option("--minutes", default=10.0, show_default=True, help="How long the destination is away.")
@click.option("--rate", default=8_000, show_default=True, help="Messages a second.")
@click.option("--check", is_flag=True, help="Fail if a target is missed.")
@click.option("--case", "one", nargs=2, hidden=True)
def main(kinds: tuple[str, ...], minutes: float, rate: int, one: tuple[str, str] | None, *, check: bool) -> None:
    """Measure each case, and print a table."""
    if one is not None:
        logging.disable()
        print(json.dumps(asdict(measure(one[0], minutes, rate, one[1]))), flush=True)
        os._exit(0)  # calls that hang are not waited for
    table = Table(title=f"A destination that is away for {minutes:g} minutes, {rate:,} messages a second")
    table.add_column("it")
    for name in ("given", "came", "repeats", "dead", "tries", "most attempts", "back, s", "caught up, s", "peak/s"):
        table.add_column(name, justify="right")
    missed = False
    Path("build").mkdir(exist_ok=True)
    for kind in kinds or KINDS:
        with tempfile.TemporaryDirectory(dir="build") as folder:
            command = [sys.executable, "-m", "benches.python.delivery.outage", "--case", kind, f"{folder}/store.db"]
            command += ["--minutes", str(minutes), "--rate", str(rate)]
            row = Row(**json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout))
        missed |= not is_met(row, kind)
        numbers = (row.given, row.came, row.repeats, row.dead, row.tries, row.most_attempts)
        table.add_row(
            kind, *(f"{it:,}" for it in numbers), f"{row.back_s:.2f}", f"{row.caught_up_s:.1f}", f"{row.peak:,}"
        )
    Console(width=120).print(table)
    if check and missed:
        sys.exit(1)


if __name__ == "__main__":
    main()
