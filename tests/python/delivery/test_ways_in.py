"""The ways into a queue in Python: values and lines, by one set of rules, an answer for each (D1, D2, D11)."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tickwheel.delivery import Answer, BadRecord, Cancel, DeliveryFailed, DeliveryQueue, Letter, Message

pytestmark = pytest.mark.timeout(30)
FAR_MS = 4_000_000_000_000


@pytest.fixture
def letters() -> list[Letter]:
    return []


@pytest.fixture
def queue(tmp_path: Path, letters: list[Letter]) -> Iterator[DeliveryQueue]:
    with DeliveryQueue(tmp_path / "s.db", to=lambda _: None, on_dead_letter=letters.append) as opened:
        yield opened


def shown(answers: list[Answer | BadRecord]) -> list[str]:
    return [answer.reason if isinstance(answer, BadRecord) else answer for answer in answers]


WAYS: dict[str, Callable[[DeliveryQueue, int], object]] = {
    "put": lambda queue, due: queue.put("a", due=due),
    "a dict": lambda queue, due: queue.put_many([{"id": "a", "due": due}]),
    "a tuple": lambda queue, due: queue.put_many([("a", due, 1)]),
    "a line": lambda queue, due: queue.submit_ndjson(b'{"id": "a", "due": %d}' % due).result(),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("due", [5, 1_790_000_000, 99_999_999_999])
def test_an_integer_that_looks_like_seconds_is_refused_by_every_way__D1(
    queue: DeliveryQueue, way: str, due: int
) -> None:
    why = f"due is {due}, which looks like seconds; in milliseconds it is {due * 1000}"
    try:
        found: Any = WAYS[way](queue, due)
    except BadRecord as bad:
        found = [bad]
    assert shown(found) == [why]
    assert len(queue) == 0
    WAYS[way](queue, 100_000_000_000)
    assert queue.wait_until_empty(10)
    assert queue.summary.delivered == 1


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"id": None}, "id is missing"),
        ({"id": ""}, "id is empty"),
        ({"id": 5}, "id is not text"),
        ({"id": "\ud800"}, "id has half of a surrogate pair"),
        ({"key": b"k"}, "key is not text"),
        ({"key": ""}, "key is empty"),
        ({"key": "\udc00"}, "key has half of a surrogate pair"),
        ({"due": None}, "due is missing"),
        ({"due": True}, "due is neither a time nor an integer"),
        ({"due": 4e12 + 0.5}, "due is 4000000000000.5, which is no whole number of milliseconds"),
        ({"due": 10**30}, "due is out of range"),
        ({"due": -(10**50)}, "due is out of range"),
        ({"due": "2100-01-01T00:00:00"}, "due has no zone: '2100-01-01T00:00:00'"),
        ({"due": datetime(2100, 1, 1)}, "due has no zone: '2100-01-01T00:00:00'"),  # noqa: DTZ001
        ({"delay_ms": 5}, "both due and delay_ms are given"),
        ({"due": None, "delay_ms": float("nan")}, "delay_ms is not a number in range"),
        ({"due": None, "delay_ms": True}, "delay_ms is not a number in range"),
        ({"due": None, "delay_ms": "5"}, "delay_ms is not a number in range"),
        ({"payload": "x" * (1 << 20)}, "the payload has 1,048,578 bytes"),
        ({"payload": msgspec.Raw(b"[1")}, "the payload is not JSON: EOF while parsing a list, at byte 2"),
    ],
)
def test_values_are_checked_as_records_are__D1(queue: DeliveryQueue, values: dict[str, Any], reason: str) -> None:
    given: dict[str, Any] = {"id": "a", "due": FAR_MS} | values
    with pytest.raises(BadRecord) as refused:
        queue.put_many([("good", FAR_MS, 1), given])
    assert refused.value.reason == reason
    assert refused.value.allowed
    assert len(queue) == 0, "none is accepted"


def test_times_of_every_kind_are_the_same_time__D1(queue: DeliveryQueue) -> None:
    at = datetime(2100, 1, 1, 9, tzinfo=UTC)
    due_ms = round(at.timestamp() * 1000)
    given = [at, at.isoformat(), "2100-01-01T10:00:00.000+01:00", due_ms, str(at)]
    assert queue.put("a", {"x": 1.5}, due=due_ms) is Answer.ACCEPTED
    assert [queue.put("a", {"x": 1.5}, due=due) for due in given] == [Answer.DUPLICATE] * 5
    assert queue.put("a", msgspec.Raw(b'{"x":1.5}'), due=due_ms) is Answer.DUPLICATE
    assert queue.put("b", msgspec.Raw(b"[1,\n2]"), due=due_ms) is Answer.ACCEPTED
    assert queue.put("b", msgspec.Raw(b"[1, 2]"), due=due_ms) is Answer.DUPLICATE
    [answer] = queue.put_many([Message("a", None, due_ms, msgspec.Raw(b'{"x":1.5}'))])
    assert answer is Answer.DUPLICATE


def test_lines_are_answered_one_by_one_in_order_and_a_bad_one_costs_itself_only__D2_D11(
    queue: DeliveryQueue, letters: list[Letter]
) -> None:
    lines = [
        b'{"id": "a", "due": %d}' % FAR_MS,
        b"",
        b"oops",
        b'{"id": "a", "due": %d}' % FAR_MS,
        b'{"id": "a", "due": %d}' % (FAR_MS + 1),
        b'{"id": "a", "op": "cancel"}',
        b'{"id": "b", "due": %d, "paylod": 1}' % FAR_MS,
    ]
    assert shown(queue.submit_ndjson(b"\n".join(lines)).result(10)) == [
        "accepted",
        "not a JSON object: expected value, at byte 1",
        "duplicate",
        "conflict",
        "cancelled",
        "'paylod' is not a field: payload is probably meant",
    ]
    assert queue.submit_ndjson(b"").result(10) == []
    assert letters == []


def test_a_queue_that_failed_says_so_to_lines_too__D11(tmp_path: Path) -> None:
    opened = DeliveryQueue(tmp_path / "f.db", to=lambda _: None)
    opened._running.fail(DeliveryFailed("the destination is gone"))
    for submit in (
        lambda: opened.submit_ndjson(b'{"id": "a", "delay_ms": 5}'),
        lambda: opened.submit([Cancel("a", None)]),
    ):
        with pytest.raises(DeliveryFailed, match="the destination is gone"):
            submit().result(10)
    with pytest.raises(DeliveryFailed, match="the destination is gone"):
        opened.close()
