"""One process at a time has a store, by whatever path it is opened (rule D9)."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tickwheel.delivery import Answer, AsyncDeliveryQueue, DeliveryQueue, StoreFailed, StoreUnavailable, WrongUsage

pytestmark = pytest.mark.timeout(60)

LATER_MS = 4_000_000_000_000

HAVE = """
import logging, sys
logging.basicConfig(stream=sys.stdout, format="%(message)s", level=logging.INFO)
logging.getLogger().handlers[0].addFilter(lambda record: record.levelno == logging.INFO)  # the warning comes later
from tickwheel.delivery import DeliveryQueue
queue = DeliveryQueue(sys.argv[1], to=lambda delivery: None)
print("mine", flush=True)
for line in sys.stdin:
    print(queue.put(line.strip(), due=4_000_000_000_000), flush=True)
queue.close()
"""

Process = subprocess.Popen[str]


@contextmanager
def process(path: Path) -> Iterator[Process]:
    with subprocess.Popen(
        [sys.executable, "-c", HAVE, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as started:
        try:
            yield started
        finally:
            started.kill()


def says(process: Process) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def put(process: Process, id_: str) -> str:
    assert process.stdin is not None
    process.stdin.write(f"{id_}\n")
    process.stdin.flush()
    return says(process)


def opened(path: Path) -> DeliveryQueue:
    return DeliveryQueue(path, to=lambda delivery: None)


def test_the_second_process_waits_names_the_owner_and_takes_over_when_it_has_ended__D9(tmp_path: Path) -> None:
    path = tmp_path / "a store.db"
    with process(path) as first:
        assert says(first) == "mine"
        assert put(first, "a") == "accepted"
        with process(path) as second:
            assert says(second) == f"another process works with {path} (process {first.pid}): waiting for it to end"
            first.send_signal(signal.SIGSTOP)  # still the owner, because it may continue
            with process(path) as third:
                assert f"(process {first.pid})" in says(third)
            first.kill()
            assert says(second) == "mine"
            assert put(second, "a") == "duplicate"


IN_A_WORKER = """
import asyncio, sys
from tickwheel.delivery import AsyncDeliveryQueue, DeliveryQueue
async def use():
    async with AsyncDeliveryQueue(sys.argv[1], to=print):
        pass
