"""A standalone cluster of three workers under faults (S3 to S5): executors, workers, drivers, deliverers and networks
that die or fall silent, clocks that are off.

Two deliverers write to a file each, and these files decide: nothing is lost, nothing early, each key in order, repeats
are marked. The long form (`make soak`) has 20,000 messages for each fault.
"""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import tickwheel.spark
from delivery.soak.load import Load, Name, from_ndjson, whole_lines
from tickwheel.delivery.model.summary import percentiles

from ..cluster import Cluster, Process, wait_for

LONG = os.environ.get("TICKWHEEL_SOAK") == "1"
pytestmark = pytest.mark.timeout(1_200 if LONG else 400)

MESSAGES = 20_000 if LONG else 2_000
KEYS = 500 if LONG else 100
LEAD_S = 60 if LONG else 8  # longer than a restart of the driver in the long form, so that no key has to be late
SPAN_S = 2 * LEAD_S if LONG else 20  # half of them leave the hold after the fault
STOPPED_S = 60 if LONG else 8
DELAY_MS = 20_000
FILES = 8
WITHIN_S = 300.0
PROGRAM = Path(tickwheel.spark.__file__).with_name("program.py")
FAKETIME = [*Path("/usr/lib").glob("*/faketime/libfaketime.so.1")]
NAMESPACE = "tickwheel-test"


class Deliverer:
    """A deliverer with its store and its output in a folder. `inside`: what its commands begin with."""

    def __init__(self, stage: "Stage", name: str, host: str = "127.0.0.1", inside: tuple[str, ...] = ()) -> None:
        folder = self.folder = stage.folder / name
        folder.mkdir(parents=True)
        self.out, self.dead = folder / "out", folder / "dead"
        self.at = f"{host}:{free_port()}"
        outputs = ("--store", folder / "s.db", "--to", f"file:{self.out}", "--dead-letters", self.dead)
        ports = ("--listen", self.at, "--token-file", stage.token, "--no-tls")
        command = [*inside, sys.executable, "-m", "tickwheel.cli", "serve", *map(str, (*outputs, *ports))]
        self.process = stage.cluster.run(
            command, name=f"{stage.folder.name}-{name}", environment=stage.clock(stage.off_s)
        )

    def again(self, *, loses_its_disk: bool = False) -> None:
        """It is killed, and started again."""
        self.process.kill()
        if loses_its_disk:
            for file in self.folder.glob("s.db*"):
                file.unlink()
        self.process.start()


@dataclass
class Input:
    """What was given, and what must come of it."""

    load: Load
    delayed: dict[Name, int] = field(default_factory=dict)
    broken: int = 0


def give(folder: Path, rng: random.Random, first_ms: int) -> Input:
    """Files with messages, duplicates, cancels, broken lines and delays, all of a key in one file."""
    folder.mkdir()
    given = Input(Load([]))
    lines: dict[int, list[str]] = defaultdict(list)
    order: dict[str, list[tuple[int, int, Name]]] = defaultdict(list)
    for number in range(MESSAGES):
        key, id_ = f"key {number % KEYS}", f"message {number}"
        record: dict[str, object] = {"id": id_, "key": key, "payload": number}
        given.load.payloads[key, id_] = number
        if rng.random() < 0.05:
            record["delay_ms"] = DELAY_MS + rng.randrange(SPAN_S * 1000)
            given.delayed[key, id_] = time.time_ns() // 1_000_000 + DELAY_MS
        else:
            due_ms = first_ms + rng.randrange(SPAN_S * 1000)
            record["due"] = due_ms
            order[key].append((due_ms, number, (key, id_)))
        mine = lines[number % KEYS % FILES]
        mine += [json.dumps(record)] * (2 if rng.random() < 0.05 else 1)
        if rng.random() < 0.03:
            mine.append(json.dumps({"id": id_, "key": key, "op": "cancel"}))
            given.load.cancelled.add((key, id_))
        if rng.random() < 0.01:
            mine.append('{"id": "no due"}')
            given.broken += 1
    given.load.order = {key: [name for _, _, name in sorted(every)] for key, every in order.items()}
    for file, found in lines.items():
        (folder / f"{file}.ndjson").write_text("\n".join(found) + "\n")
    return given


