"""`kill -9` of the deliverer that drains 20,000 rows: what is committed arrives, what is rolled back does not (D5).

With TICKWHEEL_SOAK=1 each case has 17 databases, so the deliverer of a SQLite file is killed 204 times.
"""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from operator import itemgetter
from pathlib import Path

import msgspec
import pytest

from delivery.outbox.programs import Program
from tickwheel.delivery import StoreView
from tickwheel.delivery.outbox import enqueue_many

pytestmark = pytest.mark.timeout(240)
ROWS, TOGETHER, KILLS = 20_000, 40, 6
DATABASES = 17 if os.environ.get("TICKWHEEL_SOAK") == "1" else 1

DELIVERER = """
import logging, sys
from tickwheel.delivery import DeliveryQueue
from tickwheel.delivery.outbox import tables
tables.BATCH_ROWS = 400  # so that there are many batches to be killed in
store, to, outbox, log = sys.argv[1:]
logging.basicConfig(filename=log)
with DeliveryQueue(store, to=to, outbox=outbox) as queue:
    print("delivering", flush=True)
    sys.stdin.read()
"""


def start(store: Path, to: str, outbox: str) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", DELIVERER, str(store), to, outbox, str(store.with_name("log"))],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "delivering\n"
    return process


def write(program: Program, random_: random.Random) -> set[str]:
    """In transactions of which every fourth is rolled back; the ids of the others."""
    kept: set[str] = set()
    for first in range(0, ROWS * 4 // 3, TOGETHER):
        ids = [f"m{n}" for n in range(first, first + TOGETHER)]
        messages = ({"id": name, "delay_ms": random_.randrange(200), "payload": name} for name in ids)
        enqueue_many(program.connection, messages, table=program.table)
        if first // TOGETHER % 4 == 3:
            program.rollback()
        else:
            program.commit()
            kept |= {*ids}
    return kept


@pytest.mark.parametrize("database", range(DATABASES))
@pytest.mark.parametrize("to", ["sqlite", "file"])
def test_every_committed_row_is_delivered_and_no_other_whatever_is_killed__D5(
    each_database: Program, tmp_path: Path, to: str, database: int
) -> None:
    if each_database.address.startswith("sqlite"):
        assert each_database.connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    seed = random.randrange(1 << 32)
    print("database", database, "seed", seed)
    random_ = random.Random(seed)
    kept = write(each_database, random_)
    store, out = tmp_path / "store.db", tmp_path / "out"
    address = f"sqlite:{out}?table=arrived" if to == "sqlite" else f"file:{out}"
    for _ in range(KILLS):
        before = left(each_database)
        process = start(store, address, each_database.address)
        wait_until(lambda before=before: left(each_database) < before)  # type: ignore[misc]
        time.sleep(random_.uniform(0.0, 0.02))  # so that it is killed at any step of a batch
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert left(each_database), "it was killed in the middle"
    process = start(store, address, each_database.address)
    wait_until(lambda: not left(each_database))
    process.communicate("")  # closes it: what is due is sent
    assert process.returncode == 0
    finish(store, address)
    arrived, marked = outcome(out, to)
    assert set(arrived) == kept
    assert {name for name, count in arrived.items() if count > 1} <= marked, "what came twice is marked"
    if to == "sqlite":
        assert set(arrived.values()) == {1}, "exactly once"
    assert StoreView(store).status().dead == 0
    assert "can't be read" not in (tmp_path / "log").read_text(), "no kill damages the outbox or locks it"


def wait_until(holds: Callable[[], bool]) -> None:
    until_s = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < until_s
        time.sleep(0.001)


def left(program: Program) -> int:
    [(count,)] = program.connection.execute(f"SELECT count(*) FROM {program.table}").fetchall()
    program.commit()
    return int(count)


def finish(store: Path, to: str) -> None:
    """Deliver what is left in the store."""
    code = """
import sys
from tickwheel.delivery import DeliveryQueue
with DeliveryQueue(sys.argv[1], to=sys.argv[2]) as queue:
    assert queue.wait_until_empty(60)
"""
    subprocess.run([sys.executable, "-c", code, str(store), to], check=True, timeout=90)


def outcome(out: Path, to: str) -> tuple[Counter[str], set[str]]:
    """How often each id arrived, and which have a mark."""
    if to == "sqlite":
        database = sqlite3.connect(out)
        rows = database.execute("SELECT id, redelivered FROM arrived").fetchall()
        database.close()
    else:
        rows = []
        lines = out.read_bytes().splitlines()
        for line in lines:
            with suppress(msgspec.DecodeError):  # a kill cut it off; its message came again
                rows.append(itemgetter("id", "redelivered")(msgspec.json.decode(line)))
        assert len(lines) - len(rows) <= KILLS, "each kill cuts off one line at most"
    return Counter(name for name, _ in rows), {name for name, is_marked in rows if is_marked}
