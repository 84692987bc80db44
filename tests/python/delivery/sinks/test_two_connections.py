"""Several SQL sinks of one run: a connection for batches and one for keys in doubt, each with its fence (D5, D6)."""

import os
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import psycopg
import pytest

from delivery.sinks.making import batch, delivery, opened
from delivery.sinks.tables import PostgresTable, Table, ids
from tickwheel.delivery import DeliveryQueue, Message
from tickwheel.delivery.base.errors import Unanswered
from tickwheel.delivery.sinks import Opener, Sink, SinkSettings, open_sink
from tickwheel.delivery.sinks.postgresql import PostgresqlSink
from tickwheel.delivery.sinks.writers import Runs

pytestmark = pytest.mark.timeout(120)

Open = Callable[..., Sink]


@pytest.fixture
def open_sinks() -> Iterator[Open]:
    """Opens sinks of a table, all of one process, by default of one run; they are closed after the test."""
    openers: dict[str, Opener] = {}
    with ExitStack() as sinks:

        def open_one(table: Table, run: str = "run") -> Sink:
            opener = openers.setdefault(table.spec, open_sink(table.spec))
            assert callable(opener)
            sink: Sink = opener(SinkSettings("store", 20, run))
            sinks.callback(sink.close)
            return sink

        yield open_one


@pytest.fixture
def postgres(postgres_url: str) -> Iterator[PostgresTable]:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield PostgresTable(postgres_url, connection)


def backends(table: Table) -> set[int]:
    return {pid for (pid,) in table.ask("SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted")}


def wait_until(holds: Callable[[], object]) -> None:
    until_s = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < until_s
        time.sleep(0.005)


class Middle:
    """The insert of `id5` waits in a trigger, as if its server were slow, until `end`."""

    def __init__(self, table: PostgresTable, number: int) -> None:
        self.table, self.number = table, number
        table.ask(
            f"CREATE FUNCTION {table.name}_wait() RETURNS trigger LANGUAGE plpgsql AS"
            f" $$ BEGIN WHILE NOT pg_try_advisory_xact_lock({number}) LOOP PERFORM pg_sleep(0.005); END LOOP;"
            f" RETURN new; END $$"
        )
        table.ask(
            f"CREATE TRIGGER wait BEFORE INSERT ON {table.name} FOR EACH ROW WHEN (new.id = 'id5')"
            f" EXECUTE FUNCTION {table.name}_wait()"
        )
        table.ask(f"SELECT pg_advisory_lock({number})")

    def wait(self) -> None:
        wait_until(lambda: self.table.ask("SELECT pid FROM pg_stat_activity WHERE wait_event = 'PgSleep'"))

    def end(self) -> None:
        self.table.ask(f"SELECT pg_advisory_unlock({self.number})")


class Sending(threading.Thread):
    """Sends this in a thread, and keeps the error."""

    def __init__(self, sink: Sink, seqs: list[int]) -> None:
        super().__init__()
        self.sink, self.seqs = sink, seqs
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.sink.send(batch(self.seqs))
        except Unanswered as error:
            self.error = error


def test_while_a_row_takes_long_the_others_go_by_the_other_connection__D6(
    tmp_path: Path, postgres: PostgresTable, open_sinks: Open
) -> None:
    open_sinks(postgres).close()
    middle = Middle(postgres, 901)
    with DeliveryQueue(tmp_path / "store.db", to=postgres.spec, sink_timeout_s=600) as queue:
        queue.put("id5", 1, delay_ms=0)
        middle.wait()
        due_ms = time.time_ns() // 1_000_000
        queue.put_many([Message(f"good{n}", f"k{n % 50}", due_ms, b"") for n in range(2_000)])
        wait_until(lambda: queue.summary.delivered == 2_000)
        assert "id5" not in ids(postgres)
        middle.end()
        assert queue.wait_until_empty(60)
    assert len(ids(postgres)) == 2_001


