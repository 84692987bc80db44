"""Tests with the broker inside librdkafka, which has the real protocol on a real port, but stores nothing on disk."""

import ctypes
import itertools
import json
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import msgspec
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from delivery.sinks.making import MIB, ODD_IDS, batch, child_sending, delivery, kill_when_it_says, opened
from tickwheel.delivery import DeliveryQueue
from tickwheel.delivery.base.errors import DeliveryFailed, Unanswered, Unavailable, WrongUsage
from tickwheel.delivery.model.message import Message
from tickwheel.delivery.sinks import Delivery, Sink, kafka, open_sink

pytestmark = pytest.mark.timeout(120)

_numbers = itertools.count()


@pytest.fixture(scope="module")
def cluster() -> Producer:
    """Two brokers, which exist as long as this producer."""
    return Producer({"test.mock.num.brokers": 2, "log_level": 0})


@pytest.fixture
def spec(cluster: Producer) -> str:
    """The address of a new, empty topic with four partitions."""
    topic = f"topic{next(_numbers)}"
    brokers = cluster.list_topics(topic, timeout=20).brokers.values()
    while cluster.list_topics(topic, timeout=20).topics[topic].error is not None:
        continue
    return f"kafka://{','.join(f'{broker.host}:{broker.port}' for broker in brokers)}/{topic}"


@pytest.fixture
def sink(spec: str) -> Iterator[Sink]:
    sink = opened(spec)
    yield sink
    sink.close()


def records(spec: str) -> list[confluent_kafka.Message]:
    """All records, partition by partition."""
    brokers, _, topic = spec.partition("//")[2].partition("/")
    settings = {"bootstrap.servers": brokers, "group.id": "test", "enable.partition.eof": True, "log_level": 0}
    consumer = Consumer({**settings, "fetch.wait.max.ms": 20})
    partitions = consumer.list_topics(topic, timeout=20).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    found = []
    ended = 0
    while ended < len(partitions):
        message = consumer.poll(20)
        assert message is not None
        error = message.error()
        if error is None:
            found.append(message)
        else:
            assert error.code() == KafkaError._PARTITION_EOF
            ended += 1
    consumer.close()
    return sorted(found, key=lambda message: (message.partition() or 0, message.offset() or 0))


def headers(message: confluent_kafka.Message) -> dict[str, bytes]:
    return dict(message.headers() or ())  # type: ignore[arg-type]


def seqs(spec: str) -> list[int]:
    return sorted(int(headers(message)["tickwheel-seq"]) for message in records(spec))


@pytest.mark.parametrize(
    "payload", [msgspec.Raw(b'{"x": 1.50}'), b"", b"\xff\0\n", msgspec.Raw(b'"\xff"'), b"\xff" * MIB]
)
def test_a_payload_comes_out_byte_for_byte__D1(spec: str, sink: Sink, payload: msgspec.Raw | bytes) -> None:
    assert sink.send([delivery(5, "a", payload, redelivered=True)]) == {}
    (message,) = records(spec)
    assert (message.key(), message.value() or b"") == (b"k", bytes(payload))
    assert headers(message) == {
        "tickwheel-id": b"a",
        "tickwheel-digest": delivery(5, "a").digest.hex().encode(),
        "tickwheel-store": b"store",
        "tickwheel-seq": b"5",
        "tickwheel-attempt": b"1",
        "tickwheel-due": b"2023-11-14T22:13:20.000Z",
        "tickwheel-redelivered": b"true",
    }


def test_a_record_names_its_tenant__D24(spec: str, sink: Sink) -> None:
    assert sink.send([delivery(1, tenant="acme"), delivery(2)]) == {}
    assert [headers(it).get("tickwheel-tenant") for it in records(spec)] == [b"acme", None]


def test_any_id_and_key_is_kept_as_it_is__D1(spec: str, sink: Sink) -> None:
    odd = [*ODD_IDS, "nul\0byte"]
    assert sink.send([delivery(seq, id_, key=id_) for seq, id_ in enumerate(odd)]) == {}
    found = {(headers(message)["tickwheel-id"], message.key()) for message in records(spec)}
    assert found == {(id_.encode(), id_.encode()) for id_ in odd}


