"""A forked child of a process that had a store open at the fork: a lock of SQLite may be held there by a thread that
the child does not have. So what would wait for it is refused (border rule 7).
"""

import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from tickwheel._native import StoreSnapshot
from tickwheel.delivery import Answer, DeliveryQueue, WrongUsage

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]


def in_child(work: Callable[[], object]) -> str:
    """What `work` returns, or raises, in a forked child."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            told = str(work())
        except WrongUsage as error:
            told = f"refused: {error}"
        except BaseException:
            told = traceback.format_exc()
        os.write(writing, told.encode())
        sys.stdout.flush()
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        told = answer.read().decode()
    os.waitpid(child, 0)
    return told


def opened(path: Path) -> DeliveryQueue:
    return DeliveryQueue(path, to=lambda delivery: None)


def put(path: Path) -> Answer:
    with opened(path) as queue:
        return queue.put("a", due=4_000_000_000_000)


def test_a_child_of_a_process_with_an_open_queue_opens_none_and_is_told_what_to_do__rule7(tmp_path: Path) -> None:
    with opened(tmp_path / "store.db") as queue:
        told = in_child(lambda: put(tmp_path / "other.db"))
        assert told.startswith("refused: ")
        assert "spawn or forkserver" in told
        assert queue.put("a", due=4_000_000_000_000) is Answer.ACCEPTED
    assert not (tmp_path / "other.db").exists()


def test_such_a_child_reads_no_store_either__rule7(tmp_path: Path) -> None:
    with opened(tmp_path / "store.db"):
        assert "spawn or forkserver" in in_child(lambda: StoreSnapshot(tmp_path / "store.db"))
    with StoreSnapshot(tmp_path / "store.db"):
        assert "spawn or forkserver" in in_child(lambda: put(tmp_path / "other.db"))


SCRIPT = """
import os, sys
from tickwheel.delivery import DeliveryQueue

def put(path):
    with DeliveryQueue(path, to=lambda delivery: None) as queue:
        print(queue.put("a", due=4_000_000_000_000), flush=True)

def in_child(work):
    child = os.fork()
    if not child:
        work()
        os._exit(0)
    os.waitpid(child, 0)

put(sys.argv[1])
in_child(lambda: put(sys.argv[1]))
in_child(lambda: in_child(lambda: put(sys.argv[2])))
put(sys.argv[2])
"""


def test_a_child_opens_a_queue_where_its_parent_had_none_open__rule7(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, tmp_path / "store.db", tmp_path / "other.db"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50)  # here other tests have stores open
    assert (done.stdout.split(), done.stderr) == (["accepted", "duplicate", "accepted", "duplicate"], "")
