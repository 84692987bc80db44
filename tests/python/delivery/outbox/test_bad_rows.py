"""A row of an outbox that can't be deleted, or not be fetched, stops no other row (rules D2, D5, D6, D8)."""

import logging
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from delivery.outbox.conftest import Reading
from delivery.outbox.programs import Program, program
from tickwheel.delivery.outbox import create_table, enqueue_many
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
    # How many it has met by then depends on how many were accepted at a time.
    assert re.search(r"has rows that can't be deleted or read, [1-5] so far, and tries them again; row 1: ", text)
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


def test_many_rows_that_another_session_has_locked_stop_no_others__D6(
    of_postgresql: Program, reading: Read, postgres_url: str
) -> None:
    """The user has no right to lock rows, so each locked row is searched for."""
    user = f"reader_{of_postgresql.table}"
    ask(of_postgresql, f"CREATE ROLE {user} LOGIN PASSWORD 'not-for-eyes'")
    ask(of_postgresql, f"GRANT SELECT, DELETE ON {of_postgresql.table} TO {user}")
    ids = write(of_postgresql, 10_001)
    with psycopg.connect(postgres_url) as other:
        other.execute(f"SELECT FROM {of_postgresql.table} WHERE n % 64 = 5 AND n < 4000 FOR UPDATE".encode())
        read = reading(of_postgresql.address.replace("tick:", f"{user}:"))
        assert sorted(read.ids(10_001)) == sorted(ids)
        wait_until(lambda: numbers_left(of_postgresql) == [*range(5, 4_000, 64)])
        other.rollback()
        wait_until(lambda: numbers_left(of_postgresql) == [])
    assert read.queue.summary.duplicates == 0


def take_for_ever_to_delete(program: Program, condition: str) -> None:
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
    ask(
        program,
        f"CREATE TRIGGER keeps BEFORE DELETE ON {program.table} FOR EACH ROW WHEN ({condition})"
        f" EXECUTE FUNCTION sleeps_{program.table}()",
    )


def test_rows_that_take_for_ever_to_delete_stop_no_others__D6(
    each_database: Program, reading: Read, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reader_module, "_LONGEST_DELETE_S", 0.25)
    take_for_ever_to_delete(each_database, "old.n IN (1, 700, 5000)")
    ids = write(each_database, 10_001)
    with caplog.at_level(logging.WARNING, "tickwheel.delivery"):
        read = reading(each_database.address)
        assert sorted(read.ids(10_001)) == sorted(ids)
        wait_until(lambda: numbers_left(each_database) == [1, 700, 5000])
    [text] = told(caplog, "outbox")
    assert "has rows that can't be deleted or read" in text
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
    monkeypatch.setattr(reader_module, "_SEARCH_TIMES", 0)
    keep(each_database, "old.n IN (1, 700)")
    ids = write(each_database, 5_000)
    read = reading(each_database.address)
    assert sorted(read.ids(5_000)) == sorted(ids)
    wait_until(lambda: numbers_left(each_database) == [1, 700])
    drop_trigger(each_database)
    wait_until(lambda: numbers_left(each_database) == [])
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
        [outbox] = read.queue._running.outboxes
        assert not outbox._kept
        other.rollback()
        wait_until(lambda: numbers_left(of_postgresql) == [])
    assert told(caplog, "can't be deleted or read") == []
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
    assert not outbox._kept
    wait_until(lambda: outbox.rows == 2)


def test_more_rows_than_can_be_remembered_stop_no_others_while_a_batch_has_room__D8(
    each_database: Program, reading: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "_MOST_KEPT", 3)
    keep(each_database, "old.n <= 8")
    ids = write(each_database, 5_000)
    read = reading(each_database.address)
    assert sorted(read.ids(5_000)) == sorted(ids)
    wait_until(lambda: numbers_left(each_database) == [*range(1, 9)])
    [outbox] = read.queue._running.outboxes
    assert len(outbox._kept) == 3
    assert read.queue.summary.duplicates == 0
    drop_trigger(each_database)
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
        assert len(told(caplog, "can't be deleted or read")) == 1
        outbox._tell_kept_s = 0.0
        wait_until(lambda: len(told(caplog, "can't be deleted or read")) == 2)


