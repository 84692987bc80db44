"""`kill -9` at random moments: everything arrives, in order, and again only what no commit had as delivered (D5).

The judge is what the destination holds; the ledger is read only to tell what was committed when the process died.
"""

import json
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .load import Load, Name, Received, from_ndjson, make_load

pytestmark = pytest.mark.timeout(1200)

Size = Callable[[int, int], int]


class Victim:
    """`tickwheel deliver` on one store, killed and started again."""

    def __init__(self, folder: Path, to: str, load: Load, seconds: float, arrived: Callable[[], object]) -> None:
        self._arrived = arrived
        self.store = folder / "store.db"
        load.write(folder / "in.ndjson")
        self._command = [sys.executable, "-m", "tickwheel.cli", "deliver", str(folder / "in.ndjson")]
        self._command += ["--store", str(self.store), "--to", to, "--speed", str(load.span_ms / 1000 / seconds)]
        self.committed: list[set[Name]] = []

    def live_for(self, seconds: float, *, after_a_delivery: bool = False) -> bool:
        """Start it, and kill it so long after its start or its first delivery; whether it was done by then."""
        before = self._arrived()
        with subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
            try:
                while after_a_delivery and process.poll() is None and self._arrived() == before:
                    time.sleep(0.005)
                _, err = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
                self.committed.append(self._delivered())
                return False
        assert process.returncode == 0, err.decode()
        return True

    def _delivered(self) -> set[Name]:
        if not self.store.exists():
            return set()
        db = sqlite3.connect(self.store)
        try:
            ledger = "SELECT key, id FROM ledger JOIN messages USING (seq) WHERE ledger.outcome = 1"
            return set(db.execute(ledger).fetchall())
        except sqlite3.OperationalError:  # killed before there were tables
            return set()
        finally:
            db.close()


def kill_often(victim: Victim, rng: random.Random, kills: int, after_kill: Callable[[], object] = lambda: None) -> None:
    """Some soon after the start, while it reads, most of them while it delivers; then let it end."""
    for _ in range(kills):
        delivers = rng.random() < 0.8
        done = victim.live_for(rng.uniform(0, 1.2) if delivers else rng.uniform(0.2, 1.5), after_a_delivery=delivers)
        after_kill()
        if done:
            break
    assert len(victim.committed) >= kills / 2, "it ended before it was killed often enough"
    assert victim.live_for(600)


def test_a_file_has_every_message_and_repeats_only_what_was_not_committed__D5(
    tmp_path: Path, size: Size, seed: int
) -> None:
    messages, kills = size(4_000, 100_000), size(6, 50)
    load = make_load(messages, seed=seed, keys=messages // 20, span_ms=3_600_000)
    out = tmp_path / "out.ndjson"
    out.touch()
    victim = Victim(tmp_path, f"file:{out}", load, seconds=size(5, 40), arrived=lambda: out.stat().st_size)
    at_kill: list[int] = []
    kill_often(victim, random.Random(seed), kills, lambda: at_kill.append(len(from_ndjson(out))))
    received = from_ndjson(out)
    assert load.problems(received, may_repeat=True) == []
    assert again_though_committed(received, victim.committed, at_kill) == []
    repeats = len(received) - len({one.name for one in received})
    print(f"{messages:,} messages, {len(victim.committed)} kills, {repeats} repeats")


def again_though_committed(received: list[Received], committed: list[set[Name]], at_kill: list[int]) -> list[Name]:
    """What came after a kill though it was committed as delivered before it."""
    return [
        one.name
        for delivered, count in zip(committed, at_kill, strict=False)
        for one in received[count:]
        if one.name in delivered
    ]


def test_a_database_has_each_message_once__D5_D10(tmp_path: Path, size: Size, seed: int) -> None:
    out = tmp_path / "out.db"
    check_sql(tmp_path, f"sqlite:{out}?table=arrived", size, seed, lambda select: ask_sqlite(out, select), "rowid")


Ask = Callable[[str], list[Any]]


def check_sql(folder: Path, to: str, size: Size, seed: int, ask: Ask, order: str) -> None:
    messages, kills = size(4_000, 100_000), size(6, 50)
    load = make_load(messages, seed=seed, keys=messages // 20, span_ms=3_600_000)
    victim = Victim(folder, to, load, seconds=size(5, 40), arrived=lambda: ask("SELECT count(*) FROM arrived"))
    kill_often(victim, random.Random(seed), kills)
    rows = ask(f"SELECT key, id, redelivered, payload FROM arrived ORDER BY {order}")
    received = [Received((key, id_), redelivered, json.loads(payload)) for key, id_, redelivered, payload in rows]
    assert load.problems(received, may_repeat=False) == []
    print(f"{messages:,} messages, {len(victim.committed)} kills")


def ask_sqlite(path: Path, select: str) -> list[Any]:
    if not path.exists():
        return []
    db = sqlite3.connect(path)
    try:
        return db.execute(select).fetchall()
    except sqlite3.OperationalError:  # no table yet
        return []
    finally:
        db.close()
