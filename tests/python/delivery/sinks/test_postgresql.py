"""Tests for PostgreSQL only; the tests of both SQL sinks are in `test_sql.py`."""

import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest

from delivery.postgres_server import PostgresServer
from delivery.sinks.making import DUE_MS, batch, child_sending, delivery, opened
from tickwheel._native import Destination
from tickwheel.delivery import DeliveryQueue, Message
from tickwheel.delivery.base.errors import DeliveryFailed, Unanswered, Unavailable, WrongUsage
from tickwheel.delivery.sinks import Sink, SinkSettings, open_sink, postgresql
from tickwheel.delivery.sinks.sink import Refusals

pytestmark = pytest.mark.timeout(120)

HOURS = 9_000.0
SECRET = "not-for-eyes"
WRONG = "wr%20ng"

_numbers = itertools.count()


@pytest.fixture
def name() -> str:
    return f"p{next(_numbers)}"


@pytest.fixture
def beside(postgres_url: str) -> Iterator[psycopg.Connection]:
    """Another connection to the same database."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def sink(postgres_url: str, name: str) -> Iterator[Sink]:
    sink = opened(f"{postgres_url}&table={name}")
    yield sink
    sink.close()


@pytest.fixture
def restarted(postgres_server: PostgresServer) -> Iterator[PostgresServer]:
    """A server that the test stops: afterwards it runs again for the other tests."""
    yield postgres_server
    with suppress(AssertionError):
        postgres_server.start()


def ids(beside: psycopg.Connection, name: str) -> list[str]:
    return [id_ for (id_,) in beside.execute(f"SELECT id FROM {name} ORDER BY ctid".encode())]


def run(beside: psycopg.Connection, *statements: str) -> None:
    for statement in statements:
        beside.execute(statement.encode())


def wait_in_the_middle(beside: psycopg.Connection, name: str, number: int) -> None:
    """Makes the insert of the id `id5` wait while a connection holds the advisory lock of this number.

    It looks again and again, as a wait for the lock itself would end by the sink's `lock_timeout`.
    """
    run(
        beside,
        f"CREATE FUNCTION {name}_wait() RETURNS trigger LANGUAGE plpgsql AS"
        f" $$ BEGIN WHILE NOT pg_try_advisory_xact_lock({number}) LOOP PERFORM pg_sleep(0.005); END LOOP;"
        f" RETURN new; END $$",
        f"CREATE TRIGGER wait BEFORE INSERT ON {name} FOR EACH ROW WHEN (new.id = 'id5')"
        f" EXECUTE FUNCTION {name}_wait()",
        f"SELECT pg_advisory_lock({number})",
    )


def waiting_backend(beside: psycopg.Connection) -> int:
    """The process of the backend that waits in the middle, as soon as one waits."""
    while True:
        row = beside.execute("SELECT pid FROM pg_stat_activity WHERE wait_event = 'PgSleep'").fetchone()
        if row is not None:
            return int(row[0])


def test_a_client_killed_in_the_middle_leaves_each_message_once__D5(
    postgres_url: str, name: str, beside: psycopg.Connection
) -> None:
    spec = f"{postgres_url}&table={name}"
    opened(spec).close()
    wait_in_the_middle(beside, name, 71)
    child = child_sending(spec, range(10))
    waiting_backend(beside)
    child.kill()
    child.communicate()
    sink = opened(spec)
    assert list(sink.arrived(batch(range(10)), None)) == []
    run(beside, "SELECT pg_advisory_unlock(71)")  # now its backend, not aware of the loss, may commit
    assert sink.send(batch(range(12))) == {}
    sink.close()
    assert ids(beside, name) == [f"id{seq}" for seq in range(12)]


def test_a_connection_lost_in_the_middle_fails_them_all_and_the_next_send_reconnects__D6(
    name: str, sink: Sink, beside: psycopg.Connection
) -> None:
    wait_in_the_middle(beside, name, 72)
    errors: list[BaseException] = []

    def send() -> None:
        try:
            sink.send(batch(range(10)))
        except Unanswered as error:
            errors.append(error)

    thread = threading.Thread(target=send)
    thread.start()
    beside.execute("SELECT pg_terminate_backend(%s)", (waiting_backend(beside),))
    thread.join()
    run(beside, "SELECT pg_advisory_unlock(72)")
    assert len(errors) == 1
    assert ids(beside, name) == []
    assert sink.send(batch(range(10))) == {}
    assert ids(beside, name) == [f"id{seq}" for seq in range(10)]


def test_a_sink_that_was_replaced_writes_nothing_any_more__D5(
    postgres_url: str, name: str, beside: psycopg.Connection
) -> None:
    """As one that hung, was cut off, and goes on when its successor has written the same and forgotten it."""
    opener = open_sink(f"{postgres_url}&table={name}")
    assert not isinstance(opener, Destination)
    sink = opener(SinkSettings("store"))
    wait_in_the_middle(beside, name, 73)
    errors: list[BaseException] = []

    def send() -> None:
        try:
            sink.send(batch([4, 5]))
        except Unanswered as error:
            errors.append(error)

    thread = threading.Thread(target=send)
    thread.start()
    waiting_backend(beside)
    successor = opener(SinkSettings("store"))
    assert successor.send(batch([4])) == {}
    run(beside, "SELECT pg_advisory_unlock(73)")
    for seq in range(5, 8):
        assert successor.send(batch([seq])) == {}
        successor.committed(seq - 3, True)
    with pytest.raises(Unanswered, match="replaced"):
        sink.send(batch([4]))
    assert successor.send(batch([8])) == {}
    successor.close()
    thread.join()
    assert len(errors) == 1
    assert ids(beside, name) == [f"id{seq}" for seq in range(4, 9)]


def test_a_connection_lost_between_sends_is_opened_again__D6(name: str, sink: Sink, beside: psycopg.Connection) -> None:
    assert sink.send(batch([0])) == {}
    end_all(beside)
    assert sink.send(batch([1])) == {}, "nothing was sent by the connection that was lost"
    assert ids(beside, name) == ["id0", "id1"]


def connections_of_sinks(beside: psycopg.Connection, application: str = "tickwheel") -> list[int]:
    asked = beside.execute("SELECT pid FROM pg_stat_activity WHERE application_name = %s", (application,))
    return [pid for (pid,) in asked]


def end_all(beside: psycopg.Connection, application: str = "tickwheel") -> None:
    """End the connections of all sinks, and wait until they have ended."""
    while pids := connections_of_sinks(beside, application):
        beside.execute("SELECT pg_terminate_backend(pid) FROM unnest(%s::int[]) AS pid", (pids,))


@contextmanager
def ended_when_idle(beside: psycopg.Connection) -> Iterator[Callable[[], None]]:
    """New connections end after an idle second. Yields what undoes that for later ones."""

    def undo() -> None:
        run(beside, "ALTER ROLE tick RESET idle_session_timeout")

    run(beside, "ALTER ROLE tick SET idle_session_timeout = '1s'")
    try:
        yield undo
    finally:
        with suppress(psycopg.Error):
            undo()


@pytest.mark.parametrize("how", ["ended", "restarted", "idle for too long"])
def test_a_connection_that_died_while_idle_costs_no_attempt_and_no_mark__D6(
    restarted: PostgresServer, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    spec = f"{restarted.url}&application_name={name}&table={name}"
    with (
        psycopg.connect(restarted.url, autocommit=True) as beside,
        ended_when_idle(beside) if how == "idle for too long" else nullcontext() as may_stay,
        DeliveryQueue(tmp_path / "store.db", to=spec, max_attempts=1) as queue,
    ):
        queue.put("first", 1, delay_ms=0)
        assert queue.wait_until_empty(60)
        there = set(connections_of_sinks(beside, name))
        if may_stay:
            may_stay()
        if how == "ended":
            end_all(beside, name)
        elif how == "restarted":
            restarted.stop("fast")
            restarted.start()
        else:
            while there & set(connections_of_sinks(beside, name)):  # the spare one may come later, and stay
                time.sleep(0.01)
        due_ms = time.time_ns() // 1_000_000
        queue.put_many([Message(f"id{n}", f"k{n}", due_ms, b"") for n in range(100)])
        assert queue.wait_until_empty(60)
        assert (queue.summary.delivered, queue.summary.dead_letters) == (101, 0)
    with psycopg.connect(restarted.url) as after:
        asked = after.execute(f"SELECT count(*), max(attempt), bool_or(redelivered) FROM {name}".encode())
        assert asked.fetchone() == (101, 1, False)
    assert not caplog.records, "no key failed, and nothing was down"


class LosesAnswers:
    """A proxy before the server: once `is_losing`, requests still reach the server, and no answer comes back."""

    def __init__(self, folder: Path, server: str) -> None:
        self.server = server
        self.is_losing = threading.Event()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(folder / ".s.PGSQL.5432"))
        self.listener.listen()
        self.threads: list[threading.Thread] = []
        self._start(self._accept)

    def _start(self, function: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=function, args=args)
        self.threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(self.server)
            self._start(self._copy, client, server, False)
            self._start(self._copy, server, client, True)

    def _copy(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        with closing(source):
            while data := source.recv(65536):
                if is_answer and self.is_losing.is_set():
                    break
                target.sendall(data)
            with suppress(OSError):  # the other direction has closed it
                target.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in self.threads:
            thread.join()


def test_a_commit_whose_answer_is_lost_may_be_tried_again__D5(
    postgres_url: str, name: str, beside: psycopg.Connection, tmp_path_factory: pytest.TempPathFactory
) -> None:
    import shutil
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="tw-px-"))
    real = postgres_url.partition("host=")[2]
    proxy = LosesAnswers(folder, f"{real}/.s.PGSQL.5432")
    sink = opened(f"{postgres_url.replace(real, str(folder))}&table={name}")
    sink.send(batch([0]))
    proxy.is_losing.set()
    with pytest.raises(Unavailable):  # neither has a new connection an answer
        sink.send(batch(range(1, 50)))
    proxy.is_losing.clear()
    assert sink.send(batch(range(1, 60))) == {}
    assert ids(beside, name) == [f"id{seq}" for seq in range(60)]
    sink.close()
    proxy.close()
    shutil.rmtree(folder)


def test_a_statement_that_waits_too_long_fails_them_all__D6(
    postgres_url: str, name: str, beside: psycopg.Connection
) -> None:
    sink = opened(f"{postgres_url}&table={name}", timeout_s=0.3)
    with beside.transaction():
        run(beside, f"LOCK TABLE {name}")
        with pytest.raises(Unanswered):
            sink.send(batch([1]))
    assert sink.send(batch([1])) == {}
    sink.close()
    assert ids(beside, name) == ["id1"]


def insert_of(name: str, id_: str) -> str:
    return (
        f"INSERT INTO {name} (id, due, delivered_at, lateness_ms, attempt, redelivered)"
        f" VALUES ('{id_}', now(), now(), 0, 1, false)"
    )


@pytest.mark.parametrize("locked", [[3], [0, 1, 500, 511, 512, 1023]])
def test_rows_that_another_session_has_locked_have_no_answer_and_the_others_arrive__D6(
    name: str, sink: Sink, beside: psycopg.Connection, locked: list[int]
) -> None:
    run(beside, f"CREATE UNIQUE INDEX once_{name} ON {name} (id)")
    with beside.transaction(force_rollback=True):
        for seq in locked:
            run(beside, insert_of(name, f"id{seq}"))
        began_s = time.monotonic()
        told = sink.send(batch(range(1024)))
        assert time.monotonic() - began_s < 20, "else it would be cut off"
    assert list(told) == locked
    assert all(isinstance(reason, Unanswered) and "LockNotAvailable" in str(reason) for reason in told.values())
    assert ids(beside, name) == [f"id{seq}" for seq in range(1024) if seq not in locked]
    assert sink.send(batch(range(1024))) == {}
    assert len(ids(beside, name)) == 1024


def test_a_lock_that_all_rows_wait_for_takes_no_more_than_its_share_of_the_time__D6(
    postgres_url: str, name: str, beside: psycopg.Connection
) -> None:
    sink = opened(f"{postgres_url}&table={name}", timeout_s=20)
    run(
        beside,
        f"CREATE FUNCTION {name}_wait() RETURNS trigger LANGUAGE plpgsql AS"
        f" $$ BEGIN PERFORM pg_advisory_xact_lock(81); RETURN new; END $$",
        f"CREATE TRIGGER wait BEFORE INSERT ON {name} FOR EACH ROW EXECUTE FUNCTION {name}_wait()",
        "SELECT pg_advisory_lock(81)",
    )
    began_s = time.monotonic()
    told = sink.send(batch(range(256)))  # 0.1 s for each of them would be more than there is
    assert time.monotonic() - began_s < 20, "else it would be cut off"
    assert list(told) == list(range(256))
    assert any(isinstance(reason, Unanswered) for reason in told.values())
    assert all(reason is None or isinstance(reason, Unanswered) for reason in told.values()), "None: not tried"
    run(beside, "SELECT pg_advisory_unlock(81)")
    assert sink.send(batch(range(256))) == {}
    sink.close()


def test_a_row_that_takes_too_long_has_no_answer_and_the_others_arrive__D6(
    postgres_url: str, name: str, beside: psycopg.Connection
) -> None:
    sink = opened(f"{postgres_url}&table={name}", timeout_s=3)
    wait_in_the_middle(beside, name, 82)
    told: Refusals = {0: None}
    while None in told.values():  # a busy machine had no time for these
        began_s = time.monotonic()
        told = sink.send(batch(range(64)))
        assert time.monotonic() - began_s < 3, "else it would be cut off"
    assert list(told) == [5]
    assert isinstance(told[5], Unanswered)
    assert "QueryCanceled" in str(told[5])
    assert ids(beside, name) == [f"id{seq}" for seq in range(64) if seq != 5]
    run(beside, "SELECT pg_advisory_unlock(82)")
    assert sink.send(batch([5])) == {}
    sink.close()


def test_rows_that_are_refused_do_not_say_that_the_database_is_slow__D6(
    postgres_url: str, name: str, beside: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are tried alone first, and are refused at the end of the statement, behind the row that takes too long."""
    sink = opened(f"{postgres_url}&table={name}", timeout_s=20)
    run(
        beside,
        f"CREATE TABLE {name}_ids_of_others (id text PRIMARY KEY)",
        f"INSERT INTO {name}_ids_of_others SELECT 'id' || n FROM generate_series(0, 63) n WHERE n % 16 <> 0",
        f"ALTER TABLE {name} ADD FOREIGN KEY (id) REFERENCES {name}_ids_of_others",
    )
    wait_in_the_middle(beside, name, 84)
    sizes = sizes_written(sink, monkeypatch)
    told = sink.send(batch(range(64)))
    assert sorted(told) == [0, 5, 16, 32, 48]
    assert sizes.count(64) == 1, "the whole batch is not tried again"
    run(beside, "SELECT pg_advisory_unlock(84)")
    sink.close()


