"""What systemd is told by `serve`: a socket of the test plays its part (`sd_notify(3)`)."""

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tickwheel.delivery.serve.systemd import Notifier

from .conftest import Server

pytestmark = pytest.mark.timeout(60)
Start = Callable[..., Server]


class Systemd:
    """The socket; `says` is the next datagram, as its fields."""

    def __init__(self, address: str) -> None:
        self.name = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(f"\0{address[1:]}" if address.startswith("@") else address)
        self._socket.settimeout(20)

    def says(self) -> dict[str, str]:
        lines = self._socket.recv(4096).decode().split("\n")
        return dict(line.split("=", 1) for line in lines)

    def says_but_alive(self) -> dict[str, str]:
        while (told := self.says()) == {"WATCHDOG": "1"}:
            pass
        return told

    def is_silent(self) -> bool:
        self._socket.setblocking(False)
        try:
            self._socket.recv(4096)
        except BlockingIOError:
            return True
        return False

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def systemd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Systemd]:
    name = f"@tickwheel-test-{os.getpid()}" if request.param == "abstract" else str(tmp_path / "notify")
    played = Systemd(name)
    yield played
    played.close()


def test_it_is_told_when_it_waits_is_ready_reads_again_and_stops(
    systemd: Systemd, tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = start(tmp_path / "s.db").listening()
    monkeypatch.setenv("NOTIFY_SOCKET", systemd.name)
    second = start(tmp_path / "s.db")
    assert systemd.says()["STATUS"].endswith(f"(process {first.process.pid}): waiting for it to end")
    first.kill()
    assert systemd.says() == {"READY": "1", "STATUS": f"delivering from {tmp_path / 's.db'}"}
    second.process.send_signal(signal.SIGHUP)
    reloading = systemd.says()
    assert reloading["RELOADING"] == "1"
    assert abs(int(reloading["MONOTONIC_USEC"]) - time.monotonic_ns() // 1000) < 20_000_000
    assert systemd.says() == {"READY": "1"}
    assert second.kill(signal.SIGTERM) == 0
    assert systemd.says()["STOPPING"] == "1"
    assert systemd.is_silent()


def test_the_watchdog_hears_of_it_twice_within_its_time_until_it_stops(
    systemd: Systemd, tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", systemd.name)
    monkeypatch.setenv("WATCHDOG_USEC", "600000")
    server = start(tmp_path / "s.db").listening()
    assert systemd.says()["READY"] == "1"
    assert [systemd.says() for _ in range(3)] == [{"WATCHDOG": "1"}] * 3
    server.kill(signal.SIGTERM)
    assert systemd.says_but_alive()["STOPPING"] == "1"
    assert systemd.is_silent()


def test_the_watchdog_does_not_hear_of_one_whose_delivery_has_failed(
    systemd: Systemd, tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", systemd.name)
    monkeypatch.setenv("WATCHDOG_USEC", "200000")
    reading, writing = os.pipe()
    server = start(tmp_path / "s.db", stdout=writing)
    os.close(writing)
    server.listening()
    assert systemd.says()["READY"] == "1"
    os.close(reading)
    server.ask("POST", "/messages", {"id": "a", "due": 1700000000005})
    assert systemd.says_but_alive()["STOPPING"] == "1"
    assert server.rest()[0] == 3
    assert systemd.is_silent()


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"WATCHDOG_USEC": "1000000"},
        {"NOTIFY_SOCKET": "{name}", "WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"},
        {"NOTIFY_SOCKET": "{name}", "WATCHDOG_USEC": "often"},
    ],
)
def test_what_is_not_for_this_process_is_left_alone(tmp_path: Path, environ: dict[str, str]) -> None:
    systemd = Systemd(str(tmp_path / "notify"))
    Notifier({name: value.format(name=systemd.name) for name, value in environ.items()}).alive()
    assert systemd.is_silent()
    systemd.close()


def test_alive_is_told_at_half_of_the_time(tmp_path: Path) -> None:
    systemd, now_ms = Systemd(str(tmp_path / "notify")), 5_000
    environ = {"NOTIFY_SOCKET": systemd.name, "WATCHDOG_USEC": "1000000", "WATCHDOG_PID": str(os.getpid())}
    notifier = Notifier(environ, lambda: now_ms * 1_000_000)
    told = []
    for now_ms in range(5_000, 7_100, 100):
        notifier.alive()
        told += [] if systemd.is_silent() else [now_ms]
    assert told == [5_000, 5_500, 6_000, 6_500, 7_000]
    systemd.close()


def test_a_socket_that_is_not_there_is_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "none")})
    notifier.ready("delivering")
    notifier.status("a\nb")
    assert [record.getMessage() for record in caplog.records] == [
        "systemd can't be told READY=1: [Errno 2] No such file or directory"
    ]


def test_a_text_with_a_line_end_is_one_field(tmp_path: Path) -> None:
    systemd = Systemd(str(tmp_path / "notify"))
    Notifier({"NOTIFY_SOCKET": systemd.name}).status("a\nREADY=1")
    assert systemd.says() == {"STATUS": "a READY=1"}
    systemd.close()


def test_a_path_that_is_no_text_is_told_too__D9(tmp_path: Path) -> None:
    systemd = Systemd(str(tmp_path / "notify"))
    Notifier({"NOTIFY_SOCKET": systemd.name}).ready("delivering from st\udcff.db")
    assert systemd.says()["STATUS"] == "delivering from st?.db"
    systemd.close()
