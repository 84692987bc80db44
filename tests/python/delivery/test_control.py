"""Messages that take the place of others, expire, come to life again, and are cancelled many at a time (D16, D17)."""

import json
import queue as queues
import re
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tickwheel.commands import tickwheel as command
from tickwheel.delivery import Answer, BadRecord, Delivery, DeliveryQueue, Message, WrongUsage

pytestmark = pytest.mark.timeout(120)

FAR_MS = 4_000_000_000_000
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class Failing:
    """A destination that refuses until it is told not to."""

    def __init__(self) -> None:
        self.is_up = False
        self.arrived: queues.SimpleQueue[Delivery] = queues.SimpleQueue()

    def __call__(self, delivery: Delivery) -> None:
        if not self.is_up:
            raise ValueError("not now")
        self.arrived.put(delivery)


def test_a_message_is_replaced_while_it_waits_and_is_a_new_one_after_its_end__D16(tmp_path: Path) -> None:
    arrived: queues.SimpleQueue[Delivery] = queues.SimpleQueue()
    with DeliveryQueue(tmp_path / "s.db", to=arrived.put) as queue:
        assert queue.put("a", 1, due=FAR_MS, replace=True) is Answer.ACCEPTED
        assert queue.put("a", 2, due=FAR_MS + 1, key="k", replace=True) is Answer.ACCEPTED, "another name"
        assert queue.put("a", 3, delay_ms=0, replace=True) is Answer.REPLACED
        first = arrived.get(timeout=10)
        assert bytes(first.message.payload) == b"3"
        assert queue.wait_until_empty(0) is False
        while queue.state("a") is not Answer.DELIVERED:
            time.sleep(0.001)
        assert queue.put("a", 4, delay_ms=0, replace=True) is Answer.ACCEPTED
        second = arrived.get(timeout=10)
        assert (bytes(second.message.payload), second.redelivered) == (b"4", False)
        assert second.digest != first.digest, "a destination must not take it for the one that it has"
        assert queue.put("a", 4, delay_ms=0) is Answer.DUPLICATE
        while len(queue) > 1:
            time.sleep(0.001)  # until the outcome of the second is on disk


def test_a_message_that_is_put_off_is_due_at_the_latest_so_long_after_the_first__D16(tmp_path: Path) -> None:
    with DeliveryQueue(tmp_path / "s.db", to=lambda _: None) as queue:
        before_ms = time.time_ns() // 1_000_000
        for text in "ti", "tick", "tickwheel":
            queue.put("search", text, debounce_ms=600_000, at_latest_ms=700_000)
        after_ms = time.time_ns() // 1_000_000 + 1  # a part of a millisecond is rounded up
        [message] = queue.view.list().messages
        due_ms = datetime.fromisoformat(message.due).timestamp() * 1_000
        assert before_ms + 600_000 <= due_ms <= after_ms + 600_000
        queue.put("search", "once more", debounce_ms=1_600_000, at_latest_ms=5)
        [message] = queue.view.list().messages
        due_ms = datetime.fromisoformat(message.due).timestamp() * 1_000
        assert before_ms + 700_000 <= due_ms <= after_ms + 700_000, "after the first"
        queue.put("search", "later", due=FAR_MS, replace=True)
        [message] = queue.view.list().messages
        assert message.due == "2096-10-02T07:06:40.000Z", "this call names no bound"
        with pytest.raises(WrongUsage, match="leave out due and delay_ms"):
            queue.put("a", debounce_ms=5, delay_ms=5)
        for wrong in 5.0, -1, True:
            with pytest.raises(WrongUsage, match="whole number, or a timedelta, with debounce_ms or replace"):
                queue.put("a", debounce_ms=5, at_latest_ms=wrong)  # type: ignore[arg-type]
        with pytest.raises(WrongUsage, match="debounce_ms or replace"):
            queue.put("a", delay_ms=5, at_latest_ms=5)


