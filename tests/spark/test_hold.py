"""The hold's processor on Spark's own test state, without a JVM (rules S2, S4); `test_shard.py` has what it does."""

from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from tickwheel.delivery.base.errors import BadRecord
from tickwheel.delivery.model.message import Cancel
from tickwheel.spark.hold import Hold
from tickwheel.spark.orders import Orders, Taker
from tickwheel.spark.packing import split_by, unpack

from .rows import NOW_MS, message, row, with_partition

LEAD_MS = 20_000
SHARD = 9


@pytest.fixture
def hold() -> Any:
    """At `NOW_MS`."""
    made = TwsTester(Hold(LEAD_MS), timeMode="ProcessingTime")
    made.setProcessingTime(NOW_MS)
    return made


def visit(hold: Any, *rows: tuple[Any, ...]) -> tuple[list[str], Any]:
    """Give these like one micro-batch, with the tick: what comes out, and what is told of the shard."""
    pieces = [piece for _, piece in split_by(with_partition(*rows, partition=SHARD), "partition")]
    given = [Row(shard=SHARD, rows=piece) for piece in (*pieces, None)]
    *near, told = hold.test(SHARD, given)
    assert told.rows is None
    assert {one.shard for one in (*near, told)} == {SHARD}
    return [id_ for one in near for id_ in unpack(bytes(one.rows)).column("id").to_pylist()], told


def test_what_is_far_waits_in_state_and_leaves_none_where_nobody_tells_of_it__S2(hold: Any) -> None:
    rows = (
        row(message("near", 20_000)),
        row(message("far", 60_000)),
        row(Cancel("c", None)),
        row(BadRecord("why", "what")),
    )
    out, told = visit(hold, *rows)
    assert (out, told.waiting, told.given, told.due_ms) == (["c", None, "near"], 1, 0, NOW_MS + 60_000)
    assert hold.peekValueState("index", SHARD) is not None
    hold.setProcessingTime(NOW_MS + 40_000)
    out, told = visit(hold)
    assert (out, told.waiting, told.due_ms) == (["far"], 0, None)
    assert hold.peekValueState("index", SHARD) is None
    assert not hold.peekMapState("chunks", SHARD)


def test_with_orders_it_gives_to_the_shard_s_deliverer_and_keeps_what_is_not_settled__S3_S4(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def hold_with(mark_ms: int, ahead_ms: int = 0) -> Any:
        orders = Orders([Taker("a:1", "first", [mark_ms] * 64, [("one", 0)], 0, ahead_ms)], ["a:1"] * 64)
        monkeypatch.setattr(TaskContext, "get", lambda: Context(orders.encode()))
        made = TwsTester(Hold(LEAD_MS), timeMode="ProcessingTime")
        made.setProcessingTime(NOW_MS)
        return made

    hold = hold_with(0)
    assert visit(hold, row(message("a", 5)))[0] == [], "the state must know the taker before it gets a row"
    out, told = visit(hold)
    assert (out, told.waiting, told.given, told.taker) == (["a"], 0, 1, "a:1")
    later = hold_with(NOW_MS + 5)
    later.updateValueState("index", SHARD, hold.peekValueState("index", SHARD))
    later.updateMapState("chunks", SHARD, hold.peekMapState("chunks", SHARD))
    out, told = visit(later)
    assert (out, told.given) == ([], 0)
    assert not later.peekMapState("chunks", SHARD)
    ahead = hold_with(0, 30_000)
    ahead.updateValueState("index", SHARD, hold.peekValueState("index", SHARD))
    ahead.updateMapState("chunks", SHARD, hold.peekMapState("chunks", SHARD))
    out, _ = visit(ahead, row(message("far", 50_001)), row(message("near", 50_000)))
    assert out == ["near"], "the deliverer's clock counts, where it is ahead"


class Context:
    """A task's context, with orders."""

    def __init__(self, orders: str) -> None:
        self._orders = orders

    def getLocalProperty(self, key: str) -> str:
        assert key == "tickwheel.orders"
        return self._orders
