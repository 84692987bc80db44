"""Reading a store: it may be in use, and is left as it was (rules D2, D5, D9)."""

import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from delivery.other_users import let_others_reach
from tickwheel._native import StoreSnapshot
from tickwheel.delivery import Answer, DeliveryQueue
from tickwheel.delivery.base.errors import WrongUsage


def opened(path: Path) -> DeliveryQueue:
    return DeliveryQueue(path, to=lambda delivery: None)


def put(queue: DeliveryQueue, id_: str) -> None:
    assert queue.put(id_, due=4_000_000_000_000) is Answer.ACCEPTED


def count(db: StoreSnapshot) -> int:
    found: int = db.status([])["waiting"]
    return found


def waiting(path: Path) -> int:
    with StoreSnapshot(path) as db:
        return count(db)


def files(folder: Path) -> dict[str, tuple[bytes, int]]:
    """The files of a folder, with their times of change."""
    return {it.name: (it.read_bytes(), it.stat().st_mtime_ns) for it in folder.iterdir() if it.is_file()}


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    folder = tmp_path / "closed"
    folder.mkdir()
    with opened(folder / "s.db") as queue:
        put(queue, "a")
    return folder / "s.db"


def test_an_unused_store_is_left_as_it_was__D5(closed: Path) -> None:
    before = files(closed.parent)
    assert list(before) == ["s.db"]
    assert waiting(closed) == 1
    with pytest.raises(RuntimeError), StoreSnapshot(closed):
        raise RuntimeError
    assert files(closed.parent) == before


def test_several_may_look_at_once_and_the_last_one_tidies_up__D5(closed: Path) -> None:
    before = files(closed.parent)
    with StoreSnapshot(closed) as first:
        assert waiting(closed) == 1
        assert count(first) == 1
    assert files(closed.parent) == before


def test_a_store_in_use_is_seen_as_committed_without_any_wait__D9(closed: Path) -> None:
    with opened(closed) as queue:
        put(queue, "b")
        with StoreSnapshot(closed) as db:
            put(queue, "c")
            assert count(db) == 2, "one snapshot"
        assert waiting(closed) == 3
    assert list(files(closed.parent)) == ["s.db"]


def test_a_store_may_be_opened_and_closed_while_it_is_looked_at__D9(closed: Path) -> None:
    with StoreSnapshot(closed) as db:
        with opened(closed) as queue:
            put(queue, "b")
        assert count(db) == 1
    assert waiting(closed) == 2
    assert list(files(closed.parent)) == ["s.db"]


def test_looking_does_not_let_another_process_in__D9(closed: Path) -> None:
    """POSIX locks are gone once any descriptor of the file is closed, unless the library keeps it open for them."""
    with opened(closed) as queue:
        for _ in range(3):
            assert waiting(closed) == 1
        seen = subprocess.run(
            [sys.executable, "-c", SNEAK, str(closed)], capture_output=True, text=True, timeout=60, check=False
        )
        assert seen.stdout == "another process works with it\n", seen.stderr
        put(queue, "b")
    assert waiting(closed) == 2
    assert list(files(closed.parent)) == ["s.db"]


SNEAK = """
import sqlite3, sys
from tickwheel.delivery import DeliveryQueue
from tickwheel.delivery.engine.running import Running

class Waits(Exception):
    pass

def waiting(text):
    raise Waits

from pathlib import Path
from tickwheel.delivery.model.settings import Settings
from tickwheel.delivery.sinks import sink_of_function
db = sqlite3.connect(sys.argv[1], timeout=0)
db.execute("SELECT count(*) FROM messages").fetchall()
db.close()
try:
    Running(Path(sys.argv[1]), sink_of_function(print), Settings(), print, waiting)
except Waits:
    print("another process works with it")
"""


def test_what_a_crash_left_stays__D5(closed: Path, tmp_path: Path) -> None:
    crashed = tmp_path / "crashed"
    crashed.mkdir()
    with opened(closed) as queue:
        put(queue, "b")
        for name, (data, _) in files(closed.parent).items():
            if not name.endswith("-shm"):
                (crashed / name).write_bytes(data)
    before = files(crashed)
    assert waiting(crashed / "s.db") == 2
    assert {name: it for name, it in files(crashed).items() if not name.endswith("-shm")} == before


LOOK = """
import os, pathlib, sys
from tickwheel._native import StoreSnapshot
from tickwheel.delivery.base.errors import DeliveryFailed
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
path = pathlib.Path(sys.argv[1])
try:
    with StoreSnapshot(path) as db:
        print(db.status([])["waiting"], flush=True)
        sys.stdin.readline()
except DeliveryFailed as error:
    print(error)
"""


def look_without_rights(path: Path) -> "subprocess.Popen[str]":
    let_others_reach(path.parent.parent)
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", LOOK, str(path)], **pipes)


@pytest.mark.parametrize(("folder", "file"), [(0o555, 0o444), (0o777, 0o444), (0o555, 0o666)])
def test_a_user_with_read_access_only_can_look_and_leaves_nothing__D5(closed: Path, folder: int, file: int) -> None:
    closed.chmod(file)
    closed.parent.chmod(folder)
    before = files(closed.parent)
    with look_without_rights(closed) as process:
        output, err = process.communicate("\n", timeout=30)
    assert output == "1\n", err
    assert files(closed.parent) == before
    closed.parent.chmod(0o755)


def test_a_change_where_it_cant_be_locked_is_told__D9(closed: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("root alone can write where others may not")
    closed.chmod(0o644)  # a new store is for its owner alone
    closed.parent.chmod(0o555)
    with look_without_rights(closed) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        with opened(closed) as queue:
            put(queue, "b")
        output, err = process.communicate("\n", timeout=30)
    assert "was changed while it was read" in output, err


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_tables_of_the_same_names_do_not_make_a_store__D2(tmp_path: Path, mode: str) -> None:
    db = sqlite3.connect(tmp_path / "theirs.db")
    db.execute(f"PRAGMA journal_mode = {mode}")
    db.executescript("CREATE TABLE messages (seq); CREATE TABLE waiting (seq); CREATE TABLE meta (name, value)")
    db.close()
    before = files(tmp_path)
    with pytest.raises(WrongUsage, match="is not a store of tickwheel: name the file that was given to --store"):
        waiting(tmp_path / "theirs.db")
    assert files(tmp_path) == before