def test_a_row_that_takes_long_does_not_hold_up_its_batch__D6(
    tmp_path: Path, postgres: PostgresTable, open_sinks: Open
) -> None:
    """The rest is there while the row still has hours."""
    open_sinks(postgres).close()
    middle = Middle(postgres, 902)
    with DeliveryQueue(tmp_path / "store.db", to=postgres.spec, sink_timeout_s=6_000) as queue:
        due_ms = time.time_ns() // 1_000_000
        queue.put_many([Message(f"id{n}", f"k{n}", due_ms, b"") for n in range(300)])
        wait_until(lambda: queue.summary.delivered == 299)
        assert "id5" not in ids(postgres)
        middle.end()
        assert queue.wait_until_empty(60)
    assert len(ids(postgres)) == 300


def test_rows_that_take_long_are_found_also_if_they_come_first__D6(postgres: PostgresTable) -> None:
    """They are no sign that the whole database is slow. The time-out is hours."""
    opener = open_sink(postgres.spec)
    assert callable(opener)
    with closing(opener(SinkSettings("store", 9_000))) as sink:
        postgres.ask(
            f"CREATE FUNCTION {postgres.name}_slow() RETURNS trigger LANGUAGE plpgsql AS"
            f" $$ BEGIN PERFORM pg_sleep(9000); RETURN new; END $$"
        )
        postgres.ask(
            f"CREATE TRIGGER slow BEFORE INSERT ON {postgres.name} FOR EACH ROW"
            f" WHEN (new.id IN ('id0', 'id1', 'id2', 'id3', 'id4')) EXECUTE FUNCTION {postgres.name}_slow()"
        )
        assert list(sink.send(batch(range(20)))) == [0, 1, 2, 3, 4]
    assert sorted(ids(postgres)) == sorted(f"id{seq}" for seq in range(5, 20))


def test_a_database_that_is_slow_is_sent_whole_batches__D6(postgres: PostgresTable, open_sinks: Open) -> None:
    """The trigger waits once for each statement that has rows."""
    sink = open_sinks(postgres)
    postgres.ask(
        f"CREATE FUNCTION {postgres.name}_slow() RETURNS trigger LANGUAGE plpgsql AS"
        f" $$ BEGIN IF EXISTS (SELECT FROM new_rows) THEN PERFORM pg_sleep(0.6); END IF; RETURN NULL; END $$"
    )
    postgres.ask(
        f"CREATE TRIGGER slow AFTER INSERT ON {postgres.name} REFERENCING NEW TABLE AS new_rows"
        f" FOR EACH STATEMENT EXECUTE FUNCTION {postgres.name}_slow()"
    )
    for start in (0, 100):
        assert sink.send(batch(range(start, start + 100))) == {}
    assert len(ids(postgres)) == 200
    assert len({row for (row,) in postgres.ask(f"SELECT xmin::text FROM {postgres.name}")}) == 2


def test_a_run_may_have_several_sinks_of_a_table__D6(table: Table, open_sinks: Open) -> None:
    one, other = open_sinks(table), open_sinks(table)
    for seq in range(1, 9):
        assert (one if seq % 2 else other).send(batch([seq])) == {}
    assert sorted(ids(table)) == [f"id{seq}" for seq in range(1, 9)]


def test_a_new_process_ends_all_connections_of_the_one_before__D5(postgres: PostgresTable, open_sinks: Open) -> None:
    one, other = open_sinks(postgres), open_sinks(postgres)
    before = backends(postgres)
    assert len(before) == 2
    middle = Middle(postgres, 902)
    hangs = Sending(other, [5])
    middle.wait()
    new = opened(postgres.spec)
    assert not before & backends(postgres)
    middle.end()
    hangs.join()
    assert isinstance(hangs.error, Unanswered)
    assert list(new.arrived(batch([5]), None)) == []
    assert ids(postgres) == []
    new.close()
    assert one.send(batch([1])) == {}


