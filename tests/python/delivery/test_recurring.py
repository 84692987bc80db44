"""Messages that come again and again: `every` and `cron` in every input, what is shown, what is refused (rule D19)."""

import json
import queue as queues
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from delivery.records import read_csv, read_ndjson
from tickwheel._native import ArrowRows
from tickwheel.delivery import Answer, BadRecord, Delivery, DeliveryQueue, Message, WrongUsage
from tickwheel.delivery.model.message import MAX_PAYLOAD, Columns
from tickwheel.delivery.read.arrow import read_batch
from tickwheel.delivery.sight import Rule

pytestmark = pytest.mark.timeout(60)
PAST_MS = 1_700_000_000_000
FAR_MS = 4_000_000_000_000
LONG_S = 30


class Arrived:
    """A destination that remembers what it got."""

    def __init__(self) -> None:
        self.messages: queues.Queue[Message] = queues.Queue()

    def __call__(self, delivery: Delivery) -> None:
        self.messages.put(delivery.message)

    def next(self) -> Message:
        return self.messages.get(timeout=LONG_S)


@pytest.fixture
def arrived() -> Arrived:
    return Arrived()


@pytest.fixture
def queue(tmp_path: Path, arrived: Arrived) -> Iterator[DeliveryQueue]:
    with DeliveryQueue(tmp_path / "store.db", to=arrived) as made:
        yield made


def test_each_occurrence_arrives_with_a_name_of_its_own__D19(queue: DeliveryQueue, arrived: Arrived) -> None:
    assert queue.put("beat", {"a": 1}, key="k", every=50, due=PAST_MS) is Answer.ACCEPTED
    assert queue.state("beat", "k") is Answer.RECURRING
    first, second, third = arrived.next(), arrived.next(), arrived.next()
    assert (first.id, first.key, first.due_ms) == ("beat@2023-11-14T22:13:20.000Z", "k", PAST_MS)
    assert bytes(first.payload) == b'{"a":1}'
    assert second.due_ms > PAST_MS + 50, "what was missed is left out"
    assert (second.due_ms - PAST_MS) % 50 == (third.due_ms - second.due_ms) % 50 == 0
    assert queue.cancel("beat", "k") is Answer.CANCELLED
    assert queue.wait_until_empty(LONG_S)


def test_what_was_missed_may_be_delivered__D19(tmp_path: Path, arrived: Arrived) -> None:
    with DeliveryQueue(tmp_path / "s.db", to=arrived) as queue:
        queue.put("beat", every=86_400_000, due=PAST_MS, missed="all")
        due = [arrived.next().due_ms for _ in range(5)]
    assert due == [PAST_MS + day * 86_400_000 for day in range(5)]


def test_a_program_may_put_its_rules_at_each_start__D19(tmp_path: Path) -> None:
    for expected in (Answer.ACCEPTED, Answer.DUPLICATE):
        with DeliveryQueue(tmp_path / "s.db", to=lambda _: None) as queue:
            assert queue.put("report", cron="30 9 * * MON-FRI", tz="Europe/Berlin") is expected
            [rule] = queue.view.list("recurring").messages
            assert rule.rule == Rule(missed="skip", cron="30 9 * * MON-FRI", tz="Europe/Berlin")
    with DeliveryQueue(tmp_path / "s.db", to=lambda _: None) as queue:
        assert queue.put("report", cron="0 10 * * *", tz="Europe/Berlin") is Answer.REPLACED
        assert queue.put("report", cron="0 10 * * *", tz="Europe/Berlin", replace=True) is Answer.REPLACED
        [rule] = queue.view.list("recurring").messages
        assert str(rule.rule) == "0 10 * * * in Europe/Berlin, missed: skip"
        [occurrence] = queue.view.list("waiting").messages
        assert occurrence.id == f"report@{occurrence.due}" == queue.view.show("report").next_id  # type: ignore[union-attr]
        assert queue.put_many([{"id": "many", "every": 60_000, "payload": 1}]) == [Answer.ACCEPTED]


