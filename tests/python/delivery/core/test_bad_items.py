"""A bad item of one caller, or a bad answer of one destination, ends no other delivery (rules D2, D6, D7)."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tickwheel.delivery import Answer, DeliveryFailed, DeliveryQueue, Message
from tickwheel.delivery.entries import Look
from tickwheel.delivery.message import Cancel
from tickwheel.delivery.retry import Retry
from tickwheel.delivery.sender import Sender
from tickwheel.delivery.settings import Settings

Desk = Any  # of ../conftest.py

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
    "a lone surrogate": lambda queue: queue.put(LONE, due=1700000000005),
    "a key of a lone surrogate": lambda queue: queue.put("a", due=1700000000005, key=LONE),
    "a due time that no integer of SQLite holds": lambda queue: queue.put_many([Message("a", None, 1 << 70, JSON)]),
    "a payload that is no JSON": lambda queue: queue.put_many([Message("a", None, 5, msgspec.Raw(b"\xff"))]),
    "a cancel as an item": lambda queue: queue.submit([Cancel(LONE, None)]).result(10),
    "a look as an item": lambda queue: queue.submit([Look("a", 5)]).result(10),
}


@pytest.mark.parametrize("name", BAD)
def test_what_one_caller_gives_wrongly_is_that_callers_error_alone__D2(queue: DeliveryQueue, name: str) -> None:
    with pytest.raises(Exception):  # noqa: B017, any of Python's own
        BAD[name](queue)
    assert queue.put("good", due=1700000000005) is Answer.ACCEPTED
    assert queue.wait_until_empty(10)


def test_a_sinks_error_that_no_utf8_can_write_is_a_dead_letter_like_any_other__D6(
    make_desk: Callable[..., Desk],
) -> None:
    desk = make_desk(Settings(retry=Retry(1)))
    desk.sink.error = OSError("no such file: caf\udce9")
    desk.start().accept("a")
    desk.advance(1)
    desk.pump()
    [letter] = desk.letters
    assert "no such file: caf" in letter.reason
    assert desk.state("a") is Answer.DEAD


def test_a_sink_that_was_cut_off_is_not_heard_though_it_fails_for_good__D6(desk: Desk) -> None:
    desk.start().accept("a")
    desk.timer.advance(0)

    def send(deliveries: Any) -> Any:
        assert desk.sender.cut_off("no answer")
        raise DeliveryFailed("the connection was closed in the meantime")

    desk.sink.send = send
    assert desk.sender.step(lambda _: None, wait=False) is False
    writer = desk.engine.writer
    fresh = type(desk.sink)()
    desk.sender = Sender(desk.engine.dispatcher, fresh, gate=writer.gate, note_position=writer.note_position)
    desk.advance(1_000)
    assert [delivery.attempt for delivery in fresh.sent] == [2]


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
