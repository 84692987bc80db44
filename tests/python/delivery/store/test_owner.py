"""One process at a time has a store, by whatever path it is opened (rule D9)."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tickwheel.delivery.errors import WrongUsage
from tickwheel.delivery.store.owner import Ownership, refuse_network

pytestmark = pytest.mark.timeout(30)

HAVE = """
import sys
from pathlib import Path
from tickwheel.delivery.store.owner import Ownership
owner = Ownership.of(Path(sys.argv[1]), lambda text: print(text, flush=True))
print("mine", flush=True)
sys.stdin.read()
"""


@contextmanager
def process(path: Path) -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(
        [sys.executable, "-c", HAVE, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as started:
        try:
            yield started
        finally:
            started.kill()


def says(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_the_second_process_waits_names_the_owner_and_takes_over_when_it_has_ended__D9(tmp_path: Path) -> None:
    path = tmp_path / "a store.db"
    with process(path) as first:
        assert says(first) == "mine"
        with process(path) as second:
            assert says(second) == f"another process works with {path} (process {first.pid}): waiting for it to end"
            first.send_signal(signal.SIGSTOP)  # still the owner, because it may continue
            with pytest.raises(BlockingIOError):
                lock_now(path)
            first.kill()
            assert says(second) == "mine"
            with process(path) as third:
                assert f"(process {second.pid})" in says(third)


def lock_now(path: Path) -> None:
    import fcntl

    fd = os.open(f"{path}.lock", os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(fd)


def test_in_one_process_too_the_second_waits__D9(tmp_path: Path) -> None:
    first = Ownership.of(tmp_path / "store.db")
    waits, had = threading.Event(), threading.Event()

    def wait() -> None:
        second = Ownership.of(tmp_path / "store.db", lambda text: waits.set())
        had.set()
        second.release()

    thread = threading.Thread(target=wait)
    thread.start()
    assert waits.wait(10)
    assert not had.is_set()
    first.release()
    assert had.wait(10)
    thread.join()
    first.release()  # once more does nothing
    Ownership.of(tmp_path / "store.db").release()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_does_not_keep_the_store__D9(tmp_path: Path) -> None:
    owner = Ownership.of(tmp_path / "store.db")
    reading, writing = os.pipe()
    ready, is_ready = os.pipe()
    child = os.fork()
    if not child:
        os.close(writing)
        os.write(is_ready, b"!")
        os.read(reading, 1)
        os._exit(0)
    os.read(ready, 1)
    try:
        with pytest.raises(BlockingIOError):
            lock_now(tmp_path / "store.db")
        owner.release()
        lock_now(tmp_path / "store.db")
    finally:
        for fd in (writing, reading, ready, is_ready):
            os.close(fd)
        os.waitpid(child, 0)


def test_another_name_for_the_same_store_is_the_same_store__D9(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    path = tmp_path / "real" / "store.db"
    path.touch()
    (tmp_path / "folder").symlink_to("real")
    (tmp_path / "link.db").symlink_to(path)
    owner = Ownership.of(path)
    for other in (
        tmp_path / "folder" / "store.db",
        tmp_path / "real" / ".." / "real" / "store.db",
        tmp_path / "link.db",
    ):
        with process(other) as second:
            assert "another process works with" in says(second), other
    owner.release()


@pytest.mark.parametrize(
    ("path", "why"), [("nowhere/store.db", "there is no folder"), (".", "is a folder: name a file")]
)
def test_a_place_where_no_store_can_be_is_told__D9(tmp_path: Path, path: str, why: str) -> None:
    with pytest.raises(WrongUsage, match=why):
        Ownership.of(tmp_path / path)


def test_a_relative_path_is_taken_from_here__D9(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    owner = Ownership.of(Path("store.db"))
    assert (tmp_path / "store.db.lock").exists()
    owner.release()


def mounts(*each: tuple[str, str]) -> str:
    lines = [
        f"{20 + number} 1 0:{number} / {point} rw,relatime shared:{number} - {kind} source:/x rw,addr=10.0.0.1"
        for number, (point, kind) in enumerate(each)
    ]
    return "\n".join(lines) + "\n"


REFUSED = [
    ("/mnt/x", [("/", "ext4"), ("/mnt/x", "nfs")]),
    ("/mnt/x/deep/er", [("/", "ext4"), ("/mnt/x", "nfs4")]),
    ("/mnt/x", [("/", "ext4"), ("/mnt/x", "cifs")]),
    ("/mnt/x", [("/mnt/x", "fuse.sshfs"), ("/", "ext4")]),
    ("/mnt/a b", [("/", "ext4"), ("/mnt/a\\040b", "nfs")]),
    ("/mnt/a\\b", [("/", "ext4"), ("/mnt/a\\134b", "nfs")]),
    ("/mnt/a\tb\nc", [("/", "ext4"), ("/mnt/a\\011b\\012c", "nfs")]),
    ("/mnt/é", [("/", "ext4"), ("/mnt/é", "nfs")]),
    ("/mnt/日本", [("/", "ext4"), ("/mnt/日本", "nfs")]),
    ("/mnt/\udcff", [("/", "ext4"), ("/mnt/\udcff", "nfs")]),
    ("/mnt/x", [("/", "ext4"), ("/mnt/x", "ext4"), ("/mnt/x", "smb3")]),
    ("/mnt/x/y/z", [("/", "ext4"), ("/mnt/x", "xfs"), ("/mnt/x/y", "ceph")]),
    ("/x", [("/", "nfs")]),
]
TAKEN = [
    ("/mnt/x", [("/", "ext4"), ("/mnt", "xfs")]),
    ("/mnt/xy", [("/", "ext4"), ("/mnt/x", "nfs")]),
    ("/mnt/x/y", [("/", "ext4"), ("/mnt/x", "nfs"), ("/mnt/x/y", "tmpfs")]),
    ("/mnt/x", [("/", "nfs"), ("/mnt/x", "ext4")]),
    ("/mnt/x", [("/", "ext4"), ("/mnt/x", "nfs"), ("/mnt/x", "ext4")]),
    ("/mnt", [("/", "ext4"), ("/mnt/x", "nfs")]),
    ("/mnt/x", [("/", "fuse.gocryptfs"), ("/other", "nfs")]),
]


@pytest.mark.parametrize(("folder", "every"), REFUSED, ids=repr)
def test_a_network_file_system_is_refused__D9(folder: str, every: list[tuple[str, str]]) -> None:
    with pytest.raises(WrongUsage, match=r"on a network file system \(.*use a local disk"):
        refuse_network(Path(folder), mounts(*every))


@pytest.mark.parametrize(("folder", "every"), TAKEN, ids=repr)
def test_a_local_file_system_is_taken__D9(folder: str, every: list[tuple[str, str]]) -> None:
    refuse_network(Path(folder), mounts(*every))


def test_a_mount_with_optional_fields_or_none_is_read__D9() -> None:
    for optional in ("", "shared:1 master:2 propagate_from:3 "):
        text = f"1 0 0:1 / / rw - ext4 x rw\n2 1 0:2 /sub /mnt/x rw,noatime {optional}- nfs4 a - b:/c rw\n"
        with pytest.raises(WrongUsage, match="nfs4"):
            refuse_network(Path("/mnt/x"), text)