class Stage:
    """The cluster, two deliverers, and a driver that feeds them. `off_s`: how far the deliverers' clocks are ahead of
    the driver's. (A JVM with another clock is so slow that it fails.)
    """

    def __init__(self, cluster: Cluster, folder: Path, rng: random.Random, off_s: int = 0) -> None:
        self.cluster, self.folder, self.rng, self.off_s = cluster, folder, rng, off_s
        self.conf: tuple[str, ...] = ()
        self.token = folder / "token"
        self.token.write_text("a-token-of-these-tests-alone")
        self.token.chmod(0o600)
        self.deliverers = [Deliverer(self, name) for name in ("a", "b")]
        self.drivers = 0
        self.touched: list[Deliverer] = []
        self.fault: tuple[float, float] = (0.0, 0.0)

    def drive(self) -> Process:
        """Start the program on the cluster, wherever it ran before."""
        self.drivers += 1
        to = [part for one in self.deliverers for part in ("--deliverer", one.at)]
        place = self.folder / f"driver{self.drivers}"
        place.mkdir()
        options = ("--checkpoint", self.folder / "checkpoint", "--lead", LEAD_S, "--token-file", self.token)
        environment = {"SPARK_LOCAL_DIRS": str(place)}
        self.driver = self.cluster.submit(
            *self.conf, str(PROGRAM), str(self.folder / "in"), *to, *map(str, options),
            name=f"{self.folder.name}-driver{self.drivers}", environment=environment,
        )  # fmt: skip
        return self.driver

    def run(self, fault: "Callable[[Stage], None]") -> Input:
        """Give, wait until it is read, do the fault while messages are due, and wait until all have come."""
        (self.folder / "in").mkdir()
        self.drive()
        in_time_ms = time.time_ns() // 1_000_000 + max(60, LEAD_S + 30) * 1_000 + max(0, self.off_s) * 1_000
        given = give(self.folder / "new", self.rng, in_time_ms)
        for file in (self.folder / "new").iterdir():
            file.rename(self.folder / "in" / file.name)
        while time.time() * 1000 < in_time_ms + 2_000:
            time.sleep(0.1)  # messages are due from then on
            assert self.driver.popen is not None
            assert self.driver.popen.poll() is None, self.driver.output()[-3_000:]
        began_s = time.time()
        fault(self)
        self.fault = began_s, time.time()
        wanted = given.load.payloads.keys() - given.load.cancelled
        wait_for(
            lambda: wanted <= {one.name for it in self.deliverers for one in from_ndjson(it.out)}, self.driver, WITHIN_S
        )
        self.driver.signal(signal.SIGTERM)
        assert self.driver.popen is not None
        assert self.driver.popen.wait(120) == 0, self.driver.output()[-3_000:]
        for one in self.deliverers:
            one.process.kill()
        return given

    @staticmethod
    def clock(off_s: int) -> dict[str, str]:
        """The environment of a process whose clock is so far ahead."""
        if not off_s:
            return {}
        return {"LD_PRELOAD": str(FAKETIME[0]), "FAKETIME": f"{off_s:+}", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}

    def names(self) -> set[Name]:
        """What has come."""
        return {one.name for it in self.deliverers for one in from_ndjson(it.out)}


# --- The faults ---------------------------------------------------------------


def nothing(_stage: Stage) -> None:
    """To compare with."""


def executor_killed(stage: Stage) -> None:
    for number in stage.rng.sample(range(3), 2):
        stage.cluster.kill_executor(number)
        time.sleep(stage.rng.uniform(0.5, 3))


def worker_killed(stage: Stage) -> None:
    number = stage.rng.randrange(3)
    stage.cluster.kill_worker(number)
    time.sleep(stage.rng.uniform(1, 5))
    stage.cluster.start_worker(number)


def driver_killed(stage: Stage) -> None:
    stage.driver.kill()
    stage.drive()


def deliverer_killed(stage: Stage) -> None:
    stage.touched = [stage.rng.choice(stage.deliverers)]
    stage.touched[0].again()


def deliverer_lost(stage: Stage) -> None:
    stage.touched = [stage.rng.choice(stage.deliverers)]
    stage.touched[0].again(loses_its_disk=True)


def all_deliverers_lost(stage: Stage) -> None:
    stage.touched = [*stage.deliverers]
    for one in stage.deliverers:
        one.again(loses_its_disk=True)


def deliverer_stopped(stage: Stage) -> None:
    stage.touched = [stage.rng.choice(stage.deliverers)]
    stage.touched[0].process.signal(signal.SIGSTOP)
    time.sleep(STOPPED_S)
    stage.touched[0].process.signal(signal.SIGCONT)


def network_cut(stage: Stage) -> None:
    stage.touched = [stage.deliverers[-1]]
    inside("iptables", "-A", "INPUT", "-j", "DROP")
    time.sleep(STOPPED_S)
    inside("iptables", "-F")


FAULTS = (
    nothing, executor_killed, worker_killed, driver_killed, deliverer_killed, deliverer_lost, all_deliverers_lost,
    deliverer_stopped,
)  # fmt: skip
SHORT = (executor_killed, deliverer_lost)
# Spark repeats a task within its micro-batch, and nothing tells the task so: its dead letters come again as they were.
REPEATS_TASKS = (executor_killed, worker_killed)


