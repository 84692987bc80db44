"""Both SQL sinks with the engine: what is forgotten when, crashes, and rows that are refused for good."""

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import pytest

from delivery.delivering import LONG_S, Run, crashed
from delivery.sinks.making import kill_when_it_says, opened
from delivery.sinks.tables import Table, ids, names, refuse_the_id
from tickwheel._native import Destination
from tickwheel.delivery import Delivery, DeliveryQueue, Letter, Message, sinks
from tickwheel.delivery.engine.running import Running
from tickwheel.delivery.model.retry import Retry
from tickwheel.delivery.model.settings import Settings

pytestmark = pytest.mark.timeout(120)

DUE_MS = 1_700_000_000_000


def message(number: int, key: str | None) -> Message:
    return Message(f"id{number}", key, DUE_MS + number, msgspec.Raw(b"1"))


def digests(table: Table, where: str = "true") -> int:
    ((count,),) = table.ask(f"SELECT count(*) FROM {table.name}_ids WHERE {where}")
    return int(count)


@contextmanager
def run_of(folder: Path, table: Table, run: str, *, starts: bool = True) -> Iterator[Run]:
    """An engine that writes to a table by one connection: each connection forgets its own digests."""

    def open_sink(settings: sinks.SinkSettings) -> sinks.Sink:
        opener = sinks.open_sink(table.spec)
        assert not isinstance(opener, Destination)
        return opener(sinks.SinkSettings(settings.store_id, 20, run))

    with Run(folder, open_sink, Settings(spare=0), starts=starts) as opened_run:
        yield opened_run


def test_a_digest_is_there_until_the_engine_has_committed__D5(tmp_path: Path, table: Table) -> None:
    """The engine says after which send: `crates/delivery/src/run/sends.rs`."""
    with run_of(tmp_path, table, "run") as run:
        for number in range(8):
            run.deliver(message(number, "k"))  # its outcome is on disk
            assert digests(table) == 1, "of the last send alone"
    assert ids(table) == names(0, 7)


@pytest.mark.parametrize("sent", [0, 1, 3, 5])
def test_after_a_crash_before_the_commit_each_has_one_row__D5(tmp_path: Path, table: Table, sent: int) -> None:
    folder = crashed(tmp_path, *(message(number, "k") for number in range(5)))
    with closing(sqlite3.connect(folder / "store.db")) as store:
        ((store_id,),) = store.execute("SELECT value FROM meta WHERE name = 'store_id'")
    first = opened(table.spec, store_id, run="first")
    for number in range(sent):
        first.send([Delivery(number + 1, message(number, "k"), DUE_MS, 0)])
    first.close()
    with run_of(folder, table, "second", starts=False) as run:
        assert run.running.summary.delivered == sent
        assert digests(table) == sent, "asking deletes nothing: it may crash again"
    with run_of(folder, table, "third") as run:
        assert run.running.wait(LONG_S)
        assert run.running.summary.delivered == 5 - sent
        run.deliver(*(message(number, "new") for number in range(5)))
        run.deliver(message(5, "new"))
        assert digests(table, "run <> 'third'") == 0, "all that earlier runs sent has its outcome"
    assert ids(table)[:5] == names(0, 4)
    assert len(ids(table)) == 11


_CHILD = """
import sys, time
from tickwheel.delivery import DeliveryQueue, Message
from tickwheel.delivery.sinks import {module}

real = {module}.{name}.send

def send(self, deliveries):
    real(self, deliveries)
    print("sent", flush=True)
    time.sleep(600)

{module}.{name}.send = send
queue = DeliveryQueue(sys.argv[1], to=sys.argv[2])
queue.put_many([Message(f"id{{n}}", None, 1_700_000_000_000, b"") for n in range(50)])
time.sleep(600)
"""


def test_killed_between_the_commits_of_sink_and_engine_each_has_one_row__D5(tmp_path: Path, table: Table) -> None:
    module = table.spec.partition(":")[0]
    script = _CHILD.format(module=module, name=f"{module.title()}Sink")
    command = [sys.executable, "-c", script, tmp_path / "store.db", table.spec]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    kill_when_it_says(child, "sent")
    there = set(ids(table))
    assert there, "the sink has committed"
    with DeliveryQueue(tmp_path / "store.db", to=table.spec) as queue:
        assert queue.summary.delivered == len(there), "found by their digests"
        assert queue.wait_until_empty(60)
        assert queue.summary.delivered == 50
    assert sorted(ids(table)) == sorted(names(0, 49))


def test_a_poisonous_row_among_a_thousand_is_a_dead_letter_and_the_others_go_on__D6(
    tmp_path: Path, table: Table
) -> None:
    opened(table.spec).close()
    refuse_the_id(table, "id500")
    letters: list[Letter] = []
    opener = sinks.open_sink(table.spec)
    running = Running(tmp_path / "store.db", opener, Settings(retry=Retry(3, 10, 50)), letters.extend)
    running.submit([Message(f"id{n}", f"k{n % 300}", DUE_MS + n, msgspec.Raw(b"1")) for n in range(1_001)]).result()
    running.start()
    assert running.wait(60)
    running.close()
    assert (running.summary.delivered, running.summary.dead_letters) == (1_000, 1)
    [letter] = letters
    assert "gave up after 3 attempts" in letter.reason
    assert "unique" in letter.reason.lower()
    assert sorted(ids(table)) == sorted(names(0, 1_000)), "the row that was there before, and the thousand"
    assert table.ask(f"SELECT max(attempt) FROM {table.name}") == [(1,)], "the others spent no attempt"
