"""Opening existing files: a store, another program's file, a broken, an older or a newer store (rules D2, D5)."""

import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tickwheel.delivery.errors import StoreFailed, WrongUsage
from tickwheel.delivery.store import Store, schema

Shelf = Any  # of conftest.py


def test_a_store_of_a_later_version_is_refused_and_left_alone__D2(shelf: Shelf) -> None:
    shelf.open().close()
    db = sqlite3.connect(shelf.path)
    db.execute("PRAGMA user_version = 99")
    db.close()
    before = shelf.path.read_bytes()
    with pytest.raises(WrongUsage, match=r"later version of tickwheel \(99, this one knows"):
        shelf.open()
    assert shelf.path.read_bytes() == before


def test_a_database_of_another_program_is_refused_and_left_alone__D2(shelf: Shelf) -> None:
    db = sqlite3.connect(shelf.path)
    db.execute("CREATE TABLE theirs (x)")
    db.close()
    before = shelf.path.read_bytes()
    with pytest.raises(WrongUsage, match="another program: name another file"):
        shelf.open()
    assert shelf.path.read_bytes() == before


@pytest.mark.parametrize("data", [b"this is a text, not a database\n" * 100, os.urandom(8192)])
def test_what_is_not_a_database_is_refused_and_left_alone__D2(shelf: Shelf, data: bytes) -> None:
    shelf.path.write_bytes(data)
    with pytest.raises(StoreFailed, match="not a store, or damaged: name another file"):
        shelf.open()
    assert shelf.path.read_bytes() == data


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_a_store_that_was_cut_off_is_refused_with_advice__D2(shelf: Shelf, share: float) -> None:
    shelf.open().close()
    data = shelf.path.read_bytes()
    shelf.path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(StoreFailed, match="not a store, or damaged: name another file, or restore it"):
        shelf.open()


def test_an_empty_file_becomes_a_store(shelf: Shelf) -> None:
    shelf.path.touch()
    assert len(shelf.open().store_id) == 32


def test_a_store_keeps_its_own_name(shelf: Shelf, tmp_path: Path) -> None:
    first = shelf.open().store_id
    assert shelf.crash().store_id == first
    other = Store(tmp_path / "other.db")
    assert other.store_id != first
    other.close()


def test_every_commit_is_on_disk__D5(store: Store) -> None:
    asked = [store.db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]
    assert asked == ["wal", 2]


def test_a_missing_folder_is_told__D2(tmp_path: Path) -> None:
    with pytest.raises(StoreFailed, match="make it and its folder writable"):
        Store(tmp_path / "nowhere" / "store.db")


READ_ONLY = """
import os, sys
from tickwheel.delivery.store import Store
os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    store = Store(__import__("pathlib").Path(sys.argv[1]))
    with store.transaction():
        store.remember_cancel(None, "a", 1)
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone can become a user that may not write")
@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_store_that_may_not_be_written_is_told__D2(tmp_path: Path, what: str) -> None:
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    path = tmp_path / "store.db"
    if what == "file":
        Store(path).close()
        path.chmod(0o444)
    done = subprocess.run([sys.executable, "-c", READ_ONLY, str(path)], capture_output=True, text=True, timeout=30)
    assert "StoreFailed" in done.stdout, done.stderr
    assert "make it and its folder writable" in done.stdout


def test_a_write_where_only_reading_is_allowed_is_told__D2(store: Store) -> None:
    store.db.execute("PRAGMA query_only = 1")
    with pytest.raises(StoreFailed, match="make it and its folder writable"), store.transaction():
        store.remember_cancel(None, "a", 1)


def test_a_store_named_as_memory_is_a_file__D5(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Store(Path(":memory:")).close()
    assert (tmp_path / ":memory:").exists(), "nothing that is accepted would survive"


@pytest.mark.parametrize("name", ["ä ö.db", "a?b=c#d.db", "file:x.db", "%41.db", "a\nb", b"\xff.db"])
def test_a_store_may_have_any_name(tmp_path: Path, name: str | bytes) -> None:
    path = tmp_path / os.fsdecode(name)
    store = Store(path)
    with store.transaction():
        store.remember_cancel(None, "a", 1)
    store.close()
    assert path.exists()
    again = Store(path)
    assert again.remembered_cancels == 1
    again.close()


def test_an_old_store_is_brought_up_to_date_and_keeps_what_it_has__D5(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = shelf.open()
    with store.transaction():
        store.remember_cancel("k", "a", 1)
    store.close()
    more = ["ALTER TABLE cancels ADD COLUMN note TEXT DEFAULT 'old';", "CREATE TABLE third (x);"]
    monkeypatch.setattr(schema, "_STEPS", [*schema._STEPS, *more])
    for _ in range(2):
        store = shelf.open()
        assert store.db.execute("SELECT key, id, note FROM cancels").fetchall() == [("k", "a", "old")]
        assert store.db.execute("PRAGMA user_version").fetchone()[0] == len(schema._STEPS)
        assert store.db.execute("SELECT count(*) FROM third").fetchone() == (0,)
        store.close()


def test_a_step_that_fails_leaves_the_old_version_and_no_lock__D5(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = shelf.open()
    with store.transaction():
        store.remember_cancel("k", "a", 1)
    store.close()
    with monkeypatch.context() as patch:
        patch.setattr(schema, "_STEPS", [*schema._STEPS, "DELETE FROM cancels; CREATE TABLE cancels (x);"])
        with pytest.raises(StoreFailed, match="already exists") as failed:
            shelf.open()
    other = sqlite3.connect(shelf.path, timeout=0.1)
    other.execute("BEGIN IMMEDIATE")  # not locked, although the error object still exists
    other.close()
    assert failed.value is not None
    assert shelf.open().remembered_cancels == 1
