"""D8 by bytes: payloads of 1 MB, and hundreds of thousands of overdue messages, need little memory, disk and time."""

import json
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from delivery.soak import large
from delivery.soak.large import MB, PAYLOAD

pytestmark = pytest.mark.timeout(1200)

Size = Callable[[int, int], int]

MIB = 1 << 20


def command(program: str, *arguments: object) -> list[str]:
    return [sys.executable, str(large.__file__), program, *map(str, arguments)]


def run(program: str, *arguments: object) -> dict[str, Any]:
    """What one of the programs found."""
    done = subprocess.run(command(program, *arguments), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return read(done.stdout)


def read(output: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


@pytest.fixture
def folder() -> Iterator[Path]:
    """Removed at once, as it gets gigabytes."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> int:
    """The peak of a process that delivers nothing."""
    folder = tmp_path_factory.mktemp("empty")
    (folder / "in.ndjson").touch()
    peak: int = run("deliver", folder / "in.ndjson", folder / "store.db")["peak"]
    return peak


def lines_read(store: Path) -> int:
    """How much of the input is on disk. That is another process's store, so its tables may not be there yet."""
    if not store.exists():
        return 0
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as db:
        try:
            [(line,)] = db.execute("SELECT ifnull(max(line), 0) FROM inputs").fetchall()
        except sqlite3.OperationalError:
            return 0
    return int(line)


def test_large_payloads_that_are_due_tomorrow_are_read_into_the_store__D8(folder: Path, size: Size, empty: int) -> None:
    source, store, count = folder / "in.ndjson", folder / "store.db", size(80, 1_400)
    with source.open("wb") as lines:
        for number in range(count):
            due_ms = time.time_ns() // 1_000_000 + 86_400_000
            lines.write(b'{"id": "%d", "due": %d, "payload": %s}\n' % (number, due_ms, PAYLOAD))
    with subprocess.Popen(command("deliver", source, store), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        while process.poll() is None and lines_read(store) < count:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert lines_read(store) == count, err.decode()
    grown = read(out.decode())["peak"] - empty
    print(f"{count} payloads of 1 MB: {grown / MIB:.0f} MiB over an empty deliverer's {empty / MIB:.0f}")
    assert grown < size(100, 150) * MIB


def test_large_payloads_are_cleaned_up_beside_the_others_and_the_disk_gets_its_room_back__D8(
    folder: Path, size: Size, empty: int
) -> None:
    store, count = folder / "store.db", size(120, 1_500)
    run("accept", store, count)
    assert store.stat().st_size > count * MB
    found = run("clean_up", store, count)
    took_ms, late_ms, answer_ms = found["took_ms"], found["late_ms"], found["answer_ms"]
    print(
        f"{count} payloads of 1 MB delivered and cleaned up in {took_ms / 1000:.1f} s: a small message was at most "
        f"{late_ms:.0f} ms late, an answer took at most {answer_ms:.0f} ms; the log had {found['log'] / MIB:.0f} MiB, "
        f"the store has {store.stat().st_size / MIB:.0f} MiB; {found['peak'] / MIB:.0f} MiB resident; afterwards "
        f"{found['quiet_late_ms']:.0f} and {found['quiet_answer_ms']:.0f} ms"
    )
    assert found["delivered"] > count
    assert found["peak"] - empty < 150 * MIB
    # Its ratio to all of the time says that no group cleans up everything. In the short form there are few groups.
    assert max(answer_ms, late_ms) < took_ms / size(1, 4)
    assert store.stat().st_size < 40 * MB
    assert found["log"] < 150 * MIB


def test_after_a_crash_only_what_was_in_memory_may_come_again__D5_D8(folder: Path, size: Size) -> None:
    store, out, count = folder / "store.db", folder / "out.ndjson", size(20_000, 400_000)
    crashed = subprocess.run(command("crash", store, count), capture_output=True, text=True, check=False)
    assert crashed.returncode == -signal.SIGKILL, crashed.stderr
    run("go_on", store, out)
    with out.open() as lines:
        delivered = [json.loads(line) for line in lines]
    assert [int(it["id"]) for it in delivered] == list(range(count))
    marked = [int(it["id"]) for it in delivered if it["redelivered"]]
    print(f"{len(marked)} of {count:,} overdue messages of one key are marked")
    assert 1 <= len(marked) <= 128, "so many of one key are in memory"
    assert marked == list(range(len(marked)))


def test_large_dead_letters_wait_on_disk_until_they_are_told__D8(folder: Path, size: Size, empty: int) -> None:
    count = size(120, 1_500)
    found = run("dead", folder / "store.db", count)
    grown = found["peak"] - empty
    print(f"{count} dead letters of 1 MB: {grown / MIB:.0f} MiB over an empty deliverer's {empty / MIB:.0f}")
    assert found["told"] == count
    assert found["least"] > MB
    assert grown < 120 * MIB