asyncio.run(use()) if sys.argv[2] == "async" else DeliveryQueue(sys.argv[1], to=print)
"""


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_process_that_waits_warns_without_any_setting_of_the_log__D9(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "store.db"
    with process(path) as first:
        assert says(first) == "mine"
        command = [sys.executable, "-c", IN_A_WORKER, str(path), kind]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as second:
            assert second.stderr is not None
            warning = second.stderr.readline()
            second.kill()
    assert warning.startswith(f"another process works with {path} (process {first.pid}), and this one waits: ")
    assert "wait_s=" in warning


def _open_async(path: Path, wait_s: float) -> None:
    async def use() -> None:
        async with AsyncDeliveryQueue(path, to=print, wait_s=wait_s):
            pass

    asyncio.run(use())


def _open(path: Path, wait_s: float) -> None:
    DeliveryQueue(path, to=print, wait_s=wait_s).close()


@pytest.mark.parametrize("opens", [_open, _open_async])
@pytest.mark.parametrize("wait_s", [0, 0.05])
def test_a_wait_for_the_store_can_be_limited__D9(
    tmp_path: Path, opens: Callable[[Path, float], None], wait_s: float
) -> None:
    path = tmp_path / "store.db"
    with process(path) as first:
        assert says(first) == "mine"
        with pytest.raises(StoreUnavailable) as refused:
            opens(path, wait_s)
        assert put(first, "a") == "accepted"
    said = f"another process works with {path} (process {first.pid}), and wait_s={wait_s} is over: "
    assert str(refused.value).startswith(said)
    opens(path, wait_s)


@pytest.mark.parametrize("wait_s", [-1, float("nan"), float("inf"), "5", True])
def test_a_wait_that_is_none_is_refused__D9(tmp_path: Path, wait_s: Any) -> None:
    with pytest.raises(WrongUsage, match=r"wait_s is .*: give seconds from 0, or None to wait for ever"):
        _open(tmp_path / "store.db", wait_s)


def test_no_file_beside_the_store_can_be_removed_to_let_a_second_process_in__D9(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with process(path) as first:
        assert says(first) == "mine"
        assert put(first, "a") == "accepted"
        assert not (tmp_path / "store.db.lock").exists()
        (tmp_path / "store.db.lock").touch()
        (tmp_path / "store.db.lock").unlink()
        with process(path) as second:
            assert f"(process {first.pid})" in says(second)
            assert put(first, "b") == "accepted"
            first.kill()
            assert says(second) == "mine"
            assert [put(second, "a"), put(second, "b")] == ["duplicate", "duplicate"]


def test_a_store_that_was_renamed_has_its_owner_still__D9(tmp_path: Path) -> None:
    path, elsewhere = tmp_path / "store.db", tmp_path / "elsewhere.db"
    with process(path) as first:
        assert says(first) == "mine"
        path.rename(elsewhere)
        with process(elsewhere) as second:
            assert f"(process {first.pid})" in says(second)


def test_a_store_that_was_removed_takes_no_more_messages__D9(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    queue = opened(store)
    queue.put("a", due=LATER_MS)
    store.unlink()

    def put_on() -> None:
        for number in range(1_000_000):  # it looks once a second
            queue.put(f"b {number}", due=LATER_MS)

    with pytest.raises(StoreFailed, match="was moved, replaced or removed while it was open; put it back"):
        put_on()
    with pytest.raises(StoreFailed, match="was moved, replaced or removed"):
        queue.close()


def test_a_second_queue_of_one_process_is_refused_at_once_by_whatever_name__D9(tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "store.db")
    with opened(tmp_path / "store.db") as first:
        for other in (tmp_path / "store.db", link):
            with pytest.raises(WrongUsage, match=r"is open in this process already: use that queue, or close it first"):
                opened(other)
        assert first.put("a", due=LATER_MS) is Answer.ACCEPTED
    with opened(link) as second:
        assert second.state("a") is Answer.WAITING


def test_while_another_thread_closes_the_first_the_second_waits__D9(tmp_path: Path) -> None:
    called, held = threading.Event(), threading.Event()

    def send(_: object) -> None:
        called.set()
        held.wait(20)

    first = DeliveryQueue(tmp_path / "store.db", to=send)
    first.put("a", delay_ms=0)
    assert called.wait(20)
    closing = threading.Thread(target=first.close)
    closing.start()
    found: list[object] = []

    def wait() -> None:
        while True:
            try:
                with opened(tmp_path / "store.db") as second:
                    found.append(second.state("a"))
                return
            except WrongUsage:  # the other thread has not begun yet
                found.clear()

    waiting = threading.Thread(target=wait)
    waiting.start()
    waiting.join(0.3)
    assert (found, waiting.is_alive()) == ([], True)
    held.set()
    closing.join(20)
    waiting.join(20)
    assert found == [Answer.DELIVERED]
    first.close()  # once more does nothing


def test_of_two_threads_that_open_a_store_at_once_one_gets_it__D9(tmp_path: Path) -> None:
    together = threading.Barrier(2)
    found: list[object] = []

    def take() -> None:
        together.wait(20)
        try:
            found.append(opened(tmp_path / "store.db"))
        except WrongUsage:
            found.append(None)

    threads = [threading.Thread(target=take) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    [queue] = [it for it in found if isinstance(it, DeliveryQueue)]
    assert len(found) == 2
    queue.close()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_does_not_keep_the_store__D9(tmp_path: Path) -> None:
    queue = opened(tmp_path / "store.db")
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    try:
        queue.close()
        with process(tmp_path / "store.db") as second:
            assert says(second) == "mine"
    finally:
        os.close(writing)
        os.close(reading)
        os.waitpid(child, 0)


def test_another_name_for_the_same_store_is_the_same_store__D9(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    path = tmp_path / "real" / "store.db"
    path.touch()
    (tmp_path / "folder").symlink_to("real")
    (tmp_path / "link.db").symlink_to(path)
    with opened(path):
        for other in (
            tmp_path / "folder" / "store.db",
            tmp_path / "real" / ".." / "real" / "store.db",
            tmp_path / "link.db",
        ):
            with process(other) as second:
                assert f"(process {os.getpid()})" in says(second), other


def test_a_relative_path_is_taken_from_here__D9(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with opened(Path("store.db")), process(tmp_path / "store.db") as second:
        assert f"(process {os.getpid()})" in says(second)