def test_no_key_is_no_key__D1(spec: str, sink: Sink) -> None:
    assert sink.send([delivery(key=None), delivery(2, key="")]) == {}
    assert {message.key() for message in records(spec)} == {None, b""}


def test_records_of_one_key_are_in_order__D4(spec: str, sink: Sink) -> None:
    for seq in range(20):
        assert sink.send([delivery(seq, key="k"), delivery(100 + seq, key="l")]) == {}
    for key, expected in ((b"k", range(20)), (b"l", range(100, 120))):
        found = [int(headers(message)["tickwheel-seq"]) for message in records(spec) if message.key() == key]
        assert found == list(expected)


def test_a_refused_record_does_not_take_the_others_with_it__D6(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "_LARGEST", 5000)
    sink = opened(spec)
    given = batch(range(256))
    for seq in (3, 200):
        given[seq] = delivery(seq, payload=b"x" * 6000)
    refused = sink.send(given)
    sink.close()
    assert list(refused) == [3, 200]
    assert all(isinstance(reason, str) and "MSG_SIZE_TOO_LARGE" in reason for reason in refused.values())
    assert seqs(spec) == [seq for seq in range(256) if seq not in (3, 200)]


class Picky:
    """Refuses all records that are flushed together, if one of them is bad; `codes`: for a bad one, and the others."""

    codes = (KafkaError.INVALID_RECORD, KafkaError.INVALID_RECORD)
    flushes = 0

    def __init__(self, settings: dict[str, object]) -> None:
        self.real = Producer(settings)
        self.given: list[dict[str, Any]] = []

    def produce(self, topic: str, **record: Any) -> None:
        self.given.append({"topic": topic, **record})

    def flush(self, timeout_s: float) -> int:
        Picky.flushes += 1
        given, self.given = self.given, []
        if any(b"bad" in record["value"] for record in given):
            for record in given:
                code = self.codes[0] if b"bad" in record["value"] else self.codes[1]
                record["on_delivery"](KafkaError(code), None)
            return 0
        for record in given:
            self.real.produce(**record)
        return int(self.real.flush(timeout_s))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


@pytest.mark.parametrize(
    ("bad_code", "other_code"),
    [
        (KafkaError.INVALID_RECORD, KafkaError._INVALID_DIFFERENT_RECORD),
        (KafkaError.INVALID_RECORD, KafkaError.INVALID_RECORD),
        (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.MSG_SIZE_TOO_LARGE),
        (KafkaError.POLICY_VIOLATION, KafkaError.POLICY_VIOLATION),
        (KafkaError.INVALID_TIMESTAMP, KafkaError.INVALID_TIMESTAMP),
    ],
)
@pytest.mark.parametrize("bad", [{7}, {0, 1, 200}])
def test_a_record_for_which_a_broker_refuses_the_request_is_refused_alone__D6(
    spec: str, monkeypatch: pytest.MonkeyPatch, bad: set[int], bad_code: int, other_code: int
) -> None:
    monkeypatch.setattr(kafka, "Producer", Picky)
    monkeypatch.setattr(Picky, "codes", (bad_code, other_code))
    monkeypatch.setattr(Picky, "flushes", 0)
    sink = opened(spec)
    refused = sink.send([delivery(seq, payload=b"bad" if seq in bad else b"1") for seq in range(256)])
    assert sorted(refused) == sorted(bad)
    assert all(isinstance(reason, str) for reason in refused.values())
    assert seqs(spec) == [seq for seq in range(256) if seq not in bad]
    assert Picky.flushes <= 1 + 2 * 8 * len(bad)
    sink.close()


