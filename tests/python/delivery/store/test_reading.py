"""Reading a store: it may be in use, and is left as it was (rules D2, D5, D9)."""

import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tickwheel.delivery.errors import StoreFailed, WrongUsage
from tickwheel.delivery.store import Store, schema
from tickwheel.delivery.store.reading import reading

Shelf = Any  # of conftest.py


def remember(store: Store, id_: str) -> None:
    with store.transaction():
        store.remember_cancel(None, id_, 1)


def cancels(path: Path) -> int:
    with reading(path) as db:
        [(found,)] = db.execute("SELECT count(*) FROM cancels")
        return int(found)


def files(folder: Path) -> dict[str, tuple[bytes, int]]:
    """The files of a folder, with their times of change."""
    return {it.name: (it.read_bytes(), it.stat().st_mtime_ns) for it in folder.iterdir() if it.is_file()}


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    folder = tmp_path / "closed"
    folder.mkdir()
    store = Store(folder / "s.db")
    remember(store, "a")
    store.close()
    return store.path


def test_an_unused_store_is_left_as_it_was__D5(closed: Path) -> None:
    before = files(closed.parent)
    assert list(before) == ["s.db"]
    assert cancels(closed) == 1
    with pytest.raises(RuntimeError), reading(closed):
        raise RuntimeError
    assert files(closed.parent) == before


def test_several_may_look_at_once_and_the_last_one_tidies_up__D5(closed: Path) -> None:
    before = files(closed.parent)
    with reading(closed) as first:
        assert cancels(closed) == 1
        assert first.execute("SELECT count(*) FROM cancels").fetchone() == (1,)
    assert files(closed.parent) == before


def test_a_store_in_use_is_seen_as_committed_without_any_wait__D9(closed: Path) -> None:
    store = Store(closed)
    remember(store, "b")
    with reading(closed) as db:
        remember(store, "c")
        assert db.execute("SELECT count(*) FROM cancels").fetchone() == (2,), "one snapshot"
    with store.transaction():
        store.remember_cancel(None, "d", 1)
        assert cancels(closed) == 3
    store.close()
    assert list(files(closed.parent)) == ["s.db"]


def test_a_store_may_be_opened_and_closed_while_it_is_looked_at__D9(closed: Path) -> None:
    with reading(closed) as db:
        store = Store(closed)
        remember(store, "b")
        store.close()
        assert db.execute("SELECT count(*) FROM cancels").fetchone() == (1,)
    assert cancels(closed) == 2
    assert list(files(closed.parent)) == ["s.db"]


def test_what_a_crash_left_stays__D5(closed: Path, tmp_path: Path) -> None:
    store = Store(closed)
    remember(store, "b")
    crashed = tmp_path / "crashed"
    crashed.mkdir()
    for name, (data, _) in files(closed.parent).items():
        if not name.endswith("-shm"):
            (crashed / name).write_bytes(data)
    store.close()
    before = files(crashed)
    assert cancels(crashed / "s.db") == 2
    assert {name: it for name, it in files(crashed).items() if not name.endswith("-shm")} == before


def test_nothing_can_be_written__D5(closed: Path) -> None:
    with pytest.raises(StoreFailed, match="readonly"), reading(closed) as db:
        db.execute("DELETE FROM cancels")


LOOK = """
import os, pathlib, sys
from tickwheel.delivery.errors import DeliveryFailed
from tickwheel.delivery.store.reading import reading
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
path = pathlib.Path(sys.argv[1])
try:
    with reading(path) as db:
        print(db.execute("SELECT count(*) FROM cancels").fetchall(), flush=True)
        sys.stdin.readline()
except DeliveryFailed as error:
    print(error)
"""


def look_without_rights(path: Path) -> "subprocess.Popen[str]":
    for folder in (path.parent.parent, *path.parent.parent.parents[:2]):
        folder.chmod(0o755)
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", LOOK, str(path)], **pipes)


@pytest.mark.parametrize(("folder", "file"), [(0o555, 0o444), (0o777, 0o444), (0o555, 0o666)])
def test_a_user_with_read_access_only_can_look_and_leaves_nothing__D5(closed: Path, folder: int, file: int) -> None:
    closed.chmod(file)
    closed.parent.chmod(folder)
    before = files(closed.parent)
    with look_without_rights(closed) as process:
        output, err = process.communicate("\n", timeout=30)
    assert output == "[(1,)]\n", err
    assert files(closed.parent) == before
    closed.parent.chmod(0o755)


def test_a_change_where_it_cant_be_locked_is_told__D9(closed: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("root alone can write where others may not")
    closed.parent.chmod(0o555)
    with look_without_rights(closed) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "[(1,)]\n"
        store = Store(closed)
        remember(store, "b")
        store.close()
        output, err = process.communicate("\n", timeout=30)
    assert "was changed while it was read" in output, err


@pytest.mark.parametrize(("version", "words"), [(99, r"later version of tickwheel \(99"), (0, "earlier version")])
def test_another_version_is_told_and_left_alone__D2(closed: Path, version: int, words: str) -> None:
    db = sqlite3.connect(closed)
    db.execute(f"PRAGMA user_version = {version}")
    db.close()
    before = files(closed.parent)
    with pytest.raises(WrongUsage, match=words):
        cancels(closed)
    assert files(closed.parent) == before


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_tables_of_the_same_names_do_not_make_a_store__D2(tmp_path: Path, mode: str) -> None:
    db = sqlite3.connect(tmp_path / "theirs.db")
    db.execute(f"PRAGMA journal_mode = {mode}")
    for step in schema._STEPS:
        db.executescript(step)
    db.close()
    before = files(tmp_path)
    with pytest.raises(WrongUsage, match="is not a store of tickwheel: name the file that was given to --store"):
        cancels(tmp_path / "theirs.db")
    assert files(tmp_path) == before


def test_it_must_be_on_a_local_disk__D9(closed: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("1 0 0:1 / / rw - nfs4 host:/ rw\n")
    monkeypatch.setattr("tickwheel.delivery.store.owner._MOUNTS", mounts)
    with pytest.raises(WrongUsage, match="network file system"):
        cancels(closed)
