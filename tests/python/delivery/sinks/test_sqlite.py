"""Tests for SQLite only; the tests of both SQL sinks are in `test_sql.py`."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from delivery.sinks.making import batch, delivery, opened
from tickwheel._native import Destination
from tickwheel.delivery.base.errors import DeliveryFailed, Unanswered, Unavailable, WrongUsage
from tickwheel.delivery.sinks import SinkSettings, open_sink
from tickwheel.delivery.sinks.sqlite import SqliteSink

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out.db"


@pytest.fixture
def beside(path: Path) -> Iterator[sqlite3.Connection]:
    """Another connection to the same file."""
    connection = sqlite3.connect(path, isolation_level=None)
    yield connection
    connection.close()


def count(beside: sqlite3.Connection, table: str = "t") -> int:
    number: int = beside.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    return number


def test_the_file_is_in_wal_mode_and_each_send_is_on_disk__D5(path: Path, beside: sqlite3.Connection) -> None:
    sink = opened(f"sqlite:{path}?table=t")
    assert isinstance(sink, SqliteSink)
    assert beside.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert sink._open().execute("PRAGMA synchronous").fetchone() == (2,)
    sink.close()
    assert sink._open().execute("PRAGMA synchronous").fetchone() == (2,)  # also when it is opened again
    sink.close()


def test_a_nul_in_an_id_is_kept__D1(path: Path, beside: sqlite3.Connection) -> None:
    sink = opened(f"sqlite:{path}?table=t")
    assert sink.send([delivery(1, "a\0b", key="\0")]) == {}
    sink.close()
    assert beside.execute("SELECT id, key FROM t").fetchall() == [("a\0b", "\0")]


def test_a_locked_file_fails_them_all_in_time_and_the_next_send_goes_on__D6(
    path: Path, beside: sqlite3.Connection
) -> None:
    sink = opened(f"sqlite:{path}?table=t", timeout_s=0.1)
    beside.execute("BEGIN IMMEDIATE")
    for _ in range(2):
        with pytest.raises(Unanswered, match="locked"):
            sink.send(batch(range(3)))
    beside.execute("COMMIT")
    assert sink.send(batch(range(3))) == {}
    sink.close()
    assert count(beside) == 3


def test_on_a_full_disk_the_rows_that_fit_arrive_and_the_next_send_goes_on__D6(
    path: Path, beside: sqlite3.Connection
) -> None:
    sink = opened(f"sqlite:{path}?table=t")
    assert isinstance(sink, SqliteSink)
    pages = sink._open().execute("PRAGMA page_count").fetchone()[0]
    sink._open().execute(f"PRAGMA max_page_count={pages + 2}")
    large = [delivery(seq, payload=b"x" * (50_000 if seq in (1, 4) else 5)) for seq in range(6)]
    told = sink.send(large)
    assert list(told) == [1, 4]
    assert all(isinstance(reason, Unanswered) and "full" in str(reason) for reason in told.values())
    assert (count(beside), count(beside, "t_ids")) == (4, 4)
    sink.close()
    assert sink.send(large) == {}
    sink.close()
    assert [id_ for (id_,) in beside.execute("SELECT id FROM t ORDER BY rowid")] == [
        f"id{seq}" for seq in (0, 2, 3, 5, 1, 4)
    ]


def test_a_trigger_may_refuse_a_row__D6(path: Path, beside: sqlite3.Connection) -> None:
    sink = opened(f"sqlite:{path}?table=t")
    beside.execute(
        "CREATE TRIGGER no BEFORE INSERT ON t WHEN new.id = 'id2' BEGIN SELECT RAISE(ABORT, 'not this one'); END"
    )
    assert sink.send(batch(range(5))) == {2: "IntegrityError: not this one"}
    sink.close()
    assert (count(beside), count(beside, "t_ids")) == (4, 4)


FAILS = "SELECT json_extract('no JSON', '$')"
"""An `OperationalError`, though nothing is wrong with the connection."""


@pytest.mark.parametrize("bad", [{7}, {0, 1, 1023}, set(range(0, 1024, 17)), set(range(1024))])
def test_a_trigger_that_fails_refuses_its_rows_alone__D6(path: Path, beside: sqlite3.Connection, bad: set[int]) -> None:
    sink = opened(f"sqlite:{path}?table=t")
    assert isinstance(sink, SqliteSink)
    names = ", ".join(f"'id{seq}'" for seq in bad)
    beside.execute(f"CREATE TRIGGER no BEFORE INSERT ON t WHEN new.id IN ({names}) BEGIN {FAILS}; END")
    database = sink._open()
    assert sink.send(batch(range(1024))) == dict.fromkeys(sorted(bad), "OperationalError: malformed JSON")
    assert sink._open() is database, "the connection was not to blame"
    beside.execute("DROP TRIGGER no")
    assert sink.send(batch(range(1024))) == {}  # those that were refused are not noted, the others are
    sink.close()
    assert count(beside) == 1024


def test_a_trigger_that_fails_leaves_nothing_of_its_row__D6(path: Path, beside: sqlite3.Connection) -> None:
    sink = opened(f"sqlite:{path}?table=t")
    beside.execute("CREATE TABLE seen (id TEXT)")
    beside.execute(
        "CREATE TRIGGER no BEFORE INSERT ON t BEGIN INSERT INTO seen VALUES (new.id);"
        " SELECT RAISE(FAIL, 'not this one') WHERE new.id = 'id2'; END"
    )
    assert sink.send(batch(range(5))) == {2: "IntegrityError: not this one"}
    sink.close()
    assert [id_ for (id_,) in beside.execute("SELECT id FROM seen")] == ["id0", "id1", "id3", "id4"]


def test_a_trigger_that_fails_for_any_row_is_no_answer_about_them__D6(path: Path, beside: sqlite3.Connection) -> None:
    """So none becomes a dead letter while the table is being repaired."""
    sink = opened(f"sqlite:{path}?table=t")
    beside.execute("CREATE TRIGGER no BEFORE INSERT ON t WHEN new.id = 'id2' BEGIN SELECT not_there(1); END")
    with pytest.raises(Unanswered, match="no such function: not_there"):
        sink.send(batch(range(5)))
    beside.execute("DROP TRIGGER no")
    assert sink.send(batch(range(5))) == {}
    sink.close()


def test_a_constraint_that_is_checked_at_the_commit_refuses_its_rows_alone__D6(
    path: Path, beside: sqlite3.Connection
) -> None:
    sink = opened(f"sqlite:{path}?table=t")
    assert isinstance(sink, SqliteSink)
    sink.close()
    beside.execute("DROP TABLE t")
    beside.execute("CREATE TABLE known (id TEXT PRIMARY KEY)")
    beside.execute(
        "CREATE TABLE t (id TEXT REFERENCES known DEFERRABLE INITIALLY DEFERRED, key, due, payload, payload_bytes,"
        " delivered_at, lateness_ms, attempt, redelivered)"
    )
    beside.executemany("INSERT INTO known VALUES (?)", [(f"id{seq}",) for seq in range(20) if seq not in (4, 19)])
    sink._open().execute("PRAGMA foreign_keys = ON")  # the default of some builds
    assert sink.send(batch(range(20))) == dict.fromkeys([4, 19], "IntegrityError: FOREIGN KEY constraint failed")
    sink.close()
    assert (count(beside), count(beside, "t_ids")) == (18, 18)


class Cut:
    """A connection that is lost at a statement: from then on it answers nothing."""

    def __init__(self, real: sqlite3.Connection, at: str, times: int) -> None:
        self.real, self.at, self.times = real, at, times

    def execute(self, statement: str, *values: object) -> sqlite3.Cursor:
        self.times -= statement == self.at
        if self.times <= 0:
            self.real.rollback()
            self.real.close()
        return self.real.execute(statement, *values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


def test_a_connection_that_does_not_answer_is_no_answer_about_any_row__D6(
    path: Path, beside: sqlite3.Connection
) -> None:
    sink = opened(f"sqlite:{path}?table=t")
    assert isinstance(sink, SqliteSink)
    sink._database = Cut(sink._open(), "COMMIT", 1)  # type: ignore[assignment]
    with pytest.raises(Unavailable, match="closed database"):
        sink.send(batch(range(5)))
    assert count(beside) == 0
    assert sink.send(batch(range(5))) == {}
    sink.close()


def test_a_connection_that_is_lost_between_two_parts_has_written_the_first__D6(
    path: Path, beside: sqlite3.Connection
) -> None:
    sink = opened(f"sqlite:{path}?table=t")
    assert isinstance(sink, SqliteSink)
    beside.execute(
        "CREATE TRIGGER no BEFORE INSERT ON t WHEN new.id = 'id2' BEGIN SELECT RAISE(ROLLBACK, 'all out'); END"
    )
    sink._database = Cut(sink._open(), "BEGIN IMMEDIATE", 4)  # type: ignore[assignment]
    told = sink.send(batch(range(6)))
    assert told[2] == "IntegrityError: all out"
    assert [place for place, reason in told.items() if isinstance(reason, Unavailable)] == [3, 4, 5]
    assert (count(beside), count(beside, "t_ids")) == (2, 2)
    beside.execute("DROP TRIGGER no")
    assert sink.send(batch(range(6))) == {}
    sink.close()
    assert count(beside) == 6


def test_a_constraint_that_ends_the_transaction_refuses_its_rows_alone__D6(
    path: Path, beside: sqlite3.Connection
) -> None:
    opened(f"sqlite:{path}?table=t").close()
    beside.execute(
        "CREATE TRIGGER no BEFORE INSERT ON t WHEN new.id IN ('id2', 'id5')"
        " BEGIN SELECT RAISE(ROLLBACK, 'all out'); END"
    )
    sink = opened(f"sqlite:{path}?table=t")
    refused = sink.send(batch(range(8)))
    assert refused == {2: "IntegrityError: all out", 5: "IntegrityError: all out"}
    sink.close()
    rows = [id_ for (id_,) in beside.execute("SELECT id FROM t ORDER BY rowid")]
    assert rows == [f"id{seq}" for seq in (0, 1, 3, 4, 6, 7)]
    assert count(beside, "t_ids") == 6


def test_a_sink_that_was_replaced_writes_nothing_any_more__D5(path: Path, beside: sqlite3.Connection) -> None:
    """As one that hung, was cut off, and goes on when its successor has written the same and forgotten it."""
    opener = open_sink(f"sqlite:{path}?table=t")
    assert not isinstance(opener, Destination)
    hangs, sink = opener(SinkSettings("store")), opener(SinkSettings("store"))
    other = opener(SinkSettings("another store"))
    sink.send([delivery(1, attempt=2)])
    sink.committed(1, True)
    sink.send(batch([2]))
    with pytest.raises(Unanswered, match="replaced"):
        hangs.send(batch([1]))
    assert other.send([delivery(1, "theirs")]) == {}
    for each in (hangs, sink, other):
        each.close()
    assert [id_ for (id_,) in beside.execute("SELECT id FROM t ORDER BY rowid")] == ["id1", "id2", "theirs"]


def test_a_file_that_is_no_database_is_told__D10(path: Path) -> None:
    path.write_bytes(b"this is a letter, and not a database at all" * 100)
    with pytest.raises(DeliveryFailed, match="not a database"):
        opened(f"sqlite:{path}?table=t")


def test_a_folder_that_is_not_there_is_told__D10(path: Path) -> None:
    with pytest.raises(DeliveryFailed, match=f"{path}x/out.db can't be used: unable to open"):
        opened(f"sqlite:{path}x/out.db?table=t")


def test_a_view_is_told_at_once__D10(path: Path, beside: sqlite3.Connection) -> None:
    opened(f"sqlite:{path}?table=t").close()
    beside.execute("CREATE VIEW v AS SELECT * FROM t")
    with pytest.raises(DeliveryFailed, match="cannot modify v because it is a view"):
        opened(f"sqlite:{path}?table=v")


@pytest.mark.parametrize("name", ["a?b.db", "a b\u00e4.db", ":memory:", "100%.db", "file:x?mode=ro"])
def test_any_name_of_a_file_is_one__D10(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    sink = opened(f"sqlite:{name}?table=t")
    sink.send(batch([1]))
    monkeypatch.chdir("/")
    sink.close()
    sink.send(batch([2]))  # the folder was the current one when the sink was opened
    sink.close()
    beside = sqlite3.connect(tmp_path / name)
    assert count(beside) == 2
    beside.close()


@pytest.mark.parametrize("spec", ["sqlite:", "sqlite:out.db", "sqlite:?table=t", "sqlite:a\0b?table=t"])
def test_an_address_that_is_none_is_wrong_usage__D10(spec: str) -> None:
    with pytest.raises(WrongUsage, match="sqlite:PATH"):
        open_sink(spec)


def rows(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as database:
        return [id_ for (id_,) in database.execute("SELECT id FROM t ORDER BY rowid")]


@pytest.mark.parametrize("beside", [(), ("-wal",), ("-wal", "-shm")])
def test_a_file_that_was_moved_is_made_anew_and_takes_its_rows_with_it__D10(
    path: Path, beside: tuple[str, ...]
) -> None:
    sink = opened(f"sqlite:{path}?table=t")
    assert sink.send(batch([1, 2])) == {}
    moved = path.with_name("moved.db")
    for suffix in ("", *beside):
        path.with_name(f"out.db{suffix}").rename(moved.with_name(f"moved.db{suffix}"))
    assert sink.send(batch([3])) == {}
    assert sink.send(batch([4])) == {}
    assert (rows(moved), rows(path)) == (["id1", "id2"], ["id3", "id4"])
    sink.close()
    assert (rows(moved), rows(path)) == (["id1", "id2"], ["id3", "id4"])
    assert path.stat().st_mode & 0o777 == 0o600  # only its owner reads it [D12]


def test_a_file_that_was_removed_or_replaced_is_opened_anew__D10(path: Path) -> None:
    sink = opened(f"sqlite:{path}?table=t")
    assert sink.send(batch([1])) == {}
    path.unlink()
    assert sink.send(batch([2])) == {}
    assert rows(path) == ["id2"]
    other = path.with_name("other.db")
    with closing(opened(f"sqlite:{other}?table=t")) as another:
        assert another.send(batch([5])) == {}
    other.rename(path)
    assert sink.send(batch([6])) == {}
    sink.close()
    assert rows(path) == ["id5", "id6"]


@pytest.mark.parametrize("wal_too", [False, True])
def test_a_file_that_is_read_while_it_is_moved_loses_no_row__D5_D10(
    path: Path, beside: sqlite3.Connection, wal_too: bool
) -> None:
    """A new file would take the log, and with it the rows of the moved one."""
    sink = opened(f"sqlite:{path}?table=t", timeout_s=0.1)
    beside.execute("BEGIN")
    assert count(beside) == 0
    assert sink.send(batch([1, 2])) == {}
    moved = path.with_name("moved.db")
    path.rename(moved)
    if wal_too:
        path.with_name("out.db-wal").rename(path.with_name("moved.db-wal"))
    else:
        with pytest.raises(Unavailable, match="another connection still reads it"):
            sink.send(batch([3]))
        beside.execute("COMMIT")
    assert sink.send(batch([3])) == {}
    sink.close()
    beside.close()
    assert (rows(moved), rows(path)) == (["id1", "id2"], ["id3"])


def test_a_file_that_can_not_be_made_anew_is_a_destination_that_is_away__D6_D10(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    sink = opened(f"sqlite:{folder / 'out.db'}?table=t")
    folder.rename(tmp_path / "elsewhere")
    for _ in range(2):
        with pytest.raises(Unavailable, match="unable to open database file"):
            sink.send(batch([1]))
    folder.mkdir()
    with closing(sqlite3.connect(folder / "out.db")) as database:
        database.execute("CREATE TABLE t (id TEXT)")
    with pytest.raises(Unavailable, match=r"has no key, due, .*: add them, or name a new table"):
        sink.send(batch([1]))
    (folder / "out.db").unlink()
    assert sink.send(batch([1])) == {}
    sink.close()
    assert rows(folder / "out.db") == ["id1"]
