"""A sync of the disk fails, at each place of a short run: the process ends, and nothing it answered is lost (D6)."""

import json
import re
import shutil
import signal
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path

import pytest

from delivery.webhook_receiver import Receiver

from .conftest import Server, ask

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(shutil.which("strace") is None, reason="there is no strace"),
]


@pytest.mark.parametrize(
    ("name", "sync"),
    [("s.db-wal", sync) for sync in range(1, 13)] + [("s.db", sync) for sync in (1, 2, 3)] + [("", 1)],
)
def test_a_sync_that_fails_ends_the_process_and_what_it_answered_is_delivered__D6(
    name: str, sync: int, tmp_path: Path, receiver: Receiver, start: Callable[..., Server]
) -> None:
    store, trace = tmp_path / "store" / "s.db", tmp_path / "trace"
    store.parent.mkdir()
    fails = f"inject=fsync,fdatasync:error=EIO:when={sync}{'' if name else '+'}"
    traced = ["strace", "-f", "-D", "-o", str(trace), "-P", str(store.parent / name), "-e", "trace=fsync,fdatasync"]
    first = start(store, "--to", receiver.url, before=[*traced, "-e", fails])
    line, accepted = first.says(), set()
    port = int(line.rpartition(":")[2]) if line.startswith("listening") else None
    for number in range(2_000):
        if port is None or first.process.poll() is not None:
            break
        with suppress(OSError, HTTPException):  # it may end at any moment
            reply = ask(port, "POST", "/messages", {"id": f"m{number}", "delay_ms": number % 4 * 400})
            assert reply.status in (201, 503)
            if reply.status == 201:
                accepted.add(f"m{number}")
    assert first.process.stderr is not None
    said = line + first.process.stderr.read()
    assert first.process.wait() == 3, said
    assert "INJECTED" in trace.read_text()
    why = "a sync of the disk failed: disk I/O error" if name else r"Input/output error \(os error 5\)"
    text = rf"Failed: the store \S+s\.db can't be used: {why}; check the disk, and run again"
    assert re.search(text, " ".join(said.split()))
    if accepted and name == "s.db":
        assert store.with_name("s.db-wal").stat().st_size, "no sync that came later has removed the log"
    second = start(store, "--to", receiver.url).listening()
    while second.ask("GET", "/status").body["waiting"]:
        pass
    assert second.kill(signal.SIGTERM) == 0
    sent = defaultdict[str, list[bool]](list)
    for _, body in receiver.requests:
        message = json.loads(body)
        sent[message["id"]].append(message["redelivered"])
    assert accepted <= sent.keys(), "each that was answered"
    assert all(all(marks[1:]) for marks in sent.values()), "once, or marked"
