"""A start that fails leaves nothing behind that was not there before (rule D13)."""

import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tickwheel.delivery import DeliveryFailed, DeliveryQueue, WrongUsage
from tickwheel.delivery.sinks import Sink, SinkSettings

pytestmark = pytest.mark.timeout(60)


def run(*arguments: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tickwheel", *map(str, arguments)]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=50)


class Closed(Sink):
    def __init__(self, settings: SinkSettings) -> None:
        raise DeliveryFailed("the destination is closed for ever")

    send = None  # type: ignore[assignment]


def test_a_destination_that_can_not_be_opened_leaves_no_store__D13(tmp_path: Path) -> None:
    with pytest.raises(DeliveryFailed, match="closed for ever"):
        DeliveryQueue(tmp_path / "store.db", to=Closed)
    with pytest.raises(WrongUsage):
        DeliveryQueue(tmp_path / "store.db", to=f"file:{tmp_path / 'no folder' / 'out'}")
    assert [*tmp_path.iterdir()] == []


def test_a_store_that_was_there_stays__D13(tmp_path: Path) -> None:
    with DeliveryQueue(tmp_path / "store.db", to=lambda _: None):
        pass
    before = (tmp_path / "store.db").read_bytes()
    with pytest.raises(DeliveryFailed, match="closed for ever"):
        DeliveryQueue(tmp_path / "store.db", to=Closed)
    assert (tmp_path / "store.db").read_bytes()[:16] == before[:16]
    (tmp_path / "empty.db").touch()
    with pytest.raises(DeliveryFailed, match="closed for ever"):
        DeliveryQueue(tmp_path / "empty.db", to=Closed)
    assert (tmp_path / "empty.db").exists()


def test_a_queue_that_took_nothing_keeps_its_store__D13(tmp_path: Path) -> None:
    with DeliveryQueue(tmp_path / "store.db", to=lambda _: None):
        pass
    assert (tmp_path / "store.db").exists()


@pytest.mark.parametrize("wrong", [["--horizon", "0"], ["--to", "file:{}/no folder/out"], ["--to", "mysql://x"]])
def test_a_command_that_is_refused_leaves_nothing__D13(wrong: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    given = [part.format(tmp_path) for part in wrong]
    done = run("deliver", "-", "--store", folder / "s.db", "--dead-letters", folder / "dead", *given)
    assert done.returncode == 2, done.stderr
    assert [*folder.iterdir()] == []


def test_a_port_that_is_taken_leaves_no_store__D13(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run("serve", "--store", tmp_path / "s.db", "--listen", address)
    assert done.returncode in (2, 3), done.stderr
    assert [*tmp_path.iterdir()] == []


NO_THREADS = """if True:
    import os, resource, sys, threading
    from tickwheel.delivery import DeliveryFailed, DeliveryQueue

    def threads():
        return len(os.listdir("/proc/self/task"))

    path, mib = sys.argv[1], int(sys.argv[2])
    with DeliveryQueue(path + ".first", to=lambda _: None) as first:
        first.put("a", delay_ms=0)
        assert first.wait_until_empty(20)
    before = threads()
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + mib * 2**20, resource.RLIM_INFINITY))
    try:
        DeliveryQueue(path, to=lambda _: None).close()
        ended = "opened"
    except DeliveryFailed as error:
        ended = str(error).split(":")[0]
    except MemoryError:
        ended = "no memory"
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print(ended, os.path.exists(path))
    with DeliveryQueue(path, to=lambda _: None) as again:
        again.put("a", delay_ms=0)
        assert again.wait_until_empty(20)
    while threads() > before:  # they end by themselves
        pass
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limit of memory is Linux's")
def test_a_start_that_gets_no_thread_leaves_nothing__D13(tmp_path: Path) -> None:
    ended = set()
    for mib in range(3, 24, 2):  # a thread takes two and a bit, and a queue starts ten
        store = tmp_path / f"{mib}.db"
        command = [sys.executable, "-c", NO_THREADS, str(store), str(mib)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=50)
        assert done.returncode == 0, (mib, done.stdout, done.stderr)
        ended.add(done.stdout.strip())
    assert "the system gives no thread False" in ended
    assert ended <= {"the system gives no thread False", "opened True", "no memory False"}


@pytest.mark.parametrize("to", ["file:{}/out", "sqlite:{}/out.db?table=T"])
@pytest.mark.parametrize("port", ["--listen", "--health"])
def test_a_port_that_is_taken_leaves_no_output__D13(port: str, to: str, tmp_path: Path) -> None:
    pytest.importorskip("uvicorn")
    other = [] if port == "--listen" else ["--listen", "127.0.0.1:0"]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        given = ["--to", to.format(tmp_path), port, address, *other, "--dead-letters", tmp_path / "dead"]
        done = run("serve", "--store", tmp_path / "s.db", *given)
    assert done.returncode == 2, done.stderr
    assert [*tmp_path.iterdir()] == []


def test_an_output_that_was_there_stays__D13(tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    records = '{"id": "a", "delay_ms": 1}\n'
    given = ["--store", tmp_path / "s.db", "--to", f"file:{tmp_path / 'out'}", "--record", "/proc/none"]
    assert run("deliver", "-", *given, stdin=records).returncode == 3
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    (tmp_path / "out").unlink()
    assert run("deliver", "-", *given, stdin=records).returncode == 3
    assert [*tmp_path.iterdir()] == []


def test_a_table_that_does_not_fit_gets_no_other_table_beside_it__D13(tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE T (id TEXT)")
    done = run("deliver", "-", "--store", tmp_path / "s.db", "--to", f"sqlite:{path}?table=T")
    assert (done.returncode, "has no key, due" in done.stderr) == (3, True), done.stderr
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT name FROM sqlite_master").fetchall() == [("T",)]
    assert [file.name for file in tmp_path.iterdir()] == ["out.db"]


def test_a_start_that_may_write_no_file_leaves_none__D13(tmp_path: Path) -> None:
    limit = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (20_480, 20_480)); "
    main = "from tickwheel.cli import main; main()"
    given = ["deliver", "-", "--store", str(tmp_path / "s.db"), "--to", "file:/dev/null"]
    done = subprocess.run([sys.executable, "-c", limit + main, *given], capture_output=True, text=True, timeout=50)
    assert (done.returncode, "how large a file may be (ulimit -f)" in done.stderr) == (3, True), done.stderr
    assert [*tmp_path.iterdir()] == []
