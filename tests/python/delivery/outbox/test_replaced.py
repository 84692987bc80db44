"""What happens to an outbox beside its reader: files replaced, a backup restored, tables made anew, forks."""

import logging
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from delivery.outbox.conftest import Reading
from delivery.outbox.programs import Program
from delivery.outbox.test_reading import rows_left, wait_until
from tickwheel.delivery.outbox import create_table, enqueue
from tickwheel.delivery.outbox import reader as reader_module
from tickwheel.delivery.outbox.source import Source, source_of
from tickwheel.delivery.outbox.sqlite import SqliteSource

pytestmark = pytest.mark.timeout(60)
Read = Callable[..., Reading]


@pytest.fixture(autouse=True)
def _tried_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "_FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(reader_module, "_LONGEST_WAIT_S", 0.01)


def made(path: Path, *ids: str) -> Path:
    """A database with an outbox, and these messages in it."""
    connection = sqlite3.connect(path)
    create_table(connection)
    for id_ in ids:
        enqueue(connection, {"id": id_, "delay_ms": 0})
    connection.commit()
    connection.close()
    return path


def is_read(source: Source) -> bool:
    """Whether it gets the outbox, which is then free again."""
    try:
        return source.open()
    finally:
        source.close()


def test_a_file_whose_name_is_no_text_is_read_and_its_bad_rows_too__D2(tmp_path: Path, reading: Read) -> None:
    path = made(tmp_path / "app.db", "a").rename(tmp_path / os.fsdecode(b"app\xff.db"))
    read = reading(f"sqlite:{path}")
    assert read.ids(1) == ["a"]
    connection = sqlite3.connect(path)
    connection.execute("INSERT INTO tickwheel_outbox (written_ms, record) VALUES (5, '{')")
    connection.commit()
    connection.close()
    assert read.letters.get(timeout=20).source.endswith(r"app\udcff.db?table=tickwheel_outbox")


def test_a_file_that_was_replaced_is_opened_again__D9(
    tmp_path: Path, reading: Read, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "tickwheel.delivery"):
        read = reading(f"sqlite:{made(tmp_path / 'app.db', 'before')}")
        assert read.ids(1) == ["before"]
        made(tmp_path / "new.db", "after").rename(tmp_path / "app.db")
        assert read.ids(1) == ["after"]
    assert "app.db is another file than the one that was opened" in caplog.text


def test_a_row_of_a_restored_database_is_read_though_its_number_was_accepted_before__D5(
    tmp_path: Path, reading: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = made(tmp_path / "app.db", "old")
    restored, delete = made(tmp_path / "restored.db", "new"), SqliteSource.delete

    def restored_before_it_is_deleted(source: SqliteSource, numbers: Sequence[int], within_s: float) -> Sequence[int]:
        if restored.exists():
            restored.rename(path)
        return delete(source, numbers, within_s)

    monkeypatch.setattr(SqliteSource, "delete", restored_before_it_is_deleted)
    read = reading(f"sqlite:{path}")
    assert read.ids(2) == ["old", "new"]


def test_rows_that_the_database_keeps_are_submitted_once_and_hold_up_no_others__D6(
    each_database: Program, reading: Read, caplog: pytest.LogCaptureFixture
) -> None:
    table, connection = each_database.table, each_database.connection
    if each_database.address.startswith("sqlite"):
        connection.execute(f"""CREATE TRIGGER keeps BEFORE DELETE ON {table} WHEN old.record LIKE '%kept%'
            BEGIN SELECT RAISE(IGNORE); END""")
    else:
        connection.execute(f"""CREATE FUNCTION keeps_{table}() RETURNS trigger LANGUAGE plpgsql AS
            'BEGIN IF old.record LIKE ''%kept%'' THEN RETURN NULL; END IF; RETURN old; END'""")
        connection.execute(f"""CREATE TRIGGER keeps BEFORE DELETE ON {table}
            FOR EACH ROW EXECUTE FUNCTION keeps_{table}()""")
    enqueue(connection, {"id": "kept", "delay_ms": 0}, table=table)
    each_database.commit()
    with caplog.at_level(logging.WARNING, "tickwheel.delivery"):
        read = reading(each_database.address)
        assert read.ids(1) == ["kept"]
        wait_until(lambda: "has rows that can't be deleted, and tries them again" in caplog.text)
        enqueue(connection, {"id": "b", "delay_ms": 0}, table=table)
        each_database.commit()
        assert read.ids(1) == ["b"]
        wait_until(lambda: rows_left(each_database) == 1)
    assert read.queue.summary.duplicates == 0
    [outbox] = read.queue._running.outboxes
    wait_until(lambda: outbox.rows == 1)  # it counts them after the commit that is seen above


def test_a_reader_whose_lock_was_removed_reads_no_more_until_it_has_another__D9(tmp_path: Path) -> None:
    address = f"sqlite:{made(tmp_path / 'app.db')}"
    first, second = source_of(address)(), source_of(address)()
    assert first.open()
    (tmp_path / "app.db-tickwheel_outbox.reader").unlink()
    assert second.open()
    with pytest.raises(OSError, match=r"reader is another file than the one that was opened"):
        first.read()
    first.close()
    assert not first.open()
    second.close()


def test_a_table_that_was_made_anew_has_one_reader_still__D9(each_database: Program) -> None:
    first, second = source_of(each_database.address)(), source_of(each_database.address)()
    assert first.open()
    each_database.connection.execute(f"DROP TABLE {each_database.table}")
    create_table(each_database.connection, each_database.table)
    each_database.commit()
    assert not second.open()
    first.close()
    wait_until(lambda: is_read(second))  # PostgreSQL frees the lock once it has seen that the connection is closed


HOLDS = """if True:
    import os, sys, time
    from tickwheel.delivery.outbox.source import source_of
    source = source_of(sys.argv[1])()
    assert source.open()
    if (child := os.fork()) == 0:
        time.sleep(600)
    if sys.argv[2] == "closes":
        source.close()
    print(child, flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("end", ["closes", "is killed"])
def test_a_forked_child_does_not_keep_the_outbox_of_its_parent__D9(each_database: Program, end: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", HOLDS, each_database.address, end]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    child = int(process.stdout.readline())
    try:
        if end == "is killed":
            process.kill()
            process.wait()
        source = source_of(each_database.address)()
        wait_until(lambda: is_read(source))
    finally:
        os.kill(child, 9)
        process.kill()
        process.communicate()
