"""The sink `kafka://BROKERS/TOPIC` (rule D10): a record for each message, with its payload unchanged and its key.

- The producer is idempotent and waits for all replicas (`acks=all`). Each record has its own answer: a failed record is
  a failed attempt of its message alone. If a broker refuses a whole request because of a bad record, the sink halves
  the request until it has found the bad record.
- Headers: `tickwheel-id`, `-digest`, `-store`, `-seq`, `-due`, `-attempt`, `-redelivered`; of a message with
  `until_event` also `-cause`, and `-event` (JSON with name, id and payload).
- Keys have the same partitions as with Kafka's own client (murmur2), so a topic may have producers of both kinds.
- Idempotence covers the producer's own retries, not a new attempt. A record that timed out may have been written, or
  may be written later. After the retry the topic then has two copies. If the message is a dead letter, the topic may
  have it all the same. The late copy may come after later records of its key.
- A reader can drop copies: for each `tickwheel-store`, remember every `tickwheel-seq` seen. The first copies are in
  order.
- A partition without a leader holds up its own keys alone (D6). If no record is answered for three seconds, the sink
  asks whether a partition lacks its leader, and takes back what no broker has. While one lacks it, each send asks
  first, and tries only the records of the other partitions.
- A producer goes on by itself when a broker is back, without copies. Records that were on their way when the brokers
  went down therefore keep their full time-out. After a lost connection a send first looks for a broker; without a
  broker, the destination is down (D6).
- After a crash `arrived` reads the topic from the `position` of the last commit to its end at that time. Records of the
  crashed process that are written after that end are in the topic twice.
- The topic must exist: the sink never creates one. While a deleted topic is missing, the destination is down, and a
  new topic gets what waits. Example: `kafka://a:9092,b:9092/reminders`.
"""

import re
import struct
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, ClassVar

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tickwheel._native import rfc_3339
from tickwheel.delivery.base.errors import DeliveryFailed, Unanswered, Unavailable, WrongUsage
from tickwheel.delivery.sinks.addresses import without_secrets
from tickwheel.delivery.sinks.sink import Delivery, Refusals, Sink, SinkOpener, SinkSettings
from tickwheel.delivery.sinks.tables import MAX_BATCH, OWN_SHARE

FORM = "kafka://BROKERS/TOPIC"

_LARGEST = 64 << 20  # bytes of a record; the real limit is the broker's
_TOGETHER = 1_000_000  # bytes of records in a request; a broker's default limit is 1 MiB
_ON_ITS_WAY = 5  # requests to a broker; up to this many the idempotent producer keeps the order in a retry
_WAIT_SHARE = 0.9  # of the time-out, so that the sink is not cut off: its producer keeps late copies in order
_LOOK_AGAIN_S = 0.1
_LOOK_S = 3.0  # for a broker, after a lost connection; longer than the client waits until it connects again
_QUIET_S = 3.0  # longer than that, and than a partition usually has no leader
_BROKER = re.compile(r"[A-Za-z0-9._-]+(:\d{1,5})?|\[[0-9A-Fa-f:.]+\](:\d{1,5})?", flags=re.ASCII)
_TOPIC = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}", flags=re.ASCII)

_NOT_THERE = (KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE, KafkaError._TRANSPORT)
_NO_TOPIC = (KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART)
_NO_ANSWERS = (
    KafkaError._TIMED_OUT,
    KafkaError._MSG_TIMED_OUT,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError._PURGE_QUEUE,
    KafkaError._PURGE_INFLIGHT,
)

_TOO_LARGE = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE)
_OF_A_REQUEST = (  # the broker refuses all records of a partition for one of them
    *_TOO_LARGE,
    KafkaError.INVALID_RECORD,
    KafkaError._INVALID_DIFFERENT_RECORD,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError.POLICY_VIOLATION,
)

_Refused = dict[int, str | Unanswered | Unavailable | None]
_Offsets = dict[int, int]  # by partition: the next offset
_PASSING = {  # while a topic is new, or moves to another broker
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
}


