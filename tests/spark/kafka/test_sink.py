"""The sink `kafka://BROKERS/TOPIC` with a real broker (rules D4 to D6, D10, S8)."""

import gc
import json
import random
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import confluent_kafka
import msgspec
import pytest

from delivery.sinks.making import batch, child_sending, delivery, kill_when_it_says, opened
from delivery.soak.load import Name, Received, make_load
from delivery.soak.test_kill import Victim, kill_often
from tickwheel.delivery import DeliveryQueue, Message
from tickwheel.delivery.base.errors import DeliveryFailed, Unavailable

from .broker import Broker, headers
from .jars import jars_of

pytestmark = pytest.mark.timeout(300)

DUE_MS = 1_700_000_000_000


@pytest.fixture
def up(broker: Broker) -> Iterator[Broker]:
    """For tests that stop or pause it: afterwards it runs again for the other tests."""
    yield broker
    broker.go_on()


def name_of(record: confluent_kafka.Message) -> Name:
    key = record.key()
    return None if key is None else bytes(key).decode(), headers(record)["tickwheel-id"].decode()


def seqs_by_key(records: list[confluent_kafka.Message]) -> dict[bytes | None, list[int]]:
    """The seqs of each key, in the order of its partition. Fails if a key is in two partitions."""
    found: dict[Any, list[int]] = defaultdict(list)
    where: dict[Any, int | None] = {}
    for record in records:
        found[record.key()].append(int(headers(record)["tickwheel-seq"]))
        assert where.setdefault(record.key(), record.partition()) == record.partition()
    return found


def first_of_each(seqs: list[int]) -> list[int]:
    return [*dict.fromkeys(seqs)]