@pytest.mark.parametrize("call", ["put_many", "submit"])
def test_of_many_some_take_the_place_of_others_in_their_order__D16(call: str, tmp_path: Path) -> None:
    with DeliveryQueue(tmp_path / "s.db", to=lambda _: None) as queue:
        many: list[Any] = [
            ("a", FAR_MS, "a 1"),
            {"id": "a", "due": FAR_MS + 1, "payload": "a 2", "replace": True},
            {"id": "a", "due": FAR_MS + 1, "payload": "a 2"},  # as the one before
            {"id": "a", "due": FAR_MS + 2, "payload": "a 3", "replace": True, "traceparent": PARENT},
            Message("b", None, FAR_MS, b"b 1"),
            {"id": "c", "payload": "c 1", "debounce_ms": 600_000, "at_latest_ms": 700_000},
            {"id": "c", "payload": "c 2", "debounce_ms": 90_000_000, "at_latest_ms": 700_000},
            {"id": "b", "due": FAR_MS, "payload": b"b 1", "replace": False},
        ]
        before_ms = time.time_ns() // 1_000_000
        given = getattr(queue, call)(many)
        answers = given if call == "put_many" else given.result(10)
        after_ms = time.time_ns() // 1_000_000 + 1  # a part of a millisecond is rounded up
        assert answers == [
            *(Answer.ACCEPTED, Answer.REPLACED, Answer.DUPLICATE, Answer.REPLACED),
            *(Answer.ACCEPTED, Answer.ACCEPTED, Answer.REPLACED, Answer.DUPLICATE),
        ]
        c, b, a = queue.view.list().messages
        assert (a.id, a.due, b.id) == ("a", "2096-10-02T07:06:40.002Z", "b")
        assert before_ms + 700_000 <= datetime.fromisoformat(c.due).timestamp() * 1_000 <= after_ms + 700_000
        shown = queue.view.show("a")
        assert shown is not None
        assert (bytes(shown.payload or b""), shown.traceparent) == (b'"a 3"', PARENT)


def test_what_can_not_take_the_place_of_another_is_told_and_none_is_accepted__D11_D16(tmp_path: Path) -> None:
    with DeliveryQueue(tmp_path / "s.db", to=lambda _: None) as queue:
        for wrong, told in (
            ({"delay_ms": 5, "debounce_ms": 5}, "leave out due and delay_ms"),
            ({"due": FAR_MS, "at_latest_ms": 5}, "whole number, or a timedelta, with debounce_ms or replace"),
            ({"due": FAR_MS, "replace": "yes"}, "replace is 'yes': give True or False"),
            ({"due": 5, "replace": True}, "due is 5, which looks like seconds"),
            (
                {"due": FAR_MS, "replaces": True},
                "it has 'replaces', and may have id, .*, replace, debounce_ms, at_latest",
            ),
        ):
            with pytest.raises((BadRecord, WrongUsage), match=told):
                queue.put_many([("a", FAR_MS, 1), {"id": "b", "due": FAR_MS, "replace": True}, {"id": "c", **wrong}])
        assert len(queue) == 0


@pytest.mark.parametrize("name", ["due_from", "due_before"])
@pytest.mark.parametrize("call", ["cancel_many", "requeue_many", "list"])
def test_a_wrong_time_is_told_by_its_name__D14_D16(name: str, call: str, tmp_path: Path) -> None:
    with DeliveryQueue(tmp_path / "s.db", to=lambda _: None) as queue:
        function = getattr(queue.view if call == "list" else queue, call)
        for wrong, why in (
            (5, "is 5, which looks like seconds"),
            ("soon", "is not a time: 'soon'"),
            ("2100-01-01", "is a date without a time of day: '2100-01-01'"),
            (datetime(2100, 1, 1), "has no zone"),  # noqa: DTZ001
            (1.5, "is 1.5, which looks like seconds; in milliseconds it is 1500"),
            (10**30, "is out of range"),
        ):
            with pytest.raises(BadRecord, match=f"^{name} {why}"):
                function(**{name: wrong})


def test_a_message_past_its_time_is_not_delivered_and_is_a_dead_letter__D17(tmp_path: Path) -> None:
    destination = Failing()
    letters: queues.SimpleQueue[Any] = queues.SimpleQueue()
    soon = datetime.now(UTC) + timedelta(milliseconds=150)
    backoff_s = (0.3, 0.3)
    with DeliveryQueue(tmp_path / "s.db", to=destination, backoff_s=backoff_s, on_dead_letter=letters.put) as queue:
        queue.put("a", "x", due=datetime.now(UTC), expires=soon, traceparent=PARENT)
        letter = letters.get(timeout=10)
        assert re.fullmatch(r"expired at \S+Z after (0 attempts|1 attempt)", letter.reason), letter.reason
        assert queue.state("a") is Answer.EXPIRED
        record = json.loads(letter.record)
        assert record["traceparent"] == PARENT
        assert datetime.fromisoformat(record["expires"]) <= soon + timedelta(milliseconds=1), "rounded up"
        assert (queue.summary.expired, queue.summary.undeliverable, queue.summary.dead_letters) == (1, 1, 1)
        [seen] = queue.view.list("expired").messages
        assert (seen.id, seen.state) == ("a", "expired")
        shown = queue.view.show("a")
        assert shown is not None
        assert shown.last_error == letter.reason
        destination.is_up = True
        assert queue.requeue("a") is Answer.REQUEUED
        again = destination.arrived.get(timeout=10)
        assert (again.message.id, again.message.expires_ms, again.message.traceparent) == ("a", None, PARENT)
        assert again.redelivered, "it was tried before"
        with pytest.raises(BadRecord, match="expires when it is due"):
            queue.put("b", due=FAR_MS, expires=FAR_MS)
        with pytest.raises(BadRecord, match="expires 1,000 ms before it is due"):
            queue.put("b", due=FAR_MS, expires=FAR_MS - 1_000)
        with pytest.raises(BadRecord, match="no traceparent"):
            queue.put("b", due=FAR_MS, traceparent="00-1-1-1")
        assert queue.put("b", due=FAR_MS, expires=FAR_MS + 1, traceparent=PARENT) is Answer.ACCEPTED
        shown = queue.view.show("b")
        assert shown is not None
        assert (shown.expires, shown.traceparent) == ("2096-10-02T07:06:40.001Z", PARENT)
        with pytest.raises(BadRecord, match="other content"):
            queue.put("b", due=FAR_MS, expires=FAR_MS + 2)


