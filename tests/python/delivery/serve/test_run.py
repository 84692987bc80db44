"""How `serve` ends without a signal."""

import signal
from pathlib import Path
from typing import Any

import pytest

from tickwheel.delivery.message import MAX_PAYLOAD
from tickwheel.delivery.serve import run
from tickwheel.delivery.serve.access import Address
from tickwheel.delivery.settings import Settings
from tickwheel.delivery.sinks import sink_of_function


class ClosedPorts:
    """A server that has ended, and raised nothing."""

    urls = "nowhere"

    def __init__(self, *_: Any) -> None:
        pass

    def are_open(self, _timeout_s: float) -> bool:
        return False

    def stop_requests(self) -> None:
        pass

    def stop_streams(self) -> bool:
        return True


def test_a_server_that_ends_by_itself_is_a_failure__D11(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "Ports", ClosedPorts)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    here = Address.of("--listen", "127.0.0.1:0")
    service = run.Service(
        tmp_path / "store.db", sink_of_function(print), lambda _: None, Settings(), here, here, None, MAX_PAYLOAD
    )
    try:
        ended = run.serve(service, lambda _: None)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert (ended.code, ended.result.failure) == (3, "the HTTP server ended by itself")
