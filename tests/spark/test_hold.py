"""The hold's processor, without a JVM (rule S2)."""

import random
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from tickwheel.delivery.errors import BadRecord
from tickwheel.delivery.message import Cancel
from tickwheel.spark.hold import Hold
from tickwheel.spark.packing import NO_SECOND, pack, unpack

from .rows import NOW_MS, message, row, with_partition

LEAD_MS = 20_000
SECOND = NOW_MS // 1000


def new_hold() -> Any:
    made = TwsTester(Hold(LEAD_MS), timeMode="ProcessingTime")
    made.setProcessingTime(NOW_MS)
    return made


def rows_of(*rows: tuple[Any, ...]) -> list[Any]:
    packed = pack(with_partition(*rows, partition=0), 1)
    return [Row(**one) for one in packed.to_pylist()]


def give(hold: Any, *rows: tuple[Any, ...]) -> list[str]:
    """Give these to the hold like one micro-batch, group by group. Returns what passes at once."""
    passed = []
    for one in rows_of(*rows):
        passed += ids(_keyed(hold, one))
    return passed


def _keyed(hold: Any, one: Any) -> list[Any]:
    hold.handle.setGroupingKey((one.shard, one.second))
    return list(hold.processor.handleInputRows((one.shard, one.second), iter([one]), hold._getTimerValues()))


def advance(hold: Any, now_ms: int) -> list[str]:
    """Call the next micro-batch's timers, like Spark."""
    hold._currentProcessingTimeMs = now_ms
    out = []
    for key in sorted(hold.handle._timers.getAllKeysWithTimers()):
        hold.handle.setGroupingKey(key)
        for at_ms in [it for it in hold.handle._timers.listTimers(key) if it <= now_ms]:
            out += list(hold.processor.handleExpiredTimer(key, hold._getTimerValues(), None))
            hold.handle._timers.deleteTimer(key, at_ms)
    return ids(out)


def ids(rows: list[Any]) -> list[str]:
    return [id_ for one in rows for id_ in unpack(one.rows).column("id").to_pylist()]


def held(hold: Any) -> int:
    return sum(len(pieces) for pieces in hold.handle.list_states["pieces"].state.values())


def test_what_is_far_waits_until_lead_before_its_second_and_leaves_nothing__S2() -> None:
    hold = new_hold()
    assert give(hold, row(message("far", 60_400)), row(message("farther", 61_000))) == []
    assert held(hold) == 2
    assert advance(hold, (SECOND + 40) * 1000 - 1) == []
    assert advance(hold, (SECOND + 40) * 1000) == ["far"]
    assert held(hold) == 1
    assert advance(hold, (SECOND + 41) * 1000) == ["farther"]
    assert held(hold) == 0
    assert not list(hold.handle._timers.getAllKeysWithTimers())


def test_what_is_near_or_overdue_passes_at_once_and_so_do_cancels_and_dead_letters__S2() -> None:
    hold = new_hold()
    near = row(message("near", 20_999)), row(message("overdue", -5_000))
    passed = give(hold, *near, row(Cancel("c", None)), row(BadRecord("why", "what")), row(message("far", 21_000)))
    assert sorted(map(str, passed)) == ["None", "c", "near", "overdue"]
    assert held(hold) == 1


def test_one_that_comes_after_its_second_was_released_passes_at_once__S2() -> None:
    hold = new_hold()
    give(hold, row(message("a", 30_000)))
    assert advance(hold, NOW_MS + 10_000) == ["a"]
    assert give(hold, row(message("b", 30_000))) == ["b"]
    assert held(hold) == 0


def test_several_micro_batches_of_a_second_come_out_as_one_in_order__D4() -> None:
    hold = new_hold()
    give(hold, row(message("c", 60_300), 3), row(message("a", 60_100), 4))
    give(hold, row(message("b", 60_100), 1), row(message("c", 60_300), 3))
    assert advance(hold, NOW_MS + 50_000) == ["b", "a", "c", "c"]


def test_whatever_is_held_comes_out_once_and_not_before_its_lead__S2() -> None:
    rng = random.Random(20)
    hold = new_hold()
    due: dict[str, int] = {}
    out: dict[str, int] = {}
    now_ms = NOW_MS
    for step in range(300):
        if step < 200:
            new = {f"{step}.{n}": rng.randrange(0, 120_000) for n in range(rng.randrange(5))}
            due |= {id_: now_ms + after for id_, after in new.items()}
            for id_ in give(hold, *(row(message(id_, due[id_] - NOW_MS), step) for id_ in new)):
                out[id_] = now_ms
        now_ms += rng.randrange(1, 3_000)
        for id_ in advance(hold, now_ms):
            assert id_ not in out
            out[id_] = now_ms
    assert out.keys() == due.keys()
    assert all(due[id_] // 1000 * 1000 - LEAD_MS <= at_ms for id_, at_ms in out.items())
    assert held(hold) == 0
    assert NO_SECOND == -1