def test_dead_letters_are_tried_anew_one_or_all__D16(tmp_path: Path) -> None:
    destination = Failing()
    with DeliveryQueue(tmp_path / "s.db", to=destination, max_attempts=1) as queue:
        queue.put_many([(str(n), 100_000_000_000, "x", f"k{n % 2}") for n in range(20)])
        assert queue.wait_until_empty(10)
        assert queue.requeue("1", "k0") is Answer.UNKNOWN
        destination.is_up = True
        assert queue.requeue("1", "k1") is Answer.REQUEUED
        first = destination.arrived.get(timeout=10)
        assert (first.message.id, first.attempt, first.redelivered) == ("1", 1, True)
        id_ = queue.requeue_many(key="k1")
        assert {destination.arrived.get(timeout=10).message.id for _ in range(9)} == {str(n) for n in range(3, 20, 2)}
        action = queue.action(id_)
        assert action is not None
        assert (action.kind, action.key, action.changed, action.too_late) == ("requeue", "k1", 9, 0)
        assert action.ended is not None
        assert queue.wait_until_empty(10)
        queue.requeue_many(all=True)
        assert {destination.arrived.get(timeout=10).message.id for _ in range(10)} == {str(n) for n in range(0, 20, 2)}
        assert queue.wait_until_empty(10)
        assert not queue.view.dead().letters
        assert queue.requeue("1", "k1") is Answer.DELIVERED


def test_what_was_tried_anew_is_dead_no_more_wherever_it_is_seen__D14_D16(tmp_path: Path) -> None:
    destination = Failing()

    def seen(queue: DeliveryQueue) -> tuple[int, ...]:
        status, view = queue.view.status(), queue.view
        listed = [len(view.list(state).messages) for state in ("dead", "expired", "delivered")]
        assert listed == [status.dead, status.expired, status.delivered]
        assert len(view.dead().letters) == status.dead_letters
        return status.dead, status.expired, status.delivered, status.cancelled, status.waiting, status.dead_letters

    with DeliveryQueue(tmp_path / "s.db", to=destination, max_attempts=1) as queue:
        queue.put_many([(str(n), 100_000_000_000, "x", f"k{n}") for n in range(5)])
        queue.put("e", due=100_000_000_000, expires=100_000_000_001)
        assert queue.wait_until_empty(10)
        assert seen(queue) == (5, 1, 0, 0, 0, 6)
        assert queue.requeue("0", "k0") is Answer.REQUEUED
        assert queue.wait_until_empty(10)
        assert seen(queue) == (5, 1, 0, 0, 0, 6)  # it failed again
        destination.is_up = True
        for _ in range(2):
            assert queue.requeue("0", "k0") in (Answer.REQUEUED, Answer.DELIVERED)
            assert queue.wait_until_empty(10)
        assert seen(queue) == (4, 1, 1, 0, 0, 5)
        assert queue.put("1", "other", key="k1", delay_ms=0) is Answer.ACCEPTED
        assert queue.wait_until_empty(10)
        assert seen(queue) == (4, 1, 2, 0, 0, 5)  # that is another message, and the letter is there
        queue.pause()
        assert queue.requeue("e") is Answer.REQUEUED
        assert seen(queue) == (4, 0, 2, 0, 1, 4)
        assert queue.cancel("e") is Answer.CANCELLED
        assert seen(queue) == (4, 0, 2, 1, 0, 4)


