"""`tickwheel serve` as a process: crashes, two on one store, signals, failures (rules D5, D9, D13)."""

import http.client
import json
import os
import re
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest

from delivery.batches import batch, stream

from .conftest import ARROW, Server

pytestmark = pytest.mark.timeout(120)
Start = Callable[..., Server]
FAR_MS = 4_000_000_000_000


def test_what_was_answered_is_delivered_though_the_server_is_killed_at_once__D11(tmp_path: Path, start: Start) -> None:
    first = start(tmp_path / "s.db").listening()
    assert first.ask("POST", "/messages", {"id": "gone", "delay_ms": 60_000}).status == 201
    assert first.ask("DELETE", "/messages/gone").status == 200
    assert first.ask("POST", "/messages", {"id": "kept", "delay_ms": 2_500, "payload": 1}).status == 201
    first.kill()
    assert first.rest()[1] == ""
    second = start(tmp_path / "s.db").listening()
    assert second.delivered()["id"] == "kept"
    assert second.ask("GET", "/messages/gone").body["state"] == "cancelled"
    second.kill(signal.SIGTERM)
    code, out, _ = second.rest()
    assert (code, out) == (0, "")


def test_the_second_waits_and_opens_its_port_when_the_first_dies__D9(tmp_path: Path, start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    first = start(tmp_path / "s.db", "--listen", f"127.0.0.1:{port}").listening()
    second = start(tmp_path / "s.db", "--listen", f"127.0.0.1:{port}")  # it would fail if it opened the port
    assert f"another process works with {tmp_path / 's.db'} (process {first.process.pid}): waiting" in second.says()
    assert first.ask("POST", "/messages", {"id": "a", "delay_ms": 60_000}).status == 201
    with socket.create_connection(("127.0.0.1", port)):  # a connection of the ended process, still on its port
        killed_s = time.monotonic()
        first.kill()
        second.listening()
        assert time.monotonic() - killed_s < 1
    assert second.port == port
    assert second.ask("GET", "/messages/a").body["state"] == "waiting"


def test_one_that_was_paused_and_goes_on_is_never_beside_the_second__D9(tmp_path: Path, start: Start) -> None:
    first = start(tmp_path / "s.db").listening()
    assert first.ask("POST", "/messages", {"id": "a", "delay_ms": 1_000}).status == 201
    first.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, first.process.pid, os.WSTOPPED | os.WNOWAIT)
    second = start(tmp_path / "s.db")
    assert "waiting" in second.says()
    with pytest.raises(subprocess.TimeoutExpired):  # the message is due meanwhile, and no process may send it
        second.process.wait(1.1)
    first.process.send_signal(signal.SIGCONT)
    assert first.delivered()["id"] == "a"
    while first.ask("GET", "/messages/a").body["state"] != "delivered":
        pass  # until the outcome is committed
    first.kill()
    second.listening()
    assert second.ask("GET", "/messages/a").body["state"] == "delivered"
    second.kill(signal.SIGTERM)
    assert second.rest()[:2] == (0, "")


def test_large_payloads_take_bounded_memory_and_it_is_given_back__D8(tmp_path: Path, start: Start) -> None:
    server = start(tmp_path / "s.db", stdout=subprocess.DEVNULL).listening()

    def told_mib(name: str) -> int:
        status = Path(f"/proc/{server.process.pid}/status").read_text()
        return int(re.findall(rf"{name}:\s+(\d+) kB", status)[0]) // 1024

    before = told_mib("VmRSS")
    numbers = iter(range(320))

    def post(_client: int) -> None:
        for number in numbers:
            message = {"id": f"m{number}", "key": f"k{number % 50}", "delay_ms": 6_000, "payload": "x" * 1_000_000}
            assert server.ask("POST", "/messages", message).status == 201

    with ThreadPoolExecutor(16) as clients:
        list(clients.map(post, range(16)))
    while server.ask("GET", "/status").body["waiting"]:
        pass
    assert told_mib("VmHWM") - before <= 150, "as the guarantees say"
    assert told_mib("VmRSS") - before <= 100, "most of it is given back"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_it_cleanly_and_it_says_what_waits__D13(
    number: int, code: int, tmp_path: Path, start: Start
) -> None:
    server = start(tmp_path / "s.db").listening()
    server.ask("POST", "/messages", {"id": "far", "due": FAR_MS})
    server.ask("POST", "/messages", {"id": "now", "due": 1700000000005})
    assert server.delivered()["id"] == "now"
    assert server.kill(number) == code
    _, out, err = server.rest()
    assert out == ""
    assert f"Not delivered: 1, kept in the store {tmp_path / 's.db'}." in err
    assert re.search(r"lateness max +[\d.]+ ms", err)  # from the ledger, at a clean end
    assert "Traceback" not in err
    again = start(tmp_path / "s.db").listening()
    assert again.ask("GET", "/messages/now").body["state"] == "delivered"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_it_while_it_waits__D9(number: int, code: int, tmp_path: Path, start: Start) -> None:
    first = start(tmp_path / "s.db").listening()
    second = start(tmp_path / "s.db")
    assert "waiting" in second.says()
    assert second.kill(number) == code
    assert "Traceback" not in second.rest()[2]
    assert first.ask("GET", "/healthz").status == 200


