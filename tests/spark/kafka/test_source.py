"""From a real Kafka topic through Spark to a deliverer; Spark is stopped in the middle and started again.

The job runs once, and then each promise is tested by itself (rules D1 to D5, D7, S1, S3, S4, S8). With TICKWHEEL_SOAK=1
Spark is killed as well.
"""

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
import pytest

from tickwheel.delivery import Delivery, DeliveryQueue, Letter
from tickwheel.delivery.model.summary import Summary
from tickwheel.delivery.serve.tokens import Right, Tokens

from ..ports import port_of
from .broker import Broker
from .jars import jars_of

IS_SOAK = os.environ.get("TICKWHEEL_SOAK") == "1"
pytestmark = pytest.mark.timeout(1200 if IS_SOAK else 600)  # mostly for Spark's starts

Name = tuple[str | None, str]

PARTITIONS = 3
KEYS = 25
MESSAGES = 4_000 if IS_SOAK else 1_500
TOKEN = "a token of this test"
SPAN_MS = 3_000


class Batch(NamedTuple):
    """A micro-batch: how many records it read, and how many messages are held after it."""

    read: int
    held: int


@dataclass
class Run:
    """What was written to the topic, and the results."""

    given: dict[Name, dict[str, Any]] = field(default_factory=dict)
    cancelled: set[Name] = field(default_factory=set)
    duplicates: int = 0
    broken: dict[tuple[str, int], bytes | None] = field(default_factory=dict)
    came: list[Delivery] = field(default_factory=list)
    letters: list[Letter] = field(default_factory=list)
    records: int = 0
    first_ms: int = 0
    read_ms: int = 0
    batches: list[list[Batch]] = field(default_factory=list)
    summary: Summary | None = None


class Topic:
    """Writes to a topic, and knows the offset of each record once it is written."""

    def __init__(self, broker: Broker, name: str) -> None:
        self._name = name
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": broker.address, "transactional.id": "w", "log_level": 0}
        )
        self._producer.init_transactions(30)
        self.bad: dict[tuple[str, int], bytes | None] = {}

    def write(self, records: list[tuple[str | None, bytes | None, bool]]) -> None:
        """Write records, each as key, value, and whether it is broken, in one transaction."""
        self._producer.begin_transaction()
        for key, value, is_broken in records:
            self._producer.produce(self._name, value, key, on_delivery=self._note if is_broken else None)
        self._producer.commit_transaction(30)

    def write_in_vain(self, value: bytes) -> None:
        """Write in a transaction that is then aborted."""
        self._producer.begin_transaction()
        for partition in range(PARTITIONS):
            self._producer.produce(self._name, value, partition=partition)
        self._producer.flush(30)
        self._producer.abort_transaction(30)

    def _note(self, error: object, message: confluent_kafka.Message) -> None:
        assert error is None
        self.bad[f"kafka/{self._name}/{message.partition()}", message.offset() or 0] = message.value()


def give(run: Run, topic: Topic, seed: int, first_ms: int) -> None:
    """Messages, duplicates, cancels and broken records. The record's key is the message's key, so all messages of a key
    are in one partition. Some are overdue, the others are due from `first_ms` on.
    """
    rng = random.Random(seed)
    now_ms = time.time_ns() // 1_000_000
    records: list[tuple[str | None, bytes | None, bool]] = []
    for number in range(MESSAGES):
        key = None if rng.random() < 0.1 else f"key {rng.randrange(KEYS)}"
        # Many messages of a key are due in the same millisecond, so that only their offsets give the order.
        due_ms = now_ms - 1_000 if rng.random() < 0.05 else first_ms + rng.randrange(0, SPAN_MS, 50)
        record = {"id": f"m{number}", "key": key, "due": due_ms, "payload": {"n": number}}
        line = json.dumps(record).encode()
        run.given[key, f"m{number}"] = record
        records.append((key, line, False))
        if rng.random() < 0.05:
            records.append((key, line, False))
            run.duplicates += 1
        if rng.random() < 0.03 and due_ms > now_ms:
            records.append((key, json.dumps({"id": f"m{number}", "key": key, "op": "cancel"}).encode(), False))
            run.cancelled.add((key, f"m{number}"))
        if rng.random() < 0.01:
            records.append((key, rng.choice([b'{"id": "no due"}', b"\xff", None, b"{}\n{}"]), True))
    run.first_ms = first_ms
    run.records = len(records)
    half = len(records) // 2
    topic.write(records[:half])
    topic.write_in_vain(json.dumps({"id": "taken back", "due": now_ms}).encode())
    topic.write(records[half:])
    run.broken = topic.bad


@contextmanager
def deliverer(run: Run, store: Path) -> Iterator[tuple[DeliveryQueue, str]]:
    """A queue with a port, which records its deliveries in `run`."""
    lock = threading.Lock()

    def take(delivery: Delivery) -> None:
        with lock:
            run.came.append(delivery)

    tokens = Tokens({TOKEN.encode(): Right.HAND_OFF})
    with (
        DeliveryQueue(store, to=take, on_dead_letter=run.letters.append) as queue,
        port_of(queue, tokens) as at,
    ):
        yield queue, at


