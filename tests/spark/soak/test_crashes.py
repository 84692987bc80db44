"""`kill -9` of the driver, a worker, the deliverer, and all at once: nothing is lost, and repeats are marked (S4).

The file that the deliverer writes decides. The long form (`make soak`) kills each ten times.
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

from delivery.soak.load import Load, Name, from_ndjson

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
        self._log = folder / f"{command[0]}.log"
        self.process = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        with self._log.open("ab") as log:
            return subprocess.Popen(self._command, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def again(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process = self._start()

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)

    def output(self) -> str:
        return self._log.read_text(errors="replace")


def test_whatever_is_killed_nothing_is_lost_and_repeats_are_marked__S4_D5(
    tmp_path: Path, seed: int, ports: Callable[[], int]
) -> None:
    rng = random.Random(seed)
    load = give(tmp_path / "in", rng)
    flight = f"127.0.0.1:{ports()}"
    listen = f"127.0.0.1:{ports()}"
    deliverer = Process(
        tmp_path, "serve", "--store", "s.db", "--to", "file:out", "--flight", flight, "--listen", listen
    )
    on_spark = ["--engine", "spark", "--checkpoint", "checkpoint", "--lead", str(LEAD_S)]
    driver = Process(tmp_path, "deliver", "in", "--deliverer", flight, *on_spark)
    try:
        kinds = ["driver", "worker", "deliverer", "all"] * KILLS
        rng.shuffle(kinds)
        wait(driver, lambda: "groups held" in driver.output())
        for kind in kinds:
            time.sleep(rng.uniform(1, START_S + SPAN_S) / len(kinds))  # a random moment is intended
            if kind in ("worker", "all"):
                kill_a_worker(driver.process.pid, rng)
            if kind in ("deliverer", "all"):
                deliverer.again()
            if kind in ("driver", "all"):
                driver.again()
        assert driver.process.wait(600) == 0, driver.output()[-3_000:]
        wait(deliverer, lambda: len(names(tmp_path / "out")) >= MESSAGES)
        assert deliverer.end(signal.SIGTERM) == 0, deliverer.output()[-3_000:]
    finally:
        for one in (driver, deliverer):
            one.process.kill()
            one.process.wait()
    received = from_ndjson(tmp_path / "out")
    assert load.problems(received, may_repeat=True) == []
    assert all(json.loads(line)["lateness_ms"] >= 0 for line in (tmp_path / "out").read_bytes().splitlines())
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


def names(out: Path) -> set[Name]:
    return {one.name for one in from_ndjson(out)}


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