def test_many_are_cancelled_by_key_prefix_and_time_beside_delivery__D16(tmp_path: Path) -> None:
    is_ended = threading.Event()
    with DeliveryQueue(tmp_path / "s.db", to=lambda it: is_ended.set() if it.message.id == "end" else None) as queue:
        queue.put_many([(str(n), FAR_MS + n, n, f"user/{n % 4}") for n in range(12_000)])
        queue.put("end", delay_ms=300)
        first = queue.cancel_many(key_prefix="user/", due_before=FAR_MS + 6_000, action="first")
        assert first == "first"
        same = queue.cancel_many(key_prefix="user/", due_before=FAR_MS + 6_000, action="first")
        assert same == "first", "the same again does nothing"
        with pytest.raises(BadRecord, match="of another action"):
            queue.cancel_many(all=True, action="first")
        with pytest.raises(WrongUsage, match="all is 'false'"):
            queue.cancel_many(all="false")  # type: ignore[arg-type]
        second = queue.cancel_many(key="user/1", due_from=FAR_MS)
        assert is_ended.wait(10)
        while (action := queue.action(second)) is None or action.ended is None:
            time.sleep(0.001)
        assert (action.changed, action.due_from) == (1_500, "2096-10-02T07:06:40.000Z")
        assert [it.id for it in queue.view.actions()] == [second, "first"]
        while len(queue) > 4_500:
            time.sleep(0.001)  # until the outcome of the last one is on disk
        assert (queue.summary.cancelled, len(queue)) == (7_500, 4_500)
        assert queue.action("other") is None
        with pytest.raises(WrongUsage, match="neither is given"):
            queue.cancel_many()
        with pytest.raises(WrongUsage, match="both are given"):
            queue.cancel_many(all=True, key="k")
        with pytest.raises(WrongUsage, match="key is ''"):
            queue.cancel_many(key="")
        with pytest.raises(BadRecord, match="looks like seconds"):
            queue.cancel_many(due_from=5)


RECORDS = [
    {"id": "a", "due": FAR_MS, "payload": 1},
    {"id": "a", "op": "reschedule", "due": "2096-10-02T07:06:41Z"},
    {"id": "b", "op": "reschedule", "delay_ms": 5},
]


def test_a_record_may_ask_for_another_time__D1_D16(tmp_path: Path) -> None:
    with DeliveryQueue(tmp_path / "s.db", to=lambda _: None) as queue:
        lines = b"".join(json.dumps(record).encode() + b"\n" for record in RECORDS)
        assert queue.submit_ndjson(lines).result() == [Answer.ACCEPTED, Answer.RESCHEDULED, Answer.UNKNOWN]
        assert queue.reschedule("a", due=FAR_MS + 7) is Answer.RESCHEDULED
        [message] = queue.view.list().messages
        assert message.due == "2096-10-02T07:06:40.007Z"
        assert (queue.summary.rescheduled, queue.summary.reschedules_too_late) == (2, 1)
        wrong = (
            b'{"id": "a", "op": "reschedule", "due": 4000000000000, "payload": 1}\n{"id": "a", "op": "reschedule"}\n'
        )
        reasons = [it.reason for it in queue.submit_ndjson(wrong).result() if isinstance(it, BadRecord)]
        assert reasons == ["a reschedule has more than a name and a time", "due is missing"]


def test_a_file_may_ask_for_another_time__D1_D16(tmp_path: Path) -> None:
    messages = tmp_path / "in.csv"
    messages.write_text(
        "id,due,op,expires,text\n"
        f"a,{FAR_MS},,,one\n"
        "a,1970-01-01T00:00:01Z,reschedule,,\n"
        "b,1970-01-01T00:00:01Z,,1970-01-01T00:00:02Z,two\n"
    )
    out, summary, dead = tmp_path / "out", tmp_path / "summary.json", tmp_path / "dead"
    arguments = [str(messages), "--to", f"file:{out}", "--summary", str(summary), "--dead-letters", str(dead)]
    seen = CliRunner().invoke(command, ["deliver", *arguments, "--store", str(tmp_path / "s.db")])
    assert seen.exit_code == 1, seen.output
    assert [json.loads(line)["id"] for line in out.read_text().splitlines()] == ["a"]
    counts = json.loads(summary.read_text())
    assert (counts["rescheduled"], counts["expired"], counts["dead_letters"]) == (1, 1, 1)
    [letter] = map(json.loads, dead.read_text().splitlines())
    assert letter["reason"] == "expired at 1970-01-01T00:00:02.000Z after 0 attempts"
