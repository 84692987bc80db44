"""Both SQL sinks with the engine: what is forgotten when, crashes, and rows that are refused for good."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from delivery.conftest import START_MS, Desk
from delivery.sinks.making import kill_when_it_says, opened
from delivery.sinks.tables import Table, ids, names, refuse_the_id
from tickwheel._native import Destination
from tickwheel.delivery import DeliveryQueue, Letter, Message, sinks
from tickwheel.delivery.engine.running import Running
from tickwheel.delivery.model.retry import Retry
from tickwheel.delivery.model.settings import Settings

pytestmark = pytest.mark.timeout(120)


class TableDesk(Desk):
    """An engine by hand that writes to a table."""

    def __init__(self, folder: Path, table: Table, run: str) -> None:
        self.table = table
        self.run = run
        super().__init__(folder)

    def open_sink(self, store_id: str) -> sinks.Sink:
        opener = sinks.open_sink(self.table.spec)
        assert not isinstance(opener, Destination)
        return opener(sinks.SinkSettings(store_id, 20, self.run))

    def put(self, count: int, key: str | None) -> None:
        self.hand_in(*[Message(f"id{n}", key, START_MS - 1_000 + n, msgspec.Raw(b"1")) for n in range(count)])

    def deliver(self, count: int) -> None:
        """Until so many are delivered. Attempts of suspects are noted first, a group after the other."""
        while self.engine.summary.delivered < count:
            self.pump()

    def digests(self) -> int:
        ((count,),) = self.table.ask(f"SELECT count(*) FROM {self.table.name}_ids")
        return int(count)


def test_a_digest_is_there_until_the_engine_has_committed__D5(tmp_path: Path, table: Table) -> None:
    desk = TableDesk(tmp_path, table, "run")
    native = desk.engine.native
    desk.put(8, key="k")  # one of a key at a time: one in each send
    native.start()
    native.write()
    for _ in range(4):
        assert native.send()
    assert desk.digests() == 4, "nothing is committed, however long that takes"
    native.write()
    assert native.send()
    assert desk.digests() == 3, "of the first two sends no more, of the others still"
    for _ in range(3):
        assert native.send()
    assert desk.digests() == 4
    native.write()
    assert not native.send()
    desk.close()
    assert ids(table) == names(0, 7)


@pytest.mark.parametrize("sent", [0, 1, 3, 5])
def test_after_a_crash_before_the_commit_each_has_one_row__D5(tmp_path: Path, table: Table, sent: int) -> None:
    desk = TableDesk(tmp_path, table, "first")
    desk.put(5, key="k")
    desk.engine.native.start()
    desk.engine.native.write()
    for _ in range(sent):
        desk.engine.native.send()
    desk.crash()
    desk = TableDesk(tmp_path, table, "second")
    assert desk.engine.summary.delivered == sent
    assert desk.digests() == sent, "asking deletes nothing: it may crash again"
    desk.crash()
    desk = TableDesk(tmp_path, table, "third")
    desk.start()
    desk.deliver(5 - sent)
    desk.put(5, key="new")
    desk.deliver(10 - sent)
    left = table.ask(f"SELECT count(*) FROM {table.name}_ids WHERE run <> 'third'")
    assert left == [(0,)], "all that earlier runs sent has its outcome"
    desk.close()
    assert ids(table)[:5] == names(0, 4)
    assert len(ids(table)) == 10


def test_what_an_earlier_run_left_stays_while_one_of_its_messages_is_open__D5(tmp_path: Path, table: Table) -> None:
    """A statement of the run that crashed may arrive late, and must not make a second row."""
    desk = TableDesk(tmp_path, table, "first")
    desk.put(2, key="k")
    desk.engine.native.start()
    desk.engine.native.write()
    desk.engine.native.send()
    desk.crash()
    desk = TableDesk(tmp_path, table, "second")
    native = desk.engine.native
    native.start()
    for n, left in enumerate((1, 1, 0)):
        desk.engine.submit([Message(f"new{n}", None, START_MS - 1, msgspec.Raw(b"1"))])
        native.write()
        assert native.send()
        assert table.ask(f"SELECT count(*) FROM {table.name}_ids WHERE run = 'first'") == [(left,)]
        # The first send has no suspect, as its attempt is noted first; the second one has it.
        assert ("id1" in ids(table)) == (n > 0)
    desk.crash()
    assert ids(table) == ["id0", "new0", "id1", "new1", "new2"]


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
    running.submit([Message(f"id{n}", f"k{n % 300}", START_MS + n, msgspec.Raw(b"1")) for n in range(1_001)]).result()
    running.start()
    assert running.wait(60)
    running.close()
    assert (running.summary.delivered, running.summary.dead_letters) == (1_000, 1)
    [letter] = letters
    assert "gave up after 3 attempts" in letter.reason
    assert "unique" in letter.reason.lower()
    assert sorted(ids(table)) == sorted(names(0, 1_000)), "the row that was there before, and the thousand"
    assert table.ask(f"SELECT max(attempt) FROM {table.name}") == [(1,)], "the others spent no attempt"
