"""The lateness of messages that Spark held, at a steady rate, from files to an independent receiver; also with kill -9.

Spark reads files, holds the messages and sends them to `tickwheel serve`, which delivers to its standard output. This
process is the receiver at the other end of that pipe: it records when each piece came, and reads it afterwards (rules
D3, S3). With `--kill` the driver, its JVM and its workers are killed in the middle and started again. The messages that
are due meanwhile have left Spark `--lead` seconds before (S4). With `--hot` all are due in the same second: are they
all handed off before it (S2)?

    python -m benches.python.spark_delivery [--rate 8000] [--seconds 60] [--lead 20] [--kill | --hot]
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from tickwheel.delivery.model.summary import percentiles

FILES = 16
KEYS = 5_000
READ_PER_S = 10_000  # what Spark reads at least, on two cores
START_S = 30  # until it has read the first file
AHEAD_S = 120  # how much earlier the hold begins to give what is due in one second


def write(folder: Path, rate: int, seconds: int, first_due_ms: int, *, is_hot: bool) -> None:
    """Write NDJSON files with payloads of 100 bytes. A key is in one file only, and every file spans the whole time."""
    folder.mkdir()
    files = [(folder / f"{number:02}.ndjson").open("w") for number in range(FILES)]
    for number in range(rate * seconds):
        key = number % KEYS
        due_ms = first_due_ms + (number % 1000 if is_hot else number * 1000 // rate)
        record = {"id": f"m{number}", "key": f"k{key}", "due": due_ms, "payload": os.urandom(50).hex()}
        files[key % FILES].write(json.dumps(record) + "\n")
    for file in files:
        file.close()


class Receiver(threading.Thread):
    """Reads a pipe as fast as possible, and records when each piece came."""

    def __init__(self, pipe: Any) -> None:
        super().__init__(daemon=True)
        self._pipe = pipe
        self.pieces: list[tuple[int, bytes]] = []
        self.lines = 0

    def run(self) -> None:
        """Read until the pipe ends."""
        while piece := os.read(self._pipe.fileno(), 1 << 16):
            self.pieces.append((time.time_ns() // 1000, piece))
            self.lines += piece.count(b"\n")

    def lateness_ms(self) -> list[tuple[str, float]]:
        """The id and the lateness of every line, by the time when its end came, in order of arrival."""
        found, rest = [], b""
        for at_us, piece in self.pieces:
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                record = json.loads(line)
                found.append((record["id"], (at_us - epoch_ms(record["due"]) * 1000) / 1000))
        return found


def epoch_ms(text: str) -> int:
    from tickwheel._native import due_of

    return due_of(text, "due")


@contextmanager
def running(folder: Path, *command: str, **options: Any) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a command in a process group of its own, which is killed at the end."""
    arguments = [sys.executable, "-m", "tickwheel.cli", *command]
    with (
        (folder / f"{command[0]}.log").open("ab") as log,
        subprocess.Popen(
            arguments, cwd=folder, stdin=subprocess.DEVNULL, stderr=log, start_new_session=True, **options
        ) as process,
    ):
        try:
            yield process
        finally:
            kill(process)


def kill(process: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def cpu_s(process: "subprocess.Popen[bytes]") -> float:
    """The CPU time so far of a process, and of the ended processes that it has waited for."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def accepted_by(listen: str) -> int:
    """How many messages the deliverer has accepted."""
    with urllib.request.urlopen(f"http://{listen}/metrics", timeout=10) as answer:
        found = re.search(rb"^tickwheel_accepted_messages_total (\S+)", answer.read(), re.MULTILINE)
    assert found
    return int(float(found[1]))  # 1e+06


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def sleep_until(epoch_ms: float) -> None:
    time.sleep(max(0.0, epoch_ms / 1000 - time.time()))


@click.command()
@click.option("--rate", default=8_000, show_default=True, help="Messages a second.")
@click.option("--seconds", default=60, show_default=True, help="How long messages are due.")
@click.option("--lead", default=20, show_default=True, help="Seconds before its due time that a message leaves Spark.")
@click.option("--kill", "kills", is_flag=True, help="kill -9 the driver in the middle, and start it again.")
@click.option("--hot", "is_hot", is_flag=True, help="All are due in the same second.")
def main(rate: int, seconds: int, lead: int, kills: bool, is_hot: bool) -> None:
    """Measure, and print a table."""
    messages = rate * seconds
    Path("build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir="build") as name:
        folder = Path(name).resolve()
        in_s = START_S + messages / READ_PER_S + (AHEAD_S if is_hot else 0)
        first_due_ms = round((time.time() + messages / 100_000 + in_s + lead) * 1000)
        write(folder / "in", rate, seconds, first_due_ms, is_hot=is_hot)
        listen = f"127.0.0.1:{free_port()}"
        serve = ("serve", "--store", "s.db", "--to", "-", "--listen", listen)
        feed = ("deliver", "in", "--engine", "spark", "--deliverer", listen, "--checkpoint", "c", "--lead", str(lead))
        with running(folder, *serve, stdout=subprocess.PIPE) as deliverer:
            receiver = Receiver(deliverer.stdout)
            receiver.start()
            with running(folder, *feed) as driver:
                sleep_until(first_due_ms + (seconds * 500 if kills else 0))
                accepted = accepted_by(listen)
                if kills:
                    kill(driver)
                else:
                    driver.wait(seconds + 300)
            away_from_ms = time.time() * 1000
            if kills:
                with running(folder, *feed) as driver:
                    driver.wait(seconds + 300)
            if driver.returncode:
                sys.exit(f"the driver ended with {driver.returncode}:\n{(folder / 'deliver.log').read_text()[-3000:]}")
            for _ in range(600):
                if receiver.lines >= messages:
                    break
                time.sleep(0.1)
            used_s = cpu_s(deliverer)
            deliverer.send_signal(signal.SIGTERM)
            deliverer.wait(60)
            receiver.join(60)
    came = receiver.lateness_ms()
    late = sorted(lateness for _, lateness in came)
    of = percentiles(late)
    table = Table("what", "figure", title=f"{rate:,} messages/s on Spark, lead {lead} s{', driver killed' * kills}")
    table.add_row(
        "delivered / different ids / asked for", f"{len(came):,} / {len({id_ for id_, _ in came}):,} / {messages:,}"
    )
    table.add_row("late at the receiver, p50 / p99 / p99.9 / max", " / ".join(f"{of[name]:.2f} ms" for name in of))
    table.add_row("handed off before the first was due", f"{accepted:,}")
    table.add_row("early", f"{sum(lateness < 0 for lateness in late):,}")
    table.add_row("more than 50 ms late", f"{sum(lateness > 50 for lateness in late):,}")
    table.add_row("the deliverer's CPU", f"{used_s / messages * 1e6:.0f} us a message")
    if kills:
        table.add_row("killed, after the first was due", f"{(away_from_ms - first_due_ms) / 1000:.0f} s")
    Console(width=120).print(table)
    if len({id_ for id_, _ in came}) != messages:
        sys.exit("not all messages came")


if __name__ == "__main__":
    main()
