"""How `serve` ends without a signal."""

import os
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tickwheel.delivery import Delivery
from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.delivery.model.message import MAX_PAYLOAD
from tickwheel.delivery.model.settings import Settings
from tickwheel.delivery.serve import run
from tickwheel.delivery.serve.access import Address
from tickwheel.delivery.serve.credentials import Credentials
from tickwheel.delivery.sinks import Opener, Refusals, Sink, sink_of, sink_of_function


class ClosedListening:
    health_url = None

    def __init__(self, *_: Any) -> None:
        pass


class ClosedPorts:
    """A server that has ended, and raised nothing."""

    def __init__(self, *_: Any) -> None:
        pass

    def open(self, *_: Any) -> str:
        return "nowhere"

    def are_open(self) -> bool:
        return False

    def close(self) -> None:
        pass


def served(folder: Path, opener: Opener, said: list[object]) -> run.Ended:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    here = Address.of("--listen", "127.0.0.1:0")
    service = run.Service(folder / "store.db", opener, lambda _: None, Settings(), here, Credentials(), MAX_PAYLOAD)
    try:
        return run.serve(service, said.append, run.noted_hangups())
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_server_that_ends_by_itself_is_a_failure__D11(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "Listening", ClosedListening)
    monkeypatch.setattr(run, "Ports", ClosedPorts)
    ended = served(tmp_path, sink_of_function(print), [])
    assert (ended.code, ended.result.failure) == (3, "the HTTP server ended by itself")


def test_a_signal_while_it_ends_by_itself_does_not_interrupt_that__D13(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Signalled(Sink):
        def send(self, deliveries: Sequence[Delivery]) -> Refusals:
            return {}

        def close(self) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            assert is_told.wait(20)

    class Said(list[object]):
        def append(self, text: object) -> None:
            super().append(text)
            if "stopping" in str(text):
                is_told.set()

    is_told, said = threading.Event(), Said()
    monkeypatch.setattr(run, "Listening", ClosedListening)
    monkeypatch.setattr(run, "Ports", ClosedPorts)
    ended = served(tmp_path, sink_of(Signalled), said)
    assert (ended.code, ended.result.failure) == (3, "the HTTP server ended by itself")
    assert "stopping (a second signal ends it immediately)" in said


def test_a_signal_while_ports_close_after_a_failure_does_not_interrupt_that__D13(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Signalled(ClosedPorts):
        calls = 0

        def close(self) -> None:
            Signalled.calls += 1
            if Signalled.calls == 1:
                os.kill(os.getpid(), signal.SIGINT)

    said: list[object] = []
    monkeypatch.setattr(run, "Listening", ClosedListening)
    monkeypatch.setattr(run, "Ports", Signalled)
    ended = served(tmp_path, sink_of_function(print), said)
    assert (ended.code, Signalled.calls) == (3, 2)
    assert said[1:] == ["stopping (a second signal ends it immediately)"]


def test_a_signal_while_a_port_is_tried_is_no_failure__D13(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Taken(ClosedPorts):
        def open(self, *_: Any) -> str:
            os.kill(os.getpid(), signal.SIGTERM)
            raise WrongUsage("--listen can't be opened")

    monkeypatch.setattr(run, "Listening", ClosedListening)
    monkeypatch.setattr(run, "Ports", Taken)
    ended = served(tmp_path, sink_of_function(print), [])
    assert (ended.code, ended.result.failure) == (0, None)


def test_a_destination_that_does_not_end_is_told__D13(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    may_end = threading.Event()

    class Hangs(Sink):
        def send(self, deliveries: Sequence[Delivery]) -> Refusals:
            return {}

        def close(self) -> None:
            may_end.wait(20)

    said: list[object] = []
    monkeypatch.setattr(run, "Listening", ClosedListening)
    monkeypatch.setattr(run, "Ports", ClosedPorts)
    monkeypatch.setattr(run, "_STOP_WITHIN_S", 0.1)
    served(tmp_path, sink_of(Hangs), said)
    may_end.set()
    assert said[-1] == "the destination did not end within 0.1 s: what it had in hand is sent again by the next run"
