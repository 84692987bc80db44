"""The thread that reads an outbox: order, bad rows, outages, several readers, bounds (rules D2, D5, D6, D8, D9)."""

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from delivery.outbox.conftest import Reading
from delivery.outbox.programs import Program, program
from delivery.postgres_server import PostgresServer
from tickwheel.delivery import Delivery, DeliveryQueue, StoreView, WrongUsage
from tickwheel.delivery.outbox import cancel, create_table, enqueue, enqueue_many, postgresql, reschedule
from tickwheel.delivery.outbox import reader as reader_module
from tickwheel.delivery.outbox.postgresql import PostgresqlSource
from tickwheel.delivery.outbox.source import Source, source_of
from tickwheel.delivery.outbox.sqlite import SqliteSource
from tickwheel.delivery.outbox.tables import BATCH_ROWS
from tickwheel.delivery.serve.metrics import renderer

pytestmark = pytest.mark.timeout(60)
Read = Callable[..., Reading]


def insert(program: Program, record: object, n: int | None = None, written_ms: object = 5) -> None:
    """By hand, and committed."""
    mark = "?" if program.address.startswith("sqlite") else "%s"
    names, values = (
        ("written_ms, record", [written_ms, record])
        if n is None
        else ("n, written_ms, record", [n, written_ms, record])
    )
    over = "" if n is None or mark == "?" else " OVERRIDING SYSTEM VALUE"
    marks = ", ".join([mark] * len(values))
    program.connection.execute(f"INSERT INTO {program.table} ({names}){over} VALUES ({marks})", values)
    program.commit()


def wait_until(holds: Callable[[], bool]) -> None:
    until_s = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < until_s
        time.sleep(0.01)


def rows_left(program: Program) -> int:
    [(count,)] = program.connection.execute(f"SELECT count(*) FROM {program.table}").fetchall()
    program.commit()
    return int(count)


def test_rows_are_read_in_the_order_of_their_numbers_and_a_late_number_is_not_skipped__D4(
    each_database: Program, reading: Read
) -> None:
    for n in (10, 30):
        insert(each_database, f'{{"id": "{n}", "key": "k", "due": 400000000000, "payload": 1}}', n)
    read = reading(each_database.address)
    assert read.ids(2) == ["10", "30"]
    wait_until(lambda: rows_left(each_database) == 0)
    for n in (20, 5):
        insert(each_database, f'{{"id": "{n}", "key": "k", "due": 400000000000, "payload": 1}}', n)
    assert sorted(read.ids(2)) == ["20", "5"]


def test_a_cancel_and_another_due_time_follow_their_message__D7(each_database: Program, reading: Read) -> None:
    for message_id in ("gone", "moved"):
        enqueue(each_database.connection, {"id": message_id, "delay_ms": 3_600_000}, table=each_database.table)
    cancel(each_database.connection, "gone", table=each_database.table)
    reschedule(each_database.connection, "moved", delay_ms=0, table=each_database.table)
    each_database.commit()
    read = reading(each_database.address)
    assert read.ids(1) == ["moved"]
    assert read.queue.state("gone") == "cancelled"


def test_a_bad_row_becomes_a_dead_letter_and_blocks_nothing__D2(each_database: Program, reading: Read) -> None:
    bad = [
        "nonsense",
        "",
        '{"id": "a"}',
        '{"id": "b", "due": 400000000000}\n{"id": "c", "due": 400000000000}',
        "x" * (3 << 20),
    ]
    for record in bad:
        insert(each_database, record)
    if each_database.address.startswith("sqlite"):  # where any type may be in any column
        insert(each_database, b"\xff\x00", -7, "soon")
        bad.append("")
    insert(each_database, '{"id": "good",\n "due": 400000000000, "payload": [1,\n 2]}')
    read = reading(each_database.address)
    assert read.next().message.id == "good"
    letters = [read.letters.get(timeout=20) for _ in bad]
    assert {letter.source.rpartition("=")[2] for letter in letters} == {each_database.table}
    reasons = "\n".join(letter.reason for letter in letters)
    for text in ("not a JSON object", "due is missing", "the record has 3,145,728 bytes", "0 records"):
        assert text in reasons
    wait_until(lambda: rows_left(each_database) == 0)


