"""Deliveries for the tests of sinks, and a child process that dies in the middle of one."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tickwheel._native import Destination
from tickwheel.delivery.model.message import Message
from tickwheel.delivery.sinks import Delivery, Sink, SinkSettings, open_sink

ODD_IDS = [
    "line\nbreak",
    "tab\there",
    "\U0001f600 \u00e4\u00f6",
    "'; DROP TABLE t; --",
    '"',
    "\\",
    "%s {} ?",
    "x" * 5000,
]
JSON = msgspec.Raw(b'{"x": 1.50}')
DUE_MS = 1_700_000_000_000
MIB = 1 << 20


def delivery(
    seq: int = 1,
    id_: str | None = None,
    payload: msgspec.Raw | bytes = JSON,
    key: str | None = "k",
    *,
    redelivered: bool = False,
    attempt: int = 1,
    tenant: str | None = None,
) -> Delivery:
    message = Message(id_ or f"id{seq}", key, DUE_MS, payload, tenant=tenant)
    return Delivery(seq, message, DUE_MS + 2, 1250, attempt, redelivered)


def batch(seqs: Sequence[int]) -> list[Delivery]:
    return [delivery(seq) for seq in seqs]


def opened(spec: str, store_id: str = "store", timeout_s: float = 20.0, run: str = "run") -> Sink:
    opener = open_sink(spec)
    assert not isinstance(opener, Destination)
    return opener(SinkSettings(store_id, timeout_s, run))


_CHILD = """
import sys, time
from delivery.sinks.making import batch, opened

class Stuck(list):
    def __iter__(self):
        for place, one in enumerate(list.__iter__(self)):
            if place == {stuck_at}:
                print("stuck", flush=True)
                time.sleep(600)
            yield one

sink = opened(sys.argv[1])
print("open", flush=True)
sink.send(Stuck(batch({seqs!r})))
print("sent", flush=True)
time.sleep(600)
"""


def child_sending(spec: str, seqs: Sequence[int], stuck_at: int | None = None) -> subprocess.Popen[str]:
    """A process that sends these, and hangs at this place; it ends only when it is killed."""
    script = _CHILD.format(stuck_at=stuck_at, seqs=list(seqs))
    path = os.pathsep.join(filter(None, (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.Popen([sys.executable, "-c", script, spec], stdout=subprocess.PIPE, text=True, env=environment)


def kill_when_it_says(child: subprocess.Popen[str], word: str) -> None:
    assert child.stdout is not None
    with child.stdout:
        for line in child.stdout:
            if line.strip() == word:
                break
        else:
            raise AssertionError(f"the child ended without saying {word}")
        child.kill()
    child.wait()