def test_a_record_that_is_missing_is_a_dead_letter__D2(each_database: Program, reading: Read) -> None:
    """In a table that was made by hand."""
    ask(each_database, f"DROP TABLE {each_database.table}")
    ask(each_database, f"CREATE TABLE {each_database.table} (n bigint, written_ms bigint, record text)")
    for row in ("1, 5, NULL", "2, NULL, NULL", "NULL, 5, 'no number'"):
        ask(each_database, f"INSERT INTO {each_database.table} VALUES ({row})")
    good = '{"id": "good", "due": 400000000000, "payload": 1}'
    ask(each_database, f"INSERT INTO {each_database.table} VALUES (3, NULL, '{good}')")
    read = reading(each_database.address)
    assert read.ids(1) == ["good"]
    letters = [read.letters.get(timeout=20) for _ in range(2)]
    assert [(letter.line, letter.reason) for letter in letters] == [(n, "the record is NULL") for n in (1, 2)]
    wait_until(lambda: numbers_left(each_database) == [None])


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


@pytest.fixture
def of_windows(postgres_url: str) -> Iterator[str]:
    """A database in which a text may have a byte that is no character: it can't be sent in UTF-8."""
    name = "windows"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} ENCODING 'WIN1252' TEMPLATE template0 LOCALE 'C'".encode())
        yield postgres_url.replace("/postgres?", f"/{name}?")
        connection.execute(f"DROP DATABASE {name} (FORCE)".encode())


def test_rows_that_can_not_be_fetched_are_dead_letters_and_stop_no_others__D2(of_windows: str, reading: Read) -> None:
    with psycopg.connect(of_windows, autocommit=True) as connection:
        create_table(connection)
        connection.execute(
            'INSERT INTO tickwheel_outbox (written_ms, record) SELECT 5, \'{"id": "m\' || n ||'
            " CASE WHEN n IN (1, 2, 3000, 5000) THEN convert_from('\\x81', 'WIN1252') ELSE '' END ||"
            ' \'", "due": 400000000000, "payload": 1}\' FROM generate_series(1, 5000) AS n'
        )
        read = reading(of_windows)
        arrived = read.ids(4_996)
        assert sorted(arrived) == sorted(f"m{n}" for n in range(1, 5_001) if n not in (1, 2, 3_000, 5_000))
        letters = [read.letters.get(timeout=20) for _ in range(4)]
        assert [letter.line for letter in letters] == [1, 2, 3_000, 5_000]
        assert all("UntranslatableCharacter" in letter.reason and "0x81" in letter.reason for letter in letters)
        wait_until(lambda: connection.execute("SELECT count(*) FROM tickwheel_outbox").fetchone() == (0,))
        read.queue.close()


def test_rows_whose_value_is_damaged_are_dead_letters_and_stop_no_others__D6(
    of_postgresql: Program, reading: Read
) -> None:
    """Their records are out of line, and the pages of these are gone, as after a fault of a disk."""
    table, ask_ = of_postgresql.table, partial(ask, of_postgresql)
    ask_(f"ALTER TABLE {table} ALTER record SET STORAGE EXTERNAL")
    enqueue_many(of_postgresql.connection, [(f"m{n}", DUE_MS, "x" * 3_000) for n in range(10)], table=table)
    of_postgresql.commit()
    ask_("CREATE EXTENSION pg_surgery")
    try:
        [(toast,)] = ask_(f"SELECT reltoastrelid::regclass::text FROM pg_class WHERE relname = '{table}'")
        chunks = ask_(f"SELECT DISTINCT ON (chunk_id) ctid::text FROM {toast} ORDER BY chunk_id, chunk_seq")
        tids = [chunks[0][0], chunks[4][0]]
        ask_(f"SELECT heap_force_kill('{toast}'::regclass, ARRAY{tids}::tid[])")
    finally:
        ask_("DROP EXTENSION pg_surgery")
    read = reading(of_postgresql.address)
    letters = [read.letters.get(timeout=20) for _ in range(2)]
    assert all("DataCorrupted: " in letter.reason for letter in letters), letters
    assert len({*read.ids(8)}) == 8
    wait_until(lambda: numbers_left(of_postgresql) == [])