def test_a_known_id_with_other_content_becomes_a_dead_letter__D5(each_database: Program, reading: Read) -> None:
    for payload in (1, 2):
        enqueue(each_database.connection, ("a", 4 * 10**11, payload), table=each_database.table)
    each_database.commit()
    read = reading(each_database.address)
    assert read.ids(1) == ["a"]
    letter = read.letters.get(timeout=20)
    assert "accepted before with other content" in letter.reason
    assert letter.record == b'{"id":"a","due":400000000000,"payload":2}'


def test_what_was_read_before_a_crash_is_a_duplicate_the_second_time__D5(each_database: Program, reading: Read) -> None:
    enqueue(each_database.connection, {"id": "a", "delay_ms": 0}, table=each_database.table)
    [row] = each_database.connection.execute(f"SELECT n, record, written_ms FROM {each_database.table}").fetchall()
    each_database.commit()
    read = reading(each_database.address)
    assert read.ids(1) == ["a"]
    wait_until(lambda: rows_left(each_database) == 0)
    insert(each_database, row[1], row[0], row[2])  # as if it had not been deleted
    wait_until(lambda: rows_left(each_database) == 0)
    assert read.queue.summary.duplicates == 1
    assert not read.has_more


def test_a_row_that_is_read_again_after_its_dead_letter_is_the_same_message_and_marked__D5(
    each_database: Program, tmp_path: Path
) -> None:
    enqueue(each_database.connection, {"id": "a", "delay_ms": 0}, table=each_database.table)
    [row] = each_database.connection.execute(f"SELECT n, record, written_ms FROM {each_database.table}").fetchall()
    each_database.commit()
    sent: list[tuple[bytes, bool]] = []

    def refuse(it: Delivery) -> None:
        sent.append((it.digest, it.redelivered))
        raise ValueError("not this one")

    letters: list[object] = []
    with DeliveryQueue(
        tmp_path / "s.db", to=refuse, outbox=each_database.address, max_attempts=1, on_dead_letter=letters.append
    ):
        wait_until(lambda: len(letters) == 1 and rows_left(each_database) == 0)
        insert(each_database, row[1], row[0], row[2])  # as if it had not been deleted
        wait_until(lambda: len(letters) == 2)
    assert sent == [(sent[0][0], False), (sent[0][0], True)]


def test_a_batch_is_bounded_by_rows_and_by_bytes__D8(each_database: Program) -> None:
    names = {"payload": "x" * 1_000_000, "delay_ms": 0}
    enqueue_many(each_database.connection, ({"id": str(n), **names} for n in range(12)), table=each_database.table)
    each_database.commit()
    source = source_of(each_database.address)()
    assert source.open()
    sizes = [row.size for row in source.read()]
    assert 4 <= len(sizes) <= 5
    source.delete([row.n for row in source.read()], 5)
    assert len(source.read()) <= 5
    enqueue_many(each_database.connection, [(f"s{n}", 4 * 10**11, 1) for n in range(5_000)], table=each_database.table)
    each_database.commit()
    source.delete([row.n for _ in range(3) for row in delete_all(source)], 5)
    source.close()


def delete_all(source: Source) -> Sequence[Any]:
    """Delete one batch, and check its bound."""
    rows = source.read()
    assert len(rows) <= BATCH_ROWS
    source.delete([row.n for row in rows], 5)
    return rows


def test_only_one_reader_has_an_outbox_and_the_next_goes_on_after_it__D9(
    each_database: Program, reading: Read, caplog: pytest.LogCaptureFixture
) -> None:
    first = reading(each_database.address, "first.db")
    enqueue(each_database.connection, {"id": "a", "delay_ms": 0}, table=each_database.table)
    each_database.commit()
    assert first.ids(1) == ["a"]
    wait_until(lambda: rows_left(each_database) == 0)
    with caplog.at_level(logging.WARNING, "tickwheel.delivery"):
        second = reading(each_database.address, "second.db")
        wait_until(lambda: "another process reads the outbox" in caplog.text)
        enqueue(each_database.connection, {"id": "b", "delay_ms": 0}, table=each_database.table)
        each_database.commit()
        assert first.ids(1) == ["b"]
        assert not second.has_more
        first.queue.close()
        enqueue(each_database.connection, {"id": "c", "delay_ms": 0}, table=each_database.table)
        each_database.commit()
        assert second.ids(1) == ["c"]
    assert not first.has_more