def test_pages_of_rules_have_the_filters_of_messages__D14_D19(queue: DeliveryQueue) -> None:
    for n in range(7):
        queue.put(f"r{n}", n, key=f"k{n % 2}", every=1_000, due=FAR_MS + n)
    view = queue.view
    page = view.list("recurring", limit=3)
    assert [it.id for it in page.messages] == ["r0", "r1", "r2"]
    rest = view.list("recurring", limit=1_000, cursor=page.next)
    assert ([it.id for it in rest.messages], rest.next) == (["r3", "r4", "r5", "r6"], None)
    assert [it.id for it in view.list("recurring", key="k1").messages] == ["r1", "r3", "r5"]
    due = view.list("recurring", due_from=FAR_MS + 2, due_before=FAR_MS + 4)
    assert [it.id for it in due.messages] == ["r2", "r3"]
    status = view.status()
    assert (status.waiting, status.recurring, status.first_due) == (7, 7, "2096-10-02T07:06:40.000Z")
    assert len(view.list("waiting").messages) == 7, "the occurrences alone"


def test_an_occurrence_is_cancelled_before_it_is_made_and_put_off__D7_D16_D19(
    queue: DeliveryQueue, arrived: Arrived
) -> None:
    day = 86_400_000
    assert queue.cancel("r@2023-11-15T22:13:20.000Z") is Answer.UNKNOWN
    queue.put("r", every=day, due=PAST_MS, missed="all")
    assert [arrived.next().due_ms for _ in range(2)] == [PAST_MS, PAST_MS + 2 * day]
    queue.put("far", every=day, due=FAR_MS)
    assert queue.reschedule("far", due=FAR_MS + 5) is Answer.RESCHEDULED
    shown = queue.view.show("far")
    assert shown is not None
    assert (shown.due, shown.next_id) == ("2096-10-02T07:06:40.005Z", "far@2096-10-02T07:06:40.000Z")


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ({"every": 0}, "every is 0"),
        ({"every": -5}, "every is -5"),
        ({"every": 1.5}, "every is not a whole number in range"),
        ({"every": "60000"}, "every is not a whole number in range"),
        ({"every": True}, "every is not a whole number in range"),
        ({"every": 10**30}, "every is not a whole number in range"),
        ({"every": 253_402_300_800_000}, "every is 253402300800000"),
        ({"every": 5, "cron": "* * * * *"}, "both every and cron are given"),
        ({"every": 5, "tz": "UTC"}, "tz is given with every"),
        ({"every": 5, "missed": "never"}, "missed is 'never'"),
        ({"every": 5, "missed": 1}, "missed is not text"),
        ({"every": 5, "expires": FAR_MS}, "a recurring message can't expire"),
        ({"every": 5, "due": 5}, "due is 5, which looks like seconds"),
        ({"cron": 5}, "cron is not text"),
        ({"cron": ""}, "cron is ''"),
        ({"cron": "* * * *"}, "cron is '* * * *'"),
        ({"cron": "0 0 31 2 *"}, "it never comes"),
        ({"cron": "* * * * *", "tz": "Europe/Berlim"}, "tz is 'Europe/Berlim': no time zone"),
        ({"cron": "* * * * *", "tz": 5}, "tz is not text"),
    ],
)
def test_what_is_no_rule_is_refused_with_what_would_be_one__D2_D19(
    queue: DeliveryQueue, rule: dict[str, Any], reason: str
) -> None:
    with pytest.raises(BadRecord) as error:
        queue.put("r", 1, **rule)
    assert reason in error.value.reason
    assert error.value.allowed
    [found] = read_ndjson(json.dumps({"id": "r", "payload": 1, **rule}).encode(), now_ns=10**18)
    assert str(found.bad) == str(error.value)
    assert queue.state("r") is Answer.UNKNOWN


