"""A sink that takes Arrow batches: `send_batch(RecordBatch) -> mask`."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from delivery.delivering import LONG_S, Run, given_up, opener_of
from tickwheel.delivery import DeliveryFailed, Message, Unanswered, Unavailable, WrongUsage
from tickwheel.delivery.model.retry import Retry
from tickwheel.delivery.model.settings import Settings
from tickwheel.delivery.sinks import BatchSink, Delivery

pytestmark = pytest.mark.timeout(30)

DUE_MS = 1_700_000_000_000
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
    return Message(id_, key, DUE_MS, payload)


def reasons(folder: Path, answer: Callable[[Any], Any]) -> dict[str, str]:
    """Delivers a, b and c by one attempt each, and returns the reasons of those that were given up."""
    return given_up(folder, opener_of(Remembering(answer)), message("a"), message("b"), message("c"))


def test_a_batch_has_a_row_for_each_delivery__D10(tmp_path: Path) -> None:
    sink = Remembering()
    assert given_up(tmp_path, opener_of(sink), message("a", key="k"), message("\U0001f600", b"\xff\x00")) == {}
    [batch] = sink.batches
    assert isinstance(batch, pa.RecordBatch)
    assert {field.name: field.type for field in batch.schema} == COLUMNS
    batch.validate(full=True)
    first, second = batch.to_pylist()
    late_us = first["lateness_us"]
    assert (DUE_MS * 1_000 + late_us) // 1_000 == first["delivered_at_ms"]
    same = Delivery(1, message("a", key="k"), first["delivered_at_ms"], late_us)
    assert first == {
        "seq": 1,
        "id": "a",
        "key": "k",
        "due_ms": DUE_MS,
        "payload": b"1.50",
        "is_json": True,
        "delivered_at_ms": same.delivered_at_ms,
        "lateness_us": same.lateness_us,
        "attempt": 1,
        "redelivered": False,
        "digest": same.digest,
    }
    assert (second["id"], second["key"], second["payload"], second["is_json"]) == (
        "\U0001f600",
        None,
        b"\xff\x00",
        False,
    )


def test_a_batch_may_be_kept_and_outlives_the_sink__D10(tmp_path: Path) -> None:
    sink = Remembering()
    ids = [f"{number} {place}" for number in range(3) for place in range(200)]
    assert given_up(tmp_path, opener_of(sink), *(message(id_, b"x" * 1000) for id_ in ids)) == {}
    assert [row["id"] for row in pa.Table.from_batches(sink.batches).to_pylist()] == ids


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


def attempts_of(folder: Path, first: list[Any]) -> tuple[list[tuple[Any, ...]], dict[str, str]]:
    """Delivers a, b and c, whose first attempt has this answer, and all others arrive. Returns the attempts, and the
    reasons of those that were given up.
    """
    answers = dict(zip("abc", first, strict=True))
    sink = Remembering(lambda batch: [answers.pop(id_, True) for id_ in batch["id"].to_pylist()])
    with Run(folder, opener_of(sink), Settings(retry=Retry(1)), starts=False) as run:
        run.give(message("a"), message("b"), message("c"))
        run.running.start()
        assert run.running.wait(LONG_S)
    assert sink.batches[0]["id"].to_pylist() == ["a", "b", "c"]
    rows = pa.Table.from_batches(sink.batches[1:]).to_pylist() if len(sink.batches) > 1 else []
    return sorted((row["id"], row["attempt"], row["redelivered"]) for row in rows), run.reasons


def test_a_verdict_says_more_than_a_mask__D6(tmp_path: Path) -> None:
    again, reasons = attempts_of(tmp_path, [True, "too long", Unanswered("503", retry_after_s=0.05)])
    assert reasons == {"b": "too long"}, "c counts no attempt"
    assert again == [("c", 2, True)]


def test_one_that_was_not_tried_costs_nothing_and_one_whose_receiver_is_away_is_not_marked__D6(tmp_path: Path) -> None:
    again, reasons = attempts_of(tmp_path, [True, None, Unavailable("gone", retry_after_s=0.05)])
    assert reasons == {}
    assert again == [("b", 1, False), ("c", 2, False)], "it is certain that they have not arrived"


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

    run = Run(tmp_path, opener_of(Remembering(answer)))
    run.running.submit([message("a")])
    with pytest.raises(DeliveryFailed, match="the disk is full"):
        run.running.wait(LONG_S)
    with pytest.raises(DeliveryFailed, match="the disk is full"):
        run.running.close(LONG_S)


def test_without_pyarrow_it_is_wrong_usage_with_advice__D2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(WrongUsage, match=r"pyarrow, which a sink with send_batch needs.*pip install 'tickwheel\[parq"):
        Run(tmp_path, opener_of(Remembering()))
