"""A deliverer's store that is an older copy of itself: a copied file, a snapshot of its disk (rule S4)."""

import shutil
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tickwheel.delivery import DeliveryQueue
from tickwheel.delivery.model.entries import Reschedule
from tickwheel.delivery.model.message import Cancel
from tickwheel.delivery.read.hand_off_rows import HANDED, PARTITIONS
from tickwheel.delivery.serve.tokens import Right, Tokens
from tickwheel.spark.client import Access
from tickwheel.spark.deliverers import Deliverers
from tickwheel.spark.orders import Orders, Taker

from .ports import port_of
from .rows import NOW_MS, message, row
from .shards import A, B, Kept, orders, taker

pytestmark = pytest.mark.timeout(60)
TOKEN = b"a token of this test"


def opened(*openings: tuple[str, int], commits: int, mark_ms: int = 0) -> Taker:
    return taker(mark_ms=mark_ms, openings=openings, commits=commits)


def given(kept: Kept, now_ms: int, found: Orders, *rows: tuple[Any, ...]) -> list[tuple[str, bool]]:
    return [(it["id"], it["again"]) for it in kept.visit(now_ms, found, *rows)[1]]


@pytest.fixture
def kept() -> Kept:
    """A shard whose taker has x, and had five commits then."""
    made = Kept()
    made.visit(NOW_MS, orders(opened(("one", 0), commits=3)))
    assert given(made, NOW_MS, orders(opened(("one", 0), commits=3)), row(message("x", 5_000))) == [("x", False)]
    assert given(made, NOW_MS + 1, orders(opened(("one", 0), commits=5))) == []
    return made


@pytest.mark.parametrize(
    "back",
    [
        opened(("one", 0), ("two", 4), commits=90),  # a copy of the file that was made at four commits
        opened(("two", 4), commits=4),  # of a time before the opening
        opened(("one", 0), commits=4),  # the whole machine went back, with its memory
    ],
)
def test_a_store_that_went_back_gets_again_what_it_had_taken_marked__S4(kept: Kept, back: Taker) -> None:
    assert given(kept, NOW_MS + 2, orders(back)) == []
    assert given(kept, NOW_MS + 3, orders(back)) == [("x", True)]
    assert given(kept, NOW_MS + 4, orders(back)) == [], "once"
    later = opened((back.openings[-1][0], back.openings[-1][1]), commits=back.commits + 1, mark_ms=NOW_MS + 5_000)
    assert given(kept, NOW_MS + 6_000, orders(later)) == []
    assert not kept.chunks


def test_a_store_that_was_opened_again_goes_on__S4(kept: Kept) -> None:
    for commits, openings in enumerate([[("one", 0)], [("one", 0), ("two", 6)], [("two", 6), ("three", 8)]], 5):
        found = orders(opened(*openings, commits=commits + 5))
        assert given(kept, NOW_MS + commits, found, row(message(f"m{commits}", 90_000))) == []


def test_what_a_store_took_just_before_it_was_opened_again_is_given_once_more_marked__S3_S4(kept: Kept) -> None:
    """The store has told nothing since, so nothing tells whether it is a copy without y. A store with y drops it."""
    one, two = ("one", 0), ("two", 6)
    assert given(kept, NOW_MS + 2, orders(opened(one, commits=6)), row(message("y", 6_000))) == [("y", False)]
    back = orders(opened(one, two, commits=6))
    assert given(kept, NOW_MS + 3, back) == [("y", True)]
    assert given(kept, NOW_MS + 4, back) == []


def test_cancels_and_new_due_times_are_given_again_too__S4_D7_D16(kept: Kept) -> None:
    one, two = ("one", 0), ("two", 5)
    changes = row(Cancel("x", None)), row(message("z", 9_000)), row(Reschedule("z", None, NOW_MS + 12_000))
    assert {it for it, _ in given(kept, NOW_MS + 2, orders(opened(one, commits=6)), *changes)} == {"x", "z"}
    kept.visit(NOW_MS + 3, orders(opened(one, commits=8)))
    back = orders(opened(one, two, commits=5))
    kept.visit(NOW_MS + 4, back)
    again = kept.visit(NOW_MS + 5, back)[1]
    assert [it["id"] for it in again if it["payload"] is None][:1] == ["x"]
    assert [it["moved_to_ms"] for it in again if it["id"] == "z" and it["payload"]] == [NOW_MS + 12_000]


