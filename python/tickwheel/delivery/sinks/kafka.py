"""The sink `kafka://BROKERS/TOPIC` (rule D10): a record for each message, its payload as it was given, its key as key.

- The producer is idempotent and waits for all replicas (`acks=all`). Each record has its own answer: those that failed
  are failed attempts of their messages alone. Headers: `tickwheel-id`, `-store`, `-seq`, `-due`, `-attempt`,
  `-redelivered`.
- A key's partition is the one that Kafka's own client chooses (murmur2), so a topic may have producers of both kinds.
- Idempotence holds for what the producer sends again by itself, not for a new attempt. A record that ran into the
  time-out may have been written, or be on its way still: then it is there twice after the retry, or once though it is a
  dead letter; and the late copy may come behind later records of its key. A reader who minds remembers, per
  `tickwheel-store`, which `tickwheel-seq` it has seen; the first copies are in order.
- After a crash `arrived` reads the topic from the `position` of the last commit to its end as it is then. What the
  crashed process had on its way, and comes after that end, is there twice.
- The topic has to be there. Example: `kafka://a:9092,b:9092/reminders`.
"""

import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tickwheel.delivery.errors import DeliveryFailed, WrongUsage
from tickwheel.delivery.sinks.addresses import shown
from tickwheel.delivery.sinks.sink import Delivery, Refusals, Sink, SinkOpener, SinkSettings
from tickwheel.delivery.sinks.tables import OWN_SHARE
from tickwheel.delivery.times import rfc_3339

FORM = "kafka://BROKERS/TOPIC"

_LARGEST = 64 << 20  # bytes of a record; what is too large is for the broker to say
_TOGETHER = 1_000_000  # bytes of records in a request, of which a broker takes 1 MiB unless it is told otherwise
_ON_ITS_WAY = 5  # requests to a broker; for so many the idempotent producer keeps the order when one is sent again
_WAIT_SHARE = 0.9  # of the time-out: a sink that is cut off takes with it what keeps a late copy from coming last
_LOOK_AGAIN_S = 0.1
_BROKER = re.compile(r"[A-Za-z0-9._-]+(:\d{1,5})?|\[[0-9A-Fa-f:.]+\](:\d{1,5})?", flags=re.ASCII)
_TOPIC = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}", flags=re.ASCII)

_Offsets = dict[int, int]  # by partition: the next one
_PASSING = {  # while a topic is new, or goes from one broker to another
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
}