def test_what_a_lost_connection_has_sent_is_not_done_once_another_sends_it__D5(
    postgres: PostgresTable, open_sinks: Open
) -> None:
    one, other = open_sinks(postgres), open_sinks(postgres)
    assert isinstance(one, PostgresqlSink)
    other.send(batch([1]))
    middle = Middle(postgres, 903)
    sending = Sending(one, [5])
    middle.wait()
    assert one._connection is not None
    with socket.socket(fileno=os.dup(one._connection.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)  # the server does not notice, and goes on
    sending.join()
    assert isinstance(sending.error, Unanswered)
    assert other.send(batch([2])) == {}, "the lost connection has ended before anything else is sent"
    other.committed(2, True)
    middle.end()
    assert other.send(batch([5])) == {}
    assert one.send(batch([6])) == {}, "it connects again"
    assert ids(postgres) == ["id1", "id2", "id5", "id6"]


def test_a_sink_whose_message_another_sends_is_replaced_and_its_connection_ends__D5(
    postgres: PostgresTable, open_sinks: Open
) -> None:
    """It was cut off, and hangs."""
    hangs, other = open_sinks(postgres), open_sinks(postgres)
    middle = Middle(postgres, 904)
    sending = Sending(hangs, [4, 5])
    middle.wait()
    assert other.send(batch([1])) == {}
    assert sending.is_alive(), "what is sent has nothing to do with it"
    assert other.send([delivery(4, attempt=2, redelivered=True)]) == {}
    middle.end()
    sending.join()
    assert isinstance(sending.error, Unanswered)
    with pytest.raises(Unanswered, match="replaced"):
        hangs.send(batch([7]))
    assert sorted(ids(postgres)) == ["id1", "id4"]
    assert len(backends(postgres)) == 1


def test_a_name_that_is_used_again_has_its_row_whichever_sink_writes_it__D5_D16(table: Table, open_sinks: Open) -> None:
    one, other = open_sinks(table), open_sinks(table)
    one.send([delivery(1, "a")])
    other.send([delivery(2, "a")])
    one.committed(1, True)
    one.send([delivery(3, "b")])
    assert other.send([delivery(2, "a", attempt=2)]) == {}
    assert ids(table) == ["a", "a", "b"], "the digest of the second one is still there"
    one.send([delivery(4, "a")])
    assert ids(table).count("a") == 3


def test_one_sink_of_a_run_at_a_time_deletes_digests__D5() -> None:
    runs = Runs()
    one, other = runs.join(SinkSettings("store")), runs.join(SinkSettings("store"))
    one.begin([delivery(1)])
    assert one.may_delete()
    assert one.may_delete()
    assert not other.may_delete()
    one.end()
    assert other.may_delete()
    assert not one.may_delete()
    one.begin([delivery(1, attempt=2)])
    assert one.may_delete() is other.is_replaced
    other.end()
    assert one.may_delete()


def test_a_sink_of_an_earlier_run_is_replaced__D5(table: Table, open_sinks: Open) -> None:
    before, now = open_sinks(table, run="first"), open_sinks(table, run="second")
    with pytest.raises(Unanswered, match="replaced"):
        before.send(batch([1]))
    assert now.send(batch([2])) == {}
    assert ids(table) == ["id2"]


def test_a_table_of_sqlite_may_have_spare_places__D6(tmp_path: Path) -> None:
    to = f"sqlite:{tmp_path / 'out.db'}?table=t"
    with DeliveryQueue(tmp_path / "store.db", to=to, spare=3) as queue:
        due_ms = time.time_ns() // 1_000_000
        for part in range(20):
            queue.put_many([Message(f"id{part} {n}", f"k{n}", due_ms, b"") for n in range(200)])
        assert queue.wait_until_empty(60)
    with closing(sqlite3.connect(tmp_path / "out.db")) as database:
        assert database.execute("SELECT count(*), max(attempt) FROM t").fetchone() == (4_000, 1)