class KafkaSink(Sink):
    """Writes to `topic`. `brokers` are the first ones to contact."""

    max_batch: ClassVar[int] = MAX_BATCH
    threads: ClassVar[int] = 1

    def __init__(self, brokers: str, topic: str, settings: SinkSettings) -> None:
        self._topic = topic
        self._settings = settings
        self._own_s = OWN_SHARE * settings.timeout_s
        self._last_error = ""
        self._is_down = False  # a broker is not there, as the client heard last
        self._together = _TOGETHER
        self._partitions = 0
        self._without_leader: set[int] = set()  # of the partitions, as a broker said last
        self._common = {
            "bootstrap.servers": brokers,
            "error_cb": self._note_error,
            "log_level": 0,
            "reconnect.backoff.max.ms": 1_000,  # the deliverer has its own back-off
        }
        with self._reading() as consumer:
            self._written: _Offsets = {partition: end for partition, (_, end) in self._bounds(consumer).items()}
        self._position = _text_of(self._written)
        self._producer: Producer | None = None
        self._look(self._own_s)  # connects now, not when the first message is due

    def send(self, deliveries: Sequence[Delivery]) -> Refusals:
        """Returns when each record has its answer. Errors: `Unavailable`, if none has arrived."""
        until_s = time.monotonic() + self._own_s
        self._position = _text_of(self._written)  # only now is everything before it known to be delivered
        try:
            self._look_for_brokers()
            refused, together = self._write(dict(enumerate(deliveries)))
        except KafkaException as error:
            raise Unavailable(self._error_text(error.args[0])) from error
        if len(together) > 1:
            self._write_apart(deliveries, together, refused, until_s)
            was_too_large = [place for place, code in together.items() if code in _TOO_LARGE]
            if not all(place in refused for place in was_too_large):  # the request was, but not each record
                self._together //= 4
                self._producer = None
        return refused

    def position(self) -> str | None:
        """The end of each partition before the latest `send`, as JSON: `{"0":17,"1":4}`."""
        return self._position

    def arrived(self, suspects: Sequence[Delivery], position: str | None) -> Collection[int]:
        """The suspects that have a record after the position, by its digest. Without a position the result is empty."""
        if not suspects or position is None:
            return ()
        starts = msgspec.json.decode(position, type=_Offsets)
        wanted: dict[object, int] = {it.digest.hex().encode(): it.seq for it in suspects}
        found = set()
        with self._reading() as consumer:
            for message in self._tail(consumer, starts):
                digest = dict(message.headers() or ()).get("tickwheel-digest")
                if digest in wanted:
                    found.add(wanted[digest])
                    if len(found) == len(suspects):
                        break
        return found

    def close(self) -> None:
        """Nothing to do: `send` waited for every answer."""
        self._producer = None

    def _look_for_brokers(self) -> None:
        """After a lost connection, with a new producer, or while a partition lacks its leader. Errors:
        `KafkaException`.
        """
        if self._producer is not None:
            self._producer.poll(0)  # takes the client's events since the last send
        if self._producer is None or self._is_down or self._without_leader:
            self._look(min(self._own_s, _LOOK_S))
            self._is_down = False

    def _look(self, timeout_s: float) -> None:
        """Ask a broker which partitions have a leader."""
        if self._producer is None:
            self._producer = self._new_producer()
        partitions = self._producer.list_topics(self._topic, timeout=timeout_s).topics[self._topic].partitions
        self._partitions = len(partitions)
        self._without_leader = {number for number, partition in partitions.items() if partition.leader < 0}

    def _write_apart(
        self, deliveries: Sequence[Delivery], together: Mapping[int, int], refused: _Refused, until_s: float
    ) -> None:
        """Halve records that were refused together, until those are found that are refused alone."""
        places = [*together]
        half = len(places) // 2
        for part in (places[:half], places[half:]):
            if time.monotonic() > until_s:
                refused.update(dict.fromkeys(part))
                continue
            again, together_again = self._write({place: deliveries[place] for place in part})
            for place in part:
                del refused[place]
            refused |= again
            if len(together_again) > 1:
                self._write_apart(deliveries, together_again, refused, until_s)

    def _write(self, deliveries: Mapping[int, Delivery]) -> tuple[_Refused, dict[int, int]]:
        """The refused deliveries, by place; and those that may have been refused for another record of their request,
        with the code of the error.
        """
        if self._producer is None:
            self._producer = self._new_producer()
        answers: dict[int, KafkaError | None] = {}
        refused: _Refused = {}
        for place, delivery in deliveries.items():
            if self._lacks_leader(delivery.message.key):
                refused[place] = Unanswered(_NO_LEADER)
                continue
            try:
                self._producer.produce(
                    self._topic,
                    **_record(delivery, self._settings.store_id),
                    on_delivery=partial(self._note_answer, answers, place),
                )
            except BufferError:
                refused[place] = None  # the client has no room
            except (KafkaException, UnicodeError) as error:
                refused[place] = f"{type(error).__name__}: {error}"
        self._wait(self._producer, answers)
        is_over = False  # for this producer
        together = {}
        for place in deliveries.keys() - refused.keys():
            answer = answers.get(place, _NO_ANSWER)
            if answer is None:
                continue
            text = _NO_LEADER if answer.code() == KafkaError._PURGE_QUEUE else self._error_text(answer)
            if answer.code() in (*_NOT_THERE, *_NO_TOPIC) or (self._is_down and answer.code() in _NO_ANSWERS):
                refused[place] = Unavailable(text)
            else:
                refused[place] = Unanswered(text) if answer.code() in _NO_ANSWERS or answer.retriable() else text
            is_over = is_over or answer.fatal() or answer.code() in _NO_TOPIC
            if answer.code() in _OF_A_REQUEST:
                together[place] = answer.code()
        if is_over or len(answers) + len(refused) < len(deliveries):
            self._producer = None  # the next send makes a new one
        return refused, together

    def _wait(self, producer: Producer, answers: Mapping[int, object]) -> None:
        """Until each record has its answer. What no broker has is taken back if a partition lacks its leader."""
        until_s = time.monotonic() + _WAIT_SHARE * self._settings.timeout_s
        while (left_s := until_s - time.monotonic()) > 0:
            answered = len(answers)
            if not producer.flush(min(_QUIET_S, left_s)):
                return
            left_s = until_s - time.monotonic()
            if len(answers) == answered and left_s > 0:
                with suppress(KafkaException):  # no broker answers
                    self._look(min(_LOOK_S, left_s))
                if self._without_leader:
                    producer.purge(in_flight=False)
        producer.purge()
        producer.flush(self._own_s)

    def _lacks_leader(self, key: str | None) -> bool:
        """Whether the key's partition does. Without a key the producer chooses a partition that has one."""
        if key is None or not self._without_leader:
            return False
        return (_murmur2(key.encode()) & 0x7FFF_FFFF) % self._partitions in self._without_leader

    def _new_producer(self) -> Producer:
        return Producer(
            {
                **self._common,
                "enable.idempotence": True,
                "allow.auto.create.topics": False,  # a broker would choose its own number of partitions
                "acks": "all",
                "max.in.flight.requests.per.connection": _ON_ITS_WAY,
                "batch.size": self._together,
                "partitioner": "murmur2_random",
                "delivery.timeout.ms": max(100, round(self._own_s * 1000)),
                "message.max.bytes": _LARGEST,
            }
        )

    @contextmanager
    def _reading(self) -> Iterator[Consumer]:
        """A consumer of its own: it joins no group, and commits nothing."""
        consumer = Consumer(
            {
                **self._common,
                "group.id": "tickwheel",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "isolation.level": "read_uncommitted",
                "allow.auto.create.topics": False,
            }
        )
        try:
            yield consumer
        except KafkaException as error:
            consumer.poll(0)  # fetches the broker's error
            problem = f"the topic {self._topic} can't be used: {self._error_text(error.args[0])}"
            raise DeliveryFailed(f"{problem}; make sure that the brokers are up and the topic exists") from error
        finally:
            consumer.close()

    def _bounds(self, consumer: Consumer) -> dict[int, tuple[int, int]]:
        """By partition: the first offset that exists, and the next one to be written."""
        until_s = time.monotonic() + self._own_s
        while True:
            try:
                return self._bounds_now(consumer)
            except KafkaException as error:
                if error.args[0].code() not in _PASSING or time.monotonic() > until_s:
                    raise
                time.sleep(_LOOK_AGAIN_S)

    def _bounds_now(self, consumer: Consumer) -> dict[int, tuple[int, int]]:
        topic = consumer.list_topics(self._topic, timeout=self._own_s).topics[self._topic]
        if topic.error is not None:
            raise KafkaException(topic.error)
        partitions = (TopicPartition(self._topic, partition) for partition in topic.partitions)
        return {at.partition: consumer.get_watermark_offsets(at, timeout=self._own_s) for at in partitions}

    def _tail(self, consumer: Consumer, starts: _Offsets) -> Iterator[Message]:
        """All records from `starts` to the present end."""
        bounds = self._bounds(consumer)
        if any(starts.get(partition, 0) > end for partition, (_, end) in bounds.items()):
            starts = {}  # the topic was deleted and made anew
        begins = {partition: max(first, starts.get(partition, 0)) for partition, (first, _) in bounds.items()}
        ends = {partition: end for partition, (_, end) in bounds.items() if begins[partition] < end}
        if not ends:
            return
        consumer.assign([TopicPartition(self._topic, partition, begins[partition]) for partition in ends])
        until_s = time.monotonic() + self._settings.timeout_s
        while ends:
            message = consumer.poll(0.1)
            if message is None:
                if time.monotonic() > until_s:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no record for too long"))
                continue
            until_s = time.monotonic() + self._settings.timeout_s
            error = message.error()
            partition, offset = _place_of(message)
            if error is None:
                if offset < ends.get(partition, 0):
                    yield message
                if offset + 1 >= ends.get(partition, 0):
                    ends.pop(partition, None)
            elif error.code() == KafkaError._PARTITION_EOF:
                ends.pop(partition, None)
            else:
                raise KafkaException(error)

    def _note_answer(
        self, answers: dict[int, KafkaError | None], place: int, error: KafkaError | None, message: Message
    ) -> None:
        answers[place] = error
        if error is None:
            self._is_down = False
            partition, offset = _place_of(message)
            if offset < self._written.get(partition, 0):
                self._written.clear()  # the topic was deleted and made anew
            self._written[partition] = offset + 1

    def _note_error(self, error: KafkaError) -> None:
        self._last_error = error.str()
        self._is_down = self._is_down or error.code() in _NOT_THERE

    def _error_text(self, error: KafkaError) -> str:
        last = f" (last heard: {self._last_error})" if self._last_error else ""
        return f"{error.name()}: {error.str()}{last}"