@pytest.mark.parametrize("state", ["P0001", "42501"])
def test_a_row_for_which_a_policy_raises_stops_no_others__D6(
    of_postgresql: Program, reading: Read, state: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Not even its number can be read. It stays, and is delivered once the policy permits it."""
    table, user = of_postgresql.table, f"reader_{of_postgresql.table}"
    ask(of_postgresql, f"CREATE ROLE {user} LOGIN PASSWORD 'not-for-eyes'")
    ask(of_postgresql, f"GRANT SELECT, DELETE ON {table} TO {user}")
    ask(of_postgresql, raising(f"permits_{table}", "boolean", "true", state))
    ask(of_postgresql, f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
    ask(of_postgresql, f"CREATE POLICY permits ON {table} USING (permits_{table}(record))")
    write(of_postgresql, 5_000)
    ask(of_postgresql, f"UPDATE {table} SET record = replace(record, 'm7\"', 'bad\"') WHERE n = 8")
    with caplog.at_level(logging.WARNING, "tickwheel.delivery"):
        read = reading(of_postgresql.address.replace("tick:", f"{user}:"))
        assert sorted(read.ids(4_999)) == sorted(f"m{n}" for n in range(5_000) if n != 7)
    letter = read.letters.get(timeout=20)
    assert (letter.line, "not this one" in letter.reason) == (8, True)
    wait_until(lambda: numbers_left(of_postgresql) == [8])
    [outbox] = read.queue._running.outboxes
    wait_until(lambda: outbox.is_up)
    ask(of_postgresql, f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY")
    assert read.ids(1) == ["bad"]
    wait_until(lambda: numbers_left(of_postgresql) == [])


def test_a_row_for_which_a_view_raises_stops_no_others_and_stays_until_it_can_be_read__D6(
    of_postgresql: Program, reading: Read
) -> None:
    """The view could delete it, but nothing says that its record is damaged."""
    table = of_postgresql.table
    ask(of_postgresql, raising(f"shown_{table}", "text", "given", "P0001"))
    ask(of_postgresql, f"CREATE VIEW v_{table} AS SELECT n, written_ms, shown_{table}(record) AS record FROM {table}")
    write(of_postgresql, 20)
    ask(of_postgresql, f"UPDATE {table} SET record = replace(record, 'm7\"', 'bad\"') WHERE n = 8")
    read = reading(of_postgresql.address.replace("table=", "table=v_"))
    assert len({*read.ids(19)}) == 19
    assert read.letters.get(timeout=20).line == 8
    wait_until(lambda: numbers_left(of_postgresql) == [8])
    ask(of_postgresql, f"UPDATE {table} SET record = replace(record, 'bad\"', 'good\"')")
    assert read.ids(1) == ["good"]
    wait_until(lambda: numbers_left(of_postgresql) == [])
    assert read.letters.empty()


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
def test_a_row_whose_number_is_no_integer_is_left_and_told_and_stops_no_others__D2(
    each_database: Program, reading: Read, caplog: pytest.LogCaptureFixture
) -> None:
    """In a table that was made by hand."""
    table = each_database.table
    ask(each_database, f"DROP TABLE {table}")
    ask(each_database, f"CREATE TABLE {table} (n INTEGER, written_ms INTEGER, record TEXT)")
    for n in ("'one'", "1.5", "NULL", "7"):
        ask(each_database, f'INSERT INTO {table} VALUES ({n}, 5, \'{{"id": "m", "due": 5, "payload": 1}}\')')
    with caplog.at_level(logging.WARNING, "tickwheel.delivery"):
        read = reading(each_database.address)
        assert read.letters.get(timeout=20).line == 7
        wait_until(lambda: ask(each_database, f"SELECT count(*) FROM {table}") == [(3,)])
        [outbox] = read.queue._running.outboxes
        assert outbox.is_up
    [text] = told(caplog, "whose n is no integer")
    assert "has 3 rows whose n is no integer, and passes over them" in text


def test_a_table_whose_number_is_no_integer_is_not_read_and_told__D2(
    of_postgresql: Program, reading: Read, caplog: pytest.LogCaptureFixture
) -> None:
    ask(of_postgresql, f"ALTER TABLE {of_postgresql.table} ALTER n DROP IDENTITY")
    ask(of_postgresql, f"ALTER TABLE {of_postgresql.table} ALTER n TYPE numeric")
    with caplog.at_level(logging.WARNING, "tickwheel.delivery"):
        reading(of_postgresql.address)
        wait_until(lambda: told(caplog, "n is of the type numeric: make it bigint") != [])


def test_rows_are_passed_over_and_fetched_by_their_numbers__D6(each_database: Program) -> None:
    write(each_database, 10)
    source: Source = source_of(each_database.address)()
    assert source.open()
    assert [row.n for row in source.read([1, 2, 7])] == [3, 4, 5, 6, 8, 9, 10]
    assert [*source.first_numbers([1, 2, 7])] == [3, 4, 5, 6, 8, 9, 10]
    assert [row.n for row in source.fetch([9, 2, 70])] == [2, 9]
    assert 2 in source.delete([2, 70], 5)
    assert [*source.delete([], 5)] == []
    assert [row.n for row in source.read()] == [1, *range(3, 11)]
    source.close()
