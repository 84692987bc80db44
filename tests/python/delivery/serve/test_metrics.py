"""The metrics of `GET /metrics` (rule D15): names, values after known traffic, and cost."""

import os
import queue
import shutil
import subprocess
import threading
import time
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import tickwheel
from tickwheel._native import Records
from tickwheel.delivery import Delivery, Message, StoreFailed, Unavailable
from tickwheel.delivery.engine.running import Running
from tickwheel.delivery.model.settings import Settings
from tickwheel.delivery.serve import metrics
from tickwheel.delivery.sinks import sink_of_function

from .conftest import TOKEN, Served

pytestmark = pytest.mark.timeout(30)
FAR_MS = 4_000_000_000_000
CAUSES = ("unreachable", "unanswered", "failed", "refused")


def scrape(served: Served) -> dict[str, float]:
    """The values by name, or by name and label."""
    reply = served.ask("GET", "/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=")
    return {
        sample.name + "".join(f" {name}={value}" for name, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(reply.body)
        for sample in family.samples
    }


def test_everything_is_counted_once__D15(tmp_path: Path) -> None:
    refused = queue.SimpleQueue[str]()

    def send(delivery: Delivery) -> None:
        if delivery.message.id == "bad":
            refused.put("bad")
            raise ValueError("no such customer")

    served = Served(tmp_path, to=send)
    try:
        before_s = time.time()
        now_ms = round(before_s * 1000)
        for n in range(3):
            served.ask("POST", "/messages", {"id": f"now {n}", "due": 1700000000005})
        for due_ms in (now_ms + 30_000, now_ms + 1_800_000, now_ms + 43_200_000, FAR_MS):
            served.ask("POST", "/messages", {"id": f"at {due_ms}", "due": due_ms})
        assert served.ask("POST", "/messages", {"id": f"at {FAR_MS}", "due": FAR_MS}).status == 200
        assert served.ask("POST", "/messages", {"id": f"at {FAR_MS}", "due": FAR_MS + 1}).status == 409
        served.ask("POST", "/messages", {"id": "cancelled", "due": FAR_MS})
        served.ask("DELETE", "/messages/cancelled")
        served.ask("POST", "/messages", {"id": "moved", "due": FAR_MS})
        served.ask("PATCH", "/messages/moved", {"due": FAR_MS + 1})
        for id_ in ("bad", "behind it"):
            served.ask("POST", "/messages", {"id": id_, "key": "k", "due": 1700000000005})
        assert refused.get(timeout=10) == "bad"
        while served.running.summary.delivered < 3 or served.ask("GET", "/messages/bad?key=k").body["attempts"] < 1:
            pass
        served.ask("DELETE", "/messages/now%200")
        served.ask("PATCH", "/messages/now%200", {"due": FAR_MS})
        found = scrape(served)
        counts = {
            name: value for name, value in found.items() if "seconds" not in name and not name.startswith("process_")
        }
        size, log_size = counts.pop("tickwheel_store_bytes"), counts.pop("tickwheel_store_log_bytes")
        assert size == (tmp_path / "store.db").stat().st_size
        assert log_size == (tmp_path / "store.db-wal").stat().st_size
        assert served.running.engine.in_memory() == (0, counts.pop("tickwheel_window_bytes"))
        assert counts == {
            f"tickwheel_build_info version={tickwheel.__version__}": 1,
            "tickwheel_accepted_messages_total": 11,
            "tickwheel_delivered_messages_total": 3,
            "tickwheel_redelivered_messages_total": 0,
            "tickwheel_outbox_rows_total": 0,
            "tickwheel_outboxes_down": 0,
            "tickwheel_replication_epoch": 0,
            "tickwheel_replication_lag_bytes": 0,
            "tickwheel_cancelled_messages_total": 1,
            "tickwheel_late_cancels_total": 1,
            "tickwheel_rescheduled_messages_total": 1,
            "tickwheel_late_reschedules_total": 1,
            "tickwheel_events_total": 0,
            "tickwheel_let_go_messages_total": 0,
            "tickwheel_expired_messages_total": 0,
            "tickwheel_requeued_messages_total": 0,
            "tickwheel_duplicates_total": 1,
            "tickwheel_conflicts_total": 1,
            "tickwheel_dead_letters_total source=input": 0,
            "tickwheel_dead_letters_total source=delivery": 0,
            "tickwheel_attempts_total": 4,
            **{f"tickwheel_failed_attempts_total cause={cause}": 0 for cause in CAUSES},
            "tickwheel_failed_attempts_total cause=refused": 1,
            "tickwheel_cut_off_sends_total": 0,
            "tickwheel_hanging_senders": 0,
            "tickwheel_keys_in_doubt": 1,
            "tickwheel_spare_places": 64,
            "tickwheel_spare_places_taken": 0,
            "tickwheel_destination_up": 1,
            **{f"tickwheel_destinations{more}": 0 for more in ("", "_down", "_paused")},
            "tickwheel_paused": 0,
            "tickwheel_paused_keys": 0,
            "tickwheel_rate_messages_per_second": 0,
            "tickwheel_messages state=waiting": 6,
            "tickwheel_messages state=near": 0,
            "tickwheel_messages state=due": 0,
            "tickwheel_messages state=in_flight": 0,
            "tickwheel_messages state=retrying": 1,
            "tickwheel_messages state=recurring": 0.0,
            "tickwheel_due_messages within=1m": 3,
            "tickwheel_due_messages within=1h": 4,
            "tickwheel_due_messages within=1d": 5,
            "tickwheel_blocked_keys behind=send": 0,
            "tickwheel_blocked_keys behind=retry": 1,
            "tickwheel_blocked_keys behind=commit": 0,
            "tickwheel_window_messages": 0,
        }
        assert found["tickwheel_lateness_seconds_count"] == 3
        assert found["tickwheel_lateness_seconds_sum"] == pytest.approx(3 * (now_ms - 1_700_000_000_005) / 1000, abs=60)
        assert found["tickwheel_lateness_seconds_bucket le=60.0"] == 0
        assert found["tickwheel_lateness_seconds_bucket le=+Inf"] == 3
        assert 1 <= found["tickwheel_send_duration_seconds_count"] <= 4
        assert found["tickwheel_commit_duration_seconds_count"] >= 11
        assert found["tickwheel_oldest_overdue_seconds"] == pytest.approx(before_s - 1_700_000_000.005, abs=60)
        assert before_s - 60 < found["tickwheel_destination_changed_timestamp_seconds"] <= before_s
        assert before_s - 0.1 < found["tickwheel_last_commit_timestamp_seconds"] < time.time() + 0.1
        assert found["process_start_time_seconds"] < before_s
    finally:
        served.close()


def test_a_destination_that_is_down_or_hangs_is_seen__D15(tmp_path: Path) -> None:
    is_open, goes_on = threading.Event(), threading.Event()

    def send(delivery: Delivery) -> None:
        if delivery.message.id == "hangs":
            goes_on.wait(10)
        elif not is_open.is_set():
            raise Unavailable("closed for lunch", retry_after_s=0.05)

    served = Served(tmp_path, to=send, sink_timeout_s=0.5)
    try:
        before_s = time.time()
        for id_ in "abcde":
            served.ask("POST", "/messages", {"id": id_, "delay_ms": 0})
        while served.running.engine.down is None:
            pass
        down = scrape(served)
        assert down["tickwheel_destination_up"] == 0
        assert before_s - 0.1 < down["tickwheel_destination_changed_timestamp_seconds"] < time.time() + 0.1
        assert down["tickwheel_failed_attempts_total cause=unreachable"] >= 1
        is_open.set()
        assert served.running.wait(10)
        up = scrape(served)
        assert up["tickwheel_destination_up"] == 1
        since = "tickwheel_destination_changed_timestamp_seconds"
        assert up[since] > down[since]
        served.ask("POST", "/messages", {"id": "hangs", "delay_ms": 0})
        while (hung := scrape(served))["tickwheel_cut_off_sends_total"] == 0:
            pass
        assert hung["tickwheel_failed_attempts_total cause=unanswered"] >= 1
        assert hung["tickwheel_hanging_senders"] >= 1
        goes_on.set()
        while scrape(served)["tickwheel_hanging_senders"]:
            pass
    finally:
        goes_on.set()
        served.close()


def test_paused_keys_and_the_rate_are_told__D15_D16_D18(tmp_path: Path) -> None:
    served = Served(tmp_path, rate="90/min")
    try:
        assert scrape(served)["tickwheel_rate_messages_per_second"] == 1.5
        for count, (action, key) in enumerate([("pause", "a"), ("pause", "b"), ("resume", "a")], 1):
            assert served.ask("POST", f"/{action}?key={key}").status == 200
            found = scrape(served)
            assert (found["tickwheel_paused_keys"], found["tickwheel_paused"]) == (min(count, 4 - count), 0)
    finally:
        served.close()


def test_a_store_whose_file_was_moved_is_said__D15(tmp_path: Path) -> None:
    served = Served(tmp_path)
    try:
        (tmp_path / "store.db").rename(tmp_path / "moved.db")
        reply = served.ask("GET", "/metrics")
        assert reply.status == 503
        assert "store.db" in reply.body["reason"]
        (tmp_path / "moved.db").rename(tmp_path / "store.db")
        assert served.ask("GET", "/metrics").status == 200
    finally:
        served.close()


def test_dead_letters_are_counted_by_where_they_come_from__D15(tmp_path: Path) -> None:
    def refuse(_: Delivery) -> None:
        raise ValueError("no such customer")

    served = Served(tmp_path, to=refuse, max_attempts=1)
    try:
        served.ask("POST", "/messages", {"id": "bad", "due": 1700000000005})
        bad = [Records.bad("in.csv", line, "id is missing", "an id", b"{}") for line in (1, 2)]
        served.running.submit(bad).result(10)
        assert served.running.wait(10)
        found = scrape(served)
        assert found["tickwheel_dead_letters_total source=input"] == 2
        assert found["tickwheel_dead_letters_total source=delivery"] == 1
        assert (found["tickwheel_messages state=waiting"], found["tickwheel_due_messages within=1m"]) == (0, 0)
    finally:
        served.close()


@pytest.mark.skipif(
    shutil.which("promtool") is None and os.environ.get("CI") != "true",
    reason="promtool, of Debian's package prometheus, is missing",
)
def test_prometheus_own_linter_has_nothing_to_say__D15(served: Served) -> None:
    text = served.ask("GET", "/metrics").body
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=20)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_there_are_as_many_time_series_with_many_keys_as_with_none__D15(tmp_path: Path) -> None:
    served = Served(tmp_path)
    try:
        before = sorted(scrape(served))
        for n in range(20):
            served.ask("POST", "/messages", {"id": f"id {n}", "key": f"key {n}", "due": FAR_MS})
        assert sorted(scrape(served)) == before
    finally:
        served.close()