def test_a_table_that_is_not_there_is_told_once_and_read_when_it_is__D6(
    tmp_path: Path, reading: Read, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "tickwheel.delivery"):
        read = reading(f"sqlite:{tmp_path / 'app.db'}?table=outbox_of_app")
        wait_until(lambda: "can't be read, and is tried again" in caplog.text)
        read.queue.put("other", delay_ms=0)
        assert read.ids(1) == ["other"], "delivery goes on"
        connection = sqlite3.connect(tmp_path / "app.db")
        create_table(connection, "outbox_of_app")
        enqueue(connection, {"id": "a", "delay_ms": 0}, table="outbox_of_app")
        connection.commit()
        connection.close()
        assert read.ids(1) == ["a"]
        wait_until(lambda: "can be read again" in caplog.text)
    told = [record.getMessage() for record in caplog.records if "outbox" in record.getMessage()]
    assert len(told) == 2
    assert "can be read again" in told[1]


def test_a_database_that_stops_holds_up_only_its_outbox_and_no_password_is_told__D6(
    tmp_path: Path, postgres_url: str, postgres_server: PostgresServer, reading: Read, caplog: pytest.LogCaptureFixture
) -> None:
    before = program("psycopg", tmp_path, postgres_url)
    before.make_table()
    enqueue(before.connection, {"id": "a", "delay_ms": 0}, table=before.table)
    before.commit()
    before.close()
    with caplog.at_level(logging.WARNING, "tickwheel.delivery"):
        read = reading(before.address)
        assert read.ids(1) == ["a"]
        postgres_server.stop()
        try:
            wait_until(lambda: "can't be read, and is tried again" in caplog.text)
            read.queue.put("other", delay_ms=0)
            assert read.ids(1) == ["other"]
        finally:
            postgres_server.start()
        with psycopg.connect(postgres_url) as connection:
            enqueue(connection, {"id": "b", "delay_ms": 0}, table=before.table)
        assert read.ids(1) == ["b"]
        wait_until(lambda: "can be read again" in caplog.text)
    told = [record.getMessage() for record in caplog.records if "outbox" in record.getMessage()]
    assert len(told) == 2, told
    assert "not-for-eyes" not in caplog.text


def test_a_connection_that_the_server_ends_while_it_is_idle_is_made_anew_at_once_and_is_no_outage__D6(
    tmp_path: Path, postgres_url: str, reading: Read, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "_FIRST_WAIT_S", 3_600.0)  # so that a wait would be seen
    wait, waiting = PostgresqlSource.wait, threading.Semaphore(0)

    def tell_and_wait(source: PostgresqlSource, *given: Any) -> None:
        waiting.release()
        wait(source, *given)

    monkeypatch.setattr(PostgresqlSource, "wait", tell_and_wait)
    written = program("psycopg", tmp_path, postgres_url)
    written.make_table()
    with caplog.at_level(logging.INFO, "tickwheel.delivery"):
        read = reading(written.address)
        [outbox] = read.queue._running.outboxes
        source = outbox._source
        assert isinstance(source, PostgresqlSource)
        for number in range(2):
            assert waiting.acquire(timeout=20)
            ended = source._opened.info.backend_pid
            [is_ended] = written.connection.execute("SELECT pg_terminate_backend(%s, 20000)", (ended,)).fetchone()
            assert is_ended
            enqueue(written.connection, {"id": str(number), "delay_ms": 0}, table=written.table)
            written.commit()
            assert read.ids(1) == [str(number)]
            while waiting.acquire(blocking=False):
                pass
    assert [it.getMessage() for it in caplog.records if it.levelno > logging.INFO] == []
    assert "the server has ended the idle connection to the outbox" in caplog.text
    written.close()