_M = 0x5BD1_E995
_NO_ANSWER = KafkaError(KafkaError._TIMED_OUT, "no answer")
_NO_LEADER = "LEADER_NOT_AVAILABLE: no broker took the record, because its partition has no leader"


def opener_of(spec: str) -> SinkOpener:
    """Reads the address; nothing is connected yet. Errors: `WrongUsage`."""
    brokers, _, topic = spec.partition("//")[2].partition("/")
    if not all(_BROKER.fullmatch(broker) for broker in brokers.split(",")) or not _TOPIC.fullmatch(topic):
        raise WrongUsage(f"{without_secrets(spec)} is no topic: write {FORM}, such as kafka://a:9092,b:9092/reminders")
    return lambda settings: KafkaSink(brokers, topic, settings)


def _record(delivery: Delivery, store_id: str) -> dict[str, Any]:
    message = delivery.message
    caused = {} if delivery.cause is None else {"tickwheel-cause": delivery.cause.encode()}
    if delivery.event is not None:
        caused["tickwheel-event"] = msgspec.json.encode(delivery.event)
    return {
        "key": None if message.key is None else message.key.encode(),
        "value": bytes(message.payload),
        "headers": {  # as bytes: text would be truncated at a NUL
            "tickwheel-id": message.id.encode(),
            "tickwheel-digest": delivery.digest.hex().encode(),
            "tickwheel-store": store_id.encode(),
            "tickwheel-seq": b"%d" % delivery.seq,
            "tickwheel-attempt": b"%d" % delivery.attempt,
            "tickwheel-due": rfc_3339(message.due_ms).encode(),
            "tickwheel-redelivered": b"true" if delivery.redelivered else b"false",
            **({} if message.tenant is None else {"tickwheel-tenant": message.tenant.encode()}),
            **caused,
        },
    }


def _murmur2(data: bytes) -> int:
    """The hash by which Kafka's clients choose the partition of a key: MurmurHash2 with Kafka's seed."""
    value = 0x9747_B28C ^ len(data)
    whole = len(data) & ~3
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        mixed = word * _M & 0xFFFF_FFFF
        value = (value * _M ^ (mixed ^ mixed >> 24) * _M) & 0xFFFF_FFFF
    if whole < len(data):
        value = (value ^ int.from_bytes(data[whole:], "little")) * _M & 0xFFFF_FFFF
    value = (value ^ value >> 13) * _M & 0xFFFF_FFFF
    return value ^ value >> 15


def _place_of(message: Message) -> tuple[int, int]:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return partition, offset


def _text_of(offsets: _Offsets) -> str:
    return msgspec.json.encode(dict(sorted(offsets.items()))).decode()
