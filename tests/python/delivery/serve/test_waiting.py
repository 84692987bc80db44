"""A second process on a store answers health while it waits, and nothing else (rule D9)."""

import os
import re
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import TOKEN, Server, ask

pytestmark = pytest.mark.timeout(60)
Start = Callable[..., Server]
OK = (200, {"status": "ok"})
WAITING = (503, {"status": "waiting"})


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def waiting(server: Server) -> list[int]:
    """The ports on which it says that it answers health."""
    assert "waiting for it to end" in server.says()
    line = server.says()
    assert line.startswith("until then /livez and /readyz are answered on "), line
    return [int(port) for port in re.findall(r":(\d+)", line)]


def test_the_second_lives_and_is_not_ready_and_takes_over_when_the_first_is_killed__D9(
    tmp_path: Path, start: Start
) -> None:
    first = start(tmp_path / "s.db").listening()
    flight_port = free_port()
    second = start(tmp_path / "s.db", "--flight", f"127.0.0.1:{flight_port}")
    [port] = waiting(second)
    assert [ask(port, "GET", path)[:2] for path in ("/livez", "/healthz", "/readyz")] == [OK, OK, WAITING]
    refused = ask(port, "POST", "/messages", {"id": "a", "delay_ms": 60_000})
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    assert "does not have its store yet" in refused.body["reason"]
    with pytest.raises(ConnectionRefusedError):  # the port is this process's, and closed
        socket.create_connection(("127.0.0.1", flight_port))

    assert first.ask("POST", "/messages", {"id": "a", "delay_ms": 60_000}).status == 201
    killed_s = time.monotonic()
    first.kill()
    second.listening()
    assert time.monotonic() - killed_s < 1
    assert (second.port, second.flight_port) == (port, flight_port)
    assert [second.ask("GET", path)[:2] for path in ("/livez", "/readyz")] == [OK, OK]
    assert second.ask("GET", "/messages/a").body["state"] == "waiting"
    socket.create_connection(("127.0.0.1", flight_port)).close()
    assert second.kill(signal.SIGTERM) == 0


def test_one_on_the_same_ports_answers_on_that_of_health_and_takes_the_ports_over__D9(
    tmp_path: Path, start: Start
) -> None:
    port, health = free_port(), free_port()
    first = start(tmp_path / "s.db", "--listen", f"127.0.0.1:{port}").listening()
    second = start(tmp_path / "s.db", "--listen", f"127.0.0.1:{port}", "--health", f"127.0.0.1:{health}")
    assert "waiting for it to end" in second.says()
    assert (
        second.says() == f"--listen 127.0.0.1:{port} can't be opened: Address already in use: it is tried again then\n"
    )
    assert second.says() == f"until then /livez and /readyz are answered on http://127.0.0.1:{health}\n"
    assert [ask(health, "GET", path)[:2] for path in ("/livez", "/readyz")] == [OK, WAITING]
    first.kill()
    second.listening()
    assert second.port == port
    assert ask(health, "GET", "/readyz")[:2] == OK
    assert second.ask("GET", "/readyz")[:2] == OK


def test_without_one_it_says_how_to_get_one__D9(tmp_path: Path, start: Start) -> None:
    first = start(tmp_path / "s.db").listening()
    second = start(tmp_path / "s.db", "--listen", f"127.0.0.1:{first.port}")
    assert "waiting for it to end" in second.says()
    assert second.says().endswith(
        "it is tried again then; --health HOST:PORT would answer /livez and /readyz until then\n"
    )


def test_the_port_of_health_answers_nothing_else_and_needs_no_token__D12(tmp_path: Path, start: Start) -> None:
    health, token = free_port(), tmp_path / "token"
    token.touch(0o600)
    token.write_bytes(TOKEN)
    server = start(tmp_path / "s.db", "--health", f"0.0.0.0:{health}", "--token-file", str(token)).listening()
    assert [ask(health, "GET", path)[:2] for path in ("/livez", "/readyz", "/healthz")] == [OK, OK, OK]
    authorized = {"authorization": f"Bearer {TOKEN.decode()}"}
    for path in ("/messages", "/metrics", "/"):
        assert ask(health, "GET", path, headers=authorized).status == 404
    assert ask(health, "POST", "/messages", {"id": "a", "delay_ms": 0}, headers=authorized).status == 404
    assert server.ask("GET", "/messages").status == 401
    assert ask(health, "GET", "/livez", headers={"host": "probe.example"}).status == 200


def test_the_port_of_health_that_is_taken_is_wrong_usage__D9(tmp_path: Path, start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, _, err = start(tmp_path / "s.db", "--health", address).rest()
    assert code == 2
    assert f"--health {address} can't be opened: Address already in use" in " ".join(err.split())
    assert [*tmp_path.iterdir()] == []


def test_one_that_waits_needs_a_token_for_all_but_health__D12(tmp_path: Path, start: Start) -> None:
    token = tmp_path / "token"
    token.touch(0o600)
    token.write_bytes(TOKEN)
    start(tmp_path / "s.db").listening()
    [port] = waiting(start(tmp_path / "s.db", "--token-file", str(token)))
    assert ask(port, "GET", "/metrics").status == 401
    assert ask(port, "GET", "/metrics", headers={"authorization": f"Bearer {TOKEN.decode()}"}).status == 503
    assert ask(port, "GET", "/readyz")[:2] == WAITING


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_one_that_waits_with_its_ports_open__D13(
    number: int, code: int, tmp_path: Path, start: Start
) -> None:
    start(tmp_path / "s.db").listening()
    second = start(tmp_path / "s.db", "--health", "127.0.0.1:0")
    assert len(waiting(second)) == 2
    assert second.kill(number) == code
    assert "Traceback" not in second.rest()[2]


def test_it_waits_also_while_the_first_is_paused__D9(tmp_path: Path, start: Start) -> None:
    first = start(tmp_path / "s.db").listening()
    first.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, first.process.pid, os.WSTOPPED | os.WNOWAIT)
    [port] = waiting(start(tmp_path / "s.db"))
    assert [ask(port, "GET", path)[:2] for path in ("/livez", "/readyz")] == [OK, WAITING]
    first.process.send_signal(signal.SIGCONT)
