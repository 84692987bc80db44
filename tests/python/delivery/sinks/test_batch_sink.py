"""A sink that takes Arrow batches: `send_batch(RecordBatch) -> mask`."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from delivery.conftest import START_MS, Desk
from tickwheel.delivery import DeliveryFailed, Message, Unanswered, Unavailable, WrongUsage
from tickwheel.delivery.model.retry import Retry
from tickwheel.delivery.model.settings import Settings
from tickwheel.delivery.sinks import BatchSink, Delivery

pytestmark = pytest.mark.timeout(30)

JSON = msgspec.Raw(b"1.50")
COLUMNS = {
    "seq": pa.int64(),
    "id": pa.string(),
    "key": pa.string(),
    "due_ms": pa.int64(),
    "payload": pa.binary(),
    "is_json": pa.bool_(),
    "delivered_at_ms": pa.int64(),
    "lateness_us": pa.int64(),
    "attempt": pa.uint32(),
    "redelivered": pa.bool_(),
    "digest": pa.binary(16),
}


class Remembering(BatchSink):
    """Answers what the test says."""

    def __init__(self, answer: Callable[[Any], Any] = lambda batch: [True] * len(batch)) -> None:
        self.batches: list[Any] = []
        self.answer = answer

    def send_batch(self, batch: Any) -> Any:
        self.batches.append(batch)
        return self.answer(batch)


def message(id_: str, payload: msgspec.Raw | bytes = JSON, key: str | None = None) -> Message:
    return Message(id_, key, START_MS - 2, payload)


def desk_to(folder: Path, sink: BatchSink, max_attempts: int = 1) -> Desk:
    opener: Any = lambda store_id: sink  # noqa: E731
    return Desk(folder, Settings(retry=Retry(max_attempts)), to=opener).start()


def reasons(folder: Path, answer: Callable[[Any], Any]) -> dict[str, str]:
    """Delivers a, b and c by one attempt each, and returns the reasons of those that were given up."""
    desk = desk_to(folder, Remembering(answer))
    desk.hand_in(message("a"), message("b"), message("c"))
    desk.close()
    gave_up = "gave up after 1 attempts: "
    return {msgspec.json.decode(it.record)["id"]: it.reason.removeprefix(gave_up) for it in desk.letters}


def test_a_batch_has_a_row_for_each_delivery__D10(tmp_path: Path) -> None:
    sink = Remembering()
    desk = desk_to(tmp_path, sink)
    desk.hand_in(message("a", key="k"), message("\U0001f600", b"\xff\x00"))
    desk.close()
    [batch] = sink.batches
    assert isinstance(batch, pa.RecordBatch)
    assert {field.name: field.type for field in batch.schema} == COLUMNS
    batch.validate(full=True)
    same = Delivery(1, message("a", key="k"), START_MS, 2000)
    assert batch.to_pylist()[0] == {
        "seq": 1,
        "id": "a",
        "key": "k",
        "due_ms": START_MS - 2,
        "payload": b"1.50",
        "is_json": True,
        "delivered_at_ms": START_MS,
        "lateness_us": 2000,
        "attempt": 1,
        "redelivered": False,
        "digest": same.digest,
    }
    second = batch.to_pylist()[1]
    assert (second["id"], second["key"], second["payload"], second["is_json"]) == (
        "\U0001f600",
        None,
        b"\xff\x00",
        False,
    )


def test_a_batch_may_be_kept_and_outlives_the_sink__D10(tmp_path: Path) -> None:
    sink = Remembering()
    desk = desk_to(tmp_path, sink)
    for number in range(3):
        desk.hand_in(*(message(f"{number} {place}", b"x" * 1000) for place in range(200)))
    desk.close()
    ids = [row["id"] for row in pa.Table.from_batches(sink.batches).to_pylist()]
    assert ids == [f"{number} {place}" for number in range(3) for place in range(200)]


@pytest.mark.parametrize(
    "mask",
    [
        lambda: [True, False, True],
        lambda: (1, 0, 1),
        lambda: pa.array([True, False, True]),
        lambda: pa.chunked_array([[True, False], [True]]),
        lambda: np.array([True, False, True]),
        lambda: [np.True_, np.False_, np.True_],
    ],
)
def test_a_mask_says_which_have_arrived__D6(tmp_path: Path, mask: Callable[[], Any]) -> None:
    assert reasons(tmp_path, lambda batch: mask()) == {"b": "the destination did not take it"}


def test_a_verdict_says_more_than_a_mask__D6(tmp_path: Path) -> None:
    answers = [[True, "too long", Unanswered("503", retry_after_s=60)], [True]]
    sink = Remembering(lambda batch: answers.pop(0))
    desk = desk_to(tmp_path, sink)
    desk.hand_in(message("a"), message("b"), message("c"))
    desk.advance(59_000)
    assert [msgspec.json.decode(it.record)["id"] for it in desk.letters] == ["b"], "c counts no attempt"
    assert [batch["id"].to_pylist() for batch in sink.batches] == [["a", "b", "c"]]
    desk.advance(2_000)
    [again] = sink.batches[1].select(["id", "attempt", "redelivered"]).to_pylist()
    assert again == {"id": "c", "attempt": 2, "redelivered": True}
    desk.close()


def test_one_that_was_not_tried_is_sent_at_once_and_one_whose_receiver_is_away_after_its_time__D6(
    tmp_path: Path,
) -> None:
    answers = [[True, None, Unavailable("gone", retry_after_s=5)], [True], [True]]
    sink = Remembering(lambda batch: answers.pop(0))
    desk = desk_to(tmp_path, sink)
    desk.hand_in(message("a"), message("b"), message("c"))
    assert [batch["id"].to_pylist() for batch in sink.batches] == [["a", "b", "c"], ["b"]]
    desk.advance(4_900)
    assert len(sink.batches) == 2
    desk.advance(200)
    [_, b, c] = [batch.select(["id", "attempt", "redelivered"]).to_pylist() for batch in sink.batches]
    assert b == [{"id": "b", "attempt": 1, "redelivered": False}]
    assert c == [{"id": "c", "attempt": 2, "redelivered": False}], "it is certain that it has not arrived"
    assert (desk.engine.native.down, desk.letters) == (None, [])
    desk.close()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda batch: [True], "ValueError: send_batch returned 1 verdicts for 3 deliveries: return one for each"),
        (
            lambda batch: None,
            "TypeError: send_batch returned None: return a boolean array, or a list with True, False or a reason for"
            " each delivery",
        ),
        (lambda batch: 1 / 0, "ZeroDivisionError: division by zero"),
    ],
)
def test_what_is_no_answer_is_a_failed_attempt_of_all__D6(
    tmp_path: Path, answer: Callable[[Any], Any], reason: str
) -> None:
    assert reasons(tmp_path, answer) == dict.fromkeys("abc", reason)


def test_delivery_failed_ends_the_run__D6(tmp_path: Path) -> None:
    def answer(batch: Any) -> Any:
        raise DeliveryFailed("the disk is full")

    desk = desk_to(tmp_path, Remembering(answer))
    with pytest.raises(DeliveryFailed, match="the disk is full"):
        desk.hand_in(message("a"))
    desk.crash()


def test_without_pyarrow_it_is_wrong_usage_with_advice__D2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(WrongUsage, match=r"pyarrow, which a sink with send_batch needs.*pip install 'tickwheel\[parq"):
        desk_to(tmp_path, Remembering())
