"""The hold with a million messages (S2): how fast they are read, the cost of an idle micro-batch, what is released.

Messages with random payloads are read from files and held for a number of micro-batches. Then they are released over
two minutes. The ids of the released messages are compared with those that were read. At the end the state must be
empty.

    python benches/python/spark_hold.py [--messages 1000000] [--idle 1000]
"""

import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from tickwheel.spark import hold, laptop_session, parse_files, read_files
from tickwheel.spark.feed import end, held, read

SPAN_S = 120
PER_FILE = 25_000
LEAD_MS = 20_000
FIRST_READ_S = 30  # to start, and for the first micro-batch


def write(folder: Path, messages: int, first_due_ms: int) -> None:
    """Write NDJSON files with payloads of 100 random bytes."""
    folder.mkdir()
    for start in range(0, messages, PER_FILE):
        lines = []
        for number in range(start, min(start + PER_FILE, messages)):
            due_ms = first_due_ms + number * 7919 % (SPAN_S * 1000)
            record = {"id": f"m{number}", "key": f"k{number % 5_000}", "due": due_ms, "payload": os.urandom(50).hex()}
            lines.append(json.dumps(record))
        (folder / f"{start:09}.ndjson").write_text("\n".join(lines) + "\n")


class Batches:
    """The progress of each micro-batch, from the query."""

    def __init__(self, query: Any) -> None:
        self._query = query
        self.seen: dict[int, Any] = {}

    def wait(self, until: Callable[[dict[int, Any]], bool]) -> None:
        """Wait until `until` is true of all micro-batches so far."""
        while not until(self.seen):
            if not self._query.isActive:
                sys.exit(f"the query failed: {self._query.exception()}")
            for progress in self._query.recentProgress:
                self.seen[progress["batchId"]] = progress
            time.sleep(0.2)

    def ms(self, first: int, last: int) -> list[int]:
        """How long each of these micro-batches took, sorted."""
        found = [self.seen[at] for at in range(first, last) if at in self.seen]
        return sorted(progress["durationMs"]["triggerExecution"] for progress in found)


def rank(values: list[int], q: float) -> int:
    return values[min(len(values) - 1, int(len(values) * q))] if values else 0


@click.command()
@click.option("--messages", default=1_000_000, show_default=True)
@click.option("--idle", default=1_000, show_default=True, help="Idle micro-batches.")
@click.option("--idle-s", default=0.6, show_default=True, help="Seconds that one is expected to take.")
def main(messages: int, idle: int, idle_s: float) -> None:
    """Measure the hold, and print a table."""
    console = Console(width=120)
    random.seed(1)
    with tempfile.TemporaryDirectory(dir="build") as name:
        folder = Path(name).resolve()
        read_s = messages / 20_000 + FIRST_READ_S
        first_due_ms = round((time.time() + messages / 100_000 + 15 + read_s + idle * idle_s) * 1000) + LEAD_MS
        write(folder / "in", messages, first_due_ms)
        session = laptop_session("hold", {"spark.sql.streaming.numRecentProgressUpdates": "5000"})
        near = hold(parse_files(read_files(session, folder / "in", at_once=4)), LEAD_MS)

        def keep(batch: Any, number: int) -> None:
            batch.select("id").write.mode("overwrite").parquet(str(folder / "out" / f"{number:06}"))

        query = near.writeStream.foreachBatch(keep).option("checkpointLocation", str(folder / "checkpoint")).start()
        batches = Batches(query)
        files = -(-messages // PER_FILE)
        batches.wait(lambda seen: sum(read(it) for it in seen.values()) >= files)
        read_until = max(batches.seen)
        batches.wait(lambda seen: any(at > read_until and not held(it) for at, it in seen.items()))
        end(query)
        last_full = max(at for at, it in batches.seen.items() if held(it) == held(batches.seen[read_until + 1]))
        size = sum(file.stat().st_size for file in (folder / "checkpoint").rglob("*") if file.is_file())
        out = [row.id for row in session.read.parquet(str(folder / "out" / "*")).select("id").collect()]
        session.stop()
    reading = [it for at, it in sorted(batches.seen.items()) if 0 < at <= read_until and read(it)]
    took_s = sum(it["durationMs"]["triggerExecution"] for it in reading) / 1000
    rows = sum(read(it) for it in reading) * PER_FILE
    quiet = batches.ms(read_until + 1, last_full + 1)
    third = (last_full - read_until) // 3
    table = Table("what", "figure", title=f"The hold, {messages:,} messages")
    table.add_row("in, without the first micro-batch", f"{rows / max(took_s, 0.001):,.0f} messages/s")
    table.add_row("idle micro-batches", f"{len(quiet):,}")
    table.add_row("idle, p50 / p99 / max", " / ".join(f"{rank(quiet, q):,} ms" for q in (0.5, 0.99, 1)))
    first, last = batches.ms(read_until + 1, read_until + 1 + third), batches.ms(last_full + 1 - third, last_full + 1)
    table.add_row("idle p50, first third / last third", f"{rank(first, 0.5):,} / {rank(last, 0.5):,} ms")
    draining = batches.ms(last_full + 1, max(batches.seen))
    table.add_row("releasing, p50 / p99", " / ".join(f"{rank(draining, q):,} ms" for q in (0.5, 0.99)))
    table.add_row("came out / different ids", f"{len(out):,} / {len(set(out)):,}")
    missing = {f"m{number}" for number in range(messages)} - set(out)
    table.add_row("missing", f"{len(missing):,}")
    table.add_row("groups left", f"{held(batches.seen[max(batches.seen)]):,}")
    table.add_row("checkpoint at the end", f"{size / 2**20:,.0f} MiB")
    console.print(table)
    if missing or len(out) != messages:
        sys.exit(1)


if __name__ == "__main__":
    main()
