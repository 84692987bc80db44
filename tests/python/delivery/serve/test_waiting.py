"""A second process on a store answers health while it waits, and nothing else (rule D9)."""

import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tickwheel.delivery.engine.running import Running
from tickwheel.delivery.model.settings import Settings
from tickwheel.delivery.serve.access import Address
from tickwheel.delivery.serve.ports import Listening
from tickwheel.delivery.sinks import sink_of_function

from .conftest import TOKEN, Server, ask

pytestmark = pytest.mark.timeout(60)
Start = Callable[..., Server]
OK = (200, {"status": "ok"})
WAITING = (503, {"status": "waiting"})


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def waiting(server: Server) -> int:
    """The port on which it says that it answers health."""
    assert "waiting for it to end" in server.says()
    line = server.says()
    assert line.startswith("until then /livez and /readyz are answered on http://127.0.0.1:"), line
    return int(line.rpartition(":")[2])


def test_the_second_lives_and_is_not_ready_and_takes_over_when_the_first_is_killed__D9(
    tmp_path: Path, start: Start
) -> None:
    first = start(tmp_path / "s.db").listening()
    port = free_port()
    second = start(tmp_path / "s.db", "--listen", f"127.0.0.1:{port}", "--health", "127.0.0.1:0")
    health = waiting(second)
    assert [ask(health, "GET", path)[:2] for path in ("/livez", "/healthz", "/readyz")] == [OK, OK, WAITING]
    assert ask(health, "POST", "/messages", {"id": "a", "delay_ms": 60_000}).status == 404
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))

    assert first.ask("POST", "/messages", {"id": "a", "delay_ms": 60_000}).status == 201
    killed_s = time.monotonic()
    first.kill()
    second.listening()
    assert time.monotonic() - killed_s < 1
    assert second.port == port
    assert [ask(health, "GET", path)[:2] for path in ("/livez", "/readyz")] == [OK, OK]
    assert [second.ask("GET", path)[:2] for path in ("/livez", "/readyz")] == [OK, OK]
    assert second.ask("GET", "/messages/a").body["state"] == "waiting"
    assert second.kill(signal.SIGTERM) == 0


def test_one_on_the_same_port_takes_it_over__D9(tmp_path: Path, start: Start) -> None:
    port = "--listen", f"127.0.0.1:{free_port()}"
    first = start(tmp_path / "s.db", *port).listening()
    second = start(tmp_path / "s.db", *port)
    assert "waiting for it to end" in second.says()
    assert second.says() == "until then no port is open; --health HOST:PORT would answer /livez and /readyz\n"
    first.kill()
    second.listening()
    assert second.port == first.port
    assert second.ask("GET", "/readyz")[:2] == OK


def test_of_two_that_start_at_the_same_moment_one_serves_and_the_other_waits__D9(tmp_path: Path, start: Start) -> None:
    port = "--listen", f"127.0.0.1:{free_port()}"
    both = [start(tmp_path / "s.db", *port) for _ in range(2)]
    first, second = sorted(both, key=lambda server: "waiting for it to end" in server.says())
    first.kill()
    second.listening()
    assert second.ask("GET", "/readyz")[:2] == OK


def test_one_that_waits_leaves_the_port_to_the_one_that_has_the_store__D9(tmp_path: Path, start: Start) -> None:
    """That one has its store, and has not opened its port yet."""
    running = Running(tmp_path / "s.db", sink_of_function(print), Settings(), lambda _: None)
    try:
        address = f"127.0.0.1:{free_port()}"
        second = start(tmp_path / "s.db", "--listen", address)
        assert "waiting for it to end" in second.says()
        listening = Listening(Address.of("--listen", address))
        try:
            listening.open()
        finally:
            listening.close()
    finally:
        running.close(5)
    assert f":{second.listening().port}" in address


def test_a_port_that_is_given_free_a_moment_after_the_store_is_opened__D9(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = socket.create_server(("127.0.0.1", 0))
    monkeypatch.setattr(time, "sleep", lambda _: taken.close())
    listening = Listening(Address.of("--listen", f"127.0.0.1:{taken.getsockname()[1]}"))
    try:
        listening.open()
    finally:
        listening.close()


@pytest.mark.parametrize("option", ["--listen", "--health"])
def test_an_address_that_can_never_be_opened_is_told_before_it_waits__D9(
    option: str, tmp_path: Path, start: Start
) -> None:
    start(tmp_path / "s.db").listening()
    second = start(tmp_path / "s.db", option, "192.0.2.1:0", "--no-tls", "--token-file", str(token_file(tmp_path)))
    code, _, err = second.rest()
    assert code == 2
    assert f"{option} 192.0.2.1:0 can't be opened: Cannot assign requested address" in " ".join(err.split())


def token_file(folder: Path) -> Path:
    token = folder / "token"
    token.touch(0o600)
    token.write_bytes(TOKEN)
    return token


def test_the_port_of_health_answers_nothing_else_and_needs_no_token__D12(tmp_path: Path, start: Start) -> None:
    health, token = free_port(), str(token_file(tmp_path))
    server = start(tmp_path / "s.db", "--health", f"0.0.0.0:{health}", "--token-file", token).listening()
    assert [ask(health, "GET", path)[:2] for path in ("/livez", "/readyz", "/healthz")] == [OK, OK, OK]
    authorized = {"authorization": f"Bearer {TOKEN.decode()}"}
    for path in ("/messages", "/metrics", "/"):
        assert ask(health, "GET", path, headers=authorized).status == 404
    assert ask(health, "POST", "/messages", {"id": "a", "delay_ms": 0}, headers=authorized).status == 404
    wrong = ask(health, "POST", "/readyz")
    assert (wrong.status, wrong.body["reason"]) == (405, "this port answers health only")
    assert server.ask("GET", "/messages").status == 401
    assert ask(health, "GET", "/livez", headers={"host": "probe.example"}).status == 200


def test_the_port_of_health_that_is_taken_is_wrong_usage__D9(tmp_path: Path, start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, _, err = start(tmp_path / "s.db", "--health", address).rest()
    assert code == 2
    assert f"--health {address} can't be opened: Address already in use" in " ".join(err.split())
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_one_that_answers_health_while_it_waits__D13(
    number: int, code: int, tmp_path: Path, start: Start
) -> None:
    start(tmp_path / "s.db").listening()
    second = start(tmp_path / "s.db", "--health", "127.0.0.1:0")
    assert ask(waiting(second), "GET", "/livez")[:2] == OK
    assert second.kill(number) == code
    assert "Traceback" not in second.rest()[2]


def test_it_waits_also_while_the_first_is_paused__D9(tmp_path: Path, start: Start) -> None:
    first = start(tmp_path / "s.db").listening()
    first.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, first.process.pid, os.WSTOPPED | os.WNOWAIT)
    health = waiting(start(tmp_path / "s.db", "--health", "127.0.0.1:0"))
    assert [ask(health, "GET", path)[:2] for path in ("/livez", "/readyz")] == [OK, WAITING]
    first.process.send_signal(signal.SIGCONT)
