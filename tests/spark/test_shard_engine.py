"""A shard with the engine itself behind it: what arrives, and what a reading found that the other tests did not see."""

import gc
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tickwheel._native import rfc_3339
from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.delivery.model.entries import Reschedule
from tickwheel.delivery.model.message import Cancel, Message
from tickwheel.spark.orders import checked
from tickwheel.spark.shard_index import Index

from .behind import Deliverer
from .rows import NOW_MS, batch_of, row
from .shards import NUMBER, B, Kept, orders, taker

DAY_MS = 86_400_000
TEN_MINUTES_MS = 600_000


@pytest.fixture
def kept() -> Kept:
    """A shard that knows its taker: the store 1 at A."""
    made = Kept()
    assert made.visit(NOW_MS, orders(taker())) == (None, [])
    return made


@pytest.fixture(autouse=True)
def _now(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of each test is the real one, because a message recurs by the wall clock."""
    monkeypatch.setattr(sys.modules[__name__], "NOW_MS", time.time_ns() // 1_000_000)


def message(id_: str, after_ms: int = 0, *, key: str | None = None, payload: bytes = b"1") -> Message:
    return Message(id_, key, NOW_MS + after_ms, msgspec.Raw(payload))


@pytest.fixture
def deliverer(tmp_path: Path) -> Iterator[Callable[..., Deliverer]]:
    """Makes deliverers with empty disks, that start so many milliseconds later."""
    made: list[Deliverer] = []

    def make(after_ms: int = 0) -> Deliverer:
        (folder := tmp_path / str(len(made))).mkdir()
        made.append(Deliverer(folder, NOW_MS + after_ms, NOW_MS))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_runs_stay_few_also_where_some_of_about_their_number_of_rows_are_large__S2(kept: Kept) -> None:
    far_ms = 30 * DAY_MS
    for batch in range(3):
        large = (row(message(f"l{batch}.{n}", far_ms + n, payload=b"1" * 300_000)) for n in range(32))
        kept.visit(NOW_MS + batch, orders(taker()), *large)
    for batch in range(200):
        small = (row(message(f"m{batch}.{n}", far_ms + n)) for n in range(32))
        kept.visit(NOW_MS + 10 + batch, orders(taker()), *small)
    assert len(Index.decode(kept.index).runs) <= 60


def test_reschedules_stay_in_order_when_controls_are_joined__S4_D16(kept: Kept) -> None:
    """For a store that was restored from a backup, and has x."""
    kept.visit(NOW_MS, orders(taker()), row(message("far", 10 * DAY_MS)), row(message("x", 5_000)))
    kept.visit(NOW_MS + 1, orders(taker()), row(Reschedule("x", None, NOW_MS + 60_000)))
    many = (row(Cancel(f"c{n}", None)) for n in range(1_500))
    kept.visit(NOW_MS + 2, orders(taker()), *many, row(Reschedule("x", None, NOW_MS + 9 * DAY_MS)))
    for batch in range(70):
        kept.visit(NOW_MS + 3 + batch, orders(taker()), row(Cancel(f"d{batch}", None)))
    restored = orders(taker(store="2"))
    kept.visit(NOW_MS + 100, restored)
    given = kept.visit(NOW_MS + 101, restored)[1]
    assert [it["due_ms"] - NOW_MS for it in given if it["id"] == "x" and not it["payload"]][-1] == 9 * DAY_MS


def test_all_others_are_no_deliverer__S1() -> None:
    with pytest.raises(WrongUsage):
        checked(["*"], [])


def test_a_reschedule_that_is_given_again_after_a_later_one_makes_nothing_early__S3_D16(
    kept: Kept, deliverer: Callable[..., Deliverer]
) -> None:
    a = deliverer()
    a.take(kept.visit(NOW_MS, orders(taker()), row(message("x", 10_000)))[1])
    a.take(kept.visit(NOW_MS + 1, orders(taker()), row(Reschedule("x", None, NOW_MS + 2_000)))[1])
    failed = orders(taker(), failed=[NUMBER], is_again=False)  # its answer came too late
    a.take(kept.visit(NOW_MS + 2, failed, row(Reschedule("x", None, NOW_MS + 600_000)))[1])
    a.advance(3_000)
    assert a.came == []
    a.take(kept.visit(NOW_MS + 3_000, failed)[1][:1])  # its first piece
    a.advance(100_000)
    assert a.came == []


def test_a_reschedule_before_its_message_has_no_effect_as_in_one_process__D16(
    kept: Kept, deliverer: Callable[..., Deliverer]
) -> None:
    given = row(Reschedule("x", None, NOW_MS + 500_000), 1), row(message("x", 5_000), 2)
    alone, held = deliverer(), deliverer()
    alone.take(batch_of(given).to_pylist())
    held.take(kept.visit(NOW_MS, orders(taker()), *given)[1])
    for each in alone, held:
        each.advance(10_000)
    assert held.came == alone.came


def test_what_is_given_again_is_before_what_is_due_later_of_its_key__S3_D4(
    kept: Kept, deliverer: Callable[..., Deliverer]
) -> None:
    many = [row(message(f"m{n}", n - 9_000, key="k"), n) for n in range(8_000)]
    failed = orders(taker(), failed=[NUMBER], is_again=False)
    kept.visit(NOW_MS, orders(taker()), *many)
    kept.visit(NOW_MS + 1, failed)
    a = deliverer()
    for visit in range(5):
        a.take(kept.visit(NOW_MS + 2 + visit, orders(taker()) if visit else failed)[1])
    came = [int(id_[1:]) for id_, _, _ in a.came]
    assert len(came) == 8_000
    assert came == sorted(came)


def test_one_that_is_delivered_and_moved_while_a_hand_off_failed_does_not_hold_its_shard__S5_D16(kept: Kept) -> None:
    both = taker(mark_ms=NOW_MS), taker(B)
    kept.visit(NOW_MS, orders(*both), row(message("x", 1_000)))
    # The driver starts again, after x was delivered.
    restarted = orders(taker(mark_ms=NOW_MS + 4_999), taker(B), failed=[NUMBER])
    kept.visit(NOW_MS + 5_000, restarted, row(Reschedule("x", None, NOW_MS + 30 * DAY_MS)))
    for second in range(10, 7_200):
        now_ms = NOW_MS + second * 1_000
        if kept.visit(now_ms, orders(taker(mark_ms=now_ms - 1), taker(B), to=B))[0] == B:
            return
    pytest.fail("in two hours it did not move")


def test_what_is_settled_leaves_the_hold_also_where_one_was_put_off_for_a_month__S2_D16(kept: Kept) -> None:
    kept.visit(NOW_MS, orders(taker()), row(message("x", 1_000)))
    kept.visit(NOW_MS, orders(taker()), row(Reschedule("x", None, NOW_MS + 30 * DAY_MS)))
    for second in range(1_000):
        found = orders(taker(mark_ms=NOW_MS + 999))  # x counts at its first time, too
        kept.visit(NOW_MS + second * 1_000, found, row(message(f"m{second}", second * 1_000 + 500)))
    assert len(kept.chunks) < 200


def occurrence() -> str:
    """The name of the first occurrence of the rule."""
    return "r@" + rfc_3339(NOW_MS + TEN_MINUTES_MS)


@pytest.mark.parametrize(
    ("asked", "came"),
    [
        (lambda: [Cancel("r", None)], []),
        (lambda: [Cancel(occurrence(), None)], [2 * TEN_MINUTES_MS]),
        (lambda: [Reschedule(occurrence(), None, NOW_MS + 5_000)], [5_000, 2 * TEN_MINUTES_MS]),
        (lambda: [Reschedule("r", None, NOW_MS + 9_000), Cancel(occurrence(), None)], [2 * TEN_MINUTES_MS]),
    ],
    ids=["cancel", "cancel of an occurrence", "move of an occurrence", "move of the next, and cancel of it"],
)
def test_cancels_and_moves_of_a_rule_in_the_store_of_a_deliverer_pass__S2_D7_D16_D19(
    kept: Kept, deliverer: Callable[..., Deliverer], asked: Callable[[], list[Any]], came: list[int]
) -> None:
    a = deliverer()
    a.put({"id": "r", "every": TEN_MINUTES_MS, "due": NOW_MS + TEN_MINUTES_MS, "payload": 1})
    a.take(kept.visit(NOW_MS, orders(taker()), *(row(it) for it in asked()))[1])
    for ms in (TEN_MINUTES_MS, TEN_MINUTES_MS + 1_000):
        a.advance(ms)
    assert [due_ms for _, due_ms, _ in a.came] == came


def test_messages_that_are_moved_once_more_are_moved_as_soon_as_the_first_time__D16_D8(kept: Kept) -> None:
    count = 10_000
    kept.visit(NOW_MS, orders(taker()), *(row(message(f"m{n}", 10**9 + n), n) for n in range(count)))
    took = []  # by this thread: the engine has threads of its own
    gc.disable()  # a full collection of what other tests left may take longer than a visit
    try:
        for again in range(2):
            moves = [row(Reschedule(f"m{n}", None, NOW_MS + 10**9 + again)) for n in range(count)]
            began = time.thread_time()
            kept.visit(NOW_MS + again, orders(taker()), *moves)
            took.append(time.thread_time() - began)
    finally:
        gc.enable()
    assert took[1] < 4 * took[0], took


def test_one_that_is_due_before_1970_can_be_moved_too__D16(kept: Kept) -> None:
    given = row(message("x", -NOW_MS)), row(message("y", -NOW_MS + 1))
    kept.visit(NOW_MS, orders(), *given)  # no deliverer answers
    moves = row(Reschedule("x", None, NOW_MS + 900_000)), row(Reschedule("y", None, NOW_MS + 900_000))
    kept.visit(NOW_MS + 1, orders(), *moves)
    assert kept.ids(NOW_MS + 2, orders(taker())) == []