def test_metrics_need_the_token__D12(guarded: Served) -> None:
    assert guarded.ask("GET", "/metrics").status == 401
    assert guarded.ask("GET", "/metrics", headers={"authorization": f"Bearer {TOKEN.decode()}"}).status == 200


def running_with(folder: Path, *due_ms: int) -> Running:
    """These wait; nothing is due before the start."""
    running = Running(folder / "odd name?#%41.db", sink_of_function(print), Settings(), lambda letters: None)
    running.submit([Message(str(n), None, due, b"1") for n, due in enumerate(due_ms)]).result(10)
    return running


def test_how_long_the_oldest_has_been_due_and_how_many_are_due_soon__D15(tmp_path: Path) -> None:
    running = running_with(tmp_path, 1_000, 8_000, 69_999, 70_000, 70_001, 3_610_000, 3_610_001)
    assert metrics.look(running, 10_000) == (9_000, {"1m": 4, "1h": 6, "1d": 7})
    assert metrics.look(running, 500) == (0, {"1m": 2, "1h": 5, "1d": 7})
    running.close()
    (tmp_path / "other").mkdir()
    running = running_with(tmp_path / "other")
    assert metrics.look(running, 10_000) == (0, {"1m": 0, "1h": 0, "1d": 0})
    running.close()


def test_what_waits_in_memory_alone_is_counted__D15(tmp_path: Path) -> None:
    running = running_with(tmp_path)
    running.start()
    now_ms = round(time.time() * 1000)
    running.submit([Message("soon", None, now_ms + 8_000, b"1")]).result(10)
    assert metrics.look(running, now_ms) == (0, {"1m": 1, "1h": 1, "1d": 1})
    running.close()


def test_counting_stops_where_it_would_take_long__D15(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MOST", 3)
    running = running_with(tmp_path, *range(1_000, 1_010))
    assert metrics.look(running, 0).due == {"1m": 3, "1h": 3, "1d": 3}
    running.close()


def test_a_store_that_cannot_be_read_is_said_and_ends_nothing__D15(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = Served(tmp_path)
    try:
        monkeypatch.setattr(
            metrics, "look", lambda *_: (_ for _ in ()).throw(StoreFailed("the store can't be used: disk I/O error"))
        )
        reply = served.ask("GET", "/metrics")
        assert (reply.status, reply.body["reason"]) == (503, "the store can't be used: disk I/O error")
        monkeypatch.undo()
        assert served.ask("GET", "/metrics").status == 200
    finally:
        served.close()