def test_a_signal_ends_it_though_a_stream_is_open__D13(tmp_path: Path, start: Start) -> None:
    server = start(tmp_path / "s.db").listening()
    given = stream(batch(id=["a"], due=[FAR_MS]), batch(id=["b"], due=[FAR_MS]))
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)) as client:
        client.request("POST", "/messages", given[:-30], ARROW | {"content-length": str(len(given))})
        while server.ask("GET", "/messages/a").status == 404:
            pass  # until its first batch is taken
        assert server.kill(signal.SIGTERM) == 0
        err = server.rest()[2]
        assert "Not delivered: 1" in err
        assert "Traceback" not in err
        answer = client.getresponse()
        assert (answer.status, answer.headers["connection"]) == (503, "close")
        assert json.loads(answer.read())["reason"] == (
            "the server is stopping, and the body has not come as a whole; some of its messages may have been accepted"
        )


def test_streams_of_arrow_need_no_pyarrow__D11(tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "without").mkdir()
    (tmp_path / "without/pyarrow.py").write_text("raise ImportError('there is none')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "without"))
    server = start(tmp_path / "s.db").listening()
    reply = server.ask("POST", "/messages", stream(batch(id=["a"], due=[FAR_MS])), headers=ARROW)
    assert (reply.status, json.loads(reply.body)["state"]) == (200, "accepted")
    assert server.ask("GET", "/hand-off/marks").status == 200


def test_a_file_that_is_read_again_and_hangs_does_not_hold_up_a_stop__D13(tmp_path: Path, start: Start) -> None:
    os.mkfifo(tmp_path / "tokens", 0o600)
    server = start(tmp_path / "s.db", "--token-file", str(tmp_path / "tokens"))
    (tmp_path / "tokens").write_text("x" * 32 + "\n")
    server.listening()
    server.process.send_signal(signal.SIGHUP)
    writing = None
    while writing is None:
        assert server.process.poll() is None
        with suppress(OSError):  # it does not read yet
            writing = os.open(tmp_path / "tokens", os.O_WRONLY | os.O_NONBLOCK)
    try:
        assert server.kill(signal.SIGTERM) == 0
    finally:
        os.close(writing)
    assert "Traceback" not in server.rest()[2]


def test_the_second_ctrl_c_ends_it_at_once__D13(tmp_path: Path, start: Start) -> None:
    reading, writing = os.pipe()  # without a reader
    server = start(tmp_path / "s.db", stdout=writing)
    os.close(writing)
    server.listening()
    for n in range(2):
        server.ask("POST", "/messages", {"id": str(n), "due": 1700000000005, "payload": "x" * 100_000})
    os.read(reading, 1)  # it writes, and will soon block
    server.process.send_signal(signal.SIGINT)
    assert server.says().startswith("stopping")
    assert server.kill(signal.SIGINT) == -signal.SIGINT
    os.close(reading)


def test_a_destination_that_fails_ends_it_with_the_reason__D9(tmp_path: Path, start: Start) -> None:
    reading, writing = os.pipe()
    server = start(tmp_path / "s.db", stdout=writing)
    os.close(writing)
    server.listening()
    os.close(reading)  # the reader has gone
    assert server.ask("POST", "/messages", {"id": "a", "due": 1700000000005}).status == 201
    code, _, err = server.rest()
    assert code == 3
    assert "Failed: the destination can't be written: Broken pipe" in err
    assert "Not delivered: 1" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("option", ["--listen", "--health"])
def test_a_port_that_is_taken_is_wrong_usage__D11(option: str, tmp_path: Path, start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, _, err = start(tmp_path / "s.db", option, address).rest()
    assert code == 2
    text = " ".join(err.split())
    assert f"{option} {address} can't be opened: Address already in use; name another address, or port 0" in text


def test_a_public_address_is_refused_before_anything_is_made__D12(tmp_path: Path, start: Start) -> None:
    server = start(tmp_path / "s.db", "--listen", "0.0.0.0:0", stdout=subprocess.DEVNULL)
    code, _, err = server.rest()
    assert (code, list(tmp_path.iterdir())) == (2, [])
    assert "use --token-file FILE" in " ".join(err.split())
    assert "listening" not in err


def test_with_a_token_it_serves_anywhere__D12(tmp_path: Path, start: Start) -> None:
    token = tmp_path / "token"
    token.touch(0o600)
    token.write_text("sixteen-letters!\n")
    server = start(tmp_path / "s.db", "--listen", "0.0.0.0:0", "--token-file", str(token), "--no-tls")
    line = server.says()
    assert line.startswith("listening on http://0.0.0.0:"), line
    server.port = int(line.split(":")[2].split()[0])
    assert server.ask("GET", "/messages/a").status == 401
    assert server.ask("GET", "/messages/a", headers={"authorization": "Bearer sixteen-letters!"}).status == 404


def test_it_may_open_more_files_than_the_usual_limit__D12(tmp_path: Path, start: Start) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, limits[0]), limits[1]))
    try:
        server = start(tmp_path / "s.db").listening()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    found = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
    assert found == (min(8192, limits[1]), limits[1])


@pytest.mark.parametrize("option", ["--listen", "--health"])
def test_a_port_that_is_taken_leaves_nothing__D13(option: str, tmp_path: Path, start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        server = start(tmp_path / "s.db", "--to", f"file:{tmp_path / 'out'}", option, address)
        assert server.rest()[0] == 2
    assert [*tmp_path.iterdir()] == []


def test_a_port_that_is_taken_leaves_a_destination_that_was_there__D13(tmp_path: Path, start: Start) -> None:
    (tmp_path / "out").touch()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert start(tmp_path / "s.db", "--to", f"file:{tmp_path / 'out'}", "--listen", address).rest()[0] == 2
    assert [*tmp_path.iterdir()] == [tmp_path / "out"]
