"""D5: a disk that is really full, and a store that can't be written: a clear error, and no accepted message is lost."""

import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tickwheel.delivery import DeliveryQueue, StoreFailed

pytestmark = pytest.mark.timeout(300)

MIB = 1 << 20

FILLING = """
import sys
from tickwheel.delivery import DeliveryQueue, Message, StoreFailed
import msgspec

queue = DeliveryQueue(sys.argv[1], to=lambda delivery: None)
try:
    for number in range(100_000):
        payload = msgspec.Raw(b'"%s"' % (b"x" * 2_000))
        [answer] = queue.put_many([Message(f"message {number}", None, 4_000_000_000_000, payload)])
        print(number, answer, flush=True)
except StoreFailed as error:
    print("failed:", error, file=sys.stderr)
try:
    queue.put("after", delay_ms=5)
except StoreFailed as error:
    print("put:", error, file=sys.stderr)
try:
    queue.close()
except StoreFailed as error:
    print("closed:", error, file=sys.stderr)
"""


@pytest.fixture
def small(tmp_path: Path) -> Iterator[tuple[Path, list[str]]]:
    """A folder for a store with room for some 8 MiB, and the prefix of a command that uses it: a file system of its own
    where one can be mounted, otherwise a limit on the process's files.
    """
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    is_mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    yield folder, [] if is_mounted else ["limited"]
    if is_mounted:
        subprocess.run(["umount", str(folder)], check=True)


def limit() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (8 * MIB, 8 * MIB))


def test_on_a_full_disk_nothing_that_was_accepted_is_lost__D5(small: tuple[Path, list[str]], tmp_path: Path) -> None:
    folder, limits = small
    store = folder / "store.db"
    done = subprocess.run(
        [sys.executable, "-c", FILLING, str(store)],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=limit if limits else None,
    )
    assert done.returncode == 0, done.stderr
    accepted = [int(line.split()[0]) for line in done.stdout.splitlines() if line.endswith("accepted")]
    assert 100 < len(accepted) < 100_000
    for what in ("failed", "put"):
        assert f"{what}: the store {store} can't be written now: " in done.stderr
    closed = next(line for line in done.stderr.splitlines() if line.startswith("closed: "))
    assert closed.startswith(f"closed: the store {store} can't be used: ")
    assert closed.endswith("nothing that was accepted is lost")
    assert "Traceback" not in done.stderr
    larger = tmp_path / "larger"
    larger.mkdir()
    for file in folder.glob("store.db*"):  # as after making room
        (larger / file.name).write_bytes(file.read_bytes())
    with DeliveryQueue(larger / "store.db", to=lambda delivery: None) as queue:
        states = [queue.state(f"message {number}") for number in accepted]
        assert set(states) == {"waiting"}
        assert len(accepted) <= len(queue) <= len(accepted) + 1, "the last one was not answered"


def test_a_store_that_can_not_be_written_is_refused_with_the_reason__D5(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    with DeliveryQueue(store, to=lambda delivery: None) as queue:
        queue.put("a", due=4_000_000_000_000)
    program = "import sys; from tickwheel.cli import main; sys.argv = sys.argv[1:]; main()"
    source = tmp_path / "in.ndjson"
    source.write_text(json.dumps({"id": "b", "due": 4_000_000_000_000}) + "\n")
    command = [sys.executable, "-c", program, "tickwheel", "deliver", str(source), "--store", str(store)]
    limits = (resource.RLIMIT_FSIZE, (0, 0))  # like a full file system, for root too
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, preexec_fn=lambda: resource.setrlimit(*limits)
    )
    assert done.returncode == 3
    assert f"the store {store} can't be used" in done.stderr
    assert "Traceback" not in done.stderr
    with DeliveryQueue(store, to=lambda delivery: None) as queue:
        assert queue.state("a") == "waiting"
        assert queue.state("b") == "unknown"


def test_a_folder_in_which_nothing_can_be_made_is_refused__D5(tmp_path: Path) -> None:
    with pytest.raises(StoreFailed, match=r"can't be used: .*; make it and its folder writable"):
        DeliveryQueue("/proc/store.db", to=lambda delivery: None)
