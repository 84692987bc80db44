"""The metrics of `GET /metrics` (rule D11): names, values after known traffic, and cost."""

import time
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tickwheel.delivery import Message, StoreFailed
from tickwheel.delivery.running import Running
from tickwheel.delivery.serve import metrics
from tickwheel.delivery.settings import Settings
from tickwheel.delivery.sinks import sink_of_function

from .conftest import TOKEN, Served

pytestmark = pytest.mark.timeout(30)
FAR_MS = 4_000_000_000_000


def scrape(served: Served) -> dict[str, float]:
    """The values by name, or by name and label."""
    reply = served.ask("GET", "/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=")
    return {
        sample.name + "".join(f" {name}={value}" for name, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(reply.body)
        for sample in family.samples
    }


def test_everything_is_counted_once__D11(tmp_path: Path) -> None:
    served = Served(tmp_path)
    try:
        now_ms = round(time.time() * 1000)
        for n in range(3):
            served.ask("POST", "/messages", {"id": f"now {n}", "due": 1700000000005})
        for due_ms in (now_ms + 30_000, now_ms + 1_800_000, now_ms + 43_200_000, FAR_MS):
            served.ask("POST", "/messages", {"id": f"at {due_ms}", "due": due_ms})
        served.ask("POST", "/messages", {"id": f"at {FAR_MS}", "due": FAR_MS})
        served.ask("POST", "/messages", {"id": "cancelled", "due": FAR_MS})
        served.ask("DELETE", "/messages/cancelled")
        for _ in range(3):
            served.arrived.get(timeout=10)
        while served.running.summary.delivered < 3:
            served.ask("GET", "/healthz")
        found = scrape(served)
        assert {name: value for name, value in found.items() if "lateness" not in name} == {
            "tickwheel_messages_pending": 4,
            "tickwheel_paused": 0,
            "tickwheel_accepted_total": 8,
            "tickwheel_delivered_total": 3,
            "tickwheel_duplicates_dropped_total": 1,
            "tickwheel_dead_letters_total": 0,
            "tickwheel_cancelled_total": 1,
            "tickwheel_oldest_overdue_seconds": 0,
            "tickwheel_due window=1m": 1,
            "tickwheel_due window=1h": 2,
            "tickwheel_due window=1d": 3,
        }
        assert found["tickwheel_lateness_seconds_count"] == 3
        assert found["tickwheel_lateness_seconds_sum"] == pytest.approx(3 * (now_ms - 1_700_000_000_005) / 1000, abs=60)
        assert found["tickwheel_lateness_seconds_bucket le=60.0"] == 0
        assert found["tickwheel_lateness_seconds_bucket le=+Inf"] == 3
    finally:
        served.close()


def test_there_are_as_many_time_series_with_many_keys_as_with_none__D11(tmp_path: Path) -> None:
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


def test_how_long_the_oldest_has_been_due_and_how_many_are_due_soon__D11(tmp_path: Path) -> None:
    running = running_with(tmp_path, 1_000, 8_000, 69_999, 70_000, 70_001, 3_610_000, 3_610_001)
    assert metrics.look(running, 10_000) == (9_000, {"1m": 4, "1h": 6, "1d": 7})
    assert metrics.look(running, 500) == (0, {"1m": 2, "1h": 5, "1d": 7})
    running.close()
    (tmp_path / "other").mkdir()
    running = running_with(tmp_path / "other")
    assert metrics.look(running, 10_000) == (0, {"1m": 0, "1h": 0, "1d": 0})
    running.close()


def test_what_waits_in_memory_alone_is_counted__D11(tmp_path: Path) -> None:
    running = running_with(tmp_path)
    running.start()
    now_ms = round(time.time() * 1000)
    running.submit([Message("soon", None, now_ms + 8_000, b"1")]).result(10)
    assert metrics.look(running, now_ms) == (0, {"1m": 1, "1h": 1, "1d": 1})
    running.close()


def test_counting_stops_where_it_would_take_long__D11(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MOST", 3)
    running = running_with(tmp_path, *range(1_000, 1_010))
    assert metrics.look(running, 0).due == {"1m": 3, "1h": 3, "1d": 3}
    running.close()


def test_a_store_that_cannot_be_read_is_said_and_ends_nothing__D11(
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
