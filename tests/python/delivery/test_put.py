"""What `put` and `put_many` take and refuse, and that a call which fails accepts nothing (rules D1, D11)."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from tickwheel.delivery import Answer, BadRecord, Cancel, Delivery, DeliveryQueue, Message, WrongUsage
from tickwheel.delivery.outbox.records import record_of, reschedule_record

pytestmark = pytest.mark.timeout(60)
LATER_MS = 4_000_000_000_000


@dataclass
class Order:
    total: float
    note: str | None = None


def cycle() -> list[Any]:
    inner: list[Any] = []
    inner.append({"again": inner})
    return inner


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[DeliveryQueue]:
    with DeliveryQueue(tmp_path / "store.db", to=lambda _: None) as made:
        yield made


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (float("nan"), "no NaN and no infinity"),
        ({"a": [None, {"b": float("inf")}]}, "no NaN and no infinity"),
        ((1.0, float("-inf")), "no NaN and no infinity"),
        (Order(float("nan")), "no NaN and no infinity"),
        ("half \ud83d", "half of a surrogate pair"),
        ({"\udc00": 1}, "half of a surrogate pair"),
        (cycle(), "nested too deep, or contains itself"),
        (nested(100_000), "nested too deep, or contains itself"),
        (object(), "type object is unsupported"),
    ],
)
def test_a_payload_that_json_can_not_hold_is_refused__D1(queue: DeliveryQueue, payload: Any, why: str) -> None:
    with pytest.raises(WrongUsage, match=why) as error:
        queue.put("a", payload, due=LATER_MS)
    assert isinstance(error.value, ValueError)
    with pytest.raises(WrongUsage, match=why):
        queue.put_many([("a", LATER_MS, b""), ("b", LATER_MS, payload)])
    assert len(queue) == 0


@pytest.mark.parametrize("payload", [None, [None, 1.5], {"null": "nan"}, "null", Order(1.5), [1e308, -0.0]])
def test_a_null_is_a_null__D1(queue: DeliveryQueue, payload: Any) -> None:
    assert queue.put("a", payload, due=LATER_MS) is Answer.ACCEPTED


@pytest.mark.parametrize(
    ("payload", "same"), [(5, 5), (None, None), ("é", "é"), ([1, 2], [1, 2]), (bytearray(b"1"), b"1")], ids=repr
)
def test_the_payload_of_a_message_object_is_any_value__D1(queue: DeliveryQueue, payload: Any, same: Any) -> None:
    message = Message("a", "k", LATER_MS, payload)
    assert queue.put_many([message]) == [Answer.ACCEPTED]
    assert queue.put("a", same, key="k", due=LATER_MS) is Answer.DUPLICATE
    assert queue.submit([message]).result() == [Answer.DUPLICATE]


def test_submit_takes_what_put_many_takes__D1(queue: DeliveryQueue) -> None:
    given = [{"id": "a", "due": LATER_MS, "payload": {"x": 1}}, ("b", LATER_MS, None, "k"), Cancel("b", "k")]
    assert queue.submit(given).result() == [Answer.ACCEPTED, Answer.ACCEPTED, Answer.CANCELLED]


def test_a_message_that_was_cancelled_before_it_came_is_in_the_log__D7(
    queue: DeliveryQueue, caplog: pytest.LogCaptureFixture
) -> None:
    for id_ in "ab":
        assert queue.cancel(id_, key="k\n1") is Answer.UNKNOWN
    assert queue.put("a", due=LATER_MS, key="k\n1") is Answer.CANCELLED
    many = [Message("new", None, LATER_MS, {})] + [Message(id_, "k\n1", LATER_MS, {}) for id_ in "ba"]
    assert queue.put_many(many) == [Answer.ACCEPTED, Answer.CANCELLED, Answer.CANCELLED]
    assert queue.put_many(many[:1]) == [Answer.DUPLICATE]
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "message 'a' of key 'k\\n1' not accepted: it was cancelled before"),
        ("WARNING", "2 of 3 messages not accepted: cancelled before, the first is 'b' of key 'k\\n1'"),
    ]


@pytest.mark.parametrize("call", ["put_many", "submit"])
def test_an_unknown_field_is_named__D1(queue: DeliveryQueue, call: str) -> None:
    with pytest.raises(WrongUsage, match="it has 'paylod', and may have id, due, delay_ms, payload, key") as error:
        getattr(queue, call)([{"id": "a", "due": LATER_MS}, {"id": "b", "due": LATER_MS, "paylod": 1}])
    assert error.value.__notes__ == ["It is number 1 of those that were given, counted from 0."]
    assert len(queue) == 0


def test_a_delay_that_is_no_number_is_told__D1(queue: DeliveryQueue) -> None:
    with pytest.raises(BadRecord, match=r"delay_ms is 'soon'.*a number of milliseconds"):
        queue.put_many([Message("a", None, LATER_MS, b"", "soon")])  # type: ignore[arg-type]


SPANS = {"delay_ms": 90_000.5, "every": 90_000, "debounce_ms": 90_000, "at_latest_ms": 90_000}


@pytest.mark.parametrize("name", SPANS)
def test_a_span_of_time_may_be_a_timedelta__D1(queue: DeliveryQueue, name: str) -> None:
    rest = {"debounce_ms": 60_000} if name == "at_latest_ms" else {}
    span = timedelta(milliseconds=SPANS[name])
    assert queue.put("a", 1, **{name: span}, **rest) is Answer.ACCEPTED
    assert queue.put("a", 1, **{name: SPANS[name]}, **rest) in (Answer.DUPLICATE, Answer.REPLACED)


def test_another_due_time_may_be_a_timedelta_from_now__D16(queue: DeliveryQueue) -> None:
    queue.put("a", 1, delay_ms=timedelta(days=1))
    assert queue.reschedule("a", delay_ms=timedelta(days=40)) is Answer.RESCHEDULED
    seen = queue.view.show("a")
    assert seen is not None
    assert seen.due is not None
    assert queue.view.list(due_from=seen.due).messages


@pytest.mark.parametrize(("span", "ms"), [(timedelta(hours=1), b"3600000"), (timedelta(microseconds=1500), b"1.5")])
def test_a_record_of_an_outbox_has_milliseconds__D1(span: timedelta, ms: bytes) -> None:
    assert f'"delay_ms":{ms.decode()}' in record_of({"id": "a", "payload": 1, "delay_ms": span})
    assert f'"delay_ms":{ms.decode()}' in reschedule_record("a", None, None, span)


@pytest.mark.parametrize("name", ["due", "expires"])
def test_an_instant_is_no_timedelta__D1(queue: DeliveryQueue, name: str) -> None:
    with pytest.raises(BadRecord, match=name):
        queue.put("a", 1, **{"due": LATER_MS, name: timedelta(hours=1)})


@pytest.mark.parametrize(
    ("payload", "value"),
    [(msgspec.Raw(b'{"a": [1, null]}'), {"a": [1, None]}), (b" 12.5", 12.5), (msgspec.Raw('"\u00fc"'), "\u00fc")],
)
def test_a_delivery_decodes_its_payload__D1(payload: Any, value: Any) -> None:
    assert Delivery(1, Message("a", None, 1, payload), 2, 0).json() == value


@pytest.mark.parametrize("payload", [b"", b"\xff", b"{", b"[1] 2"])
def test_bytes_that_are_no_json_raise_a_value_error__D1(payload: bytes) -> None:
    with pytest.raises(ValueError):
        Delivery(1, Message("a", None, 1, payload), 2, 0).json()


@pytest.mark.parametrize("delay_ms", [float("nan"), float("inf"), float("-inf"), 1e300], ids=str)
def test_a_delay_of_a_message_object_is_a_number_in_range__D1(queue: DeliveryQueue, delay_ms: float) -> None:
    message = Message("a", None, LATER_MS, b"", delay_ms)
    for give in (queue.put_many, queue.submit):
        with pytest.raises(BadRecord, match=r"delay_ms is not a number in range .allowed: delay_ms: milliseconds"):
            give([message])
    assert len(queue) == 0


@pytest.mark.parametrize("payload", [b'{"a":null}', b'{"text":"nullable"}', b"1"])
def test_the_payload_of_a_delivery_is_taken_again__D1(queue: DeliveryQueue, payload: bytes) -> None:
    raw = msgspec.Raw(payload)
    given = [("a", LATER_MS, raw), {"id": "b", "due": LATER_MS, "payload": raw}, ("c", LATER_MS, {"of": [raw, None]})]
    assert queue.put_many(given) == [Answer.ACCEPTED] * 3
    assert queue.put("d", raw, due=LATER_MS) == Answer.ACCEPTED
    with pytest.raises(WrongUsage, match="no NaN"):
        queue.put("e", {"of": raw, "nan": float("nan")}, due=LATER_MS)


class Record(NamedTuple):
    id: str
    due: int
    payload: object


@pytest.mark.parametrize("given", [["a", LATER_MS, 1], Record("a", LATER_MS, 1), {"id": "a", "due": LATER_MS}], ids=str)
def test_submit_takes_a_message_as_put_many_does__D11(queue: DeliveryQueue, given: Any) -> None:
    assert queue.submit([given]).result(20) == [Answer.ACCEPTED]
    assert queue.put_many([given]) == [Answer.DUPLICATE]


class Reminder(Message):
    """A program's own kind of message."""


