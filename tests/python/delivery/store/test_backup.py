"""`tickwheel store backup`, `restore` and `compact` (rule D20)."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Sequence
from contextlib import closing
from datetime import datetime
from functools import partial
from pathlib import Path

import pytest

from tickwheel.delivery import (
    Answer,
    Delivery,
    DeliveryQueue,
    StoreFailed,
    WrongUsage,
    backup_store,
    check_store,
    compact_store,
    restore_store,
)
from tickwheel.delivery.sinks import Refusals, Sink, SinkSettings

pytestmark = pytest.mark.timeout(60)

LATER_MS = 4_000_000_000_000


class Noting(Sink):
    """Keeps what it gets, and what it is asked for; it says that it has `there`."""

    def __init__(
        self, settings: SinkSettings, got: list[Delivery], asked: list[str], there: Collection[str] = ()
    ) -> None:
        self.got, self.asked, self.there = got, asked, there

    def send(self, deliveries: Sequence[Delivery]) -> Refusals:
        self.got += deliveries
        return {}

    def arrived(self, suspects: Sequence[Delivery], position: str | None) -> Collection[int]:
        self.asked += [it.message.id for it in suspects]
        return {it.seq for it in suspects if it.message.id in self.there}


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_backup_is_one_moment_of_a_store_that_delivers__D20(tmp_path: Path) -> None:
    store, copy = tmp_path / "store.db", tmp_path / "copy.db"
    with DeliveryQueue(store, to=lambda _: None) as queue:
        queue.put_many([{"id": f"{number}", "due": LATER_MS} for number in range(3000)])
        stop = threading.Event()

        def put() -> None:
            number = 0
            while not stop.is_set():
                queue.put(f"more {number}", delay_ms=0)
                number += 1

        thread = threading.Thread(target=put)
        thread.start()
        checked = backup_store(store, copy)
        stop.set()
        thread.join()
        assert queue.put("after", due=LATER_MS) is Answer.ACCEPTED
        assert (checked.problems, checked.waiting >= 3000) == ((), True)
        assert check_store(copy) == checked
        assert check_store(store).messages > checked.messages
    assert files(tmp_path) == ["copy.db", "store.db"]


def test_a_backup_is_never_written_over_anything__D20(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    DeliveryQueue(store, to=lambda _: None).close()
    (tmp_path / "there").write_bytes(b"mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for to in ("there", "link", "store.db"):
        with pytest.raises(WrongUsage, match="exists: name a new file"):
            backup_store(store, tmp_path / to)
    assert (tmp_path / "there").read_bytes() == b"mine"
    assert files(tmp_path) == ["link", "store.db", "there"]


def test_a_backup_that_fails_leaves_nothing__D20(tmp_path: Path) -> None:
    with pytest.raises(WrongUsage, match="there is no store"):
        backup_store(tmp_path / "missing.db", tmp_path / "copy.db")
    store = tmp_path / "store.db"
    DeliveryQueue(store, to=lambda _: None).close()
    with pytest.raises(WrongUsage, match=r"there is no folder .*no folder: make it, or name another file"):
        backup_store(store, tmp_path / "no folder" / "copy.db")
    assert files(tmp_path) == ["store.db"]


def test_what_a_killed_backup_left_is_in_nobodys_way__D20(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    DeliveryQueue(store, to=lambda _: None).close()
    (tmp_path / "copy.db.part").write_bytes(b"half" * 5000)
    (tmp_path / "copy.db.part-journal").write_bytes(b"half")
    backup_store(store, tmp_path / "copy.db")
    assert files(tmp_path) == ["copy.db", "store.db"]


def test_a_backup_may_be_read_by_those_who_may_read_the_store__D20(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    DeliveryQueue(store, to=lambda _: None).close()
    store.chmod(0o600)
    backup_store(store, tmp_path / "copy.db")
    restore_store(tmp_path / "copy.db", tmp_path / "again.db")
    assert [oct((tmp_path / name).stat().st_mode & 0o777) for name in ("copy.db", "again.db")] == ["0o600"] * 2


def test_a_backup_delivers_nothing_before_it_is_restored__D20(tmp_path: Path) -> None:
    store, copy = tmp_path / "store.db", tmp_path / "copy.db"
    with DeliveryQueue(store, to=lambda _: None) as queue:
        queue.put("a", due=LATER_MS)
    backup_store(store, copy)
    before = copy.read_bytes()
    with pytest.raises(
        WrongUsage, match="is a backup, which delivers nothing: make a store of it with tickwheel store"
    ):
        DeliveryQueue(copy, to=lambda _: None)
    assert copy.read_bytes() == before
    restore_store(copy, tmp_path / "again.db")
    with DeliveryQueue(tmp_path / "again.db", to=lambda _: None) as queue:
        assert queue.state("a") is Answer.WAITING
        assert queue.put("a", due=LATER_MS) is Answer.DUPLICATE


def test_a_restored_store_asks_for_what_may_have_arrived_and_marks_the_rest__D20(tmp_path: Path) -> None:
    store, copy = tmp_path / "store.db", tmp_path / "copy.db"
    now_ms = time.time_ns() // 1_000_000
    got: list[Delivery] = []
    asked: list[str] = []
    with DeliveryQueue(store, to=partial(Noting, got=got, asked=asked)) as queue:
        queue.put_many([{"id": name, "due": now_ms + 700} for name in ("there", "lost")])
        queue.put("later", due=now_ms + 3_600_000)
        backup_store(store, copy)
        while len(queue) > 1:
            queue.wait_until_empty(0.01)
        queue.put("after the backup", delay_ms=0)
        while len(queue) > 1:
            queue.wait_until_empty(0.01)
    assert sorted(it.message.id for it in got) == ["after the backup", "lost", "there"]
    before = {it.message.id: it.seq for it in got}
    got.clear()
    asked.clear()
    assert restore_store(copy, store, force=True) == store.with_name("store.db.replaced")
    with DeliveryQueue(store, to=partial(Noting, got=got, asked=asked, there=("there",))) as queue:
        assert queue.put("new", delay_ms=0) is Answer.ACCEPTED
        while len(queue) > 1:
            queue.wait_until_empty(0.01)
    assert sorted(asked) == ["lost", "there"]
    assert sorted((it.message.id, it.redelivered) for it in got) == [("lost", True), ("new", False)]
    seqs = {it.message.id: it.seq for it in got}
    assert seqs["lost"] == before["lost"], "the same message has the same number"
    assert seqs["new"] > max(before.values()) + 1_000_000_000, "and no other message ever had this one"


def test_after_a_restore_occurrences_that_came_since_the_backup_are_marked__D19_D20(tmp_path: Path) -> None:
    store, copy = tmp_path / "store.db", tmp_path / "copy.db"
    got: list[Delivery] = []

    def due_ms(it: Delivery) -> float:
        return datetime.fromisoformat(it.message.id.rpartition("@")[2]).timestamp() * 1000

    def wait_for(count: int) -> None:
        while len(got) < count:
            time.sleep(0.005)

    with DeliveryQueue(store, to=got.append) as queue:
        queue.put("beat", every=100, missed="all", delay_ms=0)
        wait_for(2)
        backup_store(store, copy)
        wait_for(len(got) + 4)
    before = {it.message.id for it in got}
    restored_ms = time.time_ns() // 1_000_000
    got.clear()
    restore_store(copy, store, force=True)
    with DeliveryQueue(store, to=got.append):
        while not got or due_ms(got[-1]) <= restored_ms + 300:
            time.sleep(0.005)
    again = {it.message.id: it.redelivered for it in got}
    assert len(again.keys() & before) >= 4
    assert all(again[id_] for id_ in again.keys() & before)
    assert not got[-1].redelivered


def test_no_two_restores_give_out_one_number__D20(tmp_path: Path) -> None:
    store, copy = tmp_path / "store.db", tmp_path / "copy.db"
    DeliveryQueue(store, to=lambda _: None).close()
    backup_store(store, copy)
    seqs = set()
    for name in ("one.db", "two.db"):
        restore_store(copy, tmp_path / name)
        got: list[Delivery] = []
        with DeliveryQueue(tmp_path / name, to=partial(Noting, got=got, asked=[])) as queue:
            queue.put_many([{"id": str(number), "delay_ms": 0} for number in range(100)])
            assert queue.wait_until_empty(20)
        seqs |= {it.seq for it in got}
    assert len(seqs) == 200
    backup_store(tmp_path / "two.db", tmp_path / "of two.db")
    restore_store(tmp_path / "of two.db", tmp_path / "three.db")
    assert last_seq(tmp_path / "three.db") > max(seqs)


def last_seq(store: Path) -> int:
    with closing(sqlite3.connect(store)) as db:
        [(last,)] = db.execute("SELECT value FROM meta WHERE name = 'last_seq'")
    return int(last)


def test_a_store_that_is_there_is_replaced_only_by_force_and_stays__D20(tmp_path: Path) -> None:
    store, copy = tmp_path / "store.db", tmp_path / "copy.db"
    with DeliveryQueue(store, to=lambda _: None) as queue:
        queue.put("a", due=LATER_MS)
        backup_store(store, copy)
        queue.put("b", due=LATER_MS)
        with pytest.raises(WrongUsage, match="this process works with"):
            restore_store(copy, store, force=True)
    before = store.read_bytes()
    with pytest.raises(WrongUsage, match="exists: name a new file, or give --force"):
        restore_store(copy, store)
    assert store.read_bytes() == before
    for number, kept in enumerate(("store.db.replaced", "store.db.replaced.2")):
        assert restore_store(copy, store, force=True) == tmp_path / kept
        assert check_store(tmp_path / kept).waiting == 2 - number
    assert files(tmp_path) == ["copy.db", "store.db", "store.db.replaced", "store.db.replaced.2"]
    with pytest.raises(WrongUsage, match="is the backup itself"):
        restore_store(copy, copy, force=True)


def test_a_store_that_can_not_be_read_is_replaced_with_its_log__D20(tmp_path: Path) -> None:
    store, copy = tmp_path / "store.db", tmp_path / "copy.db"
    with DeliveryQueue(store, to=lambda _: None) as queue:
        queue.put("a", due=LATER_MS)
    backup_store(store, copy)
    store.write_bytes(b"no database at all " * 500)
    (tmp_path / "store.db-wal").write_bytes(b"nor its log")
    assert restore_store(copy, store, force=True) == tmp_path / "store.db.replaced"
    assert check_store(store).waiting == 1
    assert files(tmp_path) == ["copy.db", "store.db", "store.db.replaced", "store.db.replaced-wal"]


def test_a_damaged_backup_is_restored_only_by_force__D20(tmp_path: Path) -> None:
    store, copy = tmp_path / "store.db", tmp_path / "copy.db"
    with DeliveryQueue(store, to=lambda _: None) as queue:
        queue.put("a", due=LATER_MS)
    backup_store(store, copy)
    with closing(sqlite3.connect(copy)) as db, db:
        db.execute("UPDATE messages SET name = 9")
    with pytest.raises(StoreFailed, match="digest is not that of their key and id"):
        restore_store(copy, tmp_path / "again.db")
    assert files(tmp_path) == ["copy.db", "store.db"]
    restore_store(copy, tmp_path / "again.db", force=True)
    assert files(tmp_path) == ["again.db", "copy.db", "store.db"]


HOLD = """if True:
    import sys
    from tickwheel.delivery import DeliveryQueue
    with DeliveryQueue(sys.argv[1], to=lambda _: None) as queue:
        print("open", flush=True)
        sys.stdin.read()
