"""The program for clusters reads a real Kafka topic, a bounded part at a time, on a local master (S1, S3, D13)."""

import json
import re
import signal
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import confluent_kafka
import pytest

from ..cluster import Cluster
from .broker import Broker
from .jars import jars_of

pytestmark = pytest.mark.timeout(300)

MESSAGES = 450


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Cluster]:
    """Starts processes and ends them; it has no master."""
    made = Cluster(tmp_path, workers=0)
    yield made
    made.stop()


def test_a_topic_is_read_in_bounded_parts_and_sigterm_ends_it__S1_S3_D13(
    broker: Broker, topic: str, processes: Cluster, tmp_path: Path
) -> None:
    broker.new_topic(topic, 2)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.address, "log_level": 0})
    due_ms = time.time_ns() // 1_000_000 + 40_000
    for n in range(MESSAGES):
        producer.produce(topic, json.dumps({"id": f"m{n}", "key": f"k{n % 9}", "due": due_ms + n}), f"k{n % 9}")
    assert producer.flush(30) == 0
    tickwheel = [sys.executable, "-m", "tickwheel.cli"]
    ports = ["--listen", "127.0.0.1:0", "--flight", "127.0.0.1:0"]
    serve = processes.run([*tickwheel, "serve", "--store", "s.db", "--to", "file:out", *ports], name="serve")
    flight = serve.found(r"grpc\S*://(127\.0\.0\.1:\d+)")[1]
    jars = ",".join(map(str, sorted(jars_of("connector").glob("*.jar"))))
    settings = [part for it in processes.settings.items() for part in ("--conf", "=".join(it))]
    driver = processes.run(
        [*tickwheel, "spark-submit", "--master", "local[2]", *settings, "--jars", jars,
         "--conf", "spark.sql.shuffle.partitions=2", "--", f"kafka://{broker.address}/{topic}", "--intake-rows", "100",
         "--deliverer", flight, "--checkpoint", str(tmp_path / "checkpoint")],
        name="driver",
    )  # fmt: skip
    driver.found("lead 20 s")
    serve_out = tmp_path / "out"
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
