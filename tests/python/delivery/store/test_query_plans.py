"""No statement that runs for every message scans a whole table (rule D8), by SQLite's own query plans."""

import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tickwheel.delivery.store import Done, Incoming, Outcome, Store, housekeeping, ids, inputs, letters
from tickwheel.delivery.store.housekeeping import Housekeeping
from tickwheel.delivery.store.letters import Letter

Make = Callable[..., Incoming]

TABLES = "messages|bodies|waiting|ledger|ids|cancels|dead_letters|inputs|meta"


class Watched:
    """Explains every statement that runs on a connection."""

    def __init__(self, path: Path) -> None:
        self._other = sqlite3.connect(path, isolation_level=None)
        self.scans: list[str] = []
        self.seen: set[str] = set()

    def __call__(self, statement: str) -> None:
        if not re.match(r"\s*(SELECT|DELETE|UPDATE|INSERT)", statement) or statement in self.seen:
            return
        self.seen.add(statement)
        for *_, detail in self._other.execute(f"EXPLAIN QUERY PLAN {statement}"):
            if re.match(rf"SCAN ({TABLES})\b", detail) and not self._is_in_order(statement, detail):
                self.scans.append(f"{detail}: {statement[:200]}")

    @staticmethod
    def _is_in_order(statement: str, detail: str) -> bool:
        """Whether it is a scan along the key that stops after a few rows."""
        return "LIMIT" in statement and "ORDER BY n " in statement and detail == "SCAN ledger"

    def close(self) -> None:
        self._other.close()


@pytest.fixture
def watched(store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    monkeypatch.setattr(ids, "MERGE_AT", 1)
    found = Watched(store.path)
    store.db.set_trace_callback(found)
    yield found
    store.db.set_trace_callback(None)
    found.close()


def everything(store: Store, incoming: Make) -> None:
    """Everything that a transaction of the writer does."""
    items = [incoming(str(number), number, key="k") for number in range(70)]
    with store.transaction():
        store.remember_cancel(None, "a", 1)
        store.accept([*items, incoming("a")], 0)
        store.accept(items, 0)
        letters.put(store.db, [Letter("s", 1, "r", "a", b"")], 0)
        letters.unwritten(store.db)
        letters.written(store.db, 1)
        inputs.put(store.db, inputs.Progress("s", 1, 1, b""))
        store.plan((5, 3), 60, 10)
        store.plan_lanes([items[0].lane or 0, 5], (3, 3), (50, 2), 10)
        store.messages(range(1, 70))
        store.first_due_ms()
        store.hand(5)
        known = store.find("k", "3")
        assert known
        assert store.is_waiting(known)
        store.finish([Done(seq, seq - 1, Outcome.DEAD, 100) for seq in range(1, 30)])
        store.mark_redelivered([(40, 41)])
        for _ in range(100):
            store.ids.merge_some()


def test_nothing_that_a_group_does_looks_at_a_whole_table__D8(store: Store, incoming: Make, watched: Watched) -> None:
    everything(store, incoming)
    assert len(watched.seen) > 20
    assert watched.scans == []


def test_nothing_that_housekeeping_does_looks_at_a_whole_table__D8(
    store: Store, incoming: Make, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything(store, incoming)
    monkeypatch.setattr(housekeeping, "_OLD", 5)
    keeper = Housekeeping(store, 0)
    with store.transaction():
        assert keeper.step(1_000, is_idle=True)
    assert watched.scans == []
    assert store.db.execute("SELECT count(*) FROM ledger").fetchone()[0] < 30, "nothing was pruned"
