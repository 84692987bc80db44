"""What is due soon, counted in memory and in the store while the engine works (rule D14)."""

import time
from pathlib import Path

import pytest

from tickwheel.delivery import Cancel, DeliveryQueue, Message
from tickwheel.delivery.engine.running import Running
from tickwheel.delivery.model.settings import Settings
from tickwheel.delivery.sinks import sink_of_function

pytestmark = pytest.mark.timeout(30)

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


def running(store: Path) -> Running:
    made = Running(store, sink_of_function(lambda delivery: None), Settings(), lambda letters: None)
    made.start()
    return made


def test_what_is_in_memory_and_what_is_in_the_store_are_counted_once__D14(tmp_path: Path) -> None:
    made = running(tmp_path / "store.db")
    now_ms = time.time_ns() // 1_000_000
    windows = [now_ms + ms for ms in (MINUTE_MS, HOUR_MS, 48 * HOUR_MS)]
    assert made.engine.census(windows, 1_000) == (None, [0, 0, 0])
    dues_ms = {"near": 8_000, "minute": 40_000, "hour": 30 * MINUTE_MS, "day": 20 * HOUR_MS, "far": 500 * HOUR_MS}
    messages = [
        Message(f"{name} {number}", None, now_ms + ms, b"1") for name, ms in dues_ms.items() for number in range(3)
    ]
    made.submit([*messages, *(Cancel(f"{name} 0", None) for name in dues_ms)]).result(10)
    assert made.engine.census(windows, 1_000) == (now_ms + dues_ms["near"], [4, 6, 8])
    assert made.engine.census(windows, 5) == (now_ms + dues_ms["near"], [4, 5, 5])
    made.close(10)
    again = running(tmp_path / "store.db")
    assert again.engine.census(windows, 1_000) == (now_ms + dues_ms["near"], [4, 6, 8])
    again.close(10)


def test_it_is_counted_while_messages_come_in_and_go_out__D14(tmp_path: Path) -> None:
    made = running(tmp_path / "store.db")
    later_ms = time.time_ns() // 1_000_000 + HOUR_MS
    tickets = []
    for part in range(20):
        now = [Message(f"now {part} {number}", None, 5, b"1") for number in range(100)]
        later = [Message(f"later {part} {number}", None, later_ms, b"1") for number in range(100)]
        tickets.append(made.submit([*now, *later]))
        first_ms, [count] = made.engine.census([later_ms], 10_000)
        assert first_ms is None or first_ms >= 5
        assert count <= 200 * (part + 1)
    for ticket in tickets:
        ticket.result(10)
    while made.engine.waiting > 2_000:
        made.wait(0.01)
    assert made.engine.census([later_ms], 10_000) == (later_ms, [2_000])
    made.close(10)


def test_a_queue_that_is_closed_counts_nothing__D14(tmp_path: Path) -> None:
    made = running(tmp_path / "store.db")
    made.close(10)
    with pytest.raises(RuntimeError, match="closed"):
        made.engine.census([1], 1)
    with DeliveryQueue(tmp_path / "store.db", to=lambda delivery: None) as queue:
        assert len(queue) == 0
