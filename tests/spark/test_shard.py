"""A shard of the hold on plain memory: what waits, what is given, and to whom (rules S2, S4, S5)."""

import copy
import random
from typing import Any

import msgspec
import pytest

from tickwheel._native import rfc_3339
from tickwheel.delivery.base.errors import BadRecord, DeliveryFailed
from tickwheel.delivery.model.entries import Reschedule
from tickwheel.delivery.model.message import Cancel
from tickwheel.delivery.read.hand_off_rows import PARTITIONS
from tickwheel.spark.chunks import Chunks as Chunks_
from tickwheel.spark.orders import Taker
from tickwheel.spark.packing import VERSION, unpack
from tickwheel.spark.runs import VISIT_BYTES, VISIT_ROWS
from tickwheel.spark.shard_index import Index

from .rows import NOW_MS, batch_of, message, recurring, row
from .shards import LEAD_MS, NUMBER, A, B, Kept, before, orders, taker


@pytest.fixture
def kept() -> Kept:
    """A shard that knows its taker: the store 1 at A."""
    made = Kept()
    assert made.visit(NOW_MS, orders(taker())) == (None, [])
    return made


def test_what_is_far_waits_until_lead_before_it_is_due_and_stays_until_it_is_settled__S2_S4(kept: Kept) -> None:
    at = NOW_MS + 40_400
    assert kept.ids(NOW_MS, orders(taker()), row(message("far", 60_400)), row(message("farther", 61_000))) == []
    assert kept.ids(at - 1, orders(taker())) == []
    assert kept.ids(at, orders(taker())) == ["far"]
    assert kept.ids(at + 600, orders(taker(mark_ms=NOW_MS + 60_399))) == ["farther"]
    assert len(kept.chunks) == 1
    assert Index.decode(kept.index).given_rows == 2
    assert kept.ids(at + 60_000, orders(taker(mark_ms=NOW_MS + 61_000))) == []
    assert not kept.chunks


def test_without_orders_what_is_near_is_gone_and_nothing_is_left__S2() -> None:
    alone = Kept()
    assert alone.ids(NOW_MS, None, row(message("near", 20_000)), row(message("far", 20_001))) == ["near"]
    assert alone.ids(NOW_MS + 1, None) == ["far"]
    assert (alone.index, alone.chunks) == (None, {})


def test_overdue_messages_and_controls_are_given_at_once_and_in_order__S2_D4(kept: Kept) -> None:
    rows = [
        row(message("b", -5_000), 2),
        row(message("a", -5_000), 1),
        row(Cancel("c", None)),
        row(message("z", -9_000)),
    ]
    assert kept.ids(NOW_MS, orders(taker()), *rows, row(BadRecord("why", "what"))) == ["c", None, "z", "a", "b"]
    assert kept.ids(NOW_MS, orders(taker())) == []


def test_controls_stay_until_all_that_waited_is_settled__S4(kept: Kept) -> None:
    assert kept.ids(NOW_MS, orders(taker()), row(message("far", 90_000)), row(Cancel("far", None))) == ["far"]
    assert kept.ids(NOW_MS + 80_000, orders(taker(mark_ms=NOW_MS + 80_000))) == ["far"]
    other = orders(taker(store="2"))
    assert kept.visit(NOW_MS + 80_001, other) == (None, [])
    cancel_and_far = kept.visit(NOW_MS + 80_002, other)[1]
    assert [(it["payload"] is None, it["again"]) for it in cancel_and_far] == [(True, False), (False, True)]
    kept.visit(NOW_MS + 90_002, orders(taker(store="2", mark_ms=NOW_MS + 90_000)))
    assert not kept.chunks


def test_a_dead_letter_that_is_given_again_says_so__S4_D2(kept: Kept) -> None:
    def told(found: list[Any]) -> list[tuple[str, bool]]:
        return [(it["reason"], it["again"]) for it in found]

    rows = row(message("far", 90_000)), row(Cancel("x", None)), row(BadRecord("why", "what"))
    first = [(None, False), ("why", False)]
    again = [(None, False), ("why (given again, as it is not known whether the first one arrived: redelivered)", True)]
    assert told(kept.visit(NOW_MS, orders(taker()), *rows)[1]) == first
    assert told(kept.visit(NOW_MS + 1, orders(taker(), failed=[NUMBER]))[1]) == again, "its answer did not come"
    assert told(kept.visit(NOW_MS + 2, orders(taker()))[1]) == []
    other = orders(taker(store="2"))
    kept.visit(NOW_MS + 3, other)
    assert told(kept.visit(NOW_MS + 4, other)[1]) == again, "its disk is empty"


def test_a_cancel_stays_as_long_as_its_message_may_be_given_to_another_store__S4_D7(kept: Kept) -> None:
    """Also where that waits because its deliverer does not answer, is put off, or is in a part with later ones."""
    late = [
        row(message("late", 30_000)),
        row(Cancel("late", None)),
        row(message("off", 31_000)),
        row(Cancel("off", None)),
    ]
    late += [row(message("part", 32_000)), row(Cancel("part", None))]
    kept.visit(NOW_MS, orders(taker()), *late)
    kept.visit(NOW_MS + 1, orders(taker()), row(Reschedule("off", None, NOW_MS + 90_000)))
    kept.visit(
        NOW_MS + 2, orders(taker(), failed=[NUMBER]), *(row(message(f"m{n}", 32_000 + n * 1_000)) for n in range(9))
    )
    kept.visit(NOW_MS + 40_000, orders())
    kept.visit(NOW_MS + 40_001, orders(taker(mark_ms=NOW_MS + 39_000)))
    kept.visit(NOW_MS + 40_002, orders(taker(mark_ms=NOW_MS + 39_000)))
    other = orders(taker(store="2"))
    kept.visit(NOW_MS + 50_000, other)
    given = kept.visit(NOW_MS + 75_000, other)[1]
    cancelled = {it["id"] for it in given if it["payload"] is None}
    assert {it["id"] for it in given if it["payload"]} & {"late", "off", "part"} <= cancelled
    assert "off" in cancelled


