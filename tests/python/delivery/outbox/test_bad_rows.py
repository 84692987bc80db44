"""A row of an outbox that can't be deleted, or holds no record, stops no other row (rules D2, D5, D6, D8)."""

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from delivery.outbox.conftest import Reading
from delivery.outbox.programs import Program, program
from tickwheel.delivery.outbox import enqueue_many
from tickwheel.delivery.outbox import reader as reader_module
from tickwheel.delivery.outbox.source import Source, source_of

pytestmark = pytest.mark.timeout(60)
Read = Callable[..., Reading]
DUE_MS = 400_000_000_000


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that can't be deleted are tried again soon."""
    monkeypatch.setattr(reader_module, "_TRY_KEPT_EVERY_S", 0.02)
    monkeypatch.setattr(reader_module, "_FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(reader_module, "_LONGEST_WAIT_S", 0.05)


@pytest.fixture
def of_postgresql(tmp_path: Path, postgres_url: str) -> Iterator[Program]:
    made = program("psycopg", tmp_path, postgres_url)
    made.make_table()
    yield made
    made.close()


def write(program: Program, count: int, first: int = 0) -> list[str]:
    """The ids of as many new messages."""
    ids = [f"m{n}" for n in range(first, first + count)]
    enqueue_many(program.connection, [(name, DUE_MS, 1) for name in ids], table=program.table)
    program.commit()
    return ids


def ask(program: Program, statement: str) -> list[Any]:
    """In a transaction of its own."""
    cursor = program.connection.execute(statement)
    rows = cursor.fetchall() if cursor.description else []
    program.commit()
    return list(rows)


def numbers_left(program: Program) -> list[int]:
    return [n for (n,) in ask(program, f"SELECT n FROM {program.table} ORDER BY n")]


def wait_until(holds: Callable[[], bool]) -> None:
    until_s = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < until_s
        time.sleep(0.01)


def told(caplog: pytest.LogCaptureFixture, text: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if text in record.getMessage()]


def keep(program: Program, condition: str) -> None:
    """A trigger that fails for the delete of these rows."""
    if program.address.startswith("sqlite"):
        fails = "BEGIN SELECT RAISE(ABORT, 'it is needed'); END"
        ask(program, f"CREATE TRIGGER keeps BEFORE DELETE ON {program.table} WHEN {condition} {fails}")
        return
    ask(
        program,
        f"CREATE FUNCTION keeps_{program.table}() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE 'it is needed'; END $$",
    )
    ask(
        program,
        f"CREATE TRIGGER keeps BEFORE DELETE ON {program.table} FOR EACH ROW WHEN ({condition})"
        f" EXECUTE FUNCTION keeps_{program.table}()",
    )


def drop_trigger(program: Program) -> None:
    ask(program, "DROP TRIGGER keeps" + ("" if program.address.startswith("sqlite") else f" ON {program.table}"))


def test_rows_that_can_not_be_deleted_stop_no_others_and_are_deleted_later__D6(
    each_database: Program, reading: Read, caplog: pytest.LogCaptureFixture
) -> None:
    keep(each_database, "old.n IN (1, 2, 700, 4096, 5000)")
    ids = write(each_database, 10_001)
    with caplog.at_level(logging.WARNING, "tickwheel.delivery"):
        read = reading(each_database.address)
        assert sorted(read.ids(10_001)) == sorted(ids)
        wait_until(lambda: numbers_left(each_database) == [1, 2, 700, 4096, 5000])
        drop_trigger(each_database)
        wait_until(lambda: numbers_left(each_database) == [])
    assert read.queue.summary.duplicates == 0
    assert not read.has_more
    [text] = told(caplog, "outbox")
    assert "has rows that can't be deleted, and tries them again; row 1: " in text
    assert "it is needed" in text
    [outbox] = read.queue._running.outboxes
    wait_until(lambda: outbox.rows == 10_001)
    assert outbox.is_up


def test_a_row_that_a_foreign_key_keeps_stops_no_others__D6(of_postgresql: Program, reading: Read) -> None:
    ids = write(of_postgresql, 10_001)
    uses = f"uses_{of_postgresql.table}"
    ask(of_postgresql, f"CREATE TABLE {uses} (n bigint REFERENCES {of_postgresql.table})")
    ask(of_postgresql, f"INSERT INTO {uses} VALUES (1)")
    read = reading(of_postgresql.address)
    assert sorted(read.ids(10_001)) == sorted(ids)
    wait_until(lambda: numbers_left(of_postgresql) == [1])
    ask(of_postgresql, f"DROP TABLE {uses}")
    wait_until(lambda: numbers_left(of_postgresql) == [])
    assert read.queue.summary.duplicates == 0


def take_for_ever_to_delete(program: Program, condition: str, *, at_the_commit: bool = False) -> None:
    """A trigger, for the delete of these rows."""
    if program.address.startswith("sqlite"):
        counts = (
            "SELECT count(*) FROM (WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n)"
        )
        ask(program, f"CREATE TRIGGER keeps BEFORE DELETE ON {program.table} WHEN {condition} BEGIN {counts}; END")
        return
    ask(
        program,
        f"CREATE FUNCTION sleeps_{program.table}() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN PERFORM pg_sleep(9000); RETURN old; END $$",
    )
    kind, deferred = ("CONSTRAINT TRIGGER", "DEFERRABLE INITIALLY DEFERRED") if at_the_commit else ("TRIGGER", "")
    ask(
        program,
        f"CREATE {kind} keeps {'AFTER' if at_the_commit else 'BEFORE'} DELETE ON {program.table} {deferred}"
        f" FOR EACH ROW WHEN ({condition}) EXECUTE FUNCTION sleeps_{program.table}()",
    )


def test_rows_that_take_for_ever_to_delete_stop_no_others__D6(
    each_database: Program, reading: Read, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reader_module, "_DELETE_WITHIN_S", 0.25)
    take_for_ever_to_delete(each_database, "old.n IN (1, 700, 5000)")
    ids = write(each_database, 10_001)
    with caplog.at_level(logging.WARNING, "tickwheel.delivery"):
        read = reading(each_database.address)
        assert sorted(read.ids(10_001)) == sorted(ids)
        wait_until(lambda: numbers_left(each_database) == [1, 700, 5000])
    [text] = told(caplog, "outbox")
    assert "has rows that can't be deleted" in text
    more = write(each_database, 5, 20_000)
    assert sorted(read.ids(5)) == more
    wait_until(lambda: numbers_left(each_database) == [1, 700, 5000])
    drop_trigger(each_database)
    wait_until(lambda: numbers_left(each_database) == [])
    assert read.queue.summary.duplicates == 0


def test_a_search_that_takes_too_long_goes_on_with_new_rows__D6(
    each_database: Program, reading: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As far away as the database may be, each search decides about a row at least."""
    monkeypatch.setattr(reader_module, "_SEARCH_WITHIN_S", 0)
    keep(each_database, "old.n IN (1, 700)")
    ids = write(each_database, 5_000)
    read = reading(each_database.address)
    assert sorted(read.ids(5_000)) == sorted(ids)
    wait_until(lambda: numbers_left(each_database) == [1, 700])
    drop_trigger(each_database)
    wait_until(lambda: numbers_left(each_database) == [])
    assert read.queue.summary.duplicates == 0


@pytest.mark.parametrize("at_the_commit", [False, True])
def test_a_row_that_takes_for_ever_to_delete_makes_others_wait_for_seconds__D6(
    of_postgresql: Program, reading: Read, *, at_the_commit: bool
) -> None:
    """It is searched for once; then it is tried apart from new rows, within a second."""
    take_for_ever_to_delete(of_postgresql, "old.n = 500", at_the_commit=at_the_commit)
    ids = write(of_postgresql, 1_000)
    read = reading(of_postgresql.address)
    assert sorted(read.ids(1_000)) == sorted(ids)
    began_s = time.monotonic()
    more = write(of_postgresql, 1, 1_000)
    assert read.ids(1) == more
    assert time.monotonic() - began_s < 10
    wait_until(lambda: numbers_left(of_postgresql) == [500])
    for n in range(1_001, 1_011):
        began_s = time.monotonic()
        more = write(of_postgresql, 1, n)
        assert read.ids(1) == more
        assert time.monotonic() - began_s < 3
    assert read.queue.summary.duplicates == 0


@pytest.mark.parametrize("may_update", [True, False])
def test_rows_that_another_session_has_locked_stop_no_others__D6(
    of_postgresql: Program, reading: Read, postgres_url: str, may_update: bool
) -> None:
    """They are skipped if the user has the right to lock rows, and waited for shortly if not."""
    user = f"reader_{of_postgresql.table}"
    ask(of_postgresql, f"CREATE ROLE {user} LOGIN PASSWORD 'not-for-eyes'")
    rights = "SELECT, DELETE, UPDATE" if may_update else "SELECT, DELETE"
    ask(of_postgresql, f"GRANT {rights} ON {of_postgresql.table} TO {user}")
    ids = write(of_postgresql, 10_001)
    with psycopg.connect(postgres_url) as other:
        other.execute(f"SELECT FROM {of_postgresql.table} WHERE n IN (1, 4000) FOR UPDATE".encode())
        read = reading(of_postgresql.address.replace("tick:", f"{user}:"))
        assert sorted(read.ids(10_001)) == sorted(ids)
        wait_until(lambda: numbers_left(of_postgresql) == [1, 4000])
        other.rollback()
        wait_until(lambda: numbers_left(of_postgresql) == [])
    assert read.queue.summary.duplicates == 0


def test_a_table_that_is_locked_is_no_trouble_of_its_rows__D6(
    of_postgresql: Program, reading: Read, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    ids = write(of_postgresql, 3_000)
    with caplog.at_level(logging.WARNING, "tickwheel.delivery"), psycopg.connect(postgres_url) as other:
        other.execute(f"LOCK TABLE {of_postgresql.table} IN SHARE MODE".encode())  # it can be read
        read = reading(of_postgresql.address)
        assert sorted(read.ids(3_000)) == sorted(ids)
        wait_until(lambda: told(caplog, "can't be read, and is tried again: LockNotAvailable") != [])
        other.rollback()
        wait_until(lambda: numbers_left(of_postgresql) == [])
    assert told(caplog, "can't be deleted") == []
    assert read.queue.summary.duplicates == 0


def test_what_has_the_number_of_a_row_that_was_kept_is_another_row__D5(each_database: Program, reading: Read) -> None:
    keep(each_database, "old.n = 1")
    [kept] = write(each_database, 1)
    read = reading(each_database.address)
    assert read.ids(1) == [kept]
    [outbox] = read.queue._running.outboxes
    wait_until(lambda: len(outbox._kept) == 1)
    record = '{"id": "new", "due": 400000000000, "payload": 1}'
    ask(each_database, f"UPDATE {each_database.table} SET record = '{record}' WHERE n = 1")
    assert read.ids(1) == ["new"]
    assert numbers_left(each_database) == [1]
    drop_trigger(each_database)
    wait_until(lambda: numbers_left(each_database) == [])


def test_a_row_that_is_gone_is_kept_no_more__D8(
    each_database: Program, reading: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "_TRY_KEPT_EVERY_S", 3_600.0)
    keep(each_database, "old.n = 1")
    read = reading(each_database.address)
    [outbox] = read.queue._running.outboxes
    outbox._try_kept_s = time.monotonic() + 3_600  # or it might delete the row as soon as the trigger is gone
    write(each_database, 1)
    assert read.ids(1) == ["m0"]
    wait_until(lambda: len(outbox._kept) == 1)
    drop_trigger(each_database)
    ask(each_database, f"DELETE FROM {each_database.table}")
    outbox._try_kept_s = 0.0
    for n in (1, 2):  # the reader may have looked at the time before the first one came
        write(each_database, 1, n)
        assert read.ids(1) == [f"m{n}"]
    wait_until(lambda: not outbox._kept and outbox.rows == 2)


def test_too_many_rows_that_can_not_be_deleted_are_an_outage_until_they_can__D8(
    each_database: Program, reading: Read, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reader_module, "_MOST_KEPT", 3)
    keep(each_database, "old.n <= 8")
    ids = write(each_database, 5_000)
    with caplog.at_level(logging.WARNING, "tickwheel.delivery"):
        read = reading(each_database.address)
        wait_until(lambda: told(caplog, "the database deletes none of 8 rows that were read") != [])
        drop_trigger(each_database)
        assert sorted(read.ids(5_000)) == sorted(ids)
        wait_until(lambda: numbers_left(each_database) == [])
    assert read.queue.summary.duplicates == 0


def test_rows_that_can_not_be_deleted_are_told_again_after_a_minute__D15(
    each_database: Program, reading: Read, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    keep(each_database, "old.n = 1")
    write(each_database, 1)
    with caplog.at_level(logging.WARNING, "tickwheel.delivery"):
        read = reading(each_database.address)
        assert len(read.ids(1)) == 1
        [outbox] = read.queue._running.outboxes
        tries: list[object] = []
        delete = outbox._source.delete
        monkeypatch.setattr(outbox._source, "delete", lambda *given: tries.append(given) or delete(*given))
        wait_until(lambda: len(tries) > 10)
        assert len(told(caplog, "can't be deleted")) == 1
        outbox._tell_kept_s = 0.0
        wait_until(lambda: len(told(caplog, "can't be deleted")) == 2)


def test_a_record_that_is_missing_is_a_dead_letter__D2(each_database: Program, reading: Read) -> None:
    """In a table that was made by hand."""
    ask(each_database, f"DROP TABLE {each_database.table}")
    is_sqlite = each_database.address.startswith("sqlite")
    number = "INTEGER PRIMARY KEY" if is_sqlite else "bigint"
    ask(each_database, f"CREATE TABLE {each_database.table} (n {number}, written_ms bigint, record text)")
    for row in ("1, 5, NULL", "2, NULL, NULL", *([] if is_sqlite else ["NULL, 5, 'no number'"])):
        ask(each_database, f"INSERT INTO {each_database.table} VALUES ({row})")
    good = '{"id": "good", "due": 400000000000, "payload": 1}'
    ask(each_database, f"INSERT INTO {each_database.table} VALUES (3, NULL, '{good}')")
    read = reading(each_database.address)
    assert read.ids(1) == ["good"]
    letters = [read.letters.get(timeout=20) for _ in range(2)]
    assert [(letter.line, letter.reason) for letter in letters] == [(n, "the record is NULL") for n in (1, 2)]
    wait_until(lambda: numbers_left(each_database) == ([] if is_sqlite else [None]))


@pytest.mark.parametrize("written_ms", [1 << 62, -(1 << 62)])
def test_a_row_that_was_written_at_no_time_is_delivered_or_told__D2(
    written_ms: int, each_database: Program, reading: Read
) -> None:
    for record in '{"id": "due", "due": 400000000000}', '{"id": "delay", "delay_ms": 5}':
        ask(
            each_database,
            f"INSERT INTO {each_database.table} (written_ms, record) VALUES ({written_ms}, '{record}')",
        )
    read = reading(each_database.address)
    letter = read.letters.get(timeout=20)
    assert letter.reason == "delay_ms counts from a time that this record does not have"
    assert "written_ms" in letter.allowed
    assert read.ids(1) == ["due"]
    wait_until(lambda: numbers_left(each_database) == [])


def test_a_view_that_fails_at_each_look_is_an_outage_and_makes_no_dead_letters__D6(
    of_postgresql: Program, reading: Read, caplog: pytest.LogCaptureFixture
) -> None:
    """Its function is asked about each row before the number is compared, so the failure says nothing about a row."""
    table = of_postgresql.table
    ask(of_postgresql, f"ALTER TABLE {table} DROP CONSTRAINT {table}_pkey")
    ask(of_postgresql, raising(f"shows_{table}", "boolean", "true", "P0001"))
    ask(of_postgresql, f"ALTER FUNCTION shows_{table} COST 0.0001")
    ask(of_postgresql, f"CREATE VIEW v_{table} AS SELECT * FROM {table} WHERE shows_{table}(record)")
    write(of_postgresql, 20)
    ask(of_postgresql, f"UPDATE {table} SET record = replace(record, 'm7\"', 'bad\"') WHERE n = 8")
    with caplog.at_level(logging.WARNING, "tickwheel.delivery"):
        read = reading(of_postgresql.address.replace("table=", "table=v_"))
        wait_until(lambda: told(caplog, "can't be read, and is tried again: RaiseException: not this one") != [])
        ask(of_postgresql, f"UPDATE {table} SET record = replace(record, 'bad\"', 'good\"')")
        assert len({*read.ids(20)}) == 20
    assert read.letters.empty()


def raising(function: str, returns: str, result: str, state: str) -> str:
    """The statement that makes a function, which fails for a record that has the id `bad`."""
    raises = f"IF given LIKE '%\"bad\"%' THEN RAISE 'not this one' USING ERRCODE = '{state}'; END IF"
    return (
        f"CREATE FUNCTION {function}(given text) RETURNS {returns} LANGUAGE plpgsql STABLE AS"
        f" $$ BEGIN {raises}; RETURN {result}; END $$"
    )


@pytest.mark.parametrize("each_database", ["sqlite3"], indirect=True)
def test_a_file_whose_number_may_be_no_integer_is_not_read_and_told__D2(
    each_database: Program, reading: Read, caplog: pytest.LogCaptureFixture
) -> None:
    ask(each_database, f"DROP TABLE {each_database.table}")
    ask(each_database, f"CREATE TABLE {each_database.table} (n INTEGER, written_ms INTEGER, record TEXT)")
    with caplog.at_level(logging.WARNING, "tickwheel.delivery"):
        reading(each_database.address)
        wait_until(lambda: told(caplog, "whose n is INTEGER PRIMARY KEY: make it so") != [])


def test_a_table_whose_number_is_no_integer_is_not_read_and_told__D2(
    of_postgresql: Program, reading: Read, caplog: pytest.LogCaptureFixture
) -> None:
    ask(of_postgresql, f"ALTER TABLE {of_postgresql.table} ALTER n DROP IDENTITY")
    ask(of_postgresql, f"ALTER TABLE {of_postgresql.table} ALTER n TYPE numeric")
    with caplog.at_level(logging.WARNING, "tickwheel.delivery"):
        reading(of_postgresql.address)
        wait_until(lambda: told(caplog, "n is of the type numeric: make it bigint") != [])


def test_rows_are_passed_over_and_deleted_by_their_numbers__D6(each_database: Program) -> None:
    write(each_database, 10)
    source: Source = source_of(each_database.address)()
    assert source.open()
    assert [row.n for row in source.read([1, 2, 7])] == [3, 4, 5, 6, 8, 9, 10]
    assert [row and row.n for row in (source.fetch(9), source.fetch(70))] == [9, None]
    assert 2 in source.delete([2, 70], 5)
    assert [*source.delete([], 5)] == []
    assert [row.n for row in source.read()] == [1, *range(3, 11)]
    source.close()
