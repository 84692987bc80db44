"""Sending pauses and goes on, from Python, over HTTP and on the command line (rule D16)."""

import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from tickwheel.commands import tickwheel as command
from tickwheel.delivery import DeliveryQueue, StoreView

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