def test_it_can_not_be_debounced__D16_D19(queue: DeliveryQueue) -> None:
    for wrong in ({"debounce_ms": 5}, {"at_latest_ms": 5, "replace": True}):
        with pytest.raises(WrongUsage, match="recurs can't be debounced"):
            queue.put("r", 1, every=5, **wrong)  # type: ignore[arg-type]


def test_tz_and_missed_are_fields_of_a_payload_where_nothing_recurs__D1_D19() -> None:
    [once] = read_ndjson(b'{"id": "a", "due": "2030-01-01T00:00:00Z", "tz": "UTC", "missed": 3}')
    assert isinstance(once.item, Message)
    assert bytes(once.item.payload) == b'{"tz":"UTC","missed":3}'
    [again] = read_ndjson(b'{"id": "a", "every": 5, "missed": "all", "tz": null, "text": "x"}')
    assert isinstance(again.item, Message)
    assert bytes(again.item.payload) == b'{"text":"x"}'
    for near in (b'"Missed": "all"', b'"missd": "all"', b'"tz ": "UTC"'):
        [bad] = read_ndjson(b'{"id": "a", "every": 5, %s}' % near)
        assert bad.bad is not None
        assert "is probably meant" in bad.bad.reason
    [bad] = read_ndjson(b'{"id": "a", "evry": 5, "due": "2030-01-01T00:00:00Z"}')
    assert bad.bad is not None
    assert bad.bad.reason == "'evry' is not a field: every is probably meant"


def test_csv_and_arrow_have_the_same_columns__D1_D19(queue: DeliveryQueue) -> None:
    header = b"id,due,every,cron,tz,missed,payload\n"
    text = header + b"a,,60000,,,last,x\nb,,,0 9 * * *,Europe/Berlin,,y\nc,2030-01-01T00:00:00Z,,,,,z\n"
    items = [found.item for found in read_csv(text, now_ns=10**18)]
    assert [item.id for item in items if isinstance(item, Message)] == ["a", "b", "c"]
    [bad] = read_csv(b"id,every\na,5s\n", now_ns=10**18)
    assert bad.bad is not None
    assert bad.bad.reason == "every is not a whole number in range"
    batch = pa.record_batch(
        {
            "id": ["a", "b", "c"],
            "due": [None, None, "2096-10-02T07:06:40Z"],
            "every": pa.array([60_000, None, None], pa.int32()),
            "cron": [None, "0 9 * * *", None],
            "tz": [None, "Europe/Berlin", None],
            "missed": ["last", None, None],
        }
    )
    [records] = read_batch(ArrowRows("-", Columns(), MAX_PAYLOAD), batch, now_ns=10**18)
    assert queue._running.submit(records).result() == [Answer.ACCEPTED] * 3
    rules = {it.id: str(it.rule) for it in queue.view.list("recurring").messages}
    assert rules == {"a": "every 60,000 ms, missed: last", "b": "0 9 * * * in Europe/Berlin, missed: skip"}
    shown = queue.view.show("a")
    assert shown is not None
    assert bytes(shown.payload or b"") == b"{}"


def test_a_replay_has_none__D11_D19() -> None:
    [bad] = read_ndjson(b'{"id": "a", "every": 5}', now_ns=None)
    assert bad.bad is not None
    assert "a replay does not have" in bad.bad.reason


def test_an_occurrence_is_no_rule_and_one_that_was_withdrawn_is_shown__D14_D19(queue: DeliveryQueue) -> None:
    with pytest.raises(BadRecord, match="the id is that of an occurrence"):
        queue.put("r@2096-10-02T07:06:40.000Z", 1, every=5)
    queue.put("r", "old", every=10**9, due=FAR_MS)
    queue.put("r", "new", every=10**9, due=FAR_MS + 5)
    shown = queue.view.show("r@2096-10-02T07:06:40.000Z")
    assert shown is not None
    assert shown.state == "cancelled"
    assert [it.id for it in queue.view.list("cancelled").messages] == ["r@2096-10-02T07:06:40.000Z"]
    status = queue.view.status()
    assert (status.cancelled, status.waiting, status.recurring) == (1, 1, 1)