def test_rows_that_were_accepted_but_not_deleted_are_deleted_and_not_submitted_again__D5(
    each_database: Program, reading: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    source_type = type(source_of(each_database.address)())
    delete, fails = source_type.delete, iter([True] * 4)  # also the probes

    def delete_or_fail(self: Source, numbers: Sequence[int], within_s: float) -> Sequence[int]:
        if next(fails, False):
            raise OSError("the connection is lost")
        return delete(self, numbers, within_s)

    monkeypatch.setattr(source_type, "delete", delete_or_fail)
    monkeypatch.setattr(reader_module, "_FIRST_WAIT_S", 0.01)
    enqueue(each_database.connection, {"id": "a", "delay_ms": 0}, table=each_database.table)
    each_database.commit()
    read = reading(each_database.address)
    assert read.ids(1) == ["a"]
    wait_until(lambda: rows_left(each_database) == 0)
    assert read.queue.summary.duplicates == 0


def test_a_reader_that_waits_is_woken_by_a_commit(
    each_database: Program, reading: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgresql, "_LOOK_EVERY_S", 3_600.0)  # so nothing but a notification wakes it
    read = reading(each_database.address)
    for n in range(3):
        wait_until(lambda: rows_left(each_database) == 0)
        time.sleep(0.2)  # by now it waits, or it is woken by what comes while it looks
        enqueue(each_database.connection, {"id": str(n), "delay_ms": 0}, table=each_database.table)
        each_database.commit()
        assert read.ids(1) == [str(n)]


def test_a_store_is_no_outbox__D9(tmp_path: Path) -> None:
    with pytest.raises(WrongUsage, match="is the store of a queue in this process: name another file"):
        DeliveryQueue(tmp_path / "s.db", to=lambda it: None, outbox=f"sqlite:{tmp_path / 's.db'}")
    DeliveryQueue(tmp_path / "s.db", to=lambda it: None).close()  # it was closed
    assert StoreView(tmp_path / "s.db").status().waiting == 0


@pytest.mark.parametrize(
    "address", ["mysql://h/d", "", "app.db", "sqlite:", "sqlite:a.db?table=a b", "postgresql://h:pass@x@y/d", 5]
)
def test_what_is_no_address_is_refused_before_anything_is_opened(tmp_path: Path, address: Any) -> None:
    with pytest.raises(WrongUsage) as caught:
        DeliveryQueue(tmp_path / "s.db", to=lambda it: None, outbox=[address])
    assert "pass@" not in str(caught.value)
    assert not (tmp_path / "s.db").exists()


def test_the_usual_table_is_read_if_none_is_named(tmp_path: Path) -> None:
    assert source_of(f"sqlite:{tmp_path}/a.db")().name == f"sqlite:{tmp_path}/a.db?table=tickwheel_outbox"
    assert source_of("postgresql://u:secret@h/d")().name == "postgresql://...@h/d?table=tickwheel_outbox"
    assert source_of("postgresql://h/d?sslmode=require")().name.endswith("sslmode=require&table=tickwheel_outbox")


def test_no_thread_is_left_after_the_end(each_database: Program, reading: Read) -> None:
    read = reading(each_database.address)
    assert any(thread.name == "outbox-reader" for thread in threading.enumerate())
    read.queue.close()
    assert not any(thread.name == "outbox-reader" for thread in threading.enumerate())


def test_the_metrics_tell_rows_and_outages__D15(each_database: Program, reading: Read) -> None:
    read = reading(each_database.address)
    render = renderer(read.queue._running)

    def figures() -> bytes:
        return render("")[0]

    assert b"tickwheel_outbox_rows_total 0.0" in figures()
    enqueue_many(each_database.connection, [(str(n), 4 * 10**11, 1) for n in range(7)], table=each_database.table)
    each_database.commit()
    assert len(read.ids(7)) == 7
    wait_until(lambda: b"tickwheel_outbox_rows_total 7.0" in figures())
    wait_until(lambda: b"tickwheel_outbox_oldest_row_seconds 0.0" in figures())
    assert b"tickwheel_outboxes_down 0.0" in figures()
    each_database.connection.execute(f"DROP TABLE {each_database.table}")
    each_database.commit()
    wait_until(lambda: b"tickwheel_outboxes_down 1.0" in figures())


def test_a_look_reads_no_row_that_is_not_in_its_batch__D8(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "app.db")
    create_table(connection)
    names = {"payload": "x" * 1_000_000, "delay_ms": 0}
    enqueue_many(connection, ({"id": str(n), **names} for n in range(12)))
    connection.commit()
    connection.close()
    source = source_of(f"sqlite:{tmp_path / 'app.db'}")()
    assert isinstance(source, SqliteSource)
    assert source.open()
    seen: set[str] = set()
    source._opened.create_function("seen", 1, lambda record: seen.add(record) or record)
    source._opened.execute("""CREATE TEMP VIEW tickwheel_outbox AS
        SELECT n, written_ms, seen(record) AS record FROM main.tickwheel_outbox""")
    assert len(source.read()) == 5
    assert len(seen) <= 6  # the sqlite3 of some versions of Python looks one row ahead
    source.close()


def test_what_was_notified_is_not_kept_while_rows_keep_coming__D8(tmp_path: Path, postgres_url: str) -> None:
    program_of = program("psycopg", tmp_path, postgres_url)
    program_of.make_table()
    source = source_of(program_of.address)()
    assert isinstance(source, PostgresqlSource)
    assert source.open()
    for n in range(50):
        enqueue(program_of.connection, {"id": str(n), "delay_ms": 0}, table=program_of.table)
        program_of.commit()
        assert len(source.read()) == n + 1
    assert len(source._opened._notifies_backlog or ()) <= 2
    source.close()
    program_of.close()


def test_bytes_that_are_no_text_are_a_bad_row_of_a_database_without_an_encoding__D2(
    postgres_url: str, reading: Read
) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE no_encoding ENCODING 'SQL_ASCII' TEMPLATE template0 LOCALE 'C'")
    url = postgres_url.replace("/postgres?", "/no_encoding?")
    with psycopg.connect(url, autocommit=True) as connection:
        create_table(connection)
        record = r"""'{"id": "caf' || E'\xe9' || '"}'"""
        connection.execute(f"INSERT INTO tickwheel_outbox (written_ms, record) VALUES (0, {record})")
        enqueue(connection, {"id": "café", "delay_ms": 0})
    read = reading(url)
    assert read.ids(1) == ["café"]
    assert "UTF-8" in read.letters.get(timeout=20).reason


def test_all_outboxes_are_told_to_stop_before_one_is_waited_for__D13(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(sqlite3.connect(tmp_path / "app.db")) as connection:
        for name in ("a", "b", "c"):
            create_table(connection, name)
        connection.commit()
    all_stop = threading.Barrier(3)
    passed: list[int] = []

    def wait(_: SqliteSource, stopping: threading.Event, at_most_s: float) -> None:
        assert stopping.wait(20)
        with suppress(threading.BrokenBarrierError):
            passed.append(all_stop.wait(4))

    monkeypatch.setattr(SqliteSource, "wait", wait)
    outboxes = [f"sqlite:{tmp_path / 'app.db'}?table={name}" for name in ("a", "b", "c")]
    with DeliveryQueue(tmp_path / "store.db", to=lambda _: None, outbox=outboxes):
        pass
    assert sorted(passed) == [0, 1, 2]


def test_an_outbox_that_is_given_twice_is_refused_without_its_password__D9(tmp_path: Path) -> None:
    address = "postgresql://u:not-for-eyes@h/d?table=t"
    with pytest.raises(WrongUsage, match=r"postgresql://\.\.\.@h/d\?table=t' is given 2 times: name it once"):
        DeliveryQueue(tmp_path / "s.db", to=lambda it: None, outbox=[address, "sqlite:a.db?table=t", address])
    assert not (tmp_path / "s.db").exists()


def test_no_secret_of_an_address_is_in_the_log__D12(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    secrets = "sslpassword=secret1&oauth_client_secret=secret2&scram_client_key=secret3&scram_server_key=secret4"
    address = f"postgresql://u:secret5@127.0.0.1:1/d?{secrets}&table=t"
    with (
        caplog.at_level(logging.WARNING, "tickwheel.delivery"),
        DeliveryQueue(tmp_path / "s.db", to=lambda it: None, outbox=address),
    ):
        wait_until(lambda: "can't be read" in caplog.text)
    assert "secret" not in caplog.text.replace("oauth_client_secret", "")