class KafkaSink(Sink):
    """Writes to `topic`; `brokers` are those to ask first."""

    max_batch: ClassVar[int] = 256
    threads: ClassVar[int] = 1

    def __init__(self, brokers: str, topic: str, settings: SinkSettings) -> None:
        self._topic = topic
        self._settings = settings
        self._own_s = OWN_SHARE * settings.timeout_s
        self._last_error = ""
        self._together = _TOGETHER
        self._common = {
            "bootstrap.servers": brokers,
            "error_cb": self._note_error,
            "log_level": 0,
            "reconnect.backoff.max.ms": 1_000,  # who tries again, and when, is the deliverer's matter
        }
        with self._reading() as consumer:
            self._written: _Offsets = {partition: end for partition, (_, end) in self._bounds(consumer).items()}
        self._position = _text_of(self._written)
        self._producer: Producer | None = self._new_producer()
        self._producer.list_topics(topic, timeout=self._own_s)  # or else it connects when the first message is due

    def send(self, deliveries: Sequence[Delivery]) -> Refusals:
        """Returns when each record has its answer. Errors: `KafkaException`, when none has arrived."""
        self._position = _text_of(self._written)  # only now is all before it known as delivered
        refused, too_large = self._write(dict(enumerate(deliveries)))
        if len(too_large) > 1:  # a request is refused as a whole, and by themselves they may be small enough
            taken = 0
            for place in too_large:
                again, _ = self._write({place: deliveries[place]})
                refused |= again
                if not again:
                    del refused[place]
                    taken += 1
            if taken:
                self._together //= 4
                self._producer = None
        return refused

    def position(self) -> str | None:
        """The end of each partition before the latest `send`, as JSON: `{"0":17,"1":4}`."""
        return self._position

    def arrived(self, suspects: Collection[int], position: str | None) -> Collection[int]:
        """Those whose record is after the position; none where there is no position to read from."""
        if not suspects or position is None:
            return ()
        starts = msgspec.json.decode(position, type=_Offsets)
        wanted = {b"%d" % seq: seq for seq in suspects}
        store = self._settings.store_id.encode()
        found = set()
        with self._reading() as consumer:
            for message in self._tail(consumer, starts):
                headers = dict(message.headers() or ())
                seq = headers.get("tickwheel-seq")
                if headers.get("tickwheel-store") == store and isinstance(seq, bytes) and seq in wanted:
                    found.add(wanted[seq])
                    if len(found) == len(wanted):
                        break
        return found

    def close(self) -> None:
        """Nothing is left: `send` waited for every answer."""
        self._producer = None

    def _write(self, deliveries: Mapping[int, Delivery]) -> tuple[dict[int, str], list[int]]:
        """Those that were refused, by place, and which of them with too many others."""
        if self._producer is None:
            self._producer = self._new_producer()
        answers: dict[int, KafkaError | None] = {}
        refused: dict[int, str] = {}
        for place, delivery in deliveries.items():
            try:
                self._producer.produce(
                    self._topic,
                    **_record(delivery, self._settings.store_id),
                    on_delivery=partial(self._note_answer, answers, place),
                )
            except (KafkaException, BufferError, UnicodeError) as error:
                refused[place] = f"{type(error).__name__}: {error}"
        if self._producer.flush(_WAIT_SHARE * self._settings.timeout_s):
            self._producer.purge()
            self._producer.flush(self._own_s)
        is_fatal = False
        too_large = []
        for place in deliveries.keys() - refused.keys():
            answer = answers.get(place, _NO_ANSWER)
            if answer is None:
                continue
            refused[place] = self._told(answer)
            is_fatal = is_fatal or answer.fatal()
            if answer.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                too_large.append(place)
        if is_fatal or len(answers) + len(refused) < len(deliveries):
            self._producer = None  # a new one goes on
        return refused, too_large

    def _new_producer(self) -> Producer:
        return Producer(
            {
                **self._common,
                "enable.idempotence": True,
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
        """Reads alone: it joins no group, and commits nothing."""
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
            consumer.poll(0)  # which brings the broker's error
            told = f"the topic {self._topic} can't be used: {self._told(error.args[0])}"
            raise DeliveryFailed(f"{told}; are the brokers up, and is it there?") from error
        finally:
            consumer.close()

    def _bounds(self, consumer: Consumer) -> dict[int, tuple[int, int]]:
        """By partition: the first offset that is there, and the next one to be written."""
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
        """All from `starts` to the end as it is now."""
        bounds = self._bounds(consumer)
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
            partition, offset = _place_of(message)
            self._written[partition] = max(self._written.get(partition, 0), offset + 1)

    def _note_error(self, error: KafkaError) -> None:
        self._last_error = error.str()

    def _told(self, error: KafkaError) -> str:
        last = f" (last heard: {self._last_error})" if self._last_error else ""
        return f"{error.name()}: {error.str()}{last}"


_NO_ANSWER = KafkaError(KafkaError._TIMED_OUT, "no answer")


def opener_of(spec: str) -> SinkOpener:
    """Reads the address; nobody is called yet. Errors: `WrongUsage`."""
    brokers, _, topic = spec.partition("//")[2].partition("/")
    if not all(_BROKER.fullmatch(broker) for broker in brokers.split(",")) or not _TOPIC.fullmatch(topic):
        raise WrongUsage(f"{shown(spec)} is no topic: write {FORM}, as in kafka://a:9092,b:9092/reminders")
    return lambda settings: KafkaSink(brokers, topic, settings)


def _record(delivery: Delivery, store_id: str) -> dict[str, Any]:
    message = delivery.message
    return {
        "key": None if message.key is None else message.key.encode(),
        "value": bytes(message.payload),
        "headers": {  # as bytes: text would be cut off at a NUL
            "tickwheel-id": message.id.encode(),
            "tickwheel-store": store_id.encode(),
            "tickwheel-seq": b"%d" % delivery.seq,
            "tickwheel-attempt": b"%d" % delivery.attempt,
            "tickwheel-due": rfc_3339(message.due_ms).encode(),
            "tickwheel-redelivered": b"true" if delivery.redelivered else b"false",
        },
    }


def _place_of(message: Message) -> tuple[int, int]:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return partition, offset


def _text_of(offsets: _Offsets) -> str:
    return msgspec.json.encode(dict(sorted(offsets.items()))).decode()
