"""The metrics of a query, and what its log says of the lead (rules D15, S3)."""

import logging
import re
import shutil
import subprocess
import time
from typing import Any
from urllib.request import urlopen

import pytest

from tickwheel.delivery import WrongUsage
from tickwheel.delivery.serve.access import Address
from tickwheel.spark.driver_log import Watched
from tickwheel.spark.hand_off import HandOff
from tickwheel.spark.metrics import QueryMeasures, served

pytestmark = pytest.mark.timeout(60)

AT = "127.0.0.1:7400"


def shard(taker: str | None, waiting: int, given: int, due_ms: int | None) -> dict[str, Any]:
    due_within = [waiting // 2, waiting, waiting + given]
    return {"taker": taker, "waiting": waiting, "given": given, "due_ms": due_ms, "due_within": due_within}


def progress(number: int, batch_ms: int = 100, rows: int = 0) -> dict[str, Any]:
    ticks = {"description": "RatePerMicroBatchStream", "numInputRows": 64}
    files = {"description": "FileStreamSource", "numInputRows": rows}
    return {"batchId": number, "durationMs": {"triggerExecution": batch_ms}, "sources": [files, ticks]}


def hand_off() -> HandOff:
    made = HandOff([AT])
    made.report.shards |= {0: shard(AT, 5, 2, 9_000), 1: shard(AT, 3, 0, 8_000), 2: shard(None, 0, 0, None)}
    made.report.sent, made.report.failed = 17, 4
    return made


def test_metrics_are_what_the_shards_told_and_prometheus_accepts_them__D15() -> None:
    measures = QueryMeasures(20)
    assert measures.note(progress(3, 1_500, rows=6))
    assert not measures.note(progress(3, 1_500, rows=6)), "one report counts once"
    with served(Address.of("--metrics", "127.0.0.1:0"), hand_off(), measures) as port:
        text = urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
        with (
            pytest.raises(WrongUsage, match=rf"--metrics 127.0.0.1:{port} can't be opened: .*: name another port"),
            served(Address.of("--metrics", f"127.0.0.1:{port}"), hand_off(), measures),
        ):
            pass
    for line in (
        "held_messages 8.0", "unsettled_messages 2.0", "next_due_timestamp_seconds 8.0", "lead_seconds 20.0",
        "handed_off_messages_total 17.0", "failed_hand_offs_total 4.0", "batches_total 1.0", "read_rows_total 6.0",
        "batch_duration_seconds 1.5", 'due_messages{within="1m"} 3.0',
        'due_messages{within="1h"} 8.0', 'due_messages{within="1d"} 10.0',
    ):  # fmt: skip
        assert f"\ntickwheel_spark_{line}\n" in text
    if promtool := shutil.which("promtool"):
        done = subprocess.run([promtool, "check", "metrics"], input=text, text=True, capture_output=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_before_the_first_micro_batch_has_ended_no_gauge_says_that_nothing_is_held__S5_D15() -> None:
    """After a restart the hold may have millions. A deliverer that left the list is stopped when it has none."""
    made = HandOff([AT])
    with served(Address.of("--metrics", "127.0.0.1:0"), made, QueryMeasures(20)) as port:

        def told() -> str:
            return urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()

        of_the_hold = re.compile(
            r"^tickwheel_spark_(?:\w*_messages|next_due_timestamp_seconds)(?:\{.*\})? ", re.MULTILINE
        )
        assert not of_the_hold.findall(told())
        assert "\ntickwheel_spark_batches_total 0.0\n" in told()
        made.report.shards |= {0: shard(AT, 5, 2, 9_000)}
        assert len(of_the_hold.findall(told())) == 6


def test_the_log_says_when_micro_batches_or_the_start_come_near_the_lead__S3(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    watched = Watched(hand_off(), QueryMeasures(20), time.monotonic())
    watched(None)
    watched(progress(1, 9_900))
    assert not caplog.messages
    watched(progress(2, 10_100))
    watched(progress(2, 10_100))
    watched(progress(3, 30_000))
    [said] = caplog.messages
    assert said.startswith("a micro-batch took 10 s, and the lead is 20 s: ")
    caplog.clear()
    late = Watched(hand_off(), QueryMeasures(20), time.monotonic() - 11)
    late(progress(1))
    late(progress(2))
    [said] = caplog.messages
    assert said.startswith("the first hand-off ended 11 s after the start, and the lead is 20 s: ")
