"""A topic that was deleted and made anew, or whose records were deleted before they were read (rules S4, D2)."""

import json
import time
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from ..cluster import Cluster, Process
from .broker import Broker
from .program import drive, serve

pytestmark = pytest.mark.timeout(400)


def put(broker: Broker, topic: str, ids: list[str], due_ms: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.address, "log_level": 0})
    for id_ in ids:
        producer.produce(topic, json.dumps({"id": id_, "due": due_ms}))
    assert producer.flush(30) == 0


def held(driver: Process, count: int) -> None:
    driver.found(rf" {count} held, ")
    assert driver.popen is not None
    driver.popen.terminate()
    assert driver.wait() == 0, driver.output()


def came(out: Path, ids: set[str], driver: Process) -> None:
    deadline_s = time.monotonic() + 150
    while not out.exists() or {json.loads(line)["id"] for line in out.read_text().splitlines()} != ids:
        assert driver.popen is not None
        assert driver.popen.poll() is None, driver.output()
        assert time.monotonic() < deadline_s, driver.output()
        time.sleep(0.1)
    driver.popen.terminate()
    assert driver.wait() == 0, driver.output()


def test_a_topic_that_was_made_anew_is_refused_and_what_is_held_stays_held__S4(
    broker: Broker, topic: str, processes: Cluster
) -> None:
    broker.new_topic(topic, 1)
    hour_ms = time.time_ns() // 1_000_000 + 3_600_000
    put(broker, topic, [f"before {n}" for n in range(5)], hour_ms)
    at, _ = serve(processes)
    held(drive(processes, at, broker, topic, name="1"), 5)
    admin = broker.admin()
    for deleted in admin.delete_topics([topic]).values():
        deleted.result(30)
    while topic in admin.list_topics(timeout=30).topics:
        continue
    broker.new_topic(topic, 1)
    put(broker, topic, [f"after {n}" for n in range(8)], time.time_ns() // 1_000_000)
    driver = drive(processes, at, broker, topic, name="2")
    assert driver.wait() == 2, driver.output()
    assert "the input is not the one that the checkpoint" in driver.output()
    held(drive(processes, at, broker, topic, "--changed-source", name="3"), 5)


def test_records_that_were_deleted_before_they_were_read_are_told_by_their_offsets__S4(
    broker: Broker, topic: str, processes: Cluster
) -> None:
    broker.new_topic(topic, 1)
    put(broker, topic, ["first"], time.time_ns() // 1_000_000 + 3_600_000)
    at, out = serve(processes)
    held(drive(processes, at, broker, topic, name="1"), 1)
    put(broker, topic, [f"m{n}" for n in range(4)], time.time_ns() // 1_000_000)
    admin = broker.admin()
    for deleted in admin.delete_records([TopicPartition(topic, 0, 3)]).values():
        deleted.result(30)
    driver = drive(processes, at, broker, topic, name="2")
    assert driver.wait() == 2, driver.output()
    assert "has lost records that were not read, offsets 1 to 2 of partition 0" in driver.output()
    assert "failOnDataLoss=false" in driver.output()
    driver = drive(processes, at, broker, topic, "--source-option", "failOnDataLoss=false", name="3")
    driver.found("offsets 1 to 2 of partition 0: these messages are lost")
    came(out, {"m2", "m3"}, driver)