def test_an_object_of_a_subclass_is_taken_like_one_of_the_class__D11(queue: DeliveryQueue) -> None:
    assert queue.put_many([Reminder("a", None, LATER_MS, b"")]) == [Answer.ACCEPTED]
    assert queue.submit([Reminder("a", None, LATER_MS, b"")]).result(20) == [Answer.DUPLICATE]
    own_cancel = type("OwnCancel", (Cancel,), {})
    assert queue.submit([own_cancel("a", None)]).result(20) == [Answer.CANCELLED]


@pytest.mark.parametrize("keep_days", [10**30, -1, 36_501, 1.5, float("nan"), True, None, "7"], ids=str)
def test_a_cancel_is_kept_for_whole_days__D7(queue: DeliveryQueue, keep_days: Any) -> None:
    with pytest.raises(BadRecord, match=r"keep_days is .*a whole number of days, 0 to 36,500"):
        queue.submit([Cancel("a", None, keep_days)])
    assert queue.submit([Cancel("a", None, 36_500)]).result(20) == [Answer.UNKNOWN]


@pytest.mark.parametrize("given", [5, None, Message("a", None, LATER_MS, b"")], ids=["number", "none", "message"])
def test_what_holds_no_messages_is_told_what_would__D2(queue: DeliveryQueue, given: Any) -> None:
    with pytest.raises(WrongUsage, match="can't be put: give a list of messages, or another iterable"):
        queue.put_many(given)
    with pytest.raises(TypeError, match="can't be submitted: give a sequence of Messages, Cancels and Looks"):
        queue.submit(given)


