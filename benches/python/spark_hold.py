"""The hold alone (S2): how fast messages are read, the cost of an idle micro-batch, whether all comes out in time.

Messages are read from files and held. With a span of some minutes they are then released: the ids that come out are
compared with those that were read, with when they left, and at the end nothing may be held. With a span of weeks they
only are held. `--hot` makes all of them due in the same second.

    python -m benches.python.spark_hold [--messages 1000000] [--span-s 120] [--idle 1000] [--small] [--hot]
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

from tickwheel.delivery.read.hand_off_rows import PARTITIONS
from tickwheel.spark import hold, laptop_session, near_messages, parse_files, read_files
from tickwheel.spark.query import end, read

PER_FILE = 25_000
LEAD_MS = 20_000
FIRST_READ_S = 30  # to start, and for the first micro-batch
RELEASED_WITHIN_S = 900


class Messages:
    """NDJSON files with payloads of 100 random bytes, or the smallest. `first_due_ms`: of the first."""

    def __init__(self, count: int, span_s: int, first_due_ms: int, *, is_small: bool) -> None:
        self.count = count
        self._span_ms = span_s * 1000
        self._first_due_ms = first_due_ms
        self._is_small = is_small

    def due_ms(self, number: int) -> int:
        """When one is due: anywhere in the span."""
        return self._first_due_ms + number * 7_919_993 % self._span_ms

    def write(self, folder: Path) -> None:
        """As files of the same size."""
        folder.mkdir()
        for start in range(0, self.count, PER_FILE):
            numbers = range(start, min(start + PER_FILE, self.count))
            (folder / f"{start:09}.ndjson").write_text("".join(map(self._line, numbers)))

    def _line(self, number: int) -> str:
        payload = 1 if self._is_small else os.urandom(50).hex()
        record = {"id": f"m{number}", "key": f"k{number % 5_000}", "due": self.due_ms(number), "payload": payload}
        return f"{json.dumps(record)}\n"


class Batches:
    """The progress of each micro-batch, from the query, and what the shards told in it."""

    def __init__(self) -> None:
        self.query: Any = None
        self.seen: dict[int, Any] = {}
        self.waiting: dict[int, int] = {}
        self._shards = dict.fromkeys(range(PARTITIONS), 0)

    def told(self, batch: int, shards: dict[int, int]) -> None:
        """How many messages wait in each shard after a micro-batch."""
        self._shards |= shards
        self.waiting[batch] = sum(self._shards.values())

    def wait(self, until: Callable[[], bool]) -> None:
        """Wait until `until` is true."""
        while not until():
            if not self.query.isActive:
                sys.exit(f"the query failed: {self.query.exception()}")
            for progress in self.query.recentProgress:
                self.seen[progress["batchId"]] = progress
            time.sleep(0.2)

    def ms(self, first: int, last: int) -> list[int]:
        """How long each of these micro-batches took, sorted."""
        found = [self.seen[at] for at in range(first, last) if at in self.seen]
        return sorted(progress["durationMs"]["triggerExecution"] for progress in found)


def cpu_s() -> float:
    """What this process, the JVM and the workers of Python have used until now, in seconds of a processor."""
    parents, used = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        number = int(path.parent.name)
        parents[number], used[number] = int(fields[1]), sum(map(int, fields[11:15]))
    total = 0
    for number, ticks in used.items():
        at = number
        while at not in (0, os.getpid()):
            at = parents.get(at, 0)
        total += ticks if at else 0
    return total / os.sysconf("SC_CLK_TCK")


def rank(values: list[int], q: float) -> int:
    return values[min(len(values) - 1, int(len(values) * q))] if values else 0


@click.command()
@click.option("--messages", default=1_000_000, show_default=True)
@click.option("--span-s", default=120, show_default=True, help="Over how long they are due.")
@click.option("--idle", default=1_000, show_default=True, help="Idle micro-batches.")
@click.option("--idle-s", default=0.6, show_default=True, help="Seconds that one is expected to take.")
@click.option("--small", "is_small", is_flag=True, help="The smallest payloads.")
@click.option("--hot", "is_hot", is_flag=True, help="All are due in the same second.")
@click.option("--mib", default=32, show_default=True, help="MiB of files that a micro-batch reads.")
def main(messages: int, span_s: int, idle: int, idle_s: float, is_small: bool, is_hot: bool, mib: int) -> None:
    """Measure the hold, and print a table."""
    span_s = 1 if is_hot else span_s
    releases = span_s < RELEASED_WITHIN_S
    Path("build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir="build") as name:
        folder = Path(name).resolve()
        in_s = messages / 20_000 + FIRST_READ_S + idle * idle_s + (messages / 8_000 if is_hot else 0)
        first_due_ms = round((time.time() + messages / 100_000 + 15 + in_s) * 1000) + LEAD_MS
        made = Messages(messages, span_s, first_due_ms, is_small=is_small)
        made.write(folder / "in")
        session = laptop_session("hold", {"spark.sql.streaming.numRecentProgressUpdates": "5000"})
        near = hold(parse_files(read_files(session, folder / "in", mib << 20)), LEAD_MS)
        batches = Batches()

        def keep(batch: Any, number: int) -> None:
            batch.persist()
            told = batch.where("rows is null").select("shard", "waiting").collect()
            batches.told(number, {row.shard: row.waiting for row in told})
            if batch.where("rows is not null").limit(1).count():
                out = near_messages(batch).selectExpr("id", f"{time.time_ns() // 1_000_000} as at_ms")
                out.write.mode("overwrite").parquet(str(folder / "out" / f"{number:06}"))
            batch.unpersist()

        batches.query = (
            near.writeStream.foreachBatch(keep).option("checkpointLocation", str(folder / "checkpoint")).start()
        )
        count = -(-messages // PER_FILE)
        batches.wait(lambda: sum(read(it) for it in batches.seen.values()) >= count)
        last_read = max(at for at, it in batches.seen.items() if read(it))
        began_s, used_s = time.monotonic(), cpu_s()
        if releases:
            batches.wait(lambda: any(at > last_read and not left for at, left in batches.waiting.items()))
        else:
            batches.wait(lambda: len(batches.seen) > last_read + idle)
        idle_cores = (cpu_s() - used_s) / (time.monotonic() - began_s)
        last_full = max(at for at, left in batches.waiting.items() if left == batches.waiting[last_read])
        end(batches.query)
        size = sum(file.stat().st_size for file in (folder / "checkpoint").rglob("*") if file.is_file())
        out = {}
        came = 0
        if releases:
            for row in session.read.parquet(str(folder / "out" / "*")).toLocalIterator():
                came, out[row.id] = came + 1, row.at_ms
        session.stop()
    reading = [it for at, it in sorted(batches.seen.items()) if 0 < at <= last_read and read(it)]
    took_s = sum(it["durationMs"]["triggerExecution"] for it in reading) / 1000
    quiet = batches.ms(last_read + 1, last_full + 1)
    third = (last_full - last_read) // 3
    how = f"due in {'one second' if is_hot else f'{span_s:,} s'}"
    table = Table("what", "figure", title=f"The hold, {messages:,} messages {how}")
    rows = sum(read(it) for it in reading) * PER_FILE
    table.add_row("in, without the first micro-batch", f"{rows / max(took_s, 0.001):,.0f} messages/s")
    table.add_row("held then", f"{batches.waiting[last_read]:,}")
    table.add_row("idle micro-batches", f"{len(quiet):,}")
    table.add_row("idle, p50 / p99 / max", " / ".join(f"{rank(quiet, q):,} ms" for q in (0.5, 0.99, 1)))
    first, last = batches.ms(last_read + 1, last_read + 1 + third), batches.ms(last_full + 1 - third, last_full + 1)
    table.add_row("idle p50, first third / last third", f"{rank(first, 0.5):,} / {rank(last, 0.5):,} ms")
    if not releases:
        per_batch_ms = idle_cores * sum(quiet) / len(quiet)
        table.add_row("idle, CPU", f"{idle_cores:.2f} cores, {per_batch_ms:,.0f} ms a micro-batch")
    if releases:
        draining = batches.ms(last_full + 1, max(batches.seen))
        late = sum(at_ms > made.due_ms(int(id_[1:])) for id_, at_ms in out.items())
        table.add_row("releasing, p50 / p99", " / ".join(f"{rank(draining, q):,} ms" for q in (0.5, 0.99)))
        table.add_row("came out / different ids / missing", f"{came:,} / {len(out):,} / {messages - len(out):,}")
        table.add_row("came out after they were due", f"{late:,}")
        table.add_row("left in the hold", f"{batches.waiting[max(batches.waiting)]:,}")
    table.add_row("checkpoint at the end", f"{size / 2**20:,.0f} MiB, {size / messages:,.0f} bytes a message")
    Console(width=120).print(table)
    if releases and (len(out) != messages or came != messages):
        sys.exit(1)


if __name__ == "__main__":
    random.seed(1)
    main()
