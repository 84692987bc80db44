"""A shard of the hold on plain memory: what waits, what is given, and to whom (rules S2, S4, S5)."""

import random
from typing import Any

import pytest

from tickwheel.delivery.base.errors import BadRecord, DeliveryFailed
from tickwheel.delivery.model.entries import Reschedule
from tickwheel.delivery.model.message import Cancel
from tickwheel.delivery.read.hand_off_rows import PARTITIONS
from tickwheel.spark.orders import Taker
from tickwheel.spark.packing import VERSION, unpack
from tickwheel.spark.runs import VISIT_BYTES, VISIT_ROWS
from tickwheel.spark.shard_index import Chunks as Chunks_
from tickwheel.spark.shard_index import Index

from .rows import NOW_MS, batch_of, message, row
from .shards import LEAD_MS, NUMBER, A, B, Kept, orders, taker


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
    assert kept.visit(NOW_MS + 1, orders(failed=[NUMBER]), nearer, *hot) == (None, [])
    moves = [row(Reschedule(id_, None, NOW_MS + 900_000)) for id_ in ("far", "m0", "m15999")]
    told = [it["id"] for it in kept.visit(NOW_MS + 2, orders(taker(), failed=[NUMBER]), *moves)[1] if not it["payload"]]
    assert told == ["far", "m0"], "the last of them was not given"
    other = orders(taker(store="2"))
    kept.visit(NOW_MS + 3, other)
    found = {it["id"]: it for batch in range(9) for it in kept.visit(NOW_MS + 880_000 + batch, other)[1]}
    assert (found["far"]["again"], found["m0"]["again"], found["m15999"]["again"]) == (True, True, False)
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


def test_a_move_that_an_aborted_micro_batch_gave_up_is_not_begun_again_by_a_longer_lead__S5(kept: Kept) -> None:
    both = taker(), taker(B)
    kept.visit(NOW_MS, orders(*both), row(message("m", 19_000)))
    kept.visit(NOW_MS + 1, orders(*both, to=B))
    late_ms = NOW_MS + 100_000  # its patience was over then: A was given what came
    kept.lead_ms = 90_000
    rows = row(message("near", 150_000)), row(message("x", 200_000))
    settled = orders(taker(mark_ms=late_ms - 1), taker(B), to=B, failed=[NUMBER])
    to, given = kept.visit(late_ms, settled, *rows)
    assert (to, [it["id"] for it in given]) == (A, ["near"])
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


def test_a_cancel_that_comes_while_a_shard_moves_is_given_at_once__S5_D7(kept: Kept) -> None:
    both = taker(), taker(B)
    kept.visit(NOW_MS, orders(*both), row(message("a", 100)))
    moving = orders(*both, to=B)
    kept.visit(NOW_MS + 1, moving)
    assert kept.visit(NOW_MS + 2, moving, row(Cancel("c", None)), row(message("b", 100))) == (A, [cancel_row("c")])


def cancel_row(id_: str) -> dict[str, Any]:
    [found] = batch_of([row(Cancel(id_, None))]).to_pylist()
    return dict(found)


def test_a_taker_that_is_there_under_another_name_is_at_home__S5(kept: Kept) -> None:
    store = taker().store_id
    renamed = orders(taker(), Taker("b:1", store, [0] * PARTITIONS, taker().openings, 0), to="b:1")
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
        kept.visit(NOW_MS + batch, orders(taker()), row(Cancel(f"c{batch}", None)))
        assert len(kept.chunks) <= 50
    assert sum(it.rows for it in Index.decode(kept.index).controls) == 400


def test_large_dead_letters_are_not_written_again_in_each_visit__S2_D8(kept: Kept) -> None:
    kept.visit(NOW_MS, orders(taker()), row(message("far", 2_000_000_000)))
    for n in range(70):
        kept.visit(NOW_MS + n, orders(taker(mark_ms=NOW_MS + n)), row(BadRecord("x" * 300_000, "what")))
    before = {*kept.chunks}
    kept.visit(NOW_MS + 100, orders(taker(mark_ms=NOW_MS + 99)))
    assert {*kept.chunks} == before


def test_what_is_due_soon_is_counted_about__D15(kept: Kept) -> None:
    rows = [row(message(f"m{n}", 30_000 + n * 100), n) for n in range(1_000)]
    kept.visit(NOW_MS, orders(taker()), *rows, row(message("near", 5)), row(Cancel("c", None)))
    index = Index.decode(kept.index)
    assert [index.due_by(NOW_MS + ms) for ms in (0, 5, 29_999, 80_000, 129_900, 10**9)] == [0, 1, 1, 501, 1_001, 1_001]


def test_an_index_or_a_piece_of_another_format_is_refused__S4() -> None:
    for read in (Index.decode, unpack):
        for other in (6, VERSION + 1):
            with pytest.raises(
                DeliveryFailed, match=f"has the format {other}, and this version .* reads only {VERSION}"
            ):
                read(bytes([other]) + b"...")
