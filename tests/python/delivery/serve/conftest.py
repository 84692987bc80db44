"""`tickwheel serve` in two forms: its ports with an engine in this process, and the command as its own process."""

import contextlib
import http.client
import json
import queue
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.client import HTTPMessage
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest

from tickwheel.delivery import Delivery
from tickwheel.delivery.engine.running import Running
from tickwheel.delivery.model.message import MAX_PAYLOAD
from tickwheel.delivery.model.retry import Retry
from tickwheel.delivery.model.settings import Settings
from tickwheel.delivery.serve.access import Access, Address
from tickwheel.delivery.serve.ports import Listening, Ports
from tickwheel.delivery.serve.tls import Certificates
from tickwheel.delivery.serve.tokens import ALL, Tokens
from tickwheel.delivery.sinks import Destination, sink_of_function

COMMAND = [sys.executable, "-m", "tickwheel.cli", "serve"]
TOKEN = b"not-for-other-eyes"
ARROW = {"content-type": "application/vnd.apache.arrow.stream"}


class Reply(NamedTuple):
    status: int
    body: Any
    headers: HTTPMessage


def ask(
    port: int, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None, **more: Any
) -> Reply:
    """One request. A body that is not bytes is sent as JSON; a JSON answer is decoded."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    data: Any = (
        body if isinstance(body, bytes) or body is None or hasattr(body, "__next__") else json.dumps(body).encode()
    )
    try:
        connection.request(method, path, data, dict(headers or {}), **more)
        response = connection.getresponse()
        text = response.read()
        is_json = response.headers["content-type"] == "application/json"
        return Reply(response.status, json.loads(text) if is_json and text else text.decode(), response.headers)
    finally:
        connection.close()


class Room:
    """A budget of so many bytes, in the place of the engine's."""

    def __init__(self, most: int) -> None:
        self.left = most

    def take(self, size: int) -> bool:
        has_room = size <= max(0, self.left)
        self.left -= size if has_room else 0
        return has_room


class Served:
    """The ports in this process; deliveries are in `arrived`."""

    def __init__(
        self,
        folder: Path,
        *,
        name: str = "store.db",
        tokens: Tokens | None = None,
        certificates: Certificates | None = None,
        max_payload: int = MAX_PAYLOAD,
        to: Callable[[Delivery], object] | Destination | None = None,
        allow_addresses: tuple[str, ...] = ("127.0.0.1",),
        max_attempts: int = 5,
        sink_timeout_s: float = 30,
        rate: str | None = None,
        order: Literal["key", "global"] = "key",
        address: str = "",
    ) -> None:
        self.arrived: queue.SimpleQueue[Delivery] = queue.SimpleQueue()
        self.running = Running(
            folder / name,
            to if isinstance(to, Destination) else sink_of_function(to or self.arrived.put),
            Settings(
                order=order,
                sink_timeout_s=sink_timeout_s,
                retry=Retry(max_attempts=max_attempts, first_ms=60_000),
                rate=rate,
                allow_addresses=allow_addresses,
            ),
            lambda letters: None,
        )
        anywhere = Address.of("--listen", "127.0.0.1:0")
        self.access = Access(tokens, anywhere)
        self.ports = Ports(Listening(anywhere), self.access, certificates)
        self.url = self.ports.open(self.running, max_payload, address)
        self.running.start()
        self.port = int(self.url.rpartition(":")[2])

    def ask(self, method: str, path: str, body: object = None, **more: Any) -> Reply:
        return ask(self.port, method, path, body, **more)

    def close(self) -> None:
        self.ports.close()
        self.running.close(5)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    opened = Served(tmp_path_factory.mktemp("served"))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """With a token, and payloads of at most 1,000 bytes."""
    opened = Served(tmp_path_factory.mktemp("guarded"), tokens=Tokens({TOKEN: ALL}), max_payload=1000)
    yield opened
    opened.close()


class Server:
    """The command as a process; it delivers to its standard output."""

    def __init__(self, store: Path, *more: str, stdout: int = subprocess.PIPE, before: Sequence[str] = ()) -> None:
        ports = [] if "--listen" in more else ["--listen", "127.0.0.1:0"]
        command = [*before, *COMMAND, "--store", str(store), *ports, *more]
        self.process = subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, text=True)
        self.port = 0

    def says(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.readline()

    def listening(self) -> "Server":
        while (line := self.says()).startswith("until then") or "owns the store" in line:
            pass  # it has waited for the store
        assert line.startswith("listening on http://127.0.0.1:"), line
        self.port = int(line.rpartition(":")[2])
        return self

    def ask(self, method: str, path: str, body: object = None, **more: Any) -> Reply:
        return ask(self.port, method, path, body, **more)

    def delivered(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found

    def kill(self, number: int = signal.SIGKILL) -> int:
        self.process.send_signal(number)
        return self.process.wait()

    def rest(self) -> tuple[int, str, str]:
        """Its exit code, and the rest of its output."""
        out, err = self.process.communicate(timeout=20)
        return self.process.returncode, out, err


@pytest.fixture
def start() -> Iterator[Callable[..., Server]]:
    """Starts servers, which are ended after the test."""
    with contextlib.ExitStack() as servers:

        def start(store: Path, *more: str, **how: Any) -> Server:
            server = Server(store, *more, **how)
            servers.enter_context(server.process)
            servers.callback(server.process.kill)
            return server

        yield start
