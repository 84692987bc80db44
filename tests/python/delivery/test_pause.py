"""Sending pauses and goes on, from Python, over HTTP and on the command line (rule D16)."""

import json
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from tickwheel.commands import tickwheel as command
from tickwheel.delivery import BadRecord, DeliveryQueue, StoreView

pytestmark = pytest.mark.timeout(60)


def test_a_paused_queue_accepts_and_sends_nothing_until_it_is_resumed__D16(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    arrived = threading.Semaphore(0)
    with DeliveryQueue(tmp_path / "s.db", to=lambda _: arrived.release()) as queue:
        queue.pause()
        assert queue.is_paused
        queue.put("a", delay_ms=0)
        assert not queue.wait_until_empty(0.2)
        assert queue.view.status().paused_since is not None
    with DeliveryQueue(tmp_path / "s.db", to=lambda _: arrived.release()) as queue:
        assert queue.is_paused
        assert not arrived.acquire(timeout=0.2)
        queue.resume()
        assert arrived.acquire(timeout=10)
        assert not queue.is_paused
    assert StoreView(tmp_path / "s.db").status().paused_since is None
    told = [record.message for record in caplog.records]
    assert told.count("sending is paused: what is due waits until it is resumed") == 2
    assert told.count("sending goes on") == 1


def test_a_store_that_is_not_in_use_is_paused_by_the_command__D16(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    with DeliveryQueue(store, to=lambda _: None):
        assert CliRunner().invoke(command, ["pause", str(store)]).exit_code == 2
    seen = CliRunner().invoke(command, ["pause", str(store)])
    assert (seen.exit_code, seen.stdout) == (0, f"{store}: paused. To go on: tickwheel resume {store}\n")
    with DeliveryQueue(store, to=lambda _: None) as queue:
        assert queue.is_paused
    assert CliRunner().invoke(command, ["resume", str(store)]).exit_code == 0
    with DeliveryQueue(store, to=lambda _: None) as queue:
        assert not queue.is_paused
    seen = CliRunner().invoke(command, ["pause", str(tmp_path / "none.db")])
    assert seen.exit_code == 2
    assert "there is no store" in seen.stderr


PARTS = ({}, {"key": "k"}, {"destination": "x"}, {"tenant": "t"})


@pytest.mark.parametrize("part", PARTS, ids=str)
def test_a_pause_with_an_end_is_shown_and_ends_by_itself__D16(tmp_path: Path, part: dict[str, str]) -> None:
    arrived = threading.Event()
    with DeliveryQueue(tmp_path / "s.db", handlers={"x": lambda _: arrived.set()}) as queue:
        queue.pause(**part, until="2096-10-02T07:06:40Z")
        queue.put("a", key="k", destination="x", tenant="t", delay_ms=0)
        [end] = queue.view.status().pause_ends
        (kind, name) = next(iter(part.items()), ("all", ""))
        assert (end.kind, end.name, end.until) == (kind, name, "2096-10-02T07:06:40.000Z")
        assert "pauses that end" in CliRunner().invoke(command, ["status", str(tmp_path / "s.db")]).stdout
        assert not queue.wait_until_empty(0.2)
        began_s = time.time()
        queue.pause(**part, until=datetime.now(UTC) + timedelta(seconds=0.3))
        assert arrived.wait(20)
        assert time.time() - began_s >= 0.3
        assert queue.wait_until_empty(20)
        assert queue.view.status().pause_ends == []
        with pytest.raises(BadRecord, match="until is 5, which looks like"):
            queue.pause(**part, until=5)
        queue.pause(**part)
        with pytest.raises(
            BadRecord, match=r"until is 2025-12-01T08:00:00.000Z, which is over, so nothing was changed"
        ):
            queue.pause(**part, until="2025-12-01T08:00:00Z")


def test_what_is_paused_says_until_when__D16_D23_D24(tmp_path: Path) -> None:
    store, end = tmp_path / "s.db", "2096-10-02T07:06:40.000Z"
    with DeliveryQueue(store, "named") as queue:
        queue.set_destination("x", "https://x.example/")
        queue.set_tenant("t", weight=2)
        queue.put("a", key="k", destination="x", delay_ms=3_600_000)
    for part in (["--destination", "x"], ["--tenant", "t"], ["--key", "k"]):
        seen = CliRunner().invoke(command, ["pause", str(store), *part, "--until", end])
        assert f"paused until {end}. To go on: tickwheel resume" in seen.stdout, seen.output
    view = StoreView(store)
    [tenant], [destination] = view.tenants().tenants, view.destinations().destinations
    message = view.show("a", "k")
    assert message is not None
    assert {tenant.paused_until, destination.paused_until, message.key_paused_until} == {end}
    assert tenant.settings == {"weight": 2}
    assert f"paused until {end}" in CliRunner().invoke(command, ["destinations", "list", str(store)]).stdout
    listed = CliRunner().invoke(command, ["tenants", "list", str(store), "--json"])
    assert json.loads(listed.stdout)["tenants"][0]["paused_until"] == end
