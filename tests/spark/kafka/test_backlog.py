"""Messages that are held come in time while a backlog of a Kafka topic is read (S3): that of an hour at 5,000/s in the
long form (`make soak`), and some ten thousand records in the short one.
"""

import os
import re
import time
import urllib.request
from collections.abc import Iterator

import confluent_kafka
import pytest

from delivery.soak.load import whole_lines
from tickwheel.delivery.model.summary import percentiles

from ..cluster import Cluster, wait_for
from .broker import Broker
from .program import start

LONG = os.environ.get("TICKWHEEL_SOAK") == "1"
pytestmark = pytest.mark.timeout(2_400 if LONG else 300)

HELD = 20_000 if LONG else 2_000
BACKLOG = 18_000_000 if LONG else 60_000
SPAN_S = 240 if LONG else 20
READ_ROWS = 100_000 if LONG else 5_000
"""In a micro-batch; the long form has the program's own bound."""
DAY_MS = 86_400_000


def test_held_messages_come_in_time_while_a_backlog_is_read__S3(broker: Broker, topic: str, processes: Cluster) -> None:
    broker.new_topic(topic, 2)
    options = ("--source-option", f"maxOffsetsPerTrigger={READ_ROWS}", "--metrics", "127.0.0.1:0")
    driver, out = start(processes, broker, topic, *options, spark_driver_memory="1g")
    port = driver.found(r"metrics are at port (\d+)")[1]
    metrics = f"http://127.0.0.1:{port}/metrics"
    first_ms = time.time_ns() // 1_000_000 + 60_000
    names = [("held", n, first_ms + n * SPAN_S * 1_000 // HELD) for n in range(HELD)]
    put(broker, topic, names)
    wait_for(lambda: measured(metrics, "read_rows_total") >= HELD, driver)
    time.sleep(max(0.0, first_ms / 1_000 - time.time()))
    began_s = time.monotonic()
    put(broker, topic, (("far", n, first_ms + DAY_MS + n % DAY_MS) for n in range(BACKLOG)))
    put_s = time.monotonic() - began_s
    wait_for(lambda: measured(metrics, "read_rows_total") >= HELD + BACKLOG, driver, 1_800 if LONG else 150)
    read_s, ended_ms = time.monotonic() - began_s, time.time() * 1000
    wait_for(lambda: out.exists() and out.read_bytes().count(b"\n") >= HELD, driver, SPAN_S + 150)
    lines = [*whole_lines(out)]
    assert sorted(line["id"] for line in lines) == sorted(f"held {n}" for n in range(HELD)), "each once"
    late = sorted(line["lateness_ms"] for line in lines)
    assert late[0] >= 0
    meanwhile = sum(due_ms < ended_ms for _, _, due_ms in names)
    took_s = max(float(found) for found in re.findall(r"micro-batch \d+ took ([\d.]+) s", driver.output()))
    of = ", ".join(f"{name} {value:.1f}" for name, value in percentiles(late).items())
    print(
        f"{BACKLOG:,} records put in {put_s:.0f} s and read in {read_s:.0f} s; {meanwhile:,} of {HELD:,} messages were "
        f"due meanwhile; late, in ms: {of}; the longest micro-batch that the log has: {took_s} s"
    )
    assert meanwhile > HELD // 10, "the backlog was read before messages were due"


def put(broker: Broker, topic: str, messages: "Iterator[tuple[str, int, int]] | list[tuple[str, int, int]]") -> None:
    """Write messages to a topic."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": broker.address,
            "log_level": 0,
            "linger.ms": 50,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    for kind, n, due_ms in messages:
        key = f"k{n % 5_000}"
        value = f'{{"id":"{kind} {n}","key":"{key}","due":{due_ms},"payload":1}}'
        while True:
            try:
                producer.produce(topic, value, key)
                break
            except BufferError:
                producer.poll(0.1)
        if n % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0


def measured(url: str, name: str) -> float:
    """A metric of the query."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        found = re.search(rf"^tickwheel_spark_{name} (\S+)", answer.read().decode(), re.MULTILINE)
    return float(found[1]) if found else 0.0
