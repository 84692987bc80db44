"""A bad item of one caller, or a bad answer of one destination, ends no other delivery (rules D2, D6, D7)."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from delivery.delivering import Run, opener_of
from tickwheel.delivery import Answer, Cancel, Delivery, DeliveryFailed, DeliveryQueue, Message
from tickwheel.delivery.engine.running import Running
from tickwheel.delivery.model.entries import Look
from tickwheel.delivery.model.retry import Retry
from tickwheel.delivery.model.settings import Settings
from tickwheel.delivery.sinks import Sink

LONE = "\ud800"  # half of a surrogate pair, which has no form in UTF-8
JSON = msgspec.Raw(b"1")

pytestmark = pytest.mark.timeout(30)


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[DeliveryQueue]:
    with DeliveryQueue(tmp_path / "store.db", to=lambda delivery: None) as opened:
        yield opened


BAD = {
    "cancel of a lone surrogate": lambda queue: queue.cancel(LONE),
    "cancel with a key that is no text": lambda queue: queue.cancel("a", 5),
    "state of a lone surrogate": lambda queue: queue.state(LONE),
    "a lone surrogate": lambda queue: queue.put(LONE, delay_ms=5),
    "a key of a lone surrogate": lambda queue: queue.put("a", delay_ms=5, key=LONE),
    "a due time that no integer of SQLite holds": lambda queue: queue.put_many([Message("a", None, 1 << 70, JSON)]),
    "a payload that is no JSON": lambda queue: queue.put_many([Message("a", None, 5, msgspec.Raw(b"\xff"))]),
    "a cancel as an item": lambda queue: queue.submit([Cancel(LONE, None)]).result(10),
    "a look as an item": lambda queue: queue.submit([Look("a", 5)]).result(10),
}


@pytest.mark.parametrize("name", BAD)
def test_what_one_caller_gives_wrongly_is_that_callers_error_alone__D2(queue: DeliveryQueue, name: str) -> None:
    with pytest.raises(Exception):  # noqa: B017, any of Python's own
        BAD[name](queue)
    assert queue.put("good", delay_ms=0) is Answer.ACCEPTED
    assert queue.wait_until_empty(10)


class Raises(Sink):
    def __init__(self, error: Exception) -> None:
        self._error = error

    def send(self, deliveries: Any) -> Any:
        raise self._error


@pytest.mark.parametrize("kind", [FileNotFoundError, OSError])
def test_a_sinks_error_that_no_utf8_can_write_is_a_dead_letter_like_any_other__D6(
    tmp_path: Path, kind: type[OSError]
) -> None:
    settings = Settings(retry=Retry(1, 10, 10), unanswered_for_s=0.05)
    with Run(tmp_path, opener_of(Raises(kind("no such file: caf\udce9"))), settings) as run:
        run.deliver(Message("a", None, 5, JSON))
        [letter] = run.letters
        assert "no such file: caf" in letter.reason
        assert run.give(Look("a", None)) == [Answer.DEAD]


class FailsLate(Sink):
    """The first send hangs until the test ends it, and fails for good then."""

    def __init__(self, sent: list[Delivery], held: threading.Event, failed: threading.Event) -> None:
        self._sent, self._held, self._failed = sent, held, failed

    def send(self, deliveries: Any) -> Any:
        self._sent += deliveries
        if len(self._sent) == 1:
            self._held.wait(20)
            self._failed.set()
            raise DeliveryFailed("the connection was closed in the meantime")
        return {}


def test_a_sink_that_was_cut_off_is_not_heard_though_it_fails_for_good__D6(tmp_path: Path) -> None:
    sent: list[Delivery] = []
    held, failed = threading.Event(), threading.Event()
    settings = Settings(sink_timeout_s=0.5)
    running = Running(tmp_path / "store.db", lambda _: FailsLate(sent, held, failed), settings, lambda letters: None)
    running.start()
    running.submit([Message("a", None, 5, JSON)]).result(10)
    assert running.wait(10)
    held.set()
    assert failed.wait(10)
    running.submit([Message("b", None, 5, JSON)]).result(10)
    assert running.wait(10)
    running.close(10)
    assert [(it.message.id, it.attempt) for it in sent] == [("a", 1), ("a", 2), ("b", 1)]


def test_an_input_whose_name_is_not_utf8_is_read_like_any_other__D2_D11(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / os.fsdecode(b"caf\xe9.ndjson")).write_text('{"id": "a", "due": 100000000005}\nbroken\n')
    options = ["--to", f"file:{tmp_path}/out", "--dead-letters", f"{tmp_path}/dead", "--store", f"{tmp_path}/store.db"]
    command = [sys.executable, "-m", "tickwheel.cli", "deliver", str(folder), *options]
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, timeout=25)
        assert b"Traceback" not in done.stderr
    assert len((tmp_path / "out").read_bytes().splitlines()) == 1
    assert len((tmp_path / "dead").read_bytes().splitlines()) == 1