"""


def test_a_store_that_another_process_delivers_is_neither_compacted_nor_replaced__D20(tmp_path: Path) -> None:
    store, copy = tmp_path / "store.db", tmp_path / "copy.db"
    DeliveryQueue(store, to=lambda _: None).close()
    backup_store(store, copy)
    command = [sys.executable, "-c", HOLD, str(store)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        try:
            assert owner.stdout is not None
            assert owner.stdout.readline() == b"open\n"
            with pytest.raises(WrongUsage, match=rf"another process works with .* \(process {owner.pid}\)"):
                compact_store(store)
            with pytest.raises(WrongUsage, match=rf"another process works with .* \(process {owner.pid}\)"):
                restore_store(copy, store, force=True)
            assert backup_store(store, tmp_path / "second.db").problems == ()
        finally:
            owner.kill()


def test_compact_gives_the_room_back__D20(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    with DeliveryQueue(store, to=lambda _: None, keep_ids_days=7) as queue:
        queue.put_many([{"id": str(number), "payload": "x" * 1000, "delay_ms": 0} for number in range(2000)])
        assert queue.wait_until_empty(20)
        queue.put("a", "kept", due=LATER_MS)
        with pytest.raises(WrongUsage, match="this process works with"):
            compact_store(store)
    with DeliveryQueue(store, to=lambda _: None):
        pass
    with closing(sqlite3.connect(store)) as db, db:
        db.execute("DELETE FROM bodies WHERE seq <= 2000")
    size = store.stat().st_size
    compacted = compact_store(store)
    assert (compacted.before, compacted.after) == (size, store.stat().st_size)
    assert compacted.after < size / 3
    assert (check_store(store).problems, files(tmp_path)) == ((), ["store.db"])
    with DeliveryQueue(store, to=lambda _: None) as queue:
        assert queue.put("a", "kept", due=LATER_MS) is Answer.DUPLICATE


def test_the_commands_say_what_they_did__D20(tmp_path: Path) -> None:
    store, copy = tmp_path / "store.db", tmp_path / "copy.db"
    with DeliveryQueue(store, to=lambda _: None) as queue:
        queue.put("a", due=LATER_MS)
    assert run("backup", store, copy) == (0, f"{copy}: messages 1, waiting 1.\n", "")
    code, out, _ = run("compact", store)
    assert (code, out.startswith(f"{store}: ")) == (0, True)
    code, _, err = run("restore", copy, store)
    assert (code, f"{store} exists" in err) == (2, True)
    code, out, _ = run("restore", copy, store, "--force")
    assert code == 0
    restored = f"{store}: restored. To deliver from it, run with --store {store}"
    assert out.splitlines() == [f"The store that was there is {store}.replaced now.", restored]


def run(*arguments: object) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "tickwheel", "store", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50)
    return done.returncode, done.stdout, done.stderr


def test_a_signal_ends_a_check_and_a_backup_and_nothing_is_left__D13(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    with DeliveryQueue(store, to=lambda _: None) as queue:
        queue.put_many([{"id": str(number), "payload": "x" * 500, "due": LATER_MS} for number in range(30_000)])

    class Ended(Exception):
        pass

    def end(*_: object) -> None:
        raise Ended

    before = signal.signal(signal.SIGUSR1, end)
    try:
        for work in (partial(check_store, store), partial(backup_store, store, tmp_path / "copy.db")):
            timer = threading.Timer(0.03, os.kill, [os.getpid(), signal.SIGUSR1])
            timer.start()
            with pytest.raises(Ended):
                work()
            timer.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert files(tmp_path) == ["store.db"]
    assert check_store(store).problems == ()


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal", ".lock"])
def test_a_name_that_sqlite_uses_beside_a_store_is_no_backup_and_no_store__D20(tmp_path: Path, suffix: str) -> None:
    store, backup, link = tmp_path / "s.db", tmp_path / "b.db", tmp_path / "link.db"
    DeliveryQueue(store, to=lambda _: None).close()
    backup_store(store, backup)
    link.symlink_to(store)
    refused = pytest.raises(WrongUsage, match="the name of a file that SQLite keeps for")
    for source in (store, link, backup):
        with refused:
            backup_store(source, f"{store}{suffix}")
    with DeliveryQueue(store, to=lambda _: None), refused:
        restore_store(backup, f"{store}{suffix}", force=True)
    for force in (False, True):
        with refused:
            restore_store(backup, f"{store}{suffix}", force=force)
    with refused:
        DeliveryQueue(f"{store}{suffix}", to=lambda _: None)
    assert files(tmp_path) == ["b.db", "link.db", "s.db"]


def test_a_backup_is_no_file_of_a_store_whose_name_is_not_utf_8__D20(tmp_path: Path) -> None:
    store = os.fsdecode(os.fsencode(tmp_path) + b"/s\xff.db")
    DeliveryQueue(store, to=lambda _: None).close()
    with pytest.raises(WrongUsage, match="the name of a file that SQLite keeps for"):
        backup_store(store, f"{store}-wal")


def test_the_log_of_a_store_that_was_moved_away_is_left_alone__D5_D20(tmp_path: Path) -> None:
    store, backup, log = tmp_path / "s.db", tmp_path / "b.db", tmp_path / "s.db-wal"
    DeliveryQueue(store, to=lambda _: None).close()
    backup_store(store, backup)
    store.rename(tmp_path / "moved.db")
    log.write_bytes(b"messages that were committed")
    for begin in (
        lambda: restore_store(backup, store),
        lambda: DeliveryQueue(store, to=lambda _: None),
        lambda: DeliveryQueue(store, to="postgresql://127.0.0.1:1/x?table=t"),
    ):
        with pytest.raises(WrongUsage, match="there is its log"):
            begin()
        assert log.read_bytes() == b"messages that were committed"
        assert not store.exists()