@pytest.mark.parametrize("is_partitioned", [False, True])
def test_a_row_that_takes_too_long_at_the_commit_has_no_answer_and_the_others_arrive__D6(
    postgres_url: str, name: str, beside: psycopg.Connection, *, is_partitioned: bool
) -> None:
    """No `statement_timeout` ends a deferred trigger."""
    opened(f"{postgres_url}&table={name}").close()
    if is_partitioned:
        run(
            beside,
            f"ALTER TABLE {name} RENAME TO {name}_all",
            f"CREATE TABLE {name} (LIKE {name}_all) PARTITION BY LIST (id)",
            f"ALTER TABLE {name} ATTACH PARTITION {name}_all DEFAULT",
        )
    run(
        beside,
        f"CREATE FUNCTION {name}_slow() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN PERFORM pg_sleep(30); RETURN NULL; END $$",
        f"CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON {name}{'_all' if is_partitioned else ''}"
        f" DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (new.id = 'id5') EXECUTE FUNCTION {name}_slow()",
    )
    sink = opened(f"{postgres_url}&table={name}", timeout_s=10)
    began_s = time.monotonic()
    told = sink.send(batch(range(64)))
    assert time.monotonic() - began_s < 10, "else it would be cut off"
    assert list(told) == [5]
    assert isinstance(told[5], Unanswered)
    sink.close()


