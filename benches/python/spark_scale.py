"""What a cluster needs for so many messages, and where it breaks first: a model with costs measured here (S2, S3).

Three runs give the costs: some held and some messages a second, more held, and more a second. In each
a stream of messages goes in, leaves the hold three seconds later and goes to a deliverer, while the others stay held.
Two runs of other sizes check what the model says. Then it says what `--held`, `--rate` and `--deliverers` need.

    python -m benches.python.spark_scale [--held 1000000000] [--rate 100000] [--deliverers 100] [--no-check]
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
from pyspark.sql import functions as F  # noqa: N812
from rich.console import Console
from rich.table import Table

from tickwheel._event import Event
from tickwheel.delivery.read.hand_off_rows import PARTITIONS
from tickwheel.spark import HandOff, hold, laptop_session, parse_files, parse_rows, read_files
from tickwheel.spark.query import end, start
from tickwheel.spark.runs import VISIT_ROWS

MEASURED_S = 40
WARM_S = 60  # a JVM becomes faster for a minute
LEAD_MS = 20_000
STAYS_MS = 3_000
FAR_MS = 86_400_000
PER_FILE = 25_000
HERE = len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class Size:
    """`held` messages that stay, and `rate` messages a second that come and go."""

    held: int
    rate: int

    def __str__(self) -> str:
        return f"{self.held:,} held, {self.rate:,}/s"


@dataclass(frozen=True)
class Costs:
    """Of one micro-batch, or of the model: seconds of CPU of Spark and of the deliverer, and how long it takes."""

    rows: float
    spark_s: float
    deliverer_s: float
    batch_s: float
    live_bytes: float = 0.0
    disk_bytes: float = 0.0
    restart_s: float = 0.0


CALIBRATION = Size(500_000, 2_000), Size(3_000_000, 2_000), Size(500_000, 10_000)  # a JVM with little to do stays slow
CHECKED = Size(1_000_000, 3_000), Size(4_000_000, 8_000)


@dataclass(frozen=True)
class Model:
    """Each is linear: something for a micro-batch, something for a message held, something for one that passes."""

    batch: Costs
    per_held: Costs
    per_row: Costs

    @classmethod
    def of(cls, small: Costs, full: Costs, busy: Costs) -> "Model":
        """From the runs of `CALIBRATION`: a small one, one with more held, and one with more that pass."""
        more_held, more_rows = CALIBRATION[1].held - CALIBRATION[0].held, busy.rows - small.rows

        def each(name: str) -> tuple[float, float, float]:
            at_small, at_full, at_busy = (getattr(it, name) for it in (small, full, busy))
            of_row = (at_busy - at_small) / more_rows
            of_held = max(0.0, (at_full - at_small - of_row * (full.rows - small.rows)) / more_held)
            return at_small - of_row * small.rows - of_held * CALIBRATION[0].held, of_held, of_row

        found = [each(name) for name in ("spark_s", "deliverer_s", "batch_s")]
        batch, per_held, per_row = (Costs(0, *(it[at] for it in found)) for at in range(3))
        restart_s = max(0.0, (full.restart_s - small.restart_s) / more_held)
        batch = replace(batch, restart_s=small.restart_s - restart_s * CALIBRATION[0].held)
        live_bytes = full.live_bytes / CALIBRATION[1].held
        return cls(batch, replace(per_held, deliverer_s=0, live_bytes=live_bytes, restart_s=restart_s), per_row)

    def at(self, size: Size, cores: float = HERE) -> Costs:
        """What a micro-batch of this size costs on so many cores. It is as long as its messages take to come."""
        faster = HERE / cores
        fixed_s = self.batch.batch_s + self.per_held.batch_s * size.held * faster
        busy = size.rate * self.per_row.batch_s * faster
        batch_s = fixed_s / (1 - busy) if busy < 1 else float("inf")
        rows = size.rate * max(1.0, batch_s)
        spark_s = self.batch.spark_s + self.per_held.spark_s * size.held + self.per_row.spark_s * rows
        deliverer_s = self.batch.deliverer_s + self.per_row.deliverer_s * rows
        if batch_s < 1:
            batch_s = fixed_s + rows * self.per_row.batch_s * faster
        restart_s = self.batch.restart_s + self.per_held.restart_s * size.held * faster
        return Costs(rows, spark_s, deliverer_s, batch_s, self.per_held.live_bytes * size.held, restart_s=restart_s)


def run(console: Console, folder: Path, size: Size) -> Costs:
    """One run of a size, and a restart; each in a new process, because a JVM becomes faster with time."""
    folder.mkdir()
    write(folder / "in", size.held)
    with deliverer(folder) as (process, at):
        given = [str(it) for it in (folder, size.held, size.rate, at, process.pid)]
        found = []
        for what in ("measure", "restart"):
            began_s = time.time()
            command = [
                sys.executable,
                "-m",
                "benches.python.spark_scale",
                "--one",
                " ".join([what, str(began_s), *given]),
            ]
            done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
            if done.returncode:
                sys.exit(f"a run of {size} failed")
            found.append(json.loads(done.stdout.splitlines()[-1]))
    costs = Costs(**found[0] | found[1])
    console.print(f"{size}: {costs}")
    return costs


def write(folder: Path, held: int) -> None:
    """Files with messages of 100 random bytes that are due tomorrow and the day after."""
    folder.mkdir()
    first_ms = round(time.time() * 1000) + FAR_MS
    for start_at in range(0, held, PER_FILE):
        with (folder / f"{start_at:09}.ndjson").open("w") as file:
            for n in range(start_at, min(held, start_at + PER_FILE)):
                due_ms = first_ms + n * 7_919_993 % FAR_MS
                record = {"id": f"m{n}", "key": f"k{n % 5_000}", "due": due_ms, "payload": os.urandom(50).hex()}
                file.write(json.dumps(record) + "\n")


def figures(what: str, began_s: float, folder: Path, size: Size, at: str, deliverer_pid: int) -> dict[str, float]:
    """The figures of one process."""
    session = laptop_session("scale", {"spark.sql.streaming.numRecentProgressUpdates": "1000"})
    passing = session.readStream.format("rate").option("rowsPerSecond", size.rate).load()
    due = F.timestamp_millis(F.unix_millis("timestamp") + LEAD_MS + STAYS_MS).alias("due")
    name = F.concat(F.lit(what), F.col("value").cast("string")).alias("id")
    key = F.concat(F.lit("k"), F.pmod("value", F.lit(5_000)).cast("string")).alias("key")
    text = F.substring(F.sha2(F.col("value").cast("string"), 512), 1, 100).alias("payload")
    rows = parse_rows(passing.select(name, key, due, text))
    files = parse_files(read_files(session, folder / "in"))
    hand_off, stop = HandOff([at]), Event()
    query = start(hold(files.unionByName(rows), LEAD_MS), hand_off, folder / "checkpoint", stop)
    seen: dict[int, Any] = {}

    def wait(until: Callable[[], bool]) -> None:
        while True:
            if not query.isActive:
                sys.exit(f"the query failed: {query.exception()}")
            seen.update((it["batchId"], it) for it in query.recentProgress)
            if until():
                return
            time.sleep(0.1)

    try:
        if what == "restart":
            wait(lambda: hand_off.report.sent > 0)
            return {"restart_s": time.time() - began_s}
        wait(lambda: hand_off.report.waiting >= size.held and hand_off.report.given > 10 * size.rate)
        time.sleep(WARM_S)
        wait(lambda: True)
        before = spark_cpu_s(), cpu_s(deliverer_pid), max(seen), hand_off.report.sent
        until_s = time.monotonic() + MEASURED_S
        wait(lambda: time.monotonic() > until_s)
        spark_s, deliverer_s = spark_cpu_s() - before[0], cpu_s(deliverer_pid) - before[1]
        batches = [it["durationMs"]["triggerExecution"] for at, it in seen.items() if at > before[2]]
        sent, count = hand_off.report.sent - before[3], len(batches)
    finally:
        end(query)
        session.stop()
        hand_off.close()
    disk_bytes = sum(file.stat().st_size for file in (folder / "checkpoint" / "state").rglob("*") if file.is_file())
    live_bytes = seen[max(seen)]["stateOperators"][0]["customMetrics"]["rocksdbSstFileSize"]
    return {
        "rows": sent / count, "spark_s": spark_s / count, "deliverer_s": deliverer_s / count,
        "batch_s": sum(batches) / count / 1000, "live_bytes": live_bytes, "disk_bytes": disk_bytes,
    }  # fmt: skip


@contextmanager
def deliverer(folder: Path) -> "Iterator[tuple[subprocess.Popen[str], str]]":
    """A deliverer that writes to a file; and its address."""
    command = [sys.executable, "-m", "tickwheel.cli", "serve", "--store", "s.db", "--to", "file:out"]
    command += ["--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                if found := re.search(r"http://(\S+:\d+)", line):
                    break
            else:
                sys.exit("the deliverer did not start")
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield process, found[1]
        finally:
            process.terminate()


def cpu_s(pid: int) -> float:
    """The CPU time of a process so far."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def spark_cpu_s() -> float:
    """That of this process and of all below it, but the deliverer."""
    total, pids = 0.0, [os.getpid()]
    while pids:
        pid = pids.pop()
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            if b"serve" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                continue
            total += cpu_s(pid)
            for file in Path(f"/proc/{pid}/task").glob("*/children"):
                pids += map(int, file.read_text().split())
    return total