def test_records_for_which_no_time_is_left_were_not_tried__D6(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the sink is not cut off, which would leave all of them without an answer."""
    monkeypatch.setattr(kafka, "Producer", Picky)
    sink = opened(spec)
    sink._own_s = 0.0  # type: ignore[attr-defined]
    assert sink.send([delivery(seq, payload=b"bad") for seq in range(8)]) == dict.fromkeys(range(8))
    sink.close()


def failures(sink: Sink, count: int) -> list[object]:
    """Why each of so many deliveries failed."""
    try:
        refused = sink.send(batch(range(count)))
    except Unavailable as error:
        return [error]
    assert list(refused) == list(range(count))
    return list(refused.values())


def test_brokers_that_are_gone_are_told_in_time__D6() -> None:
    cluster = Producer({"test.mock.num.brokers": 1, "log_level": 0})
    brokers = cluster.list_topics("t", timeout=20).brokers.values()
    sink = opened(f"kafka://{','.join(f'{broker.host}:{broker.port}' for broker in brokers)}/t", timeout_s=1.5)
    assert sink.send(batch([1])) == {}
    del cluster, brokers
    for _ in range(3):  # the first one may not have heard of it yet
        began_s = time.monotonic()
        reasons = failures(sink, 10)
        assert time.monotonic() - began_s < 6
        assert all(isinstance(reason, Unavailable) and "last heard: " in str(reason) for reason in reasons)
    with pytest.raises(Unavailable):
        sink.send(batch([1]))
    sink.close()


def mock_of(cluster: Producer) -> tuple[ctypes.CDLL, ctypes.c_void_p]:
    """The library, and the brokers in it. Python has no function for what these do."""
    path = next(line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "librdkafka" in line)
    library = ctypes.CDLL(path)
    library.rd_kafka_handle_mock_cluster.restype = ctypes.c_void_p
    handle = ctypes.c_void_p.from_address(id(cluster) + object.__basicsize__)
    return library, ctypes.c_void_p(library.rd_kafka_handle_mock_cluster(handle))


def set_leader(cluster: Producer, spec: str, partition: int, broker: int) -> None:
    """Gives the partition another leader; with the broker -1, none."""
    library, mock = mock_of(cluster)
    topic = ctypes.c_char_p(spec.rpartition("/")[2].encode())
    assert (
        library.rd_kafka_mock_partition_set_leader(mock, topic, ctypes.c_int32(partition), ctypes.c_int32(broker)) == 0
    )


def test_a_partition_without_a_leader_holds_up_its_own_records_alone__D6(
    cluster: Producer, spec: str, sink: Sink
) -> None:
    given = [delivery(seq, key=f"k{seq}") for seq in range(40)]
    set_leader(cluster, spec, 0, -1)
    # The broker inside librdkafka ends the process if a client that still knows the old leader writes.
    sink._producer = None  # type: ignore[attr-defined]
    refused = sink.send(given)
    assert 0 < len(refused) < 40
    assert all(isinstance(reason, Unanswered) and "no leader" in str(reason) for reason in refused.values())
    assert sink.send([given[place] for place in refused]).keys() == set(range(len(refused)))
    set_leader(cluster, spec, 0, 1)
    waiting = [given[place] for place in refused]
    while again := sink.send(waiting):  # the client has to hear of the new leader
        waiting = [waiting[place] for place in again]
    found = {message.key(): message.partition() for message in records(spec)}
    of_partition = {key for key, partition in found.items() if partition == 0}
    assert of_partition == {(given[place].message.key or "").encode() for place in refused}
    assert len(found) == 40


def test_a_partition_that_loses_its_leader_is_asked_for_once_no_answer_comes__D6(
    cluster: Producer, spec: str, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its records are taken back, and so may be others that no broker has yet: they go with the next send."""
    monkeypatch.setattr(kafka, "_QUIET_S", 0.3)
    given = [delivery(seq, key=f"k{seq}") for seq in range(40)]
    set_leader(cluster, spec, 0, -1)
    sink._producer = kafka.KafkaSink._new_producer(sink)  # type: ignore[attr-defined, arg-type]
    refused = sink.send(given)
    assert all(isinstance(reason, Unanswered) and "no leader" in str(reason) for reason in refused.values())
    refused = sink.send([given[place] for place in refused])
    set_leader(cluster, spec, 0, 1)
    waiting = [delivery(seq, key=f"k{seq}") for seq in range(40) if seq not in seqs(spec)]
    assert len(waiting) == len(refused) > 0
    while again := sink.send(waiting):
        waiting = [waiting[place] for place in again]
    assert seqs(spec) == [*range(40)]


def test_a_key_has_the_partition_that_the_producer_chooses__D4(spec: str, sink: Sink) -> None:
    keys = {"", "a", "été", "\0", *("k" * n for n in range(2, 40)), *(f"{n * n}" for n in range(400))}
    assert sink.send([delivery(seq, key=key) for seq, key in enumerate(keys)]) == {}
    for record in records(spec):
        sink._without_leader = {record.partition()}  # type: ignore[attr-defined]
        key = (record.key() or b"").decode()
        assert sink._lacks_leader(key), key  # type: ignore[attr-defined]
        assert not sink._lacks_leader(None)  # type: ignore[attr-defined]


class FatalProducer:
    """Answers the first batch with a fatal error, after which a producer can't be used."""

    made = 0
    error = KafkaError(KafkaError._FATAL, "out of order", fatal=True)

    def __init__(self, _config: object) -> None:
        FatalProducer.made += 1
        self.answers: list[Any] = []

    def produce(self, *_args: object, on_delivery: Any, **_more: object) -> None:
        self.answers.append(on_delivery)

    def list_topics(self, topic: str, **_more: object) -> SimpleNamespace:
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions={})})

    def poll(self, _timeout: float) -> int:
        return 0

    def flush(self, _timeout: float) -> int:
        for answer in self.answers:
            answer(self.error, None)
        return 0