def test_rows_arrive_each_once_as_they_were_given_and_in_order_per_key__D4_D5_D10(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    rng = random.Random(8)
    due_ms = time.time_ns() // 1_000_000 + 3_000  # after all are accepted: overdue messages are sent as they come
    messages = [
        Message(f"m{n}", f"key {rng.randrange(30)}", due_ms + rng.randrange(500), msgspec.Raw(b'{"n": %d}' % n))
        for n in range(3_000)
    ]
    odd = [Message("empty", None, DUE_MS, b""), Message("bytes", None, DUE_MS, b"\xff\0\n")]
    with DeliveryQueue(tmp_path / "s.db", to=broker.new_topic(topic)) as queue:
        queue.put_many([*messages, *odd])
        assert time.time_ns() // 1_000_000 < due_ms
        assert queue.wait_until_empty(120)
        assert (queue.summary.delivered, queue.summary.dead_letters) == (3_002, 0)
    records = broker.records(topic)
    came = {name_of(record): record.value() for record in records}
    assert len(records) == 3_002
    assert came == {(it.key, it.id): bytes(it.payload) for it in [*messages, *odd]}
    assert {record.partition() for record in records} == {0, 1, 2, 3}
    order = defaultdict(list)
    for n, message in enumerate(messages):
        order[message.key].append((message.due_ms, n, message.id))
    for key, expected in order.items():
        found = [name_of(record)[1] for record in records if name_of(record)[0] == key]
        assert found == [id_ for _, _, id_ in sorted(expected)]


def test_a_key_is_where_kafkas_own_client_puts_it__D10(broker: Broker, topic: str, tmp_path: Path) -> None:
    """The hashes are from Kafka's own tests (murmur2 of these bytes)."""
    hashes = {"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536, "abc": 479470107}
    with DeliveryQueue(tmp_path / "s.db", to=broker.new_topic(topic)) as queue:
        queue.put_many([Message("m", key, DUE_MS, b"") for key in hashes])
        assert queue.wait_until_empty(60)
    found = {name_of(record)[0]: record.partition() for record in broker.records(topic)}
    assert found == {key: (number & 0x7FFFFFFF) % 4 for key, number in hashes.items()}


def test_killed_again_and_again_it_loses_nothing_and_does_not_repeat_what_is_in_the_topic__D5_D10(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    """After a new start every record is found in the tail, whether its delivery was committed or not."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    load = make_load(4_000, seed=seed, keys=200, span_ms=3_600_000)
    to = broker.new_topic(topic)

    def end() -> dict[int, int]:
        return {it.partition() or 0: (it.offset() or 0) + 1 for it in broker.records(topic)}

    def names(records: list[confluent_kafka.Message]) -> set[Name]:
        return {name_of(record) for record in records}

    victim = Victim(tmp_path, to, load, seconds=5, arrived=end)
    at_kill: list[dict[int, int]] = []
    kill_often(victim, random.Random(seed), 6, lambda: at_kill.append(end()))
    records = broker.records(topic)
    # A message without a key may be repeated in another partition, where only its time shows which was first.
    keyed = [it for it in records if it.key() is not None]
    in_order = keyed + sorted((it for it in records if it.key() is None), key=lambda it: it.timestamp()[1])
    received = [
        Received(name_of(it), headers(it)["tickwheel-redelivered"] == b"true", json.loads(it.value() or b""))
        for it in in_order
    ]
    assert load.problems(received, may_repeat=True) == []
    only_in_the_topic = 0
    for before, committed in zip(at_kill, victim.committed, strict=False):
        there = names([it for it in records if (it.offset() or 0) < before.get(it.partition() or 0, 0)])
        later = names([it for it in records if (it.offset() or 0) >= before.get(it.partition() or 0, 0)])
        assert committed <= there, "committed as delivered, but not in the topic"
        assert not there & later, "sent again although it was in the topic"
        only_in_the_topic += len(there - committed)
    print(f"{len(victim.committed)} kills, {only_in_the_topic} were in the topic only")


def test_killed_after_the_send_it_is_found_in_the_topic__D5(broker: Broker, topic: str) -> None:
    to = broker.new_topic(topic)
    before = opened(to)
    position = before.position()
    before.close()
    kill_when_it_says(child_sending(to, range(100)), "sent")
    sink = opened(to)
    assert set(sink.arrived(batch(range(50, 200)), position)) == set(range(50, 100))
    assert list(sink.arrived(batch(range(50, 200)), sink.position())) == []
    sink.close()


def test_the_tail_is_read_though_its_begin_was_deleted_and_transactions_left_gaps__D5(
    broker: Broker, topic: str
) -> None:
    """The end of a transaction is a record that readers do not see, also as the last record of a partition."""
    to = broker.new_topic(topic, partitions=1)
    sink = opened(to)
    position = sink.position()
    sink.send(batch(range(10)))
    partition = confluent_kafka.TopicPartition(topic, 0, 5)
    admin = broker.admin()
    [deleted] = admin.delete_records([partition]).values()
    deleted.result(30)
    other = confluent_kafka.Producer({"bootstrap.servers": broker.address, "transactional.id": topic, "log_level": 0})
    other.init_transactions(30)
    for ends in (other.commit_transaction, other.abort_transaction):
        other.begin_transaction()
        other.produce(topic, b"other")
        other.flush(30)
        ends(30)
    again = opened(to)
    assert set(again.arrived(batch(range(20)), position)) == set(range(5, 10))
    assert again.send(batch([11])) == {}
    again.close()
    sink.close()


def test_a_broker_that_stands_still_fails_the_send_in_time_and_the_next_one_is_in_order__D4_D6(
    up: Broker, topic: str
) -> None:
    """A record in flight may be in the topic twice; no copy comes after records that were sent later."""
    sink = opened(up.new_topic(topic), timeout_s=3.0)
    assert sink.send([delivery(seq, key=f"k{seq % 10}") for seq in range(10)]) == {}
    up.pause()
    refused = sink.send([delivery(seq, key=f"k{seq % 10}") for seq in range(10, 20)])
    assert refused.keys() == set(range(10))
    up.go_on()
    for begin in (10, 20, 30):
        rest = {seq: delivery(seq, key=f"k{seq % 10}") for seq in range(begin, begin + 10)}
        while rest:  # until all of these have arrived, like the deliverer
            given = [*rest.values()]
            refused = sink.send(given)
            rest = {given[place].seq: given[place] for place in refused}
    sink.close()
    found = seqs_by_key(up.records(topic))
    assert len(found) == 10
    for key, seqs in found.items():
        n = int((key or b"")[1:])
        assert first_of_each(seqs) == [n, n + 10, n + 20, n + 30]
        assert len(seqs) - 4 <= 1, "one attempt had no answer"
        assert seqs == sorted(seqs), "a late copy came behind later records"


def test_a_broker_that_was_shut_down_is_told_by_the_next_send__D6(up: Broker, topic: str) -> None:
    """And not after the time-out, as the connection was lost before."""
    sink = opened(up.new_topic(topic), timeout_s=60)
    assert sink.send(batch([1])) == {}
    up.stop()
    for _ in range(2):
        began_s = time.monotonic()
        with pytest.raises(Unavailable):
            sink.send(batch([2]))
        assert time.monotonic() - began_s < 30
    up.start()
    assert sink.send(batch([2])) == {}
    sink.close()
    assert sorted(int(headers(it)["tickwheel-seq"]) for it in up.records(topic)) == [1, 2]


@pytest.mark.parametrize("how", ["shut down", "standing still"])
def test_a_broker_that_is_away_for_a_while_costs_no_message_and_gets_every_one_in_order__D4_D6(
    up: Broker, topic: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    caplog.set_level("WARNING", logger="tickwheel.delivery")
    keys = 20
    to = up.new_topic(topic)
    due_ms = time.time_ns() // 1_000_000 + 500
    with DeliveryQueue(tmp_path / "s.db", to=to, sink_timeout_s=2.0) as queue:
        queue.put_many([Message(f"m{n}", f"key {n % keys}", due_ms + n, b"%d" % n) for n in range(3_000)])
        while queue.summary.delivered < 300:
            assert not queue.wait_until_empty(0.001)
        up.stop() if how == "shut down" else up.pause()
        while not told(caplog):
            assert not queue.wait_until_empty(0.01)
        assert not queue.wait_until_empty(3), "it is away"
        up.go_on()
        assert queue.wait_until_empty(120)
        assert (queue.summary.delivered, queue.summary.dead_letters) == (3_000, 0)
    assert told(caplog)[0].startswith("the destination is down: ")
    assert told(caplog)[-1].startswith("the destination is up again")
    assert len(told(caplog)) == 2 or how == "standing still"
    records = up.records(topic)
    assert len({name_of(record) for record in records}) == 3_000
    found = seqs_by_key(records)
    assert len(found) == keys
    assert all(seqs == sorted(seqs) for seqs in found.values()), "a late copy came behind later records"
    attempts = [int(headers(record)["tickwheel-attempt"]) for record in records]
    assert max(attempts) > 1, "some were tried while it was away"


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The outages in the log."""
    return [text for record in caplog.records if (text := record.getMessage()).startswith("the destination is ")]


def test_small_records_are_taken_where_all_of_them_together_are_too_large__D6(broker: Broker, topic: str) -> None:
    """A topic's limit may be smaller than a producer's request."""
    sink = opened(broker.new_topic(topic, partitions=1, config={"max.message.bytes": "20000"}))
    given = [delivery(seq, payload=b"x" * 1_000) for seq in range(100)]
    given[30] = delivery(30, payload=b"x" * 30_000)
    refused = sink.send(given)
    assert list(refused) == [30]
    assert "MSG_SIZE_TOO_LARGE" in refused[30]
    assert sink.send([delivery(100)]) == {}
    sink.close()
    found = [int(headers(it)["tickwheel-seq"]) for it in broker.records(topic)]
    # A send has one message of a key at most, so its own order is not promised.
    assert sorted(found) == [seq for seq in range(101) if seq != 30]
    assert found[-1] == 100, "the next send comes behind it"


def test_a_topic_that_is_not_there_is_told_and_not_made__D10(broker: Broker, topic: str) -> None:
    """Although this broker creates a topic at any client's request."""
    with pytest.raises(DeliveryFailed, match="UNKNOWN_TOPIC_OR_PART"):
        opened(f"kafka://{broker.address}/{topic}")
    assert topic not in broker.admin().list_topics(timeout=30).topics


def test_a_topic_that_is_deleted_during_a_run_is_not_made_and_all_arrive_once_it_is_there_again__D6_D10(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    """Although this broker creates a topic at any client's request."""
    messages = [Message(f"m{n}", f"key {n % 20}", DUE_MS, b"%d" % n) for n in range(200)]
    to = broker.new_topic(topic)
    with DeliveryQueue(tmp_path / "s.db", to=to, max_attempts=1, backoff_s=(0.1, 0.5), sink_timeout_s=5) as queue:
        queue.put_many(Message(f"first {n}", f"key {n}", DUE_MS, b"") for n in range(20))
        assert queue.wait_until_empty(60)
        admin = broker.admin()
        [deleted] = admin.delete_topics([topic]).values()
        deleted.result(30)
        queue.put_many(messages)
        while queue._running.engine.down is None:
            assert not queue.wait_until_empty(0.01)
        assert topic not in admin.list_topics(timeout=30).topics
        broker.new_topic(topic)
        assert queue.wait_until_empty(120)
        assert (queue.summary.delivered, queue.summary.dead_letters) == (220, 0)
    records = broker.records(topic)
    assert {name_of(record) for record in records} == {(it.key, it.id) for it in messages}
    assert {record.partition() for record in records} == {0, 1, 2, 3}
    assert all(seqs == sorted(seqs) for seqs in seqs_by_key(records).values())


def connections_to(port: int) -> int:
    """How many sockets of this process are connected to this port."""
    own = set()
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # it was closed meanwhile
            own.add(str(entry.readlink()))
    lines = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    return sum(line[2].endswith(f":{port:04X}") and f"socket:[{line[9]}]" in own for line in lines)


def test_a_connection_that_a_broker_closed_while_idle_costs_no_attempt_and_no_mark__D6(
    tmp_path: Path, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker(tmp_path, jars_of("broker"), "connections.max.idle.ms=1000\n")
    try:
        broker.start()
        to = broker.new_topic(topic)
        gc.collect()  # closes the connections of the test
        with DeliveryQueue(tmp_path / "s.db", to=to, max_attempts=1) as queue:
            queue.put("first", "k", delay_ms=0)
            assert queue.wait_until_empty(60)
            while connections_to(int(broker.address.rpartition(":")[2])):
                time.sleep(0.01)
            queue.put_many(Message(f"m{n}", f"key {n}", DUE_MS, b"") for n in range(100))
            assert queue.wait_until_empty(60)
            assert (queue.summary.delivered, queue.summary.dead_letters) == (101, 0)
        assert {headers(it)["tickwheel-attempt"] for it in broker.records(topic)} == {b"1"}
        assert {headers(it)["tickwheel-redelivered"] for it in broker.records(topic)} == {b"false"}
        assert not caplog.records, "no key failed, and nothing was down"
    finally:
        broker.kill()