@contextmanager
def driver(arguments: list[str]) -> Iterator["subprocess.Popen[str]"]:
    """The query's process, in a group of its own with its JVM and workers; all of them are ended."""
    command = [sys.executable, str(Path(__file__).with_name("job.py")), *arguments]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, start_new_session=True, **pipes) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            kill(process)


def stop(process: "subprocess.Popen[str]") -> None:
    """`query.stop()`, at any moment."""
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(180) == 0


def kill(process: "subprocess.Popen[str]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def batches(process: "subprocess.Popen[str]", until: Callable[[Batch], bool]) -> list[Batch]:
    """The next micro-batches, up to and including the first for which `until` is true."""
    assert process.stdout is not None
    found: list[Batch] = []
    for line in process.stdout:
        print(line, end="")
        match = re.fullmatch(r"batch: (\d+) read, (\d+) held\n", line)
        if match:
            found.append(Batch(int(match[1]), int(match[2])))
            if until(found[-1]):
                return found
    raise AssertionError(f"the query ended by itself, after {found}")


@pytest.fixture(scope="module")
def run(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Run:
    made = Run()
    folder = tmp_path_factory.mktemp("source")
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    jars = ",".join(str(it) for it in sorted(jars_of("connector").glob("*.jar")))
    broker.new_topic("in", PARTITIONS)
    with deliverer(made, folder / "s.db") as (queue, at):
        topic = Topic(broker, "in")
        first = {"id": "first", "key": None, "due": 100_000_000_000, "payload": {"n": -1}}
        made.given[None, "first"] = first
        topic.write([(None, json.dumps(first).encode(), False)])
        arguments = [jars, broker.address, "in", at, TOKEN, str(folder / "checkpoint")]
        began_s = time.monotonic()
        ends = [stop, kill, kill] if IS_SOAK else [stop]
        for end in ends:
            with driver(arguments) as process:
                if not made.records:
                    batches(process, lambda it: it.read > 0)
                    takes_s = time.monotonic() - began_s  # the time of a start on this machine with its present load
                    first_ms = time.time_ns() // 1_000_000 + round(len(ends) * (4 * takes_s + 30) * 1_000)
                    give(made, topic, seed, first_ms)
                made.batches.append(batches(process, lambda it: it.read > 0))
                end(process)
        with driver(arguments) as process:
            made.batches.append(batches(process, lambda it: it.read > 0))
            made.batches[-1] += batches(process, lambda it: it.read == 0)
            made.read_ms = time.time_ns() // 1_000_000
            made.batches[-1] += batches(process, lambda it: it.held == 0)
            assert queue.wait_until_empty(60)
            stop(process)
        made.summary = queue.summary
    print(f"{takes_s:.0f} s to start, {time.monotonic() - began_s:.0f} s in all")
    return made


def test_nothing_is_lost_and_each_comes_once_as_it_was_given__D1_D5_S4(run: Run) -> None:
    came = {(it.message.key, it.message.id): it for it in run.came}
    assert came.keys() == run.given.keys() - run.cancelled
    assert len(run.came) == len(came)
    assert all(json.loads(bytes(it.message.payload)) == run.given[name]["payload"] for name, it in came.items())


def test_nothing_is_early__D3(run: Run) -> None:
    assert all(it.delivered_at_ms >= it.message.due_ms for it in run.came)
    assert all(it.lateness_us >= 0 for it in run.came)


def test_the_messages_of_a_key_come_in_order_of_due_time_and_offset__D4_S8(run: Run) -> None:
    """Except messages overdue when they were read, which are sent as they come."""
    assert run.read_ms < run.first_ms, "Spark was too slow for this test"
    orders = defaultdict(list)
    for it in run.came:
        if it.message.key is not None and it.message.due_ms >= run.first_ms:
            orders[it.message.key].append((it.message.due_ms, json.loads(bytes(it.message.payload))["n"]))
    assert len(orders) == KEYS
    assert all(order == sorted(order) for order in orders.values())
    assert any(one[0] == other[0] for order in orders.values() for one, other in pairwise(order))


def test_duplicates_and_cancels_are_counted__D5_D7(run: Run) -> None:
    assert run.summary is not None
    assert run.summary.accepted == len(run.given)
    assert run.summary.delivered == len(run.given) - len(run.cancelled)
    assert run.summary.cancelled == len(run.cancelled) > 0
    assert run.summary.duplicates >= run.duplicates > 0, "an interrupted micro-batch is handed off again"


def test_a_broken_record_is_a_dead_letter_with_its_partition_and_offset__D2_S8(run: Run) -> None:
    letters = {(it.source, it.line): it for it in run.letters}
    assert {at: it.record for at, it in letters.items()} == {at: value or b"" for at, value in run.broken.items()}
    assert {source for source, _ in letters} <= {f"kafka/in/{partition}" for partition in range(PARTITIONS)}
    assert all(it.reason and it.allowed for it in run.letters)


def test_offsets_and_state_were_committed_together_and_it_went_on_where_it_was__S8(run: Run) -> None:
    """No start read everything again, each start read some records, and in the end nothing was held."""
    *others, last = run.batches
    before = sum(it.read for one in others for it in one)
    assert all(sum(it.read for it in one) > 0 for one in others)
    assert 0 < sum(it.read for it in last) <= run.records - before
    assert last[0].held > 0
    assert last[-1].held == 0