def test_one_that_went_back_gets_it_also_where_its_shard_belongs_to_another_by_now__S4_S5(kept: Kept) -> None:
    """It has some of the messages, and delivers them: two deliverers would have them."""
    back = orders(opened(("two", 4), commits=4), taker(B), to=B)
    kept.visit(NOW_MS + 2, back)
    assert kept.visit(NOW_MS + 3, back)[0] == A


def test_a_shard_stays_until_one_that_went_back_has_settled_what_it_had_also_with_a_shorter_lead__S4_S5() -> None:
    """The copy has `y`, which was given with a lead of a minute."""
    kept = Kept(lead_ms=60_000)
    one, both = ("one", 0), opened(("one", 0), ("two", 4), commits=4)
    kept.visit(NOW_MS, orders(opened(one, commits=3)))
    assert given(kept, NOW_MS, orders(opened(one, commits=3)), row(message("y", 50_000))) == [("y", False)]
    kept.visit(NOW_MS + 1, orders(opened(one, commits=5)))
    kept.lead_ms = 10_000
    kept.visit(NOW_MS + 2, orders(both, taker(B), to=B))
    assert given(kept, NOW_MS + 3, orders(both, taker(B), to=B)) == [("y", True)], "it drops what it has"
    for after in range(4, 9):
        assert kept.visit(NOW_MS + after, orders(both, taker(B), to=B))[0] == A


@contextmanager
def deliverer(store: Path, port: int = 0) -> Iterator[tuple[DeliveryQueue, str]]:
    with DeliveryQueue(store, to=lambda _: None) as queue, port_of(queue, Tokens({TOKEN: Right.HAND_OFF}), port) as at:
        yield queue, at


def test_of_200_messages_none_is_lost_where_the_file_of_a_store_is_replaced_by_a_copy__S4(tmp_path: Path) -> None:
    store, copy, access, kept = tmp_path / "s.db", tmp_path / "copy.db", Access(TOKEN), Kept()
    far_ms = 1_000_000_000_000
    half = [[row(message(f"m{n}", far_ms + n), n) for n in range(at, at + 100)] for at in (0, 100)]
    kept.lead_ms = 2 * far_ms  # all is near

    def visit(at: str, *rows: tuple[Any, ...]) -> int:
        with closing(Deliverers([at], access)) as asked, closing(access.connect(at, 20)) as client:
            found = Orders(asked.ask(), [at] * PARTITIONS, is_again=False)
            to, rows_given = kept.visit(time.time_ns() // 1_000_000, found, *rows)
            if to:
                client.hand_off([pa.RecordBatch.from_pylist(rows_given, HANDED)], found.takers[0].store_id)
        return len(rows_given)

    with deliverer(store) as (queue, at):
        assert visit(at) == 0
        assert visit(at, *half[0]) == 100
    shutil.copyfile(store, copy)
    port = int(at.rpartition(":")[2])
    with deliverer(store, port) as (queue, at):
        while visit(at):  # the first hundred may be sent again
            pass
        assert visit(at, *half[1]) == 100
        assert visit(at) == 0
        assert queue.summary.accepted == 100
    for beside in tmp_path.glob("s.db*"):
        beside.unlink()
    shutil.copyfile(copy, store)
    with deliverer(store, port) as (queue, at):
        for n in range(300):
            queue.put(f"of another {n}", delay_ms=10_000_000)
        assert visit(at) == 0
        assert visit(at) == 200
        assert {queue.state(f"m{n}") for n in range(200)} == {"waiting"}
        assert queue.summary.duplicates == 100
