"""The program for clusters reads a real Kafka topic, a bounded part at a time, on a local master (S1, S3, D13)."""

import json
import re
import signal
import time
from itertools import pairwise
from pathlib import Path

import confluent_kafka
import pytest

from ..cluster import Cluster
from .broker import Broker
from .program import start

pytestmark = pytest.mark.timeout(300)

MESSAGES = 450


def test_a_topic_is_read_in_bounded_parts_and_sigterm_ends_it__S1_S3_D13(
    broker: Broker, topic: str, processes: Cluster, tmp_path: Path
) -> None:
    broker.new_topic(topic, 2)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.address, "log_level": 0})
    due_ms = time.time_ns() // 1_000_000 + 40_000
    for n in range(MESSAGES):
        producer.produce(topic, json.dumps({"id": f"m{n}", "key": f"k{n % 9}", "due": due_ms + n}), f"k{n % 9}")
    assert producer.flush(30) == 0
    driver, serve_out = start(processes, broker, topic, "--source-option", "maxOffsetsPerTrigger=100")
    driver.found("lead 20 s")
    driver.found(r"\d held, ")
    deadline_s = time.monotonic() + 150
    while not serve_out.exists() or len(serve_out.read_text().splitlines()) < MESSAGES:
        assert driver.popen is not None
        assert driver.popen.poll() is None, driver.output()
        assert time.monotonic() < deadline_s, driver.output()
        time.sleep(0.1)
    driver.popen.send_signal(signal.SIGTERM)  # to the JVM
    assert driver.wait() == 0, driver.output()
    assert re.search(r"^\s+at [\w.$]+\(|Traceback", driver.output(), re.MULTILINE) is None, driver.output()
    assert sorted(json.loads(line)["id"] for line in serve_out.read_text().splitlines()) == sorted(
        f"m{n}" for n in range(MESSAGES)
    )
    offsets = [json.loads(file.read_text().splitlines()[2]) for file in sorted_offsets(tmp_path)]
    read = [sum(it[topic].values()) for it in offsets]
    assert read[0] <= 100, "the first micro-batch"
    assert max(read) == MESSAGES
    assert all(after - before <= 100 for before, after in pairwise(read))


def sorted_offsets(folder: Path) -> list[Path]:
    """The offsets of each micro-batch, in order."""
    return sorted((folder / "checkpoint" / "query" / "offsets").glob("[0-9]*"), key=lambda it: int(it.name))
