"""`kill -9` of the driver, a worker, a deliverer, and all at once; deliverers that lose their disks, one or all (S4).

Nothing is lost, and repeats are marked. The files that two deliverers write decide. The long form
(`make soak`) does each ten times.
"""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from delivery.soak.load import Load, Name, from_ndjson, whole_lines

LONG = os.environ.get("TICKWHEEL_SOAK") == "1"
pytestmark = pytest.mark.timeout(3_000 if LONG else 300)

KILLS = 10 if LONG else 1  # of each kind
MESSAGES = 20_000 if LONG else 3_000
START_S, SPAN_S = 30, 400 if LONG else 20  # the first due time, and the span of all due times
LEAD_S = 4
KEYS = 200
FILES = 8


class Process:
    """A command that is started again on request."""

    def __init__(self, folder: Path, *command: str) -> None:
        self._command = [sys.executable, "-m", "tickwheel.cli", *command]
        self._folder = folder
        self._log = folder / "log"
        self.process = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        with self._log.open("ab") as log:
            return subprocess.Popen(self._command, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def again(self) -> None:
        self.kill()
        self.process = self._start()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)

    def output(self) -> str:
        return self._log.read_text(errors="replace")


class Deliverer(Process):
    """A deliverer with a store, a port and a file in a folder of its own."""

    def __init__(self, folder: Path, ports: Callable[[], int]) -> None:
        folder.mkdir()
        self.at = f"127.0.0.1:{ports()}"
        self.out = folder / "out"
        self._store = folder / "s.db"
        super().__init__(folder, "serve", "--store", "s.db", "--to", "file:out", "--listen", self.at)

    def loses_its_disk(self) -> None:
        """It comes back with an empty store. What it delivered has arrived."""
        self.kill()
        for file in self._store.parent.glob("s.db*"):
            file.unlink()
        self.again()


def test_whatever_is_killed_or_lost_nothing_is_lost_and_repeats_are_marked__S4_D5(
    tmp_path: Path, seed: int, ports: Callable[[], int]
) -> None:
    rng = random.Random(seed)
    began_s = time.time()
    load = give(tmp_path / "in", rng)
    deliverers = [Deliverer(tmp_path / name, ports) for name in ("a", "b")]
    to = [option for one in deliverers for option in ("--deliverer", one.at)]
    on_spark = ["--engine", "spark", "--checkpoint", "checkpoint", "--lead", str(LEAD_S)]
    driver = Process(tmp_path, "deliver", "in", *to, *on_spark)
    try:
        kinds = ["driver", "worker", "deliverer", "lost", "all", "all lost"] * KILLS
        rng.shuffle(kinds)
        wait(driver, lambda: " held, " in driver.output())
        moments = sorted(rng.uniform(START_S - 2 * LEAD_S, START_S + SPAN_S) for _ in kinds)  # while messages are due
        for moment_s, kind in zip(moments, kinds, strict=True):
            time.sleep(max(0.0, began_s + moment_s - time.time()))
            print(f"{time.time() - began_s:.3f} s: {kind}")
            if kind in ("worker", "all"):
                kill_a_worker(driver.process.pid, rng)
            if kind in ("lost", "all lost"):
                for one in deliverers if kind == "all lost" else [rng.choice(deliverers)]:
                    one.loses_its_disk()
            if kind in ("deliverer", "all"):
                for one in deliverers if kind == "all" else [rng.choice(deliverers)]:
                    one.again()
            if kind in ("driver", "all"):
                driver.again()
        assert driver.process.wait(600) == 0, driver.output()[-3_000:]
        for one in deliverers:
            assert one.end(signal.SIGTERM) == 0, one.output()[-3_000:]
    finally:
        for process in (driver, *deliverers):
            process.kill()
    received = [one for deliverer in deliverers for one in from_ndjson(deliverer.out)]
    assert load.problems(received, may_repeat=True) == []
    assert all(line["lateness_ms"] >= 0 for deliverer in deliverers for line in whole_lines(deliverer.out))
    print(f"{MESSAGES:,} messages, {len(kinds)} kills, {len(received) - MESSAGES} repeats")


def give(folder: Path, rng: random.Random) -> Load:
    """Files with all messages of a key in one file, due from `START_S` on, with some duplicates."""
    folder.mkdir()
    first_ms = time.time_ns() // 1_000_000 + START_S * 1000
    load = Load([])
    lines: dict[int, list[str]] = defaultdict(list)
    order: dict[str, list[tuple[int, int, Name]]] = defaultdict(list)
    for number in range(MESSAGES):
        key, id_ = f"key {number % KEYS}", f"message {number}"
        due_ms = first_ms + rng.randrange(SPAN_S * 1000)
        line = json.dumps({"id": id_, "key": key, "due": due_ms, "payload": number})
        lines[number % KEYS % FILES] += [line] * (2 if rng.random() < 0.05 else 1)
        load.payloads[key, id_] = number
        order[key].append((due_ms, number, (key, id_)))
    load.order = {key: [name for _, _, name in sorted(every)] for key, every in order.items()}
    for file, found in lines.items():
        (folder / f"{file}.ndjson").write_text("\n".join(found) + "\n")
    return load


def kill_a_worker(driver: int, rng: random.Random) -> None:
    """Kill one of the Python processes that the driver's JVM has started, if there is one at this moment."""
    workers = [
        pid for pid in descendants(driver) if b"pyspark.daemon" in cmdline(pid) or b"pyspark.worker" in cmdline(pid)
    ]
    if workers:
        with suppress(ProcessLookupError):
            os.kill(rng.choice(workers), signal.SIGKILL)


def descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = defaultdict(list)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            children[int(stat.read_text().rpartition(")")[2].split()[1])].append(int(stat.parent.name))
    found, left = [], [root]
    while left:
        left += children[left.pop()]
        found = [*found, *left]
    return [*dict.fromkeys(found)]


def cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def wait(process: Process, is_so: Callable[[], bool]) -> None:
    while not is_so():
        assert process.process.poll() is None, process.output()[-3_000:]
        time.sleep(0.2)


@pytest.fixture
def ports() -> Callable[[], int]:
    """Free ports."""

    def free() -> int:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            return int(probe.getsockname()[1])

    return free


@pytest.fixture
def seed() -> int:
    """The seed, printed so that a failed run can be repeated."""
    number = int(os.environ.get("TICKWHEEL_SEED") or random.SystemRandom().randrange(1 << 30))
    print(f"TICKWHEEL_SEED={number}")
    return number