def test_after_a_fatal_error_there_is_a_new_producer__D6(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "Producer", FatalProducer)
    sink = opened(spec)
    refused = sink.send(batch([1, 2]))
    assert refused.keys() == {0, 1}
    assert "out of order" in refused[0]
    assert FatalProducer.made == 1
    monkeypatch.undo()
    assert sink.send(batch([1, 2])) == {}
    sink.close()
    assert seqs(spec) == [1, 2]


@pytest.mark.parametrize(
    "code", [KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART]
)
def test_a_topic_that_was_deleted_is_away_and_a_new_producer_looks_for_it__D6(
    spec: str, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """The producer would know the deleted topic's partitions."""
    monkeypatch.setattr(FatalProducer, "error", KafkaError(code))
    monkeypatch.setattr(kafka, "Producer", FatalProducer)
    sink = opened(spec)
    assert [type(reason) for reason in failures(sink, 3)] == [Unavailable] * 3
    monkeypatch.undo()
    assert sink.send(batch([1, 2])) == {}
    sink.close()
    assert seqs(spec) == [1, 2]


class SilentProducer(FatalProducer):
    """Never answers."""

    now_s = 0.0

    def flush(self, timeout_s: float) -> int:
        SilentProducer.now_s += timeout_s
        return 1

    def purge(self, **what: bool) -> None:
        assert not what, "no partition lacks its leader"
        assert SilentProducer.now_s < 10


def test_answers_are_waited_for_less_long_than_until_the_sink_is_cut_off__D6(
    spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same producer goes on, because the brokers recognize a late copy by its sequence numbers."""
    monkeypatch.setattr(kafka, "Producer", SilentProducer)
    monkeypatch.setattr(kafka, "time", SimpleNamespace(monotonic=lambda: SilentProducer.now_s))
    sink = opened(spec, timeout_s=10)
    assert sink.send(batch([1, 2])).keys() == {0, 1}


def test_the_position_is_the_end_before_the_latest_send__D5(spec: str, sink: Sink) -> None:
    empty = sink.position()
    assert json.loads(empty or "") == {"0": 0, "1": 0, "2": 0, "3": 0}
    sink.send(batch(range(10)))
    assert sink.position() == empty  # these may not count as delivered yet
    sink.send([delivery(10, key="k")])
    assert sum(json.loads(sink.position() or "").values()) == 10
    again = opened(spec)
    assert sum(json.loads(again.position() or "").values()) == 11
    again.close()


def test_after_a_crash_the_tail_says_what_has_arrived__D5(spec: str, sink: Sink) -> None:
    sink.send([delivery(seq, key=f"k{seq}") for seq in range(50)])
    sink.send([delivery(seq, key=f"k{seq}") for seq in range(50, 100)])
    position = sink.position()  # after the first fifty
    sink.send([delivery(seq, key=f"k{seq}") for seq in range(100, 120)])
    again = opened(spec)

    def suspects(seqs: Iterable[int]) -> list[Delivery]:
        return [delivery(seq, key=f"k{seq}") for seq in seqs]

    assert set(again.arrived(suspects(range(200)), position)) == set(range(50, 120))
    assert set(again.arrived(suspects([0, 60, 119, 120]), position)) == {60, 119}
    assert set(again.arrived([delivery(60, key="another")], position)) == set()
    assert set(again.arrived(suspects([0, 60]), json.dumps({"0": 0, "1": 0}))) == {
        0,
        60,
    }  # two partitions are new since
    again.close()


def test_killed_after_the_send_it_is_found__D5(spec: str) -> None:
    before = opened(spec)
    position = before.position()
    before.close()
    kill_when_it_says(child_sending(spec, range(100)), "sent")
    sink = opened(spec)
    assert set(sink.arrived(batch(range(50, 200)), position)) == set(range(50, 100))
    sink.close()


def test_a_message_is_known_by_its_key_and_id_whichever_store_wrote_it__D5(
    spec: str, sink: Sink, cluster: Producer
) -> None:
    position = sink.position()
    other = opened(spec, store_id="other")
    other.send(batch(range(10)))
    other.close()
    topic = spec.rpartition("/")[2]
    for odd in (None, {}, {"tickwheel-id": b"id20"}, {"tickwheel-id": b"x\xff"}):
        cluster.produce(topic, b"1", headers=odd)
    cluster.flush(20)
    assert sorted(sink.arrived(batch(range(5, 25)), position)) == [5, 6, 7, 8, 9]


def test_without_a_position_or_suspects_nothing_is_known__D5(spec: str, sink: Sink) -> None:
    sink.send(batch(range(10)))
    assert list(sink.arrived(batch(range(10)), None)) == []
    assert list(sink.arrived(batch([]), sink.position())) == []


def test_a_position_after_the_end_is_of_a_topic_that_was_deleted_so_all_of_the_new_one_is_read__D5(
    spec: str, sink: Sink
) -> None:
    sink.send(batch(range(10)))
    assert set(sink.arrived(batch(range(20)), json.dumps(dict.fromkeys(range(4), 1000)))) == set(range(10))


def test_after_a_topic_was_made_anew_the_position_is_of_the_new_one__D5(spec: str) -> None:
    sink = opened(spec)
    sink._written = dict.fromkeys(range(4), 1000)  # type: ignore[attr-defined]
    sink.send([delivery(1, key="k")])
    sink.send([delivery(2, key="k")])
    assert set(json.loads(sink.position() or "").values()) == {1}
    assert list(sink.arrived(batch([1, 2]), sink.position())) == [2]
    sink.close()


def test_a_topic_that_is_not_there_is_told__D10(spec: str) -> None:
    with pytest.raises(DeliveryFailed, match="UNKNOWN_TOPIC_OR_PART"):
        opened(f"{spec}-not-there")


def test_brokers_that_are_not_there_are_told__D10() -> None:
    with pytest.raises(DeliveryFailed, match=r"(?s)the topic t can't be used: .*last heard: .*refused"):
        opened("kafka://127.0.0.1:1/t", timeout_s=1.0)


@pytest.mark.parametrize(
    "spec",
    [
        "kafka:",
        "kafka://",
        "kafka://host",
        "kafka://host/",
        "kafka:///topic",
        "kafka://host/a/b",
        "kafka://host/a b",
        "kafka://host/..",
        "kafka://host/t?x=y",
        "kafka://host:port/t",
        "kafka://a,,b/t",
        "kafka:host/t",
        "kafka://host/" + "t" * 250,
    ],
)
def test_an_address_that_is_none_is_wrong_usage__D10(spec: str) -> None:
    with pytest.raises(WrongUsage, match="kafka://a:9092,b:9092/reminders"):
        open_sink(spec)


def test_a_user_in_the_address_is_refused_and_not_shown__D10() -> None:
    with pytest.raises(WrongUsage) as error:
        open_sink("kafka://me:s3cret@host/t")
    assert "s3cret" not in str(error.value)


class Noting:
    """Makes the real object, and records its settings."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.settings: dict[str, object] = {}

    def __call__(self, settings: dict[str, object]) -> Any:
        self.settings = settings
        return self._real(settings)


def test_the_producer_keeps_the_order_when_it_sends_again_and_waits_for_all_replicas__D4_D10(
    spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As seed 004 requires. It has one request in flight at a time. With an idempotent producer five are as good: it
    numbers its batches, and a broker refuses one that comes out of turn.
    """
    producer = Noting(Producer)
    monkeypatch.setattr(kafka, "Producer", producer)
    opened(spec, timeout_s=30).close()
    assert producer.settings["enable.idempotence"] is True
    assert producer.settings["acks"] == "all"
    assert producer.settings["allow.auto.create.topics"] is False
    assert producer.settings["max.in.flight.requests.per.connection"] == 5
    assert producer.settings["delivery.timeout.ms"] == 24_000  # the producer's own retries end within that time
    assert not producer.settings.keys() & {"retries", "message.send.max.retries"}, "as often as it wants"


def test_the_consumer_commits_nothing_by_itself__D5(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in seed 004, the position is committed together with the outcomes: in the store."""
    consumer = Noting(Consumer)
    monkeypatch.setattr(kafka, "Consumer", consumer)
    opened(spec).close()
    assert consumer.settings["enable.auto.commit"] is False
    assert consumer.settings["allow.auto.create.topics"] is False


class NewTopic:
    """A consumer of a topic whose partitions have no leader for the first few calls."""

    def __init__(self, times: int, code: int) -> None:
        self._times = times
        self._code = code

    def __call__(self, settings: dict[str, object]) -> Any:
        real = Consumer(settings)

        class Asked:
            def __getattr__(_, name: str) -> Any:  # noqa: N805
                return getattr(real, name)

            def get_watermark_offsets(_, *args: Any, **more: Any) -> Any:  # noqa: N805
                self._times -= 1
                if self._times >= 0:
                    raise confluent_kafka.KafkaException(KafkaError(self._code))
                return real.get_watermark_offsets(*args, **more)

        return Asked()


def test_a_partition_that_changes_its_leader_is_waited_for__D10(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a topic that was just created, or after a broker was shut down."""
    monkeypatch.setattr(kafka, "Consumer", NewTopic(3, KafkaError.NOT_LEADER_FOR_PARTITION))
    sink = opened(spec)
    assert sink.send(batch([1])) == {}
    sink.close()
    monkeypatch.setattr(kafka, "Consumer", NewTopic(1_000, KafkaError.LEADER_NOT_AVAILABLE))
    with pytest.raises(DeliveryFailed, match="LEADER_NOT_AVAILABLE"):
        opened(spec, timeout_s=0.5)
    monkeypatch.setattr(kafka, "Consumer", NewTopic(1, KafkaError.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(DeliveryFailed, match="TOPIC_AUTHORIZATION_FAILED"):
        opened(spec)


def test_up_to_1024_go_at_once_by_one_thread__D10(sink: Sink) -> None:
    assert (sink.max_batch, sink.threads) == (1024, 1)


def test_a_name_that_is_used_again_is_another_record_with_another_digest__D5_D16(spec: str, tmp_path: Path) -> None:
    with DeliveryQueue(tmp_path / "s.db", to=spec) as queue:
        for payload in 1, 2:
            queue.put("a", payload, delay_ms=0, key="k", replace=True)
            assert queue.wait_until_empty(20)
        written = records(spec)
        digests = [headers(message)["tickwheel-digest"] for message in written]
        assert len({*digests}) == len(digests) == 2
        later = opened(spec)
        position = '{"0":0,"1":0,"2":0,"3":0}'
        first = Delivery(5, Message("a", "k", 1, b"1"), 2, 0)
        assert list(later.arrived([first], position)) == [5]
        other = Delivery(6, Message("b", "k", 1, b"1"), 2, 0)
        assert list(later.arrived([other], position)) == []
        later.close()