def test_a_message_that_is_moved_leaves_the_hold_for_its_new_time_and_the_others_stay__S2_D16(kept: Kept) -> None:
    far = [row(message(f"m{n}", 90_000 + n, key="k"), n) for n in range(10)]
    kept.visit(NOW_MS, orders(taker()), *far, row(message("m3", 80_000, key="other")))
    moves = [row(Reschedule("m3", "k", NOW_MS + 1)), row(Reschedule("m7", "k", NOW_MS + 300_000))]
    moves.append(row(Reschedule("x", None, 1)))
    assert kept.visit(NOW_MS + 1, orders(), *moves)[1] == [], "its deliverer is down"
    given = kept.visit(NOW_MS + 2, orders(taker()))[1]
    assert [it["id"] for it in given] == ["x", "m3"], "of what it gets with its new time it needs not be told"
    assert (given[1]["due_ms"], given[1]["moved_to_ms"]) == (NOW_MS + 90_003, NOW_MS + 1)
    assert (Index.decode(kept.index).waiting_rows, Index.decode(kept.index).given_rows) == (10, 1)
    later = kept.ids(NOW_MS + 90_000, orders(taker(mark_ms=NOW_MS + 90_002)))
    assert later == ["m3", *(f"m{n}" for n in range(10) if n not in (3, 7))]
    again = row(Reschedule("m7", "k", NOW_MS + 200_000))
    assert kept.ids(NOW_MS + 91_000, orders(taker(mark_ms=NOW_MS + 90_900)), again) == []
    given = kept.visit(NOW_MS + 180_000, orders(taker()))[1]
    assert [(it["id"], it["moved_to_ms"]) for it in given] == [("m7", NOW_MS + 200_000)]
    assert Index.decode(kept.index).waiting_rows == 0


def test_one_that_is_moved_while_it_is_given_is_told_and_moved_for_another_store_too__S4_D16(kept: Kept) -> None:
    assert kept.ids(NOW_MS, orders(taker()), row(message("a", 5)), row(message("b", 3))) == ["b", "a"]
    assert kept.ids(NOW_MS + 1, orders(taker()), row(Reschedule("a", None, NOW_MS + 9_000))) == ["a"]
    assert kept.ids(NOW_MS + 2, orders(taker(mark_ms=NOW_MS + 4))) == []  # a counts at its first time, too
    assert Index.decode(kept.index).given_rows == 1, "b is settled, and a is not"
    other = orders(taker(store="2"))
    kept.visit(NOW_MS + 3, other)
    _, a = kept.visit(NOW_MS + 4, other)[1]
    assert (a["id"], a["due_ms"], a["moved_to_ms"], a["again"]) == ("a", NOW_MS + 5, NOW_MS + 9_000, True)


def test_a_hand_off_that_failed_is_done_again_and_marks_nothing__S3(kept: Kept) -> None:
    assert kept.ids(NOW_MS, orders(taker()), row(message("a", 1_000)), row(Cancel("c", None))) == ["c", "a"]
    assert kept.visit(NOW_MS + 1, orders(failed=[NUMBER])) == (None, []), "its deliverer is down"
    given = kept.visit(NOW_MS + 2, orders(taker(mark_ms=NOW_MS + 9_000), failed=[NUMBER]))[1]
    assert [(it["id"], it["again"]) for it in given] == [("c", False), ("a", False)]
    assert kept.ids(NOW_MS + 3, orders(taker(mark_ms=NOW_MS + 1))) == []


def test_the_store_that_takes_the_place_of_a_lost_one_gets_all_that_is_not_settled_marked__S4(kept: Kept) -> None:
    rows = [row(message(id_, after)) for id_, after in (("b", 20_001), ("a", 100), ("c", 20_001), ("far", 50_000))]
    assert kept.ids(NOW_MS, orders(taker()), *rows) == ["a"]
    assert kept.ids(NOW_MS + 1, orders(taker(mark_ms=NOW_MS + 100))) == ["b", "c"]
    empty = orders(taker(store="2"))
    assert kept.visit(NOW_MS + 2, empty) == (None, []), "the state must know the taker before it gets a row"
    to, given = kept.visit(NOW_MS + 3, empty)
    assert to == A
    assert {it["id"]: it["again"] for it in given} == {"b": True, "c": True}
    assert [it["again"] for it in kept.visit(NOW_MS + 31_000, empty)[1]] == [False]


def test_a_shard_moves_once_its_old_taker_has_settled_all__S5(kept: Kept) -> None:
    both = taker(), taker(B)
    assert kept.ids(NOW_MS, orders(*both), row(message("a", 100))) == ["a"]
    moving = orders(*both, to=B)
    assert kept.visit(NOW_MS + 1, moving, row(message("b", 200))) == (A, [kept_row("b", 200)])
    assert kept.visit(NOW_MS + 2, moving, row(message("c", 300)))[1] == [], "a and b are not settled"
    settled = orders(taker(mark_ms=NOW_MS + 200), taker(B), to=B)
    assert kept.visit(NOW_MS + 300, settled) == (None, [])
    to, given = kept.visit(NOW_MS + 301, settled)
    assert (to, [it["id"] for it in given]) == (B, ["c"])


def test_one_that_left_the_list_is_waited_for_unless_it_is_declared_lost__S5(kept: Kept) -> None:
    assert kept.ids(NOW_MS, orders(taker()), row(message("a", 100))) == ["a"]
    for _ in range(3):
        assert kept.visit(NOW_MS + 1, orders(taker(B), to=B)) == (None, [])
    given_up = orders(taker(B), to=B, lost=[A])
    assert kept.visit(NOW_MS + 2, given_up) == (None, [])
    assert [(it["id"], it["again"]) for it in kept.visit(NOW_MS + 3, given_up)[1]] == [("a", True)]