BAD: dict[str, Any] = {
    "due in seconds": {"id": "bad", "due": 5},
    "no id": {"id": "", "due": LATER_MS},
    "no payload": ("bad", LATER_MS),
    "nan": ("bad", LATER_MS, float("nan")),
    "no JSON": Message("bad", None, LATER_MS, msgspec.Raw(b"{")),
    "no message": 5,
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_of_many_with_a_bad_one_none_is_accepted__D11(queue: DeliveryQueue, bad: Any) -> None:
    many = [(f"{number}", LATER_MS, b"") for number in range(2_500)]
    with pytest.raises((BadRecord, WrongUsage)):
        queue.put_many([*many, bad])
    assert (len(queue), queue.state("0")) == (0, Answer.UNKNOWN)
    assert queue.put_many(many) == [Answer.ACCEPTED] * 2_500


def test_of_an_iterable_that_raises_none_is_accepted__D11(queue: DeliveryQueue) -> None:
    def breaks() -> Iterator[tuple[str, int, bytes]]:
        for number in range(2_500):
            yield f"{number}", LATER_MS, b""
        raise OSError("the source is gone")

    with pytest.raises(OSError, match="the source is gone"):
        queue.put_many(breaks())
    assert (len(queue), queue.put_many([])) == (0, [])
