"""A cancel ends the message that a shard holds, however far ahead it is due, and leaves little (rules S2, D7)."""

import copy
import random

import pytest

from tickwheel.delivery.model.entries import Reschedule
from tickwheel.delivery.model.message import Cancel
from tickwheel.spark.shard_index import Index

from .rows import NOW_MS, message, row
from .shards import NUMBER, B, Kept, orders, taker

DAY_MS = 86_400_000
YEAR_MS = 365 * DAY_MS


@pytest.fixture
def kept() -> Kept:
    """A shard that knows its taker: the store 1 at A."""
    made = Kept()
    assert made.visit(NOW_MS, orders(taker())) == (None, [])
    return made


def passes(kept: Kept, after_ms: int, *, from_ms: int = 0, every_ms: int = DAY_MS) -> list[str]:
    """What is given until then, and a minute later, with a visit for each day; the taker settles all that is due."""
    given = []
    for ms in [*range(from_ms + every_ms, after_ms, every_ms), after_ms, after_ms + 60_000]:
        given += kept.ids(NOW_MS + ms, orders(taker(mark_ms=NOW_MS + ms)))
    return given


def others(count: int, due_ms: int, name: str = "o") -> list[tuple[object, ...]]:
    return [row(message(f"{name}{n}", due_ms + n), n) for n in range(count)]


@pytest.mark.parametrize("due_ms", [500 * DAY_MS, 5 * YEAR_MS])
@pytest.mark.parametrize("between", ["nothing", "restart", "merge"])
def test_a_message_that_was_cancelled_is_not_given_however_far_it_was_due__S2_D7(
    kept: Kept, due_ms: int, between: str
) -> None:
    kept.visit(NOW_MS, orders(taker()), row(message("far", due_ms)), *others(9, due_ms))
    assert kept.ids(NOW_MS + 1, orders(taker()), row(Cancel("far", None))) == ["far"], "the deliverer gets the cancel"
    if between == "restart":
        kept = copy.deepcopy(kept)
        kept.visit(NOW_MS + 2, orders(taker(), failed=[NUMBER]))
    elif between == "merge":
        for n in range(40):
            kept.visit(NOW_MS + 2 + n, orders(taker()), *others(9, due_ms + 100, f"o{n}."))
    given = passes(kept, due_ms, every_ms=50 * DAY_MS)
    assert "far" not in given
    assert "o3" in given


def test_a_cancel_that_came_first_is_kept_for_400_days__S2_D7(kept: Kept) -> None:
    kept.visit(NOW_MS, orders(taker()), row(Cancel("a", None)), row(Cancel("b", "k")), row(Cancel("c", None)))
    passes(kept, 399 * DAY_MS)
    late_ms = 399 * DAY_MS + 70_000
    rows = [row(message("a", 3 * YEAR_MS)), row(message("b", 3 * YEAR_MS, key="k")), row(message("b", 3 * YEAR_MS))]
    kept.visit(NOW_MS + late_ms, orders(taker()), *rows)
    kept.visit(NOW_MS + 402 * DAY_MS, orders(taker()), row(message("c", 3 * YEAR_MS)))
    given = passes(kept, 3 * YEAR_MS, from_ms=402 * DAY_MS, every_ms=100 * DAY_MS)
    assert sorted(given) == ["b", "c"], "b without a key is another message, and the cancel of c was forgotten"


def test_one_that_comes_again_after_both_are_gone_is_still_cancelled__S2_D5(kept: Kept) -> None:
    kept.visit(NOW_MS, orders(taker()), row(message("a", YEAR_MS)))
    kept.visit(NOW_MS + 1, orders(taker()), row(Cancel("a", None)))
    assert Index.decode(kept.index).waiting_rows == 0, "half of what is held is cancelled: it is written again"
    kept.visit(NOW_MS + 6 * DAY_MS, orders(taker()), row(message("a", YEAR_MS)))
    assert Index.decode(kept.index).waiting_rows == 0
    kept.visit(NOW_MS + 20 * DAY_MS, orders(taker()))
    kept.visit(NOW_MS + 20 * DAY_MS + 1, orders(taker()), row(message("a", YEAR_MS)))
    assert Index.decode(kept.index).waiting_rows == 1, "a name that is no longer known is a new message"


def test_a_message_that_comes_again_does_not_make_the_cancel_forget_the_first__S2_D5(kept: Kept) -> None:
    """The first one waits, unread, in a chunk that is older than the cancel."""
    kept.visit(NOW_MS, orders(taker()), row(message("a", 500 * DAY_MS)), *others(9, 500 * DAY_MS))
    kept.visit(NOW_MS + 1, orders(taker()), row(Cancel("a", None)))
    kept.visit(NOW_MS + 2, orders(taker()), row(message("a", 500 * DAY_MS)))
    assert Index.decode(kept.index).waiting_rows == 10
    assert sorted(passes(kept, 500 * DAY_MS)) == sorted(f"o{n}" for n in range(9))