def check(console: Console, model: Model, folder: Path) -> bool:
    """Compare the model with runs of other sizes. Whether all is within 30 %."""
    table = Table("size", "what", "the model", "measured", "off by", title="The model against runs of other sizes")
    worst = 0.0
    for number, size in enumerate(CHECKED):
        said, found = model.at(size), run(console, folder / f"check{number}", size)
        for name, unit, said_is, found_is in (
            ("a micro-batch takes", "s", said.batch_s, found.batch_s),
            ("Spark's CPU for a micro-batch", "s", said.spark_s, found.spark_s),
            ("the deliverer's CPU for a micro-batch", "s", said.deliverer_s, found.deliverer_s),
            ("messages in a micro-batch", "", said.rows, found.rows),
            ("live state", "MiB", said.live_bytes / 2**20, found.live_bytes / 2**20),
            ("from a start to the first hand-off", "s", said.restart_s, found.restart_s),
        ):
            off = said_is / found_is - 1
            worst = max(worst, abs(off))
            table.add_row(str(size), name, f"{said_is:,.2f} {unit}", f"{found_is:,.2f} {unit}", f"{off:+.0%}")
        table.add_row(str(size), "on disk, with old versions", "", f"{found.disk_bytes / 2**20:,.2f} MiB", "")
    console.print(table)
    return worst <= 0.3


