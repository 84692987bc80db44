"""Records are written in the program's own transaction, whichever library it uses (rules D1, D5)."""

import asyncio
import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from delivery.outbox.conftest import Reading
from delivery.outbox.programs import Program, program
from tickwheel.delivery import BadRecord, Message, WrongUsage
from tickwheel.delivery.outbox import cancel, create_statement, create_table, enqueue, enqueue_many, reschedule

pytestmark = pytest.mark.timeout(60)
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
LATER, LATEST = "2100-01-01T00:00:00Z", "2200-01-01T00:00:00Z"


def records(connection: sqlite3.Connection) -> list[Any]:
    return [json.loads(record) for (record,) in connection.execute("SELECT record FROM tickwheel_outbox ORDER BY n")]


@pytest.fixture
def database() -> Any:
    connection = sqlite3.connect(":memory:")
    create_table(connection)
    yield connection
    connection.close()


def test_what_is_committed_arrives_and_what_is_rolled_back_does_not__D5(
    any_program: Program, reading: Callable[..., Reading]
) -> None:
    read = reading(any_program.address)
    enqueue(any_program.connection, {"id": "lost", "delay_ms": 0}, table=any_program.table)
    any_program.rollback()
    enqueue(any_program.connection, {"id": "kept", "delay_ms": 0, "payload": {"a": "ü"}}, table=any_program.table)
    assert not read.has_more
    any_program.commit()
    kept = read.next().message
    enqueue_many(
        any_program.connection, [(f"m{n}", 5 * 10**11 + n, b"\xff", "k") for n in range(9)], table=any_program.table
    )
    any_program.commit()
    assert (kept.id, bytes(kept.payload)) == ("kept", '{"a":"ü"}'.encode())
    assert read.ids(9) == [f"m{n}" for n in range(9)]
    assert not read.has_more


def test_a_record_keeps_all_of_its_message__D1(database: sqlite3.Connection) -> None:
    due = datetime(2100, 1, 1, tzinfo=UTC)
    enqueue_many(
        database,
        [
            {"id": "a", "key": "k", "due": due, "expires": LATEST, "payload": b"\0\xff", "traceparent": TRACE},
            {"id": "b", "cron": "0 9 * * *", "tz": "Europe/Berlin", "missed": "last", "payload": {"x": 1.50}},
            Message("c", None, 4_000_000_000_000, b"", delay_ms=1.5, destination="acme"),
            ("d", LATER, "text\0"),
        ],
    )
    cancel(database, "a", "k")
    reschedule(database, "b", delay_ms=5)
    assert records(database) == [
        {
            "id": "a",
            "key": "k",
            "due": "2100-01-01T00:00:00+00:00",
            "expires": LATEST,
            "payload_base64": "AP8=",
            "traceparent": TRACE,
        },
        {"id": "b", "cron": "0 9 * * *", "tz": "Europe/Berlin", "missed": "last", "payload": {"x": 1.5}},
        {"id": "c", "delay_ms": 1.5, "destination": "acme", "payload_base64": ""},
        {"id": "d", "due": LATER, "payload": "text\0"},
        {"op": "cancel", "id": "a", "key": "k"},
        {"op": "reschedule", "id": "b", "delay_ms": 5},
    ]