def test_a_hand_off_that_failed_is_done_again_and_what_was_taken_before_is_not__S3(kept: Kept) -> None:
    many = (row(message(f"m{n}", 1_000 + n // 10, key="paused"), n) for n in range(4_000))
    kept.visit(NOW_MS, orders(taker()), *many)
    while kept.visit(NOW_MS, orders(taker()))[1]:
        pass
    assert kept.ids(NOW_MS + 1, orders(taker()), row(message("last", 5_000))) == ["last"]
    given = kept.ids(NOW_MS + 2, orders(taker(), failed=[NUMBER]), row(message("new", 6_000)))
    assert given == ["last", "new"], "and not the thousands that it has"
    other = orders(taker(store="2"))
    kept.visit(NOW_MS + 3, other)
    found = [it for second in range(4) for it in kept.visit(NOW_MS + 4 + second, other)[1]]
    assert len(found) == 4_002
    assert all(it["again"] for it in found)


def test_a_micro_batch_that_is_done_again_gives_what_the_first_try_gave__S3_S4_S5(kept: Kept) -> None:
    """Also with a shorter lead, behind what is given again, and where the first try knew another list."""
    kept.lead_ms = 60_000
    many = (row(message(f"m{n}", 1_000 + n // 10, key="k"), n) for n in range(2_000))
    assert len(kept.ids(NOW_MS, orders(taker()), *many)) == 2_000
    kept.lead_ms = LEAD_MS
    x_y = [row(message("x", 50_000)), row(message("y", 70_000))]
    given = kept.ids(NOW_MS + 1, orders(taker(), taker(B), to=B, failed=[NUMBER]), *x_y)
    assert (len(given), given[-1]) == (2_001, "x")
    move = row(Reschedule("x", None, NOW_MS + 400_000))
    assert kept.ids(NOW_MS + 2, orders(taker()), move, row(Reschedule("y", None, NOW_MS + 400_000))) == ["x"]


def test_where_no_deliverer_answers_the_state_knows_what_the_first_try_may_have_given__S3_S4_S5(kept: Kept) -> None:
    kept.visit(NOW_MS, orders(taker()), row(message("far", 200_000)), row(message("off", 3_600_000)))
    kept.visit(NOW_MS, orders(taker()), row(Reschedule("off", None, NOW_MS + 2_592_000_000)))
    hot = (row(message(f"m{n}", 100_000), n) for n in range(16_000))
    nearer = row(Reschedule("far", None, NOW_MS + 15_000))
    assert kept.visit(NOW_MS + 1, orders(failed=[NUMBER]), nearer, recurring("beat"), *hot) == (None, [])
    moves = [row(Reschedule(id_, None, NOW_MS + 900_000)) for id_ in ("far", "m0", "m15999")]
    told = [it["id"] for it in kept.visit(NOW_MS + 2, orders(taker(), failed=[NUMBER]), *moves)[1] if not it["payload"]]
    assert told == ["far", "m0"], "the last of them was not given"
    other = orders(taker(store="2"))
    kept.visit(NOW_MS + 3, other)
    found = {it["id"]: it for batch in range(9) for it in kept.visit(NOW_MS + 880_000 + batch, other)[1]}
    assert (found["far"]["again"], found["m0"]["again"], found["m15999"]["again"]) == (True, True, False)
    assert before(found["beat"]) is not None
    assert "off" not in found


def test_a_store_that_is_lost_when_a_micro_batch_is_done_again_may_have_what_was_moved_near__S4_D16(kept: Kept) -> None:
    kept.visit(NOW_MS, orders(taker()), row(message("x", 7_200_000)), row(message("y", 7_200_000)))
    other = orders(taker(store="2"), failed=[NUMBER])
    kept.visit(NOW_MS + 1, other, row(Reschedule("x", None, NOW_MS + 2_000)))
    assert [(it["id"], it["again"]) for it in kept.visit(NOW_MS + 2, other)[1]] == [("x", True)]


def test_after_a_restart_with_another_list_a_shard_moves_as_soon_as_without__S5_D16(kept: Kept) -> None:
    """Also one with a message that was put off for a month, which no deliverer has."""
    kept.visit(NOW_MS, orders(taker()), row(message("off", 3_600_000)))
    kept.visit(NOW_MS, orders(taker()), row(Reschedule("off", None, NOW_MS + 2_592_000_000)))
    start_ms = NOW_MS + 7_200_000
    late_ms = 0
    for second in range(120):
        now_ms = start_ms + second * 1_000
        found = orders(taker(mark_ms=now_ms - 1), taker(B), to=B, failed=[NUMBER] if second == 0 else [])
        rows = [row(message(f"{after}.{second}", now_ms - NOW_MS + after)) for after in (25_000, 95_000)]
        to, given = kept.visit(now_ms, found, *rows)
        if to == B:
            late_ms = max(late_ms, *(now_ms - it["due_ms"] for it in given), 0)
    assert kept.visit(start_ms + 120_000, orders(taker(), taker(B), to=B))[0] == B
    assert late_ms <= LEAD_MS + 2_000


def test_a_message_that_comes_again_is_due_when_it_was_rescheduled_to__D5_D16(kept: Kept) -> None:
    near, far = row(message("near", 1_000)), row(message("far", 60_000, key="k"))
    kept.visit(NOW_MS, orders(taker()), near, far, row(message("far", 60_000, key="other")))
    moves = [row(Reschedule("near", None, NOW_MS + 600_000)), row(Reschedule("far", "k", NOW_MS + 700_000))]
    kept.visit(NOW_MS + 1, orders(taker()), *moves)
    assert kept.ids(NOW_MS + 2, orders(taker()), near, far, row(message("new", 9))) == ["new"]
    assert kept.ids(NOW_MS + 60_000, orders(taker())) == ["far"], "that of the other key"
    given = kept.visit(NOW_MS + 690_000, orders(taker()))[1]
    moved_to_ms = {(it["id"], it["key"]): it["moved_to_ms"] - NOW_MS for it in given}
    assert moved_to_ms == {("near", None): 600_000, ("far", "k"): 700_000}
    assert len(given) == 3, "near is at its taker already, and is a duplicate there"


def test_a_reschedule_of_what_recurs_has_a_time_by_which_it_is_known_again__S3_D16_D19(kept: Kept) -> None:
    def asked(given: list[dict[str, Any]]) -> list[int | None]:
        return [it["asked_ms"] and it["asked_ms"] - NOW_MS for it in given]

    kept.visit(NOW_MS, orders(taker()), recurring("a"), recurring("b"), row(message("m", 90_000)))
    to = [row(Reschedule(id_, None, NOW_MS + 1_000 + n)) for n, id_ in enumerate("abam")]
    given = kept.visit(NOW_MS + 10, orders(taker()), *to)[1]
    assert [(it["id"], asked_ms) for it, asked_ms in zip(given, asked(given), strict=True)] == [
        ("a", 10),
        ("b", 11),
        ("a", 12),
        ("m", None),
    ]
    assert asked(kept.visit(NOW_MS + 11, orders(taker(), failed=[NUMBER]))[1]) == [10, 11, 12, None], "the same"
    assert asked(kept.visit(NOW_MS + 5, orders(taker()), to[0])[1]) == [13], "later, though a clock is set back"
    given = kept.visit(NOW_MS + 14, orders(taker()), to[0], recurring("a", every=7), row(Cancel("a", None)))[1]
    assert asked(given) == [14, 15, 16], "in order"


def test_an_occurrence_that_went_out_before_its_time_is_marked_after_a_loss__S4_D16_D19(kept: Kept) -> None:
    day_ms = 86_400_000
    rules = [recurring(id_, every=day_ms, from_ms=NOW_MS + day_ms) for id_ in ("twice", "none", "named", "replaced")]
    of_named = "named@" + rfc_3339(NOW_MS + 5 * day_ms)
    moves = [row(Reschedule(id_, None, NOW_MS + 1)) for id_ in ("twice", of_named, "replaced")]
    kept.visit(NOW_MS, orders(taker()), *rules, *moves)
    again = [row(Reschedule("twice", None, NOW_MS + 2)), recurring("replaced", every=day_ms // 2, from_ms=NOW_MS)]
    kept.visit(NOW_MS + 1, orders(taker(mark_ms=NOW_MS)), *again)
    lost = copy.deepcopy(kept)
    other = orders(taker(mark_ms=NOW_MS + 3, store="2"))
    lost.visit(NOW_MS + 4, other)
    sent = {it["id"]: before(it) for it in lost.visit(NOW_MS + 5, other)[1] if it["recurrence"]}
    until_ms = {id_: told[1] - NOW_MS for id_, told in sent.items() if told}
    near_ms = LEAD_MS + 5
    assert until_ms == {"twice": 2 * day_ms, "none": near_ms, "named": 5 * day_ms, "replaced": day_ms}
    kept.visit(NOW_MS + 6 * day_ms, orders(taker(mark_ms=NOW_MS + 6 * day_ms)))
    assert Index.decode(kept.index).early_ms == {}, "what is settled is forgotten"


def test_what_recurs_is_given_within_the_bounds_of_a_visit__S2_D8_D19(kept: Kept) -> None:
    for n in range(30):
        kept.visit(NOW_MS + n, orders(taker()), *(recurring(f"r{n}.{m}", payload=b"1" * 900_000) for m in range(2)))
    other = orders(taker(store="2"))
    kept.visit(NOW_MS + 100, other)
    first = kept.visit(NOW_MS + 101, other, row(Cancel("c", None)), row(message("m", 9)))[1]
    assert {it["id"] for it in first} >= {"c", "m"}, "what has nothing to do with them does not wait"
    sizes = [sum(len(it["payload"] or b"") for it in first)]
    while given := kept.visit(NOW_MS + 102, other)[1]:
        sizes.append(sum(len(it["payload"] or b"") for it in given))
    assert sum(sizes) == 60 * 900_000 + 1
    assert max(sizes) <= VISIT_BYTES + 900_001


def test_a_move_that_an_aborted_micro_batch_gave_up_is_not_begun_again_by_a_longer_lead__S5_D19(kept: Kept) -> None:
    both = taker(), taker(B)
    kept.visit(NOW_MS, orders(*both), row(message("m", 19_000)))
    kept.visit(NOW_MS + 1, orders(*both, to=B))
    late_ms = NOW_MS + 100_000  # its patience was over then: A was given what came
    kept.lead_ms = 90_000
    rows = recurring("beat"), row(message("x", 200_000))
    settled = orders(taker(mark_ms=late_ms - 1), taker(B), to=B, failed=[NUMBER])
    assert kept.visit(late_ms, settled, *rows)[0] == A
    for after in range(1, 6):
        settled = orders(taker(mark_ms=late_ms + after), taker(B), to=B)
        assert kept.visit(late_ms + after, settled)[0] == A


def test_what_failed_goes_to_the_old_taker_also_while_the_shard_moves__S5(kept: Kept) -> None:
    both = taker(), taker(B)
    assert kept.ids(NOW_MS, orders(*both), row(message("a", 100))) == ["a"]
    kept.visit(NOW_MS + 1, orders(*both, to=B, failed=[NUMBER], is_again=False))
    failed = orders(*both, to=B, failed=[NUMBER], is_again=False)
    again = kept.visit(NOW_MS + 2, failed, row(message("new", 50)))
    assert again == (A, [kept_row("a", 100)])


def kept_row(id_: str, after_ms: int) -> dict[str, Any]:
    [found] = batch_of([row(message(id_, after_ms))]).to_pylist()
    return dict(found)


def test_a_hot_second_leaves_in_pieces_and_begins_early_enough__S2(kept: Kept) -> None:
    many = [row(message(f"m{n}", 300_000 + n % 1_000), n) for n in range(15_000)]
    assert kept.ids(NOW_MS, orders(taker()), *many) == []
    gone: list[str] = []
    began_ms = None
    for now_ms in range(NOW_MS, NOW_MS + 280_000, 1_000):
        found = kept.ids(now_ms, orders(taker()))
        assert len(found) <= VISIT_ROWS
        began_ms = began_ms or (now_ms if found else None)
        gone += found
    assert began_ms is not None
    assert began_ms >= NOW_MS + 180_000
    assert len(set(gone)) == len(gone) >= 12_500
    while found := kept.ids(NOW_MS + 281_000, orders(taker())):
        gone += found
    assert sorted(gone) == sorted(f"m{n}" for n in range(15_000))


def test_what_is_overdue_takes_nothing_with_it__S2(kept: Kept) -> None:
    late, far = row(message("late", -60_000)), row(message("far", 60_000))
    assert kept.ids(NOW_MS, orders(taker()), late, far) == ["late"]


def test_many_of_one_millisecond_leave_all_the_same__S2(kept: Kept) -> None:
    gone = []
    for part in range(20):
        gone += kept.ids(NOW_MS, orders(taker()), *(row(message(f"m{part}.{n}"), n) for n in range(3_000)))
    while found := kept.ids(NOW_MS, orders(taker())):
        gone += found
    assert len(gone) == len(set(gone)) == 60_000


def test_runs_stay_few_and_parts_small_whatever_comes__S2(kept: Kept) -> None:
    rng = random.Random(4)
    for batch in range(300):
        many = (row(message(f"m{batch}.{n}", rng.randrange(86_400_000, 2_592_000_000)), n) for n in range(40))
        kept.visit(NOW_MS + batch * 1_000, orders(taker()), *many)
        assert len(Index.decode(kept.index).runs) <= 60
    found = Index.decode(kept.index)
    assert found.waiting_rows == 12_000
    assert all(part.rows <= 2_000 for run in found.runs for part in run.parts)
    assert all(run.parts == sorted(run.parts, key=lambda part: part.first_ms) for run in found.runs)


def test_large_payloads_make_small_chunks__S2(kept: Kept) -> None:
    large = [row(message(str(n), 90_000, payload=b'"%s"' % (b"x" * 300_000)), n) for n in range(12)]
    kept.visit(NOW_MS, orders(taker()), *large)
    assert len(kept.chunks) == 12
    assert all(len(chunk) < 900_000 for chunk in kept.chunks.values())


def test_a_visit_gives_no_more_than_some_mebibytes__S2(kept: Kept) -> None:
    large = [row(message(str(n), 1_000 + n, payload=b"1" * 900_000), n) for n in range(60)]
    kept.visit(NOW_MS, orders(), *large)
    sizes = []
    while given := kept.visit(NOW_MS + 1, orders(taker()))[1]:
        sizes.append(sum(len(it["payload"]) for it in given))
    assert sum(sizes) == 60 * 900_000
    assert max(sizes) <= VISIT_BYTES + 900_000


def test_a_recurring_message_is_given_at_once_and_stays_for_a_store_that_takes_over__S4_D19(kept: Kept) -> None:
    rows = [recurring("beat", key="k"), row(Cancel("c", None)), recurring("other")]
    assert kept.ids(NOW_MS, orders(taker()), *rows) == ["c", "beat", "other"]
    for after in (1, 2, 90_000):
        assert kept.ids(NOW_MS + after, orders(taker(mark_ms=NOW_MS + after - 500))) == []
    index = Index.decode(kept.index)
    assert (index.rules, index.unsettled, len(kept.chunks)) == (2, 0, 1)
    other = orders(taker(store="2"))
    assert kept.visit(NOW_MS + 90_001, other) == (None, [])
    given = kept.visit(NOW_MS + 90_002, other)[1]
    assert [it["id"] for it in given] == ["beat", "other"]
    assert {before(it) for it in given} == {(NOW_MS + 89_500, NOW_MS + 90_002 + LEAD_MS)}
    # What that one has settled counts once it has the messages, and not before.
    again = kept.visit(NOW_MS + 90_003, orders(taker(store="2", mark_ms=NOW_MS + 90_002), failed=[NUMBER]))[1]
    assert {before(it) for it in again} == {(NOW_MS + 89_500, NOW_MS + 90_003 + LEAD_MS)}
    kept.visit(NOW_MS + 90_004, orders(taker(store="2", mark_ms=NOW_MS + 90_003)))
    third = orders(taker(store="3"))
    kept.visit(NOW_MS + 90_005, third)
    assert before(kept.visit(NOW_MS + 90_006, third)[1][0]) == (NOW_MS + 90_003, NOW_MS + 90_006 + LEAD_MS)


def test_one_whose_hand_off_failed_is_given_to_the_same_store_as_it_was__S3_D19(kept: Kept) -> None:
    assert kept.ids(NOW_MS, orders(taker()), recurring("beat")) == ["beat"]
    [given] = kept.visit(NOW_MS + 1, orders(taker(), failed=[NUMBER]))[1]
    assert before(given) is None
    kept.visit(NOW_MS + 2, orders(taker()))
    assert kept.ids(NOW_MS + 3, orders(taker(), failed=[NUMBER])) == [], "it has taken that before"


def test_a_store_that_is_lost_before_it_told_anything_may_have_sent_all__S4_D19(kept: Kept) -> None:
    kept.visit(NOW_MS, orders(taker()), recurring("beat"))
    other = orders(taker(store="2"), failed=[NUMBER])
    kept.visit(NOW_MS + 1, other)
    assert before(kept.visit(NOW_MS + 2, other)[1][0]) == (None, NOW_MS + 2 + LEAD_MS)


def test_a_micro_batch_that_is_done_again_with_another_store_marks_what_the_first_may_have_sent__S4_D19() -> None:
    kept = Kept()
    kept.visit(NOW_MS, orders(taker()))
    # Aborted after it was sent: the state does not know that, but the next one knows that it may be so.
    other = orders(taker(store="2"), failed=[NUMBER])
    assert kept.visit(NOW_MS, other, recurring("beat")) == (None, [])
    assert before(kept.visit(NOW_MS + 1, other)[1][0]) == (None, NOW_MS + 1 + LEAD_MS)


def test_a_cancel_and_another_of_its_name_end_it_also_for_a_store_that_takes_over__S4_D7_D19(kept: Kept) -> None:
    kept.visit(NOW_MS, orders(taker()), recurring("a"), recurring("b"), recurring("c"))
    kept.visit(
        NOW_MS + 1, orders(taker()), row(Cancel("a", None)), recurring("b", every=5), row(message("far", 90_000))
    )
    kept.visit(NOW_MS + 2, orders(taker()), row(Cancel("d", None)), recurring("d"))
    given = kept.visit(NOW_MS + 3, orders(taker()), row(Cancel("c", None)), recurring("c", every=7))[1]
    assert [bool(it["recurrence"]) for it in given] == [False, True], "in order"
    kept.visit(NOW_MS + 4, orders(taker()))
    other = orders(taker(store="2"))
    kept.visit(NOW_MS + 4, other)
    given = kept.visit(NOW_MS + 5, other)[1]
    rules = {it["id"]: msgspec.json.decode(it["recurrence"])["every"] for it in given if it["recurrence"]}
    assert rules == {"b": 5, "c": 7, "d": 60_000}
    assert all(it["asked_ms"] for it in given), "a store knows from it which message a cancel is about"
    kept.visit(NOW_MS + 100_000, orders(taker(store="2", mark_ms=NOW_MS + 99_000)))
    assert Index.decode(kept.index).rules == 3


def test_a_cancel_that_came_before_a_recurring_message_does_not_end_it_at_another_store__S4_D7_D19(kept: Kept) -> None:
    early = row(Cancel("r", None)), row(Reschedule("r", None, NOW_MS + 5)), row(Cancel("c", None))
    kept.visit(NOW_MS, orders(taker()), *early, row(message("far", 90_000)))
    kept.visit(NOW_MS + 1, orders(taker()), recurring("r"))
    kept.visit(NOW_MS + 2, orders(taker()))
    other = orders(taker(store="2"))
    kept.visit(NOW_MS + 3, other)
    assert kept.ids(NOW_MS + 4, other) == ["c", "r"]


def test_an_occurrence_that_was_put_off_is_where_its_rule_has_it_after_a_loss__S4_D16_D19(kept: Kept) -> None:
    kept.visit(NOW_MS, orders(taker()), recurring("beat"), row(message("far", 90_000)))
    assert kept.ids(NOW_MS + 1, orders(taker()), row(Reschedule("beat", None, NOW_MS + 5))) == ["beat"]
    kept.visit(NOW_MS + 1, orders(taker()))
    other = orders(taker(store="2"))
    kept.visit(NOW_MS + 2, other)
    [given] = kept.visit(NOW_MS + 3, other)[1]
    assert given["recurrence"], "that time is not the next one's"


def test_a_shard_with_a_recurring_message_stays_where_it_is_until_that_is_lost__S5_D19(kept: Kept) -> None:
    both = taker(), taker(B)
    kept.visit(NOW_MS, orders(*both), recurring("beat"))
    moved = orders(*both, to=B)
    for after in range(1, 9):
        to, given = kept.visit(NOW_MS + after, moved, row(message(f"m{after}", 100)))
        assert (to, [it["id"] for it in given]) == (A, [f"m{after}"])
    lost = orders(taker(B), to=B, lost=[A])
    assert kept.visit(NOW_MS + 10, lost) == (None, [])
    to, given = kept.visit(NOW_MS + 11, lost)
    assert (to, given[0]["id"]) == (B, "beat")
    assert kept.visit(NOW_MS + 12, lost) == (B, [])


def test_a_recurring_message_that_comes_while_a_shard_moves_waits_for_its_new_taker__S5_D19(kept: Kept) -> None:
    both = taker(), taker(B)
    kept.visit(NOW_MS, orders(*both), row(message("a", 100)))
    moving = orders(*both, to=B)
    kept.visit(NOW_MS + 1, moving)
    assert kept.ids(NOW_MS + 2, moving, recurring("beat"), recurring("over"), row(Cancel("c", None))) == ["c"]
    assert kept.ids(NOW_MS + 3, moving, row(Cancel("d", None)), row(Cancel("over", None))) == ["d"]
    settled = orders(taker(mark_ms=NOW_MS + 200), taker(B), to=B)
    assert kept.visit(NOW_MS + 300, settled) == (None, [])
    to, given = kept.visit(NOW_MS + 301, settled)
    assert (to, [it["id"] for it in given], before(given[0])) == (B, ["beat", "over", "over"], None)


def test_one_that_is_put_again_goes_on_where_the_one_before_was__S4_D19(kept: Kept) -> None:
    kept.visit(NOW_MS, orders(taker()), recurring("b", every=1_000))
    kept.visit(NOW_MS + 9_000, orders(taker(mark_ms=NOW_MS + 8_000)))
    assert kept.visit(NOW_MS + 9_001, orders(), recurring("b", every=700), recurring("new"))[1] == []
    other = orders(taker(store="2"))
    kept.visit(NOW_MS + 9_002, other)
    old, b, new = kept.visit(NOW_MS + 9_003, other)[1]
    assert (old["id"], before(old)) == ("b", (NOW_MS + 8_000, NOW_MS + 9_003 + LEAD_MS))
    assert (b["id"], msgspec.json.decode(b["recurrence"])["every"], before(b)) == ("b", 700, None), "as it was given"
    assert (new["id"], before(new)) == ("new", None), "no store ever had it"


def test_one_that_came_during_a_long_outage_begins_at_its_beginning__S4_D19(kept: Kept) -> None:
    kept.visit(NOW_MS, orders(taker()), recurring("old"))
    kept.visit(NOW_MS + 1, orders(taker(mark_ms=NOW_MS)))
    for batch in range(70):
        kept.visit(NOW_MS + 2 + batch, orders(), recurring(f"new{batch}"), row(Cancel(f"c{batch}", None)))
    other = orders(taker(store="2"))
    kept.visit(NOW_MS + 100, other)
    given = [it for it in kept.visit(NOW_MS + 101, other)[1] if it["recurrence"]]
    assert len(given) == 71
    assert {it["id"] for it in given if before(it)} == {"old"}


def test_what_does_not_recur_at_its_taker_any_more_is_forgotten__S4_D19(kept: Kept) -> None:
    rows = [recurring("a"), recurring("b"), row(Cancel("c", None))]
    kept.visit(NOW_MS, orders(taker()), *rows, row(message("far", 90_000)))
    kept.visit(NOW_MS + 1, orders(taker(recurs=[]), failed=[NUMBER]))
    assert Index.decode(kept.index).rules == 2, "it may not have taken them"
    assert kept.ids(NOW_MS + 2, orders(taker(recurs=["a", "b"])), recurring("new")) == ["new"]
    kept.visit(NOW_MS + 3, orders(taker(recurs=["b", "new", "of another"])))
    kept.visit(NOW_MS + 4, orders(taker()))
    index = Index.decode(kept.index)
    assert (index.rules, sum(it.others for it in index.controls)) == (2, 1)
    kept.visit(NOW_MS + 5, orders(taker(store="2")))
    assert kept.ids(NOW_MS + 6, orders(taker(store="2", recurs=[]))) == ["c", "b", "new"], "it does not have them yet"
    kept.visit(NOW_MS + 7, orders(taker(store="2", mark_ms=NOW_MS + 100_000, recurs=[])))
    assert Index.decode(kept.index).rules == 0


def test_what_is_given_twice_does_not_end_what_came_in_the_place_of_another__S3_D7_D19(kept: Kept) -> None:
    kept.visit(NOW_MS, orders(taker()), recurring("r", every=1_000))
    kept.visit(NOW_MS + 1, orders(taker()), row(Cancel("r", None)), recurring("r", every=2_000))
    for after in (2, 3):
        given = kept.visit(NOW_MS + after, orders(taker(), failed=[NUMBER]))[1]
        assert [it["recurrence"] and msgspec.json.decode(it["recurrence"])["every"] for it in given] == [None, 2_000]
        assert [it["asked_ms"] for it in given] == [NOW_MS + 1, NOW_MS + 2], "by which they are known again"
    kept.visit(NOW_MS + 4, orders(taker()))
    assert kept.ids(NOW_MS + 5, orders(taker()), row(Cancel("r", None))) == ["r"]
    assert kept.ids(NOW_MS + 6, orders(taker(), failed=[NUMBER]), recurring("r", every=3_000)) == ["r", "r"]


def test_a_cancel_of_a_recurring_message_is_not_for_another_store__S4_D7_D19(kept: Kept) -> None:
    """A store that does not know the message would cancel the next message of its name."""
    kept.visit(NOW_MS, orders(taker()), recurring("r"), row(message("far", 2_000_000)))
    kept.visit(NOW_MS + 1, orders(taker()), row(Cancel("r", None)), row(Reschedule("r", None, NOW_MS + 5)))
    kept.visit(NOW_MS + 1, orders(taker()))
    kept.visit(NOW_MS + 2, orders(taker(store="2"), failed=[NUMBER]))
    [cancel] = kept.visit(NOW_MS + 3, orders(taker(store="2")))[1]
    assert (cancel["due_ms"], cancel["asked_ms"]) == (None, NOW_MS + 1), "so a store without r does not remember it"
    assert kept.ids(NOW_MS + 4, orders(taker(store="2")), recurring("r", every=7)) == ["r"]


def test_the_same_again_changes_nothing__S4_D5_D19(kept: Kept) -> None:
    kept.visit(NOW_MS, orders(taker()), recurring("r"), recurring("over"))
    again = [recurring("r", from_ms=NOW_MS + 30_000), row(Cancel("over", None)), recurring("over")]
    assert kept.ids(NOW_MS + 1, orders(taker()), *again) == ["r", "over", "over"], (
        "its deliverer drops the first and the last"
    )
    kept.visit(NOW_MS + 2, orders(taker(recurs=["r"])))
    assert Index.decode(kept.index).rules == 1
    other = orders(taker(store="2"))
    kept.visit(NOW_MS + 2, other)
    given, _ = kept.visit(NOW_MS + 3, other)[1]
    assert (given["id"], msgspec.json.decode(given["recurrence"])["from"]) == ("r", NOW_MS)


def test_a_taker_that_is_there_under_another_name_is_at_home__S5(kept: Kept) -> None:
    store = taker().store_id
    renamed = orders(taker(), Taker("b:1", store, [0] * PARTITIONS), to="b:1")
    for after in range(1, 5):
        assert kept.visit(NOW_MS + after, renamed, row(message(f"m{after}", 10)))[0] == "b:1"
        assert Index.decode(kept.index).given_rows == after, "it is given at once"
    assert Index.decode(kept.index).address == "b:1"


def test_a_shard_whose_taker_has_what_was_put_off_goes_on_there_and_tries_later__S5_D16(kept: Kept) -> None:
    both = taker(), taker(B)
    kept.visit(NOW_MS, orders(*both), row(message("a", 5_000)))
    kept.visit(NOW_MS + 1, orders(*both), row(Reschedule("a", None, NOW_MS + 86_400_000)))
    waits = longest = 0
    for second in range(1, 3_600):
        now_ms = NOW_MS + second * 1_000
        moving = orders(taker(mark_ms=NOW_MS + 4_999), taker(B), to=B)
        given = kept.ids(now_ms, moving, row(message(f"m{second}", second * 1_000 + 9)))
        waits = 0 if given else waits + 1
        longest = max(longest, waits)
    assert 0 < longest <= 95, "some lead of seconds, at times"
    assert Index.decode(kept.index).waiting_rows <= 95
    settled = orders(taker(mark_ms=NOW_MS + 86_400_000), taker(B), to=B)
    now_ms = NOW_MS + 90_000_000
    while kept.visit(now_ms, settled)[0] != B:
        now_ms += 1_000
        settled = orders(taker(mark_ms=now_ms), taker(B), to=B)
        assert now_ms < NOW_MS + 93_000_000


def test_a_reschedule_is_told_where_the_deliverer_may_have_the_message_too__S4_D16(kept: Kept) -> None:
    assert kept.ids(NOW_MS, orders(taker()), row(message("a", 10_000))) == ["a"]
    move = row(Reschedule("a", None, NOW_MS + 60_000))
    given = kept.visit(NOW_MS + 1, orders(taker()), row(message("a", 10_000)), move)[1]
    assert (given[0]["id"], given[0]["payload"]) == ("a", None), "it has one, and another waited here"
    # A micro-batch that was aborted after it was sent, and is done again while the deliverer is down.
    kept.visit(NOW_MS + 2, orders(failed=[NUMBER]), row(message("b", 15_000)))
    given = kept.visit(NOW_MS + 3, orders(taker(), failed=[NUMBER]), row(Reschedule("b", None, NOW_MS + 90_000)))[1]
    assert ("b", None) in [(it["id"], it["payload"]) for it in given]


def test_what_was_moved_near_by_a_micro_batch_that_is_done_again_is_marked__S4_D16(kept: Kept) -> None:
    kept.visit(NOW_MS, orders(taker()), row(message("x", 600_000)))
    other = orders(taker(store="2"), failed=[NUMBER])
    assert kept.visit(NOW_MS + 1, other, row(Reschedule("x", None, NOW_MS + 2_000))) == (None, [])
    x = kept.visit(NOW_MS + 2, other)[1][-1]
    assert (x["moved_to_ms"], x["again"]) == (NOW_MS + 2_000, True)
    long = Kept()
    long.visit(NOW_MS, orders(taker()), row(message("y", 250_000)))
    long.visit(NOW_MS, orders(taker()))
    long.visit(NOW_MS + 1, other)
    assert [it["again"] for it in long.visit(NOW_MS + 231_000, other)[1]] == [True], (
        "the run before may have had a longer lead"
    )


def test_one_that_was_moved_too_late_is_settled_when_it_was_due__S4_D16(kept: Kept) -> None:
    assert kept.ids(NOW_MS, orders(taker()), row(message("x", 1_000))) == ["x"]
    late = row(Reschedule("x", None, NOW_MS + 31_536_000_000))
    kept.visit(NOW_MS + 1_100, orders(taker(mark_ms=NOW_MS + 990)), late)
    kept.visit(NOW_MS + 2_100, orders(taker(mark_ms=NOW_MS + 2_000)))
    index = Index.decode(kept.index)
    assert (index.unsettled, index.waiting, len(kept.chunks)) == (0, 0, 0)


def test_what_is_settled_is_not_put_off__S4_D16(kept: Kept) -> None:
    kept.visit(NOW_MS, orders(taker()), row(message("a", 1_000)), row(message("z", 19_000)))
    late = row(Reschedule("a", None, NOW_MS + 10**9)), row(Reschedule("unknown", None, NOW_MS + 10**9))
    kept.visit(NOW_MS + 6_000, orders(taker(mark_ms=NOW_MS + 5_000)), row(Cancel("c", None)), *late)
    kept.visit(NOW_MS + 60_000, orders(taker(mark_ms=NOW_MS + 59_000)))
    index = Index.decode(kept.index)
    assert (index.unsettled, index.waiting, kept.chunks) == (0, 0, {})


def test_moved_messages_are_in_order_with_the_others_and_within_the_bounds__D4_D16_D8(kept: Kept) -> None:
    many = [row(message(f"m{n}", 30_000, key="k"), n) for n in range(5_000)]
    kept.visit(NOW_MS, orders(), *many, row(message("x", 29_000, key="k")))
    kept.visit(NOW_MS + 1, orders(), row(Reschedule("x", "k", NOW_MS + 31_000)))
    parts = [kept.ids(NOW_MS + 60_000, orders(taker())) for _ in range(4)]
    assert [len(part) for part in parts] == [2_000, 2_000, 1_001, 0]
    assert parts[2][-1] == "x"
    large = Kept()
    large.visit(NOW_MS, orders(taker()), *(row(message(f"m{n}", 90_000, payload=b"1" * 900_000), n) for n in range(30)))
    moves = (row(Reschedule(f"m{n}", None, NOW_MS + 50_000 + n)) for n in range(30))
    large.visit(NOW_MS + 1, orders(taker()), *moves)
    sizes = []
    while given := large.visit(NOW_MS + 51_000, orders(taker()))[1]:
        sizes.append(sum(len(it["payload"] or b"") for it in given))
    assert sum(sizes) == 30 * 900_000
    assert max(sizes) <= VISIT_BYTES + 900_000


def test_many_that_were_moved_come_again_in_few_chunks_and_leave_soon__D5_D16(kept: Kept) -> None:
    rows = [row(message(f"m{n}", 10**6 + n), n) for n in range(3_000)]
    kept.visit(NOW_MS, orders(taker()), *rows)
    kept.visit(NOW_MS, orders(taker()), *(row(Reschedule(f"m{n}", None, NOW_MS + 10**9 + n)) for n in range(3_000)))
    kept.visit(NOW_MS, orders(taker()), *rows)
    assert len(kept.chunks) <= 6
    unpacked = 0
    shard_peek = Chunks_.peek

    def peek(chunks: Any, number: int) -> Any:
        nonlocal unpacked
        unpacked += 1
        return shard_peek(chunks, number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Chunks_, "peek", peek)
        assert len(kept.visit(NOW_MS + 10**9, orders(taker()))[1]) == VISIT_ROWS
    assert unpacked <= len(kept.chunks)
    kept.visit(NOW_MS + 10**9 + 1, orders(taker(mark_ms=NOW_MS + 10**9)))


def test_one_that_was_moved_near_is_settled_when_it_was_delivered__S4_D16(kept: Kept) -> None:
    kept.visit(NOW_MS, orders(taker()), row(message("x", 2_592_000_000)))
    assert kept.ids(NOW_MS + 1, orders(taker()), row(Reschedule("x", None, NOW_MS + 2_000))) == ["x"]
    kept.visit(NOW_MS + 3_000, orders(taker(mark_ms=NOW_MS + 1_999)))
    assert Index.decode(kept.index).unsettled == 1
    kept.visit(NOW_MS + 3_001, orders(taker(mark_ms=NOW_MS + 2_500)))
    assert (Index.decode(kept.index).unsettled, len(kept.chunks)) == (0, 0)


def test_a_key_is_no_part_of_an_id__D5_D16(kept: Kept) -> None:
    kept.visit(NOW_MS, orders(taker()), row(message("bar", 90_000, key="foo")))
    kept.visit(NOW_MS, orders(taker()), row(Reschedule("bar", "foo", NOW_MS + 10**9)))
    assert kept.ids(NOW_MS + 1, orders(taker()), row(message("3 foobar", 5_000))) == ["3 foobar"]


def test_a_clock_that_is_set_back_while_a_shard_moves_does_not_stop_it__S5(kept: Kept) -> None:
    both = taker(), taker(B)
    kept.visit(NOW_MS, orders(*both), row(message("a", 5_000)))
    kept.visit(NOW_MS + 1, orders(*both), row(Reschedule("a", None, NOW_MS + 86_400_000)))
    moving = orders(*both, to=B)
    kept.visit(NOW_MS + 2, moving)
    kept.visit(NOW_MS + 3, moving)
    back_ms = NOW_MS - 7_200_000
    gone = [kept.ids(back_ms + n * 1_000, moving, row(message(f"m{n}", n * 1_000 - 7_200_000))) for n in range(120)]
    assert any(gone)


def test_restarts_while_a_deliverer_is_down_leave_few_runs__S2(kept: Kept) -> None:
    kept.visit(NOW_MS, orders(taker()), *(row(message(f"m{n}", 5_000 + n), n) for n in range(9)))
    for again in range(200):
        kept.visit(NOW_MS + again, orders(failed=[NUMBER]), *(row(message(f"{again}.{n}", 5_000), n) for n in range(9)))
    index = Index.decode(kept.index)
    assert len(index.runs) + len(index.given) + len(index.taken) < 100


def test_many_that_are_moved_again_and_again_are_found_soon__D16(kept: Kept) -> None:
    kept.visit(NOW_MS, orders(taker()), *(row(message(f"m{n}", 10**9 + n), n) for n in range(3_000)))
    unpacked = 0
    shard_peek = Chunks_.peek

    def peek(chunks: Any, number: int) -> Any:
        nonlocal unpacked
        unpacked += 1
        return shard_peek(chunks, number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Chunks_, "peek", peek)
        for again in range(3):
            moves = (row(Reschedule(f"m{n}", None, NOW_MS + 10**9 + again)) for n in range(3_000))
            kept.visit(NOW_MS + again, orders(taker()), *moves)
    assert unpacked <= 3 * len(kept.chunks)


def test_controls_of_many_micro_batches_make_few_chunks__S2(kept: Kept) -> None:
    kept.visit(NOW_MS, orders(taker()), row(message("far", 2_000_000_000)))
    for batch in range(400):
        kept.visit(NOW_MS + batch, orders(taker()), row(Cancel(f"c{batch}", None)), recurring(f"r{batch}"))
        assert len(kept.chunks) <= 100
    index = Index.decode(kept.index)
    assert (index.rules, sum(it.others for it in index.controls)) == (400, 400)


def test_large_recurring_messages_are_not_written_again_in_each_visit__S2_D8(kept: Kept) -> None:
    for n in range(70):
        kept.visit(NOW_MS + n, orders(taker(mark_ms=NOW_MS + n)), recurring(f"r{n}", payload=b"1" * 300_000))
    before = {*kept.chunks}
    kept.visit(NOW_MS + 100, orders(taker(mark_ms=NOW_MS + 99)))
    assert {*kept.chunks} == before


def test_what_is_due_soon_is_counted_about__D15(kept: Kept) -> None:
    rows = [row(message(f"m{n}", 30_000 + n * 100), n) for n in range(1_000)]
    kept.visit(NOW_MS, orders(taker()), *rows, row(message("near", 5)), row(Cancel("c", None)))
    index = Index.decode(kept.index)
    assert [index.due_by(NOW_MS + ms) for ms in (0, 5, 29_999, 80_000, 129_900, 10**9)] == [0, 1, 1, 501, 1_001, 1_001]


def test_an_index_or_a_piece_of_another_version_is_refused__S4() -> None:
    for read in (Index.decode, unpack):
        with pytest.raises(DeliveryFailed, match=f"in the format 2, this version reads {VERSION}"):
            read(b"\x02...")