def test_what_was_cancelled_takes_no_room_for_long__S2(kept: Kept) -> None:
    many = 5_000
    kept.visit(NOW_MS, orders(taker()), *others(many, YEAR_MS))
    for start in range(0, many, 500):
        kept.visit(
            NOW_MS + 1 + start, orders(taker()), *(row(Cancel(f"o{n}", None)) for n in range(start, start + 500))
        )
    kept.visit(NOW_MS + DAY_MS, orders(taker(mark_ms=NOW_MS + DAY_MS)))
    assert Index.decode(kept.index).waiting_rows == 0
    assert sum(map(len, kept.chunks.values())) < many * 48
    passes(kept, 12 * DAY_MS, from_ms=DAY_MS)
    assert Index.decode(kept.index).controls == []
    assert not kept.chunks, "nothing is left once the names are forgotten"


def test_late_cancels_write_nothing_again_and_again__S2(kept: Kept) -> None:
    """They meet nothing, and stay for 400 days."""
    kept.visit(NOW_MS, orders(taker()), *others(3_000, YEAR_MS))
    kept.visit(NOW_MS + 1, orders(taker()), *(row(Cancel(f"x{n}", None)) for n in range(4_000)))
    numbers = []
    for n in range(9):
        kept.visit(NOW_MS + 2 + n, orders(taker()), row(Cancel(f"y{n}", None)))
        numbers.append({part.chunk for run in Index.decode(kept.index).runs for part in run.parts})
    assert all(it == numbers[0] for it in numbers)
    assert len(Index.decode(kept.index).cancels) <= 4


def test_a_reschedule_of_what_was_cancelled_leaves_nothing__S2_D16(kept: Kept) -> None:
    """Also while another one waits that was put off for years."""
    far = [row(message(id_, 90_000)) for id_ in "ap"]
    kept.visit(NOW_MS, orders(taker()), *far, *others(9, 5 * YEAR_MS))
    moves = [row(Reschedule(id_, None, NOW_MS + 5 * YEAR_MS)) for id_ in "ap"]
    kept.visit(NOW_MS + 1, orders(taker()), *moves)
    assert len(Index.decode(kept.index).moved) == 2
    kept.visit(NOW_MS + 2, orders(taker()), row(Cancel("a", None)))
    kept.visit(NOW_MS + 3, orders(taker()), row(Reschedule("a", None, NOW_MS + 40_000)))
    assert Index.decode(kept.index).waiting_rows == 10, "it met its cancel when it was found"
    assert "a" not in passes(kept, 2 * DAY_MS)
    kept.visit(NOW_MS + 3 * DAY_MS, orders(taker()), row(Cancel("late", None)))
    passes(kept, 4 * DAY_MS, from_ms=3 * DAY_MS)
    index = Index.decode(kept.index)
    assert (len(index.moved), index.controls, index.waiting_rows) == (1, [], 10)


def test_a_message_that_was_cancelled_while_a_deliverer_had_it_is_cancelled_at_the_next_one_too__S2_S4(
    kept: Kept,
) -> None:
    kept.visit(NOW_MS, orders(taker()), row(message("a", 15_000)), *others(3, YEAR_MS))
    kept.visit(NOW_MS + 1, orders(taker()), row(Cancel("a", None)))
    kept.visit(NOW_MS + 2, orders(taker()))
    other = orders(taker(store="2"))
    kept.visit(NOW_MS + 3, other)
    [cancel] = kept.visit(NOW_MS + 4, other)[1]
    assert (cancel["id"], cancel["payload"]) == ("a", None)
    kept.visit(NOW_MS + 5, orders(taker(store="2", mark_ms=NOW_MS + 4)))
    kept.visit(NOW_MS + 6, orders(taker(store="2", mark_ms=NOW_MS + 20_000)))
    assert Index.decode(kept.index).controls == []


def test_what_a_taker_may_have_holds_its_shard_also_when_it_was_cancelled__S2_S5(kept: Kept) -> None:
    """The hand-off of the message, then of its cancel, failed: another deliverer must not be given to meanwhile."""
    kept.visit(NOW_MS, orders(taker()), row(message("a", 15_000)))
    kept.visit(NOW_MS + 1, orders(taker(), failed=[NUMBER]), row(Cancel("a", None)))
    both = orders(taker(), taker(B), to=B, failed=[NUMBER])
    for n in range(2, 6):
        to, given = kept.visit(NOW_MS + n, both)
        assert to != B
        assert [it["payload"] is None for it in given] == [True, False], "the cancel comes first"


def test_cancels_are_found_in_any_order_of_what_comes__S2_D7(kept: Kept) -> None:
    """Against a plain model: sets of names."""
    rng = random.Random(1)
    held: set[str] = set()
    over: set[str] = set()
    for step in range(120):
        rows = []
        for n in range(rng.randrange(30)):
            rows.append(row(message(f"{step}.{n}", 300 * DAY_MS + rng.randrange(DAY_MS))))
            held.add(f"{step}.{n}")
        for name in rng.sample(sorted(held), min(len(held), rng.randrange(12))):
            rows.append(row(Cancel(name, None)))
            over.add(name)
        rows += [row(message(name, 300 * DAY_MS)) for name in rng.sample(sorted(over), min(len(over), 2))]
        rng.shuffle(rows)
        kept.visit(NOW_MS + step, orders(taker()), *rows)
    given = passes(kept, 302 * DAY_MS, every_ms=10 * DAY_MS)
    assert sorted(given) == sorted(held - over)
