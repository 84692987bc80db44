"""All steps in a real query, from a stream of rows; and the wheel in Spark's workers (rules S1, S2, S7)."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tickwheel.delivery import DeliveryQueue
from tickwheel.spark import HandOff, hold, parse_rows
from tickwheel.spark.metrics import observed
from tickwheel.spark.query import start

from .ports import port_of

pytestmark = pytest.mark.timeout(180)


def test_a_stream_of_rows_is_held_handed_off_and_delivered_and_the_state_is_empty_then__S1_S2_S3(
    session: Any, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "first.json").write_text('{"id": "near", "due": 100000000005}')
    stream = session.readStream.schema("id STRING, key STRING, due BIGINT, what INT").json(str(tmp_path / "in"))
    arrived: list[str] = []
    with DeliveryQueue(tmp_path / "s.db", to=lambda delivery: arrived.append(delivery.message.id)) as queue:
        near = observed(hold(parse_rows(stream), lead_ms=2_000))
        with port_of(queue) as at:
            hand_off = HandOff([at])
            query = start(near, hand_off, tmp_path / "checkpoint")
            try:
                while not arrived:  # from now on the workers run, and 30 s are enough
                    assert query.isActive, query.exception()
                    time.sleep(0.05)
                from_ms = time.time_ns() // 1_000_000 + 30_000
                rows = [{"id": f"m{n}", "key": f"k{n % 7}", "due": from_ms + n * 10, "what": n} for n in range(300)]
                rows += [rows[0], {"id": None, "due": 100_000_000_005}]
                (tmp_path / "rows.json").write_text("\n".join(map(json.dumps, rows)))
                (tmp_path / "rows.json").rename(tmp_path / "in" / "rows.json")
                told: dict[int, Any] = {}  # Spark keeps the last hundred alone
                seen = watch(query, hand_off, told)
                assert queue.wait_until_empty(60)
            finally:
                query.stop()
                hand_off.close()
        counts = queue.summary
    assert max(seen) > 0, "something was held"
    assert max(it["held_messages"] for it in told.values()) == max(seen)
    assert max(it["next_due_ms"] for it in told.values() if it["next_due_ms"]) >= from_ms
    assert sorted(arrived) == sorted({"near", *(row["id"] for row in rows if row["id"])})
    assert (counts.duplicates, counts.dead_letters) == (1, 1)


def test_a_hand_off_takes_its_lead_from_the_hold__S3(session: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "one.json").write_text('{"id": "near", "due": 100000000005}')
    rows = parse_rows(session.readStream.schema("id STRING, due BIGINT").json(str(tmp_path / "in")))
    waits: list[float] = []

    class Noting(HandOff):
        """Sends nothing."""

        def _send_of(self, near: Any, batch_id: int) -> Any:
            send = super()._send_of(near, batch_id)
            waits.append(send.within_s)
            return send

    hand_off = Noting(["127.0.0.1:1"])
    query = start(observed(hold(rows, lead_ms=7_000)), hand_off, tmp_path / "checkpoint")
    try:
        while not waits:
            assert query.isActive, query.exception()
            time.sleep(0.05)
    finally:
        query.stop()
        hand_off.close()
    assert waits[0] == 3.5, "half of it"


def test_all_tasks_of_a_micro_batch_count_from_the_same_moment__D5_S2(session: Any) -> None:
    rows = session.range(100).repartition(4).selectExpr("cast(id as string) as id", "id as delay_ms")
    due = {row.due_ms - row.delay_ms for row in parse_rows(rows).collect()}
    assert len(due) == 1


def watch(query: Any, hand_off: HandOff, told: dict[int, Any]) -> list[int]:
    """How many messages wait, until nothing is held; `told` gets what each micro-batch observed."""
    seen: list[int] = []
    while not (seen and max(seen) and hand_off.report.is_empty):
        assert query.isActive, query.exception()
        seen.append(hand_off.report.waiting)
        for it in query.recentProgress:
            if it["observedMetrics"]:
                told[it["batchId"]] = it["observedMetrics"]["tickwheel"]
        time.sleep(0.1)
    return seen


def count_down(batches: Iterator[Any]) -> Iterator[Any]:
    """In a worker: from delays to the number that the wheel releases within a second, and the worker's process id."""
    import os
    import sys

    was_there = "tickwheel" in sys.modules
    from tickwheel.testing import ManualTimer

    for batch in batches:
        timer, gone = ManualTimer(), []
        for delay_ms in batch.column(0).to_pylist():
            timer.after(delay_ms, gone.append, delay_ms)
        timer.advance(1_000)
        assert gone == sorted(gone)
        yield pa.record_batch([[os.getpid()], [len(gone)], [was_there]], ["pid", "gone", "was_there"])


def test_the_wheel_works_in_workers_that_are_forked_and_used_again__S7(session: Any) -> None:
    found = []
    for _ in range(3):
        delays = session.range(0, 4_000, 1, numPartitions=2).selectExpr("pmod(id * 7919, 2000) as delay_ms")
        found.append(delays.mapInArrow(count_down, "pid BIGINT, gone BIGINT, was_there BOOLEAN").collect())
    assert [sum(row.gone for row in rows) for rows in found] == [2_002] * 3
    before = {row.pid for rows in found[:-1] for row in rows}
    again = [row for row in found[-1] if row.pid in before]
    assert again, "workers are used again"
    assert all(row.was_there for row in again), "they have already imported the module"
