"""Opening existing files: a store, another program's file, a broken one, one of another format (rules D2, D5, D20)."""

import os
import random
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from delivery.other_users import let_others_reach
from tickwheel.commands import tickwheel
from tickwheel.delivery import (
    Answer,
    DeliveryQueue,
    StoreFailed,
    StoreView,
    WrongUsage,
    backup_store,
    check_store,
    compact_store,
    restore_store,
)

pytestmark = pytest.mark.timeout(30)

LATER_MS = 4_000_000_000_000


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def opened(store: Path) -> DeliveryQueue:
    return DeliveryQueue(store, to=lambda delivery: None)


def make(store: Path) -> None:
    with opened(store) as queue:
        queue.put("a", due=LATER_MS)


def set_format(store: Path, number: int) -> None:
    with closing(sqlite3.connect(store)) as db:
        db.execute(f"PRAGMA user_version = {number}")


def refusal_of(store: Path, number: int) -> str:
    return (
        f"{store} is a store of format {number}, and this tickwheel reads and writes format 12 alone: deliver its"
        " messages with the tickwheel that made it, or name another file"
    )


@pytest.mark.parametrize("number", [0, 1, 4, 5, 99])
def test_a_store_of_another_format_is_refused_in_python_and_left_alone__D20(store: Path, number: int) -> None:
    make(store)
    set_format(store, number)
    before, copy = store.read_bytes(), store.with_name("copy.db")
    for use in (
        lambda: opened(store),
        lambda: StoreView(store).list(),
        lambda: check_store(store),
        lambda: compact_store(store),
        lambda: backup_store(store, copy),
        lambda: restore_store(store, copy),
    ):
        with pytest.raises(WrongUsage) as refused:
            use()
        assert str(refused.value) == refusal_of(store, number)
    assert store.read_bytes() == before
    assert [*store.parent.iterdir()] == [store]


@pytest.mark.parametrize(
    "command",
    [
        "deliver INPUT --store STORE --to file:OUT",
        "serve --store STORE --to file:OUT --listen 127.0.0.1:0",
        "list STORE",
        "show STORE a",
        "status STORE",
        "dead STORE",
        "cancel STORE --id a",
        "pause STORE",
        "report STORE --out OUT",
        "store check STORE",
        "store compact STORE",
        "store backup STORE OUT",
        "store restore STORE OUT",
    ],
)
def test_a_store_of_another_format_is_refused_by_each_command_and_left_alone__D20(store: Path, command: str) -> None:
    make(store)
    set_format(store, 3)
    given, out = store.with_name("in.ndjson"), store.with_name("out")
    given.write_text('{"id": "b", "due": 4000000000000}\n')
    before = store.read_bytes()
    names = {"STORE": str(store), "INPUT": str(given), "OUT": str(out)}
    arguments = [re.sub("STORE|INPUT|OUT", lambda it: names[it[0]], word) for word in command.split()]
    result = CliRunner().invoke(tickwheel, arguments)
    words = " ".join(result.output.split())
    assert (result.exit_code, refusal_of(store, 3) in words) == (2, True), result.output
    assert store.read_bytes() == before
    assert sorted(store.parent.iterdir()) == [given, store]


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