def show_costs(console: Console, model: Model) -> None:
    table = Table(
        "for", "Spark's CPU", "the deliverer's CPU", "duration here", title=f"Costs, measured on {HERE} cores"
    )
    million, batch, row = 1e6, model.batch, model.per_row
    table.add_row("a micro-batch", f"{batch.spark_s:.2f} s", f"{batch.deliverer_s:.3f} s", f"{batch.batch_s:.2f} s")
    table.add_row(
        "a million held, in each",
        f"{model.per_held.spark_s * million:.3f} s",
        "",
        f"{model.per_held.batch_s * million:.3f} s",
    )
    table.add_row(
        "a message that passes",
        f"{row.spark_s * 1e6:.1f} us",
        f"{row.deliverer_s * 1e6:.1f} us",
        f"{row.batch_s * 1e6:.1f} us",
    )
    console.print(table)


def needs(console: Console, model: Model, size: Size, deliverers: int, lead_s: float) -> None:
    """Say what a size needs, core by core, and what comes first to its end."""
    table = Table(
        "cores of Spark", "a micro-batch", "rows in it", "start to first hand-off", "what breaks", title=str(size)
    )
    for cores in (4, 8, 16, 32, 64):
        it = model.at(size, cores)
        table.add_row(
            str(cores),
            f"{it.batch_s:.1f} s",
            f"{it.rows:,.0f}",
            f"{it.restart_s:,.0f} s",
            ", ".join(faults(it, lead_s)) or "-",
        )
    console.print(table)
    used = min(deliverers, PARTITIONS)
    # Each has a hand-off of every micro-batch, and there is at most one a second.
    share = size.rate * model.per_row.deliverer_s / used + model.batch.deliverer_s
    console.print(
        f"State: {model.per_held.live_bytes * size.held / 2**30:,.0f} GiB on the executors' disks, and in the "
        f"checkpoint beside its old versions. Deliverers: {used} of {deliverers} have keys, as there are {PARTITIONS} "
        f"shards, and each uses at most {share:.0%} of a core."
    )


def faults(it: Costs, lead_s: float) -> Sequence[str]:
    """What does not hold any more."""
    most = PARTITIONS * VISIT_ROWS
    return [
        what
        for is_so, what in (
            (it.batch_s == float("inf"), "more comes in than these cores read"),
            (lead_s / 2 < it.batch_s < float("inf"), "micro-batches longer than half the lead"),
            (most < it.rows < float("inf"), f"more than {most:,} rows must leave in a micro-batch"),
            (it.restart_s > lead_s, "a restart longer than the lead"),
        )
        if is_so
    ]


@click.command()
@click.option("--held", default=1_000_000_000, show_default=True)
@click.option("--rate", default=100_000, show_default=True, help="Messages a second, in and out.")
@click.option("--deliverers", default=100, show_default=True)
@click.option("--lead", default=90, show_default=True, help="Seconds.")
@click.option("--one", hidden=True, help="A run, in a process of its own.")
@click.option("--check/--no-check", "is_checked", default=True, help="Compare the model with two other sizes, too.")
def main(held: int, rate: int, deliverers: int, lead: int, one: str | None, *, is_checked: bool) -> None:
    """Measure, check the model, and ask it."""
    if one is not None:
        what, began_s, place, *size, at, pid = one.split(" ")
        print(json.dumps(figures(what, float(began_s), Path(place), Size(*map(int, size)), at, int(pid))))
        return
    console = Console(width=120)
    Path("build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir="build") as name:
        folder = Path(name).resolve()
        found = [run(console, folder / f"run{number}", size) for number, size in enumerate(CALIBRATION)]
        model = Model.of(*found)
        show_costs(console, model)
        fits = not is_checked or check(console, model, folder)
    needs(console, model, Size(held, rate), deliverers, lead)
    if not fits:
        sys.exit("the model is off by more than 30 %")


if __name__ == "__main__":
    main()
