"""A forgotten name is new: its message has a row, also if the process ends before it is sent (D5)."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tickwheel.delivery import Answer, DeliveryQueue

pytestmark = pytest.mark.timeout(120)

DAY_MS = 86_400_000
ENDS = """
import os, sys
from tickwheel.delivery import DeliveryQueue
queue = DeliveryQueue(sys.argv[1], to=sys.argv[2])
queue.put("weekly", 2, delay_ms=400)
os._exit(0)
"""


def a_day_passes(store: Path) -> None:
    """By the store's own clock, which a start moves by a day at most; and the store looks what it may forget."""
    with sqlite3.connect(store) as db:
        db.execute(f"UPDATE meta SET value = value + {DAY_MS} WHERE name = 'kept_ms'")
    db.close()


def test_a_message_whose_name_was_forgotten_gets_its_row_though_the_process_ends_before_it__D5(tmp_path: Path) -> None:
    store, file = tmp_path / "s.db", tmp_path / "out.db"
    to = f"sqlite:{file}?table=t"
    with DeliveryQueue(store, to=to) as queue:
        queue.put("weekly", 1, delay_ms=0)
        assert queue.wait_until_empty(30)
    state = Answer.DELIVERED
    for _ in range(20):
        a_day_passes(store)
        with DeliveryQueue(store, to=to) as queue:
            for number in range(20):
                queue.put("far", number, due=4_000_000_000_000, replace=True)
            queue.cancel("far")
            state = queue.state("weekly")
        if state is Answer.UNKNOWN:
            break
    assert state is Answer.UNKNOWN, "the name is not forgotten"
    subprocess.run([sys.executable, "-c", ENDS, store, to], check=True, timeout=60)
    with DeliveryQueue(store, to=to) as queue:
        assert queue.wait_until_empty(30)
        assert queue.state("weekly") is Answer.DELIVERED
    with sqlite3.connect(file) as db:
        rows = db.execute("SELECT payload FROM t ORDER BY rowid").fetchall()
    db.close()
    assert rows == [("1",), ("2",)]
