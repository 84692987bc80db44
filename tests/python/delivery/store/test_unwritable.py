"""A store that can't be written for a while is waited for: calls are refused, and all goes on afterwards (rule D6)."""

import json
import logging
import re
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from delivery.serve.conftest import Served
from tickwheel.delivery import Answer, DeliveryQueue, StoreFailed, StoreUnavailable

pytestmark = pytest.mark.timeout(120)

FAR_MS = 4_000_000_000_000

LOCKS = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
"""


@contextmanager
def locked(store: Path) -> Iterator[int]:
    """Another program holds a lock on the store. Its process id."""
    command = [sys.executable, "-c", LOCKS, str(store)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "locked\n"
        yield program.pid


def wait_until_logged(caplog: pytest.LogCaptureFixture, text: str) -> None:
    while not any(text in record.getMessage() for record in caplog.records):
        threading.Event().wait(0.01)


def test_a_lock_of_another_program_is_waited_for_and_told__D6(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tickwheel.delivery")
    store, arrived = tmp_path / "s.db", []
    with DeliveryQueue(store, to=lambda delivery: arrived.append(delivery.message.id)) as queue:
        queue.put("before", delay_ms=1)
        assert queue.wait_until_empty(30)
        with locked(store) as pid:
            with pytest.raises(StoreUnavailable, match=r"can't be written now: database is locked; try again: it goes"):
                queue.put("refused", delay_ms=1)
            wait_until_logged(caplog, f"process {pid} holds a lock on it; nothing is sent or accepted until then")
            assert not queue.wait_until_empty(0.1)
            with pytest.raises(StoreUnavailable):
                queue.put("refused too", delay_ms=1)
        wait_until_logged(caplog, "the store can be written again, after")
        assert queue.put("refused", delay_ms=1) is Answer.ACCEPTED
        assert queue.state("refused too") is Answer.UNKNOWN
        assert queue.wait_until_empty(30)
    assert arrived == ["before", "refused"]


def test_a_server_says_that_its_store_waits_and_goes_on__D6_D12(tmp_path: Path) -> None:
    served = Served(tmp_path)
    try:
        assert served.ask("POST", "/messages", {"id": "far", "due": FAR_MS}).status == 201
        with locked(Path(served.running.store)):
            reply = served.ask("POST", "/messages", {"id": "a", "due": FAR_MS})
            assert reply.status == 503
            assert reply.body["reason"].endswith("database is locked; try again: it goes on by itself")
            assert served.ask("GET", "/readyz")[:2] == (503, {"status": "store"})
            assert served.ask("GET", "/livez").status == 200
            assert len(served.ask("GET", "/messages").body["messages"]) == 1, "lists can be read"
        while served.running.engine.waits_for_store is not None:
            threading.Event().wait(0.01)
        assert served.ask("GET", "/readyz").status == 200
        assert served.ask("POST", "/messages", {"id": "a", "due": FAR_MS}).body["state"] == "accepted"
    finally:
        served.close()


def test_a_close_while_the_store_is_locked_says_so_and_loses_nothing__D6(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    queue = DeliveryQueue(store, to=lambda delivery: None)
    queue.put("far", due=FAR_MS)
    with locked(store):
        with pytest.raises(StoreUnavailable):
            queue.put("refused", due=FAR_MS)
        with pytest.raises(StoreFailed, match="another program has it open: end that one, and run again"):
            queue.close()
    with DeliveryQueue(store, to=lambda delivery: None) as again:
        assert (again.state("far"), again.state("refused")) == (Answer.WAITING, Answer.UNKNOWN)


def test_what_was_sent_while_the_store_could_not_be_written_is_not_sent_again__D6(tmp_path: Path) -> None:
    store, arrived, goes_on = tmp_path / "s.db", [], threading.Event()

    def send(delivery: object) -> None:
        arrived.append(delivery)
        assert goes_on.wait(60)

    with DeliveryQueue(store, to=send) as queue:
        queue.put_many([{"id": f"m{number}", "due": 1_700_000_000_000} for number in range(3)])
        while len(arrived) < 1:
            threading.Event().wait(0.01)
        with locked(store):
            with pytest.raises(StoreUnavailable):
                queue.put("refused", due=FAR_MS)
            goes_on.set()
        assert queue.wait_until_empty(60)
    assert len(arrived) == 3
    with sqlite3.connect(store) as db:
        assert db.execute("SELECT count(*) FROM ledger WHERE outcome = 1 AND redelivered = 0").fetchone() == (3,)
    db.close()


def test_input_is_read_on_once_the_store_can_be_written__D6_D11(tmp_path: Path) -> None:
    rest, store, out = tmp_path / "rest.ndjson", tmp_path / "s.db", tmp_path / "out.ndjson"
    names = [f"m{number}" for number in range(20_000)]
    lines = [f'{{"id": "{name}", "due": 1700000000000}}\n' for name in names]
    rest.write_text("".join(lines[3:]) + "not JSON\n")
    command = [
        sys.executable,
        "-m",
        "tickwheel",
        "deliver",
        "-",
        str(rest),
        "--store",
        str(store),
        "--to",
        f"file:{out}",
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(lines[0])
        process.stdin.flush()
        while not out.exists() or not out.read_text().endswith("\n"):
            threading.Event().wait(0.01)
        with locked(store):
            process.stdin.writelines(lines[1:3])
            process.stdin.close()
            said = process.stderr.readline()
            while "can't be written now" not in said:
                said = process.stderr.readline()
                assert said, "it has ended"
            threading.Event().wait(6)  # longer than a caller waits
        said = process.stderr.read()
        assert process.wait() == 1, "one line can't be read"
    assert sorted(json.loads(line)["id"] for line in out.read_text().splitlines()) == sorted(names)
    assert re.findall(r"(accepted|delivered|duplicates|dead letters) +(\S+)", said) == [
        ("accepted", "20,000"), ("delivered", "20,000"), ("duplicates", "0"), ("dead letters", "1"),
    ]  # fmt: skip
    again = subprocess.run([*command[:4], *command[5:]], capture_output=True, text=True)
    assert "Nothing new in files that earlier runs have read to the end" in again.stderr
