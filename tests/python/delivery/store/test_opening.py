"""Opening existing files: a store, another program's file, a broken, an older or a newer store (rules D2, D5)."""

import logging
import os
import random
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from delivery.other_users import let_others_reach
from tickwheel.delivery import Answer, DeliveryQueue, StoreFailed, WrongUsage
from tickwheel.delivery.engine.running import Running
from tickwheel.delivery.model.settings import Settings
from tickwheel.delivery.sinks import open_sink

pytestmark = pytest.mark.timeout(30)

VERSION_1 = Path(__file__).parents[4] / "crates/delivery/src/store/upgrade/version_1.sql"
LATER_MS = 4_000_000_000_000


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def opened(store: Path) -> DeliveryQueue:
    return DeliveryQueue(store, to=lambda delivery: None)


def make(store: Path) -> None:
    with opened(store) as queue:
        queue.put("a", due=LATER_MS)


def set_version(store: Path, version: int) -> None:
    with closing(sqlite3.connect(store)) as db:
        db.execute(f"PRAGMA user_version = {version}")


def test_a_store_of_a_later_version_is_refused_and_left_alone__D2(store: Path) -> None:
    make(store)
    set_version(store, 99)
    before = store.read_bytes()
    with pytest.raises((WrongUsage, StoreFailed), match=r"later version of tickwheel \(99, this one knows"):
        opened(store)
    assert store.read_bytes() == before


def test_a_database_of_another_program_is_refused_and_left_alone__D2(store: Path) -> None:
    with closing(sqlite3.connect(store)) as db:
        db.execute("CREATE TABLE theirs (x)")
    before = store.read_bytes()
    with pytest.raises((WrongUsage, StoreFailed), match="another program: name another file"):
        opened(store)
    assert store.read_bytes() == before


@pytest.mark.parametrize("data", [b"this is a text, not a database\n" * 100, os.urandom(8192)], ids=["text", "random"])
def test_what_is_not_a_database_is_refused_and_left_alone__D2(store: Path, data: bytes) -> None:
    store.write_bytes(data)
    with pytest.raises(StoreFailed, match="not a store, or damaged: name another file"):
        opened(store)
    assert store.read_bytes() == data


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_a_store_that_was_cut_off_is_refused_with_advice__D2(store: Path, share: float) -> None:
    make(store)
    data = store.read_bytes()
    store.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(StoreFailed, match="not a store, or damaged: name another file, or restore it"):
        opened(store)


def test_a_store_that_was_damaged_in_the_middle_is_refused_with_advice__D2(store: Path) -> None:
    make(store)
    data = store.read_bytes()
    store.write_bytes(data[:4096] + random.Random(1).randbytes(len(data) - 4096))
    with pytest.raises(StoreFailed, match="not a store, or damaged: name another file, or restore it"):
        opened(store)


def test_an_empty_file_becomes_a_store(store: Path) -> None:
    store.touch()
    make(store)
    with opened(store) as queue:
        assert queue.state("a") is Answer.WAITING


@pytest.mark.parametrize("place", ["nowhere/store.db", "."])
def test_a_place_where_no_store_can_be_is_told__D2(tmp_path: Path, place: str) -> None:
    with pytest.raises(WrongUsage, match=r"there is no folder .*: make it|is a folder: name a file"):
        opened(tmp_path / place)
    assert not list(tmp_path.iterdir()), "a failed start leaves nothing behind"


READ_ONLY = """
import os, sys
from tickwheel.delivery import DeliveryFailed, DeliveryQueue
os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    DeliveryQueue(sys.argv[1], to=lambda delivery: None).put("a", delay_ms=5)
except DeliveryFailed as error:
    print(type(error).__name__, error)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone can become a user that may not write")
@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_store_that_may_not_be_written_is_told__D2(tmp_path: Path, what: str) -> None:
    let_others_reach(tmp_path)
    store = tmp_path / "store.db"
    if what == "file":
        make(store)
        store.chmod(0o444)
    done = subprocess.run([sys.executable, "-c", READ_ONLY, str(store)], capture_output=True, text=True, timeout=30)
    assert "StoreFailed" in done.stdout, done.stderr
    assert "make it and its folder writable" in done.stdout


def test_a_store_named_as_memory_is_a_file__D5(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make(Path(":memory:"))
    assert (tmp_path / ":memory:").exists(), "nothing that is accepted would survive"


@pytest.mark.parametrize("name", ["ä ö.db", "a?b=c#d.db", "file:x.db", "%41.db", "a\nb", b"\xff.db"])
def test_a_store_may_have_any_name(tmp_path: Path, name: str | bytes) -> None:
    store = tmp_path / os.fsdecode(name)
    make(store)
    assert store.exists()
    with opened(store) as queue:
        assert queue.state("a") is Answer.WAITING


def test_a_store_of_version_1_is_stepped_up_after_a_backup_and_keeps_what_it_has__D5(
    store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(sqlite3.connect(store)) as db:
        db.executescript(VERSION_1.read_text())
        before = "\n".join(db.iterdump())
    arrived = []
    with caplog.at_level(logging.INFO, "tickwheel.delivery"):
        queue = DeliveryQueue(store, to=lambda it: arrived.append(it.message.id), keep_ids_days=36_500)
    with queue:
        states = [queue.state(id_, key) for key, id_ in [(None, "a"), ("k", "c"), ("5:g", "g"), ("far", "h")]]
        assert states == [Answer.DELIVERED, Answer.DEAD, Answer.CANCELLED, Answer.WAITING]
        assert queue.put("café", delay_ms=0) is Answer.CANCELLED, "a cancel is remembered"
        while len(queue) > 1:
            queue.wait_until_empty(0.01)
    assert sorted(arrived) == ["b", "d", "f"]
    [backup] = [it for it in store.parent.iterdir() if it != store]
    assert f"it was brought up to date, and as it was it is {backup}" in caplog.text
    with closing(sqlite3.connect(backup)) as db:
        assert "\n".join(db.iterdump()) == before
    with opened(store) as queue:
        assert len(queue) == 1


def test_a_ctrl_c_ends_a_long_step_up_and_leaves_the_store_as_it_was__D13(store: Path) -> None:
    waiting = [(n, LATER_MS + n, f"id {n}") for n in range(1_000, 300_000)]
    with closing(sqlite3.connect(store)) as db:
        db.executescript(VERSION_1.read_text())
        db.executemany("INSERT INTO messages VALUES (?1, ?1, ?2, NULL, ?3, 'fifteen letters', NULL)", waiting)
        db.executemany("INSERT INTO bodies VALUES (?1, '1')", [(n,) for n, _, _ in waiting])
        db.executemany("INSERT INTO waiting VALUES (?2, ?1, NULL, 700, 0)", [(n, due_ms) for n, due_ms, _ in waiting])
        db.commit()
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        with pytest.raises(KeyboardInterrupt):
            opened(store)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not any("stepping" in it.name or "version-1" in it.name for it in store.parent.iterdir())
    with closing(sqlite3.connect(store)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (1,)
    with opened(store) as queue:
        assert len(queue) >= len(waiting)


def test_a_ctrl_c_while_a_store_of_version_1_is_stepped_up_is_not_lost__D13(store: Path) -> None:
    with closing(sqlite3.connect(store)) as db:
        db.executescript(VERSION_1.read_text())

    def interrupt(text: str) -> None:  # where the handler of a signal that came in the meantime runs
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Running(store, open_sink("file:/dev/null"), Settings(), print, waiting=interrupt)
    with opened(store) as queue:  # it was closed, and is of this version
        assert queue.state("h", "far") is Answer.WAITING