@pytest.mark.parametrize("refused", [[], [5]])
def test_a_constraint_is_deferred_as_it_says__D10(
    postgres_url: str, name: str, beside: psycopg.Connection, refused: list[int]
) -> None:
    """A trigger, which is called after the constraint's own, makes what each row needs."""
    opened(f"{postgres_url}&table={name}").close()
    run(
        beside,
        f"CREATE TABLE {name}_named (id text PRIMARY KEY CHECK (id <> 'id5' OR {'true' if not refused else 'false'}))",
        f"ALTER TABLE {name} ADD FOREIGN KEY (id) REFERENCES {name}_named DEFERRABLE INITIALLY DEFERRED",
        f"CREATE FUNCTION {name}_make() RETURNS trigger LANGUAGE plpgsql AS"
        f" $$ BEGIN INSERT INTO {name}_named VALUES (new.id); RETURN NULL; END $$",
        f"CREATE TRIGGER zz AFTER INSERT ON {name} FOR EACH ROW EXECUTE FUNCTION {name}_make()",
    )
    sink = opened(f"{postgres_url}&table={name}")
    assert sorted(sink.send(batch(range(64)))) == refused
    assert len(ids(beside, name)) == 64 - len(refused)
    sink.close()


def test_a_row_that_takes_longer_than_its_part_is_written_at_once__D6(
    postgres_url: str, name: str, beside: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit of the batch is a quarter of a second, and of a row in it the half of that."""
    monkeypatch.setattr(postgresql, "ALONE_S", HOURS)  # for a busy machine
    sink = opened(f"{postgres_url}&table={name}", timeout_s=60)
    slow(beside, name, 0.3, "new.id = 'id5'")
    assert sink.send(batch(range(64))) == {}
    sink.close()


def test_rows_that_all_take_longer_than_their_part_are_written_at_once__D6(
    postgres_url: str, name: str, beside: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = opened(f"{postgres_url}&table={name}", timeout_s=60)
    slow(beside, name, 0.03, "true")
    sizes = sizes_written(sink, monkeypatch)
    assert sink.send(batch(range(64))) == {}
    assert sizes[:1] == [64]
    assert sorted(sizes)[-3:] == [32, 32, 64], "it is halved once, as the pace is known"
    sink.close()


def sizes_written(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of all statements that the sink tries from now on."""
    sizes: list[int] = []
    write = sink._write  # type: ignore[attr-defined]

    def noted_write(connection: object, rows: Sequence[object], old: Sequence[bytes]) -> None:
        sizes.append(len(rows))
        write(connection, rows, old)

    monkeypatch.setattr(sink, "_write", noted_write)
    return sizes


def slow(beside: psycopg.Connection, name: str, seconds: float, when: str) -> None:
    """Each such row takes so long."""
    run(
        beside,
        f"CREATE FUNCTION {name}_slow() RETURNS trigger LANGUAGE plpgsql AS"
        f" $$ BEGIN PERFORM pg_sleep({seconds}); RETURN new; END $$",
        f"CREATE TRIGGER slow BEFORE INSERT ON {name} FOR EACH ROW WHEN ({when}) EXECUTE FUNCTION {name}_slow()",
    )


def test_a_row_that_is_sent_alone_has_the_whole_time_and_then_no_answer__D6(
    postgres_url: str, name: str, beside: psycopg.Connection
) -> None:
    sink = opened(f"{postgres_url}&table={name}", timeout_s=1)
    wait_in_the_middle(beside, name, 83)
    began_s = time.monotonic()
    with pytest.raises(Unanswered, match="QueryCanceled"):
        sink.send(batch([5]))
    assert time.monotonic() - began_s > 0.75
    run(beside, "SELECT pg_advisory_unlock(83)")
    assert sink.send(batch([5])) == {}
    sink.close()


@pytest.mark.parametrize(
    ("fault", "is_refusal"),
    [
        ("RAISE 'no'", True),
        ("INSERT INTO not_there VALUES (1)", True),
        ("PERFORM 1 / 0", True),
        ("RAISE deadlock_detected", False),
        ("RAISE serialization_failure", False),
        ("RAISE insufficient_resources", False),
        ("RAISE query_canceled", False),
        ("RAISE lock_not_available", False),
        ("RAISE data_corrupted", False),
    ],
)
def test_any_error_of_a_trigger_is_of_its_row_alone__D6(
    name: str, sink: Sink, beside: psycopg.Connection, fault: str, is_refusal: bool
) -> None:
    run(
        beside,
        f"CREATE FUNCTION {name}_no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {fault}; RETURN new; END $$",
        f"CREATE TRIGGER no BEFORE INSERT ON {name} FOR EACH ROW WHEN (new.id IN ('id7', 'id19'))"
        f" EXECUTE FUNCTION {name}_no()",
    )
    told = sink.send(batch(range(20)))
    assert list(told) == [7, 19]
    assert [isinstance(reason, str) for reason in told.values()] == [is_refusal] * 2
    assert ids(beside, name) == [f"id{seq}" for seq in range(20) if seq not in (7, 19)]
    run(beside, f"DROP TRIGGER no ON {name}")
    assert sink.send(batch(range(20))) == {}
    assert len(ids(beside, name)) == 20


def test_a_row_that_ends_the_connection_leaves_nothing_of_its_batch__D6(
    name: str, sink: Sink, beside: psycopg.Connection
) -> None:
    run(
        beside,
        f"CREATE FUNCTION {name}_no() RETURNS trigger LANGUAGE plpgsql AS"
        f" $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN new; END $$",
        f"CREATE TRIGGER no BEFORE INSERT ON {name} FOR EACH ROW WHEN (new.id = 'id7') EXECUTE FUNCTION {name}_no()",
    )
    with pytest.raises(Unanswered, match="AdminShutdown"):
        sink.send(batch(range(20)))
    assert ids(beside, name) == []


def test_a_digest_that_is_locked_is_forgotten_later__D5(name: str, sink: Sink, beside: psycopg.Connection) -> None:
    sink.send(batch([1]))
    sink.committed(1, True)
    with beside.transaction():
        run(beside, f"SELECT FROM {name}_ids FOR UPDATE")
        assert sink.send(batch([2])) == {}
    assert sink.send(batch([3])) == {}
    left = {bytes(digest) for (digest,) in beside.execute(f"SELECT digest FROM {name}_ids".encode())}
    assert left == {delivery(2).digest, delivery(3).digest}


def test_a_nul_in_an_id_or_key_is_refused_with_the_reason__D6(
    name: str, sink: Sink, beside: psycopg.Connection
) -> None:
    refused = sink.send([delivery(1), delivery(2, "a\0b"), delivery(3), delivery(4, key="\0")])
    assert list(refused) == [1, 3]
    assert all("0x00" in reason for reason in refused.values())
    assert ids(beside, name) == ["id1", "id3"]


@pytest.mark.parametrize("when", ["", "DEFERRABLE INITIALLY DEFERRED"])
def test_a_constraint_refuses_its_rows_alone_now_or_at_the_end__D6(
    name: str, sink: Sink, beside: psycopg.Connection, when: str
) -> None:
    run(beside, f"ALTER TABLE {name} ADD CONSTRAINT {name}_once UNIQUE (id) {when}")
    given = [delivery(seq, f"id{seq % 100}", key=f"k{seq // 100}") for seq in range(104)]
    refused = sink.send(given)
    assert list(refused) == [100, 101, 102, 103]
    assert all(f"{name}_once" in reason for reason in refused.values())
    assert ids(beside, name) == [f"id{seq}" for seq in range(100)]


def test_a_trigger_may_refuse_a_row__D6(name: str, sink: Sink, beside: psycopg.Connection) -> None:
    run(
        beside,
        f"CREATE FUNCTION {name}_no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not this one'; END $$",
        f"CREATE TRIGGER no BEFORE INSERT ON {name} FOR EACH ROW WHEN (new.id = 'id7') EXECUTE FUNCTION {name}_no()",
    )
    refused = sink.send(batch(range(20)))
    assert list(refused) == [7]
    assert "not this one" in refused[7]
    assert len(ids(beside, name)) == 19


def test_what_is_no_json_for_postgresql_is_refused_alone__D6(name: str, sink: Sink, beside: psycopg.Connection) -> None:
    import msgspec

    refused = sink.send([delivery(1), delivery(2, payload=msgspec.Raw(b"{oops")), delivery(3)])
    assert list(refused) == [1]
    assert "invalid input syntax for type json" in refused[1]
    assert ids(beside, name) == ["id1", "id3"]


def test_json_can_be_asked_for_its_parts__D10(name: str, sink: Sink, beside: psycopg.Connection) -> None:
    sink.send([delivery()])
    assert beside.execute(f"SELECT payload->>'x' FROM {name}".encode()).fetchall() == [("1.50",)]


def test_a_commit_is_on_disk_even_where_the_default_is_otherwise__D5(
    postgres_url: str, name: str, beside: psycopg.Connection
) -> None:
    spec = f"{postgres_url}&options=-c%20synchronous_commit%3Doff&table={name}"
    opened(spec).close()
    run(beside, f"ALTER TABLE {name} ADD COLUMN how text DEFAULT current_setting('synchronous_commit')")
    sink = opened(spec)
    sink.send(batch([1]))
    sink.close()
    assert beside.execute(f"SELECT how FROM {name}".encode()).fetchall() == [("on",)]


def test_a_table_may_be_in_a_schema__D10(postgres_url: str, name: str, beside: psycopg.Connection) -> None:
    run(beside, f'CREATE SCHEMA "S{name}"')
    sink = opened(f"{postgres_url}&table=S{name}.t")
    sink.send(batch([1]))
    sink.close()
    assert ids(beside, f'"S{name}".t') == ["id1"]
    assert beside.execute(f'SELECT count(*) FROM "S{name}".t_ids'.encode()).fetchall() == [(1,)]


def table_with(beside: psycopg.Connection, name: str, kind: str) -> None:
    """A table whose columns for moments are of this type."""
    columns = "id text, key text, payload json, payload_bytes bytea, lateness_ms float8, attempt int, redelivered bool"
    run(beside, f"CREATE TABLE {name} ({columns}, due {kind}, delivered_at {kind})")


@pytest.mark.parametrize("kind", ["timestamp", "timestamp(3)", "timestamptz", "text"])
def test_a_column_without_a_zone_gets_utc_whatever_the_zone_of_the_session__D10(
    postgres_url: str, name: str, beside: psycopg.Connection, kind: str
) -> None:
    table_with(beside, name, kind)
    sink = opened(f"{postgres_url}&options=-c%20timezone%3DAsia%2FTokyo&table={name}")
    assert sink.send([delivery()]) == {}
    sink.close()
    run(beside, "SET timezone = 'UTC'")
    asked = beside.execute(f"SELECT due::timestamp, delivered_at::timestamp FROM {name}".encode()).fetchone()
    moments = [datetime.fromtimestamp(ms / 1000, UTC).replace(tzinfo=None) for ms in (DUE_MS, DUE_MS + 2)]
    assert asked is not None
    assert list(asked) == moments


def test_whoever_may_only_write_can_use_tables_that_are_there__D10(
    postgres_url: str, name: str, beside: psycopg.Connection
) -> None:
    opened(f"{postgres_url}&table={name}").close()
    run(
        beside,
        f"CREATE ROLE {name}_writer LOGIN PASSWORD '{SECRET}'",
        f"GRANT INSERT, SELECT ON {name} TO {name}_writer",
        f"GRANT INSERT, SELECT, UPDATE, DELETE ON {name}_ids TO {name}_writer",
    )
    url = postgres_url.replace("tick:", f"{name}_writer:")
    sink = opened(f"{url}&table={name}")
    assert sink.send(batch([1])) == {}
    assert list(sink.arrived(batch([1, 2]), None)) == [1]
    sink.close()
    with pytest.raises(DeliveryFailed, match="permission denied"):
        opened(f"{url}&table={name}_new")


def test_several_may_start_on_a_new_table_at_a_time__D10(
    postgres_url: str, name: str, beside: psycopg.Connection
) -> None:
    together = threading.Barrier(4)
    failures: list[BaseException] = []

    def start(number: int) -> None:
        try:
            together.wait()
            sink = opened(f"{postgres_url}&table={name}", store_id=f"store{number}")
            sink.send(batch([number]))
            sink.close()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=start, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(ids(beside, name)) == 4


def everything_in(error: BaseException | None) -> str:
    import traceback

    return "".join(traceback.format_exception(error))


def test_a_server_that_is_not_there_is_told_without_the_password__D10(tmp_path: Path) -> None:
    with pytest.raises(DeliveryFailed) as error:
        opened(f"postgresql://me:{SECRET}@/db?host={tmp_path}&table=t")
    assert f"the table t in db at {tmp_path} can't be used: " in str(error.value)
    assert SECRET not in everything_in(error.value)


def test_a_wrong_password_is_not_shown__D10(postgres_url: str) -> None:
    with pytest.raises(DeliveryFailed, match="password authentication failed") as error:
        opened(f"{postgres_url.replace(SECRET, WRONG)}&table=t")
    shown = everything_in(error.value)
    assert "wr ng" not in shown
    assert WRONG not in shown


def test_a_lost_server_is_told_without_the_password__D10(sink: Sink, postgres_url: str) -> None:
    sink.close()
    sink._options["port"] = "1"  # type: ignore[attr-defined]
    with pytest.raises(Unavailable) as error:
        sink.send([delivery()])
    assert SECRET not in everything_in(error.value)
    assert SECRET not in repr(vars(sink).get("_insert")) + repr(sink) + str(open_sink(f"{postgres_url}&table=t"))


@pytest.mark.parametrize(
    "spec",
    [
        "postgresql://me:s3%zzkret@host/db?table=t",
        "postgresql://me:s3kret%@host/db?table=t",
        "postgresql://me:s3%00kret@host/db?table=t",
        "postgresql://me:s3@kret@host/db?table=t",
        "postgresql://me:s3/kret@host/db?table=t",
        "postgresql://me:s3?kret@host/db?table=t",
        "postgresql://me:s3#kret@host/db?table=t",
        "postgresql://me:s3kret@[host/db?table=t",
        "postgresql://me:s3kret@host/db?tabel=t",
        "postgresql://me:s3kret@host/db?table=t&nonsense=1",
        "postgresql://me:s3kret@host/db",
        "postgresql://host/db?password=s3%zz&table=t",
        "postgresql://host/db?sslpassword=s3%zz&table=t",
        "postgresql:me:s3kret@host/db?table=t",
    ],
)
def test_an_address_that_is_none_is_wrong_usage_and_its_password_not_shown__D10(spec: str) -> None:
    with pytest.raises(WrongUsage) as error:
        open_sink(spec)
    shown = everything_in(error.value)
    assert "s3" not in shown
    assert "kret" not in shown


@pytest.mark.parametrize(
    "spec",
    [
        "postgresql:///db?table=t",
        "postgresql://h1:1,h2:2/db?target_session_attrs=primary&table=a.t",
        "postgresql://me:p%40%2F%3F%23@[::1]:5433/db?table=t&sslmode=require",
    ],
)
def test_what_libpq_knows_may_be_in_the_address__D10(spec: str) -> None:
    assert callable(open_sink(spec))


@pytest.mark.parametrize("how", ["fast", "immediate"])
def test_a_server_that_was_stopped_is_down_at_the_first_send__D6(
    restarted: PostgresServer, name: str, how: str
) -> None:
    """Although the connection was there, and only its loss is seen."""
    sink = opened(f"{restarted.url}&table={name}")
    restarted.stop(how)
    for _ in range(2):
        with pytest.raises(Unavailable):
            sink.send(batch([1]))
    restarted.start()
    assert sink.send(batch([1])) == {}
    sink.close()


@pytest.mark.parametrize("how", ["fast", "immediate"])
def test_a_server_restarted_in_the_middle_costs_no_message_and_makes_no_second_row__D5_D6(
    restarted: PostgresServer, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    caplog.set_level("WARNING", logger="tickwheel.delivery")
    spec = f"{restarted.url}&table={name}"
    opened(spec).close()
    with psycopg.connect(restarted.url) as connection:
        connection.execute(f"ALTER TABLE {name} ADD COLUMN place bigserial".encode())
    due_ms = time.time_ns() // 1_000_000 + 200
    messages = [Message(f"id{n}", f"k{n % 20}", due_ms + n, b"%d" % n) for n in range(3_000)]
    with DeliveryQueue(tmp_path / "store.db", to=spec) as queue:
        queue.put_many(messages)
        while queue.summary.delivered < 300:
            assert not queue.wait_until_empty(0.001)
        restarted.stop(how)
        while not told(caplog):
            assert not queue.wait_until_empty(0.01)
        assert not queue.wait_until_empty(1), "several probes find it down"
        restarted.start()
        assert queue.wait_until_empty(60)
        assert (queue.summary.delivered, queue.summary.dead_letters) == (3_000, 0)
    assert [text.split(":")[0].split(",")[0] for text in told(caplog)] == [
        "the destination is down",
        "the destination is up again",
    ]
    with psycopg.connect(restarted.url) as connection:
        rows = connection.execute(f"SELECT key, id, attempt FROM {name} ORDER BY place".encode()).fetchall()
        left = connection.execute(f"SELECT count(*) FROM {name}_ids".encode()).fetchall()
    assert max(attempt for _, _, attempt in rows) > 1, "it was tried while it was down"
    for n in range(20):
        assert [id_ for key, id_, _ in rows if key == f"k{n}"] == [f"id{each}" for each in range(n, 3_000, 20)]
    assert left[0][0] < 3_000, "it forgets what is committed"


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The outages in the log."""
    return [text for record in caplog.records if (text := record.getMessage()).startswith("the destination is ")]