@pytest.mark.parametrize(
    ("message", "error", "text"),
    [
        ({"id": "a"}, BadRecord, "due is missing .allowed: either due or delay_ms"),
        ({"id": 7, "delay_ms": 5}, BadRecord, "id is not text"),
        ({"id": "a", "due": datetime(2100, 1, 1)}, BadRecord, "due has no zone"),  # noqa: DTZ001
        ({"id": "a", "delay_ms": 5, "payload": "x" * (1 << 20)}, BadRecord, "the payload has 1,048,578 bytes"),
        ({"id": "a", "delay_ms": 5, "payload": float("nan")}, WrongUsage, "can't be written as JSON"),
        ({"id": "a", "delay_ms": 5, "replace": True}, WrongUsage, "can't replace another: leave out replace"),
        ({"id": "a", "dew": 5}, WrongUsage, "is no message: it has 'dew'"),
    ],
)
def test_a_bad_message_is_an_error_of_the_caller_and_nothing_is_written__D2(
    database: sqlite3.Connection, message: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        enqueue_many(database, [{"id": "good", "delay_ms": 5}, message])
    assert records(database) == []


def test_a_bad_cancel_or_due_time_is_an_error_of_the_caller__D2(database: sqlite3.Connection) -> None:
    with pytest.raises(BadRecord, match="id is not text"):
        cancel(database, 7)  # type: ignore[arg-type]
    with pytest.raises(BadRecord, match="the record can't be written as JSON"):
        cancel(database, "\ud800")
    with pytest.raises(BadRecord, match="due is missing"):
        reschedule(database, "a")
    assert records(database) == []


def test_what_is_no_connection_is_refused_with_what_is_allowed() -> None:
    engine = sqlalchemy.create_engine("sqlite://")
    for given in (engine, None, "sqlite:app.db", object()):
        with pytest.raises(
            WrongUsage, match=r"is no connection .* give a connection of sqlite3, psycopg 3, SQLAlchemy 2"
        ):
            enqueue(given, {"id": "a", "delay_ms": 0})
    engine.dispose()
    with pytest.raises(WrongUsage, match="await its run_sync"):
        enqueue(AsyncSession(), {"id": "a", "delay_ms": 0})


def test_an_asynchronous_connection_of_psycopg_is_refused(postgres_url: str) -> None:
    async def connect() -> None:
        async with await psycopg.AsyncConnection.connect(postgres_url) as connection:
            enqueue(connection, {"id": "a", "delay_ms": 0})

    with pytest.raises(WrongUsage, match="asynchronous connection of psycopg"):
        asyncio.run(connect())


@pytest.mark.parametrize("each_database", ["psycopg"], indirect=True)
def test_an_asynchronous_session_writes_by_run_sync(each_database: Program, postgres_url: str) -> None:
    async def write() -> None:
        engine = create_async_engine(postgres_url.replace("postgresql:", "postgresql+psycopg:"))
        async with AsyncSession(engine) as session:
            message = {"id": "a", "delay_ms": 0}
            await session.run_sync(lambda session: enqueue(session, message, table=each_database.table))
            await session.commit()
        await engine.dispose()

    asyncio.run(write())
    count = f"SELECT count(*) FROM {each_database.table}"
    assert each_database.connection.execute(count).fetchone() == (1,)


def test_the_name_of_the_table_is_checked(database: sqlite3.Connection) -> None:
    for name in ('a"b', "a b", "", "1a", "x" * 54, "other.outbox", 5):
        with pytest.raises(WrongUsage):
            enqueue(database, {"id": "a", "delay_ms": 0}, table=name)  # type: ignore[arg-type]
    with pytest.raises(WrongUsage, match="can't be in 'mysql': it may be in postgresql or sqlite"):
        create_statement("mysql")
    assert '"app"."outbox"' in create_statement("postgresql", "app.outbox")


@pytest.mark.parametrize("factory", [psycopg.RawCursor, psycopg.ClientCursor, psycopg.Cursor])
def test_a_connection_may_have_any_cursors_and_rows__D11(
    postgres_url: str, reading: Callable[..., Reading], factory: Any
) -> None:
    with program("psycopg", Path(), postgres_url).connection as made:
        create_table(made, "outbox_of_cursors")
    rows = psycopg.rows.class_row(int)
    with psycopg.connect(postgres_url, cursor_factory=factory, row_factory=rows) as connection:  # type: ignore[arg-type]
        enqueue(connection, {"id": factory.__name__, "delay_ms": 0}, table="outbox_of_cursors")
    read = reading(f"{postgres_url}&table=outbox_of_cursors")
    assert read.ids(1) == [factory.__name__]


@pytest.fixture
def of_latin(postgres_url: str) -> Iterator[str]:
    """A database that can't have all characters."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(b"CREATE DATABASE of_latin ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'")
        yield postgres_url.replace("/postgres?", "/of_latin?")
        connection.execute(b"DROP DATABASE of_latin (FORCE)")


@pytest.mark.parametrize("encoding", ["LATIN1", "UTF8"])
@pytest.mark.parametrize("kind", ["psycopg", "sqlalchemy postgresql", "session postgresql", "django postgresql"])
@pytest.mark.parametrize("database", ["postgres_url", "of_latin"])
def test_each_character_arrives_whatever_encoding_a_connection_or_a_database_has__D11(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    reading: Callable[..., Reading],
    database: str,
    kind: str,
    encoding: str,
) -> None:
    url, text = request.getfixturevalue(database), "é € \U0001f600"
    written = program(kind, tmp_path, f"{url}&client_encoding={encoding}" if kind != "django postgresql" else url)
    written.make_table()
    enqueue(written.connection, {"id": text, "key": text, "delay_ms": 0, "payload": {text: text}}, table=written.table)
    written.commit()
    read = reading(f"{url}&table={written.table}")
    message = read.next().message
    assert (message.id, message.key, json.loads(bytes(message.payload))) == (text, text, {text: text})
    written.close()
    read.queue.close()


def test_a_payload_that_is_too_long_with_its_escapes_is_refused_at_once__D1(postgres_url: str, tmp_path: Path) -> None:
    written = program("psycopg", tmp_path, f"{postgres_url}&client_encoding=LATIN1")
    written.make_table()
    with pytest.raises(BadRecord, match=r"the payload has 1,200,002 bytes.*at most 1,048,576"):
        enqueue(written.connection, {"id": "a", "delay_ms": 0, "payload": "é" * 200_000}, table=written.table)
    written.close()


def test_a_delay_counts_from_the_write(each_database: Program, reading: Callable[..., Reading]) -> None:
    before_ms = time.time_ns() // 1_000_000
    enqueue(each_database.connection, {"id": "a", "delay_ms": 30}, table=each_database.table)
    written_ms = time.time_ns() // 1_000_000
    until = time.monotonic() + 0.2
    while time.monotonic() < until:  # the program takes its time until the commit
        time.sleep(0.01)
    each_database.commit()
    message = reading(each_database.address).next().message
    assert before_ms + 30 <= message.due_ms <= written_ms + 30


def test_no_library_is_imported_for_a_connection_of_another() -> None:
    code = """
import sqlite3, sys
from tickwheel.delivery.outbox import create_table, enqueue
connection = sqlite3.connect(":memory:")
create_table(connection)
enqueue(connection, {"id": "a", "delay_ms": 0})
print([name for name in ("psycopg", "sqlalchemy", "django") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
