"""With few threads or few descriptors, `serve` starts with all that it needs, or not at all (D12, D13)."""

import http.client
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from delivery.webhook_receiver import Receiver

from .conftest import COMMAND, ask

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limits are Linux's"),
]
WITH_A_LIMIT = """if True:
    import ctypes, os, resource, sys
    limit, most = getattr(resource, sys.argv[1]), int(sys.argv[2])
    if os.geteuid() == 0:  # the system counts no threads of root, nor of what may exceed limits: capabilities 21 and 24
        prctl = ctypes.CDLL(None, use_errno=True).prctl
        assert [prctl(24, number, 0, 0, 0) for number in (21, 24)] == [0, 0]
        os.setresuid(100_000 + os.getpid(), 0, 0)  # a user without other processes
    resource.setrlimit(limit, (most, most))
    os.execv(sys.argv[3], sys.argv[3:])
"""
ROOT_ALONE = pytest.mark.skipif(os.geteuid() != 0, reason="root alone can become a user without other processes")
FAR_MS = 4_000_000_000_000
LINES = {"content-type": "application/x-ndjson"}


@contextmanager
def started(folder: Path, limit: str, most: int, to: str | None = None) -> Iterator["subprocess.Popen[str]"]:
    folder.mkdir()
    given = [limit, str(most), *COMMAND, "--store", str(folder / "s.db"), "--to", to or f"file:{folder / 'out'}"]
    command = [sys.executable, "-c", WITH_A_LIMIT, *given, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def requests() -> Iterator[tuple[str, str, Any, dict[str, str], int]]:
    message = {"id": "a", "due": FAR_MS}
    yield "POST", "/messages", message, {}, 201
    yield "POST", "/messages", json.dumps(message).encode(), LINES, 200
    for path in ("/messages", "/messages/a", "/dead", "/status", "/metrics", "/hand-off/marks", "/actions"):
        yield "GET", path, None, {}, 200
    yield "DELETE", "/messages/a", None, {}, 200


def is_served(port: int) -> None:
    assert ask(port, "POST", "/messages", {"id": "now", "delay_ms": 0}).status == 201
    while (now := ask(port, "GET", "/messages/now").body)["state"] != "delivered":
        assert now.get("last_error") is None, now
    for method, path, body, headers, status in requests():
        assert ask(port, method, path, body, headers=headers)[:1] == (status,), (method, path)
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as stream:
        stream.request("GET", "/events")
        with stream.getresponse() as events:
            while not events.readline().startswith(b"event: figures"):
                pass


def starts(folder: Path, limit: str, most: int, to: str | None) -> bool:
    """Whether it is ready, and serves everything. If it does not listen, it ends with one line and leaves nothing."""
    with started(folder, limit, most, to) as process:
        assert process.stderr is not None
        said = ""
        for line in process.stderr:
            said += line
            if line.startswith("listening on "):
                port = int(line.rpartition(":")[2])
                ready = ask(port, "GET", "/readyz")
                if ready.status == 200:
                    is_served(port)
                else:
                    assert (limit, ready.body) == ("RLIMIT_NOFILE", {"status": "no descriptors"})
                process.terminate()
                assert process.wait(20) == 0, process.stderr.read()
                return ready.status == 200
        process.wait(20)
    assert "Traceback" not in said, said
    assert [line for line in said.splitlines() if line.startswith(("Failed: ", "Error: "))] == said.splitlines()[-1:]
    assert process.returncode in (2, 3, 70), (process.returncode, said)
    assert [*folder.iterdir()] == [], said
    return False


def least(tmp_path: Path, limit: str, too_few: int, enough: int, to: str | None = None) -> int:
    assert not starts(tmp_path / str(too_few), limit, too_few, to)
    assert starts(tmp_path / str(enough), limit, enough, to)
    while too_few + 1 < enough:
        middle = (too_few + enough) // 2
        if starts(tmp_path / str(middle), limit, middle, to):
            enough = middle
        else:
            too_few = middle
    return enough


@ROOT_ALONE
def test_a_server_that_listens_has_the_threads_for_each_request__D12(tmp_path: Path) -> None:
    assert least(tmp_path, "RLIMIT_NPROC", 2, 60) < 60


@ROOT_ALONE
def test_a_server_that_listens_has_the_threads_for_a_receiver_by_name__D12(tmp_path: Path, receiver: Receiver) -> None:
    url = receiver.url.replace("127.0.0.1", "localhost")
    assert least(tmp_path, "RLIMIT_NPROC", 2, 60, url) < 60


def test_a_server_that_is_ready_has_the_descriptors_for_each_request__D12(tmp_path: Path) -> None:
    assert least(tmp_path, "RLIMIT_NOFILE", 8, 64) < 64


def port_of(process: "subprocess.Popen[str]") -> int:
    """Reads what it says, up to the port. It says first that few connections may wait."""
    assert process.stderr is not None
    said = process.stderr.readline()
    assert "this process may open 64 files (ulimit -n), so only 16 connections may wait" in said
    return int(process.stderr.readline().rpartition(":")[2])


def test_clients_that_say_nothing_leave_descriptors_over__D12(tmp_path: Path) -> None:
    with ExitStack() as stack:
        process = stack.enter_context(started(tmp_path / "few", "RLIMIT_NOFILE", 64))
        port = port_of(process)
        for _ in range(200):
            silent = stack.enter_context(socket.create_connection(("127.0.0.1", port), 20))
            with suppress(ConnectionError):
                silent.sendall(b"GET / HTTP/1.1\r\n")
        for n in range(20):
            assert ask(port, "GET", "/readyz").status == 200
            assert ask(port, "POST", "/messages", {"id": f"{n}", "due": FAR_MS}).status == 201
        process.terminate()


def test_a_server_without_descriptors_is_not_ready__D12(tmp_path: Path) -> None:
    with ExitStack() as stack:
        process = stack.enter_context(started(tmp_path / "few", "RLIMIT_NOFILE", 64))
        port = port_of(process)
        first = stack.enter_context(closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)))

        def readiness() -> tuple[int, Any]:
            first.request("GET", "/readyz")
            answer = first.getresponse()
            return answer.status, json.loads(answer.read())

        assert readiness() == (200, {"status": "ok"})
        with ExitStack() as others:
            for n in range(32 + 14):
                other = others.enter_context(socket.create_connection(("127.0.0.1", port), 20))
                if n < 32:  # these do not wait for their clients
                    other.sendall(b"GET /events HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
                    assert other.recv(100).startswith(b"HTTP/1.1 200 ")
            while readiness() != (503, {"status": "no descriptors"}):
                pass
        while readiness() != (200, {"status": "ok"}):
            pass
        process.terminate()


THREADS_LATER = """if True:
    import logging, os, resource, sys, threading
    from tickwheel.delivery import DeliveryQueue
    told, all_told = threading.Semaphore(0), []

    class Handler(logging.Handler):
        def emit(self, record):
            all_told.append(record.getMessage())
            told.release()

    logging.getLogger("tickwheel.delivery").addHandler(Handler())
    here, may_end = threading.Semaphore(0), threading.Event()

    def send(delivery):
        here.release()
        may_end.wait()

    with DeliveryQueue(sys.argv[1], to=send) as queue:
        _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
        resource.setrlimit(resource.RLIMIT_NPROC, (1, hard))
        for number in range(40):  # more than there are threads from the start
            queue.put(str(number), delay_ms=0)
        assert told.acquire(timeout=30)
        resource.setrlimit(resource.RLIMIT_NPROC, (hard, hard))
        for _ in range(40):  # all of them at a time, by the threads that came later
            assert here.acquire(timeout=30)
        may_end.set()
        assert queue.wait_until_empty(30)
    print(*all_told, sep="\\n")
"""


@ROOT_ALONE
def test_a_thread_for_sending_that_is_not_had_is_told_once_and_tried_again__D6(tmp_path: Path) -> None:
    given = ["RLIMIT_NPROC", "1000", sys.executable, "-c", THREADS_LATER, str(tmp_path / "s.db")]
    command = [sys.executable, "-c", WITH_A_LIMIT, *given]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    [line] = done.stdout.splitlines()
    assert line.startswith("fewer messages are sent at a time, until the system gives more threads: "), done.stderr