@pytest.mark.parametrize("fault", FAULTS if LONG else SHORT, ids=lambda fault: fault.__name__)
def test_nothing_is_lost_whatever_dies__S3_S4(
    cluster: Cluster, tmp_path: Path, seed: int, fault: Callable[[Stage], None]
) -> None:
    stage = Stage(cluster, tmp_path, random.Random(seed))
    check(stage, stage.run(fault), repeats_tasks=fault in REPEATS_TASKS)


if LONG:

    def test_nor_with_speculation__S4(cluster: Cluster, tmp_path: Path, seed: int) -> None:
        stage = Stage(cluster, tmp_path, random.Random(seed))
        stage.conf = (
            "--conf", "spark.speculation=true", "--conf", "spark.speculation.multiplier=1.1",
            "--conf", "spark.speculation.quantile=0.3", "--conf", "spark.speculation.interval=50ms",
        )  # fmt: skip
        check(stage, stage.run(nothing), repeats_tasks=True)

    @pytest.mark.skipif(not FAKETIME, reason="faketime is not installed")
    @pytest.mark.parametrize("off_s", [-30, 30])
    def test_nor_where_the_clocks_of_driver_and_deliverers_differ__S4(
        cluster: Cluster, tmp_path: Path, seed: int, off_s: int
    ) -> None:
        stage = Stage(cluster, tmp_path, random.Random(seed), off_s)
        check(stage, stage.run(nothing))

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root makes networks")
    @pytest.mark.skipif(shutil.which("iptables") is None, reason="iptables is not installed")
    def test_nor_where_packets_are_dropped__S3(cluster: Cluster, tmp_path: Path, seed: int, namespace: str) -> None:
        stage = Stage(cluster, tmp_path, random.Random(seed))
        stage.deliverers.append(Deliverer(stage, "c", namespace, ("ip", "netns", "exec", NAMESPACE)))
        check(stage, stage.run(network_cut))


def check(stage: Stage, given: Input, *, repeats_tasks: bool = False) -> None:
    """The files of the deliverers, against what was given; and how late they were while the fault lasted."""
    received = [one for deliverer in stage.deliverers for one in from_ndjson(deliverer.out)]
    assert given.load.problems(received, may_repeat=True) == []
    lines = {one: [*whole_lines(one.out)] for one in stage.deliverers}
    assert all(line["lateness_ms"] >= 0 for found in lines.values() for line in found)
    letters = Counter(line["reason"] for one in stage.deliverers for line in whole_lines(one.dead))
    assert sum(letters[it] for it in letters if it.startswith("due is missing")) >= given.broken  # some given again
    assert repeats_tasks or letters["due is missing"] <= given.broken
    late: list[float] = sorted(
        line["lateness_ms"] for one in stage.deliverers if one not in stage.touched for line in lines[one]
        if (line["key"], line["id"]) not in given.delayed
    )  # fmt: skip
    of = ", ".join(f"{name} {value:.1f}" for name, value in percentiles(late).items()) if late else "none"
    repeats = len(received) - len({one.name for one in received})
    lasted_s = stage.fault[1] - stage.fault[0]
    print(f"{len(received):,} came, {repeats:,} repeats; fault of {lasted_s:.1f} s; late elsewhere, in ms: {of}")


# --- What it runs on ------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three workers. In the long form the deliverers go before them, as if they were on hosts of their own: there what
    no fault touches is in time.
    """
    made = Cluster(tmp_path_factory.mktemp("cluster"), before=("nice", "-n", "19") if LONG else ())
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture
def seed() -> int:
    """The seed, printed so that a failed run can be repeated."""
    number = int(os.environ.get("TICKWHEEL_SEED") or random.SystemRandom().randrange(1 << 30))
    print(f"TICKWHEEL_SEED={number}")
    return number


@pytest.fixture
def namespace() -> Iterator[str]:
    """The address of a network of its own on this machine, whose packets can be dropped."""
    ends = f"tw{os.getpid() % 10_000}"
    _run("ip", "netns", "add", NAMESPACE)
    try:
        _run("ip", "link", "add", f"{ends}a", "type", "veth", "peer", "name", f"{ends}b", "netns", NAMESPACE)
        _run("ip", "addr", "add", "10.213.7.1/30", "dev", f"{ends}a")
        _run("ip", "link", "set", f"{ends}a", "up")
        _run("ip", "-n", NAMESPACE, "addr", "add", "10.213.7.2/30", "dev", f"{ends}b")
        _run("ip", "-n", NAMESPACE, "link", "set", f"{ends}b", "up")
        yield "10.213.7.2"
    finally:
        _run("ip", "netns", "del", NAMESPACE)


def inside(*command: str) -> None:
    _run("ip", "netns", "exec", NAMESPACE, *command)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
