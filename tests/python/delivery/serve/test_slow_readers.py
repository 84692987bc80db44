"""An answer is given whole to a client that reads slowly, and is given up only if the client takes nothing (D12)."""

import contextlib
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from delivery.certificates import Pair, authority, signed
from tickwheel.delivery.serve import answers, application, connections, http_connection, ports
from tickwheel.delivery.serve.http_connection import HttpConnection
from tickwheel.delivery.serve.tls import Certificates, TlsFiles
from tickwheel.delivery.serve.tokens import ALL, Tokens

from .conftest import TOKEN, Served

pytestmark = pytest.mark.timeout(60)
BODY = b"".join(
    b'{"id":"a","due":%d}\n' % due for due in [4_000_000_000_000, *[4_000_000_000_001] * 25_000]
)  # 4 MB of 409
HEAD = b"POST /messages HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/x-ndjson\r\ncontent-length: %d\r\n"


class ManualLoop:
    """What a connection needs of an event loop; its time is set by the test."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self._later: list[tuple[float, Callable[[], object]]] = []

    def time(self) -> float:
        return self._now_s

    def call_later(self, delay_s: float, function: Callable[[], object]) -> "ManualLoop":
        self._later.append((self._now_s + delay_s, function))
        return self

    def cancel(self) -> None:
        self._later.clear()

    def advance(self, seconds: float) -> None:
        end_s = self._now_s + seconds
        while self._later and self._later[0][0] <= end_s:
            self._now_s, function = self._later.pop(0)
            function()
        self._now_s = end_s


class Transport:
    """Of a connection that the client does not read: the rest of an answer is in its buffer."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.left = 1
        self.is_aborted = False

    def get_extra_info(self, name: str) -> Any:
        return self._connection if name == "socket" else None

    def get_write_buffer_size(self) -> int:
        return self.left

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def abort(self) -> None:
        self.is_aborted = True


class Place:
    """A place that does not count."""

    abort: Callable[[], object]

    def close(self) -> None:
        pass

    def shows_token(self) -> None:
        pass

    def works(self) -> None:
        pass

    def waits_for_reader(self) -> None:
        pass


@contextlib.contextmanager
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_connection(listening.getsockname()) as one:
        other, _ = listening.accept()
        with other:
            yield one, other


async def no_app(_scope: Any, _receive: Any, _send: Any) -> None:
    pass


def paused(ours: socket.socket) -> tuple[HttpConnection, Transport, ManualLoop]:
    """A connection that has written more than its client reads."""
    loop, transport, place = ManualLoop(), Transport(ours), Place()
    config, state = uvicorn.Config(no_app, ws="none", log_config=None), ServerState()
    connection = HttpConnection(place, config=config, server_state=state, app_state={}, _loop=loop)  # type: ignore[arg-type]
    connection.connection_made(transport)  # type: ignore[arg-type]
    connection.pause_writing()
    return connection, transport, loop


def test_only_a_client_that_takes_nothing_for_30_seconds_is_cut_off__D12() -> None:
    with pair() as (client, ours):
        ours.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                ours.send(bytes(65536))
        connection, transport, loop = paused(ours)
        for _ in range(5):
            loop.advance(29)
            assert not transport.is_aborted
            before = connection._taken_bytes()
            while connection._taken_bytes() == before:
                assert client.recv(1 << 16)
        loop.advance(30)
        assert not transport.is_aborted  # it was seen one second later at the latest
        loop.advance(1)
        assert transport.is_aborted


def test_where_the_system_does_not_tell_what_was_taken_the_buffer_does__D12(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "TCP_INFO")
    with pair() as (_, ours):
        _, transport, loop = paused(ours)
        for transport.left in (30, 20, 10):
            loop.advance(29)
            assert not transport.is_aborted
        loop.advance(32)
        assert transport.is_aborted


def asked(connection: socket.socket, *headers: bytes) -> int:
    """Ask for a large answer, and read the beginning; returns how much is left."""
    connection.sendall(HEAD % len(BODY) + b"".join(line + b"\r\n" for line in headers) + b"\r\n" + BODY)
    start = b""
    while b"\r\n\r\n" not in start:
        start += connection.recv(100)
    head, _, body = start.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    assert length is not None
    return int(length[1]) - len(body)


def rest(connection: socket.socket, size: int) -> int:
    """How much comes of what is left."""
    found = 0
    while found < size and (part := connection.recv(1 << 20)):
        found += len(part)
    return found


def small(connection: socket.socket, port: int) -> socket.socket:
    """Connected, with little room for what has come."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(20)
    connection.connect(("127.0.0.1", port))
    return connection


def wait_until_closed(connection: socket.socket) -> None:
    with contextlib.suppress(ConnectionError):
        while connection.recv(1 << 16):
            pass


def connections_of(served: Served) -> set[Any]:
    return {*served.ports._server.server_state.connections.copy()}  # another thread changes it


def is_stalled(served: Served) -> bool:
    """Whether the answer to a further request waits for its reader."""
    found = connections_of(served)
    return any(each.flow.write_paused and each.cycle and not each.cycle.response_started for each in found)


def wait_for(is_so: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < end_s
        time.sleep(0.005)


BEARER = b"authorization: Bearer " + TOKEN


@pytest.mark.parametrize(
    "first", [b"GET / HTTP/1.1\r\nhost: a\r\n\r\n", b"GET /metrics HTTP/1.1\r\nhost: a\r\n%s\r\n\r\n" % BEARER]
)
def test_a_request_takes_no_place_of_others_while_it_waits_for_its_reader__D12(
    first: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "REQUESTS", 1)
    monkeypatch.setattr(http_connection, "_READ_WITHIN_S", 600)
    served = Served(tmp_path, tokens=Tokens({TOKEN: ALL}))
    name, _, value = BEARER.decode().partition(": ")
    try:
        with small(socket.socket(), served.port) as connection:
            connection.sendall(first * 400)
            wait_for(lambda: is_stalled(served))
            message = {"id": "a", "due": 4_000_000_000_000}
            wait_for(lambda: served.ask("POST", "/messages", message, headers={name: value}).status == 201)
    finally:
        served.close()


def test_clients_that_do_not_read_have_a_bound_and_the_one_that_waits_longest_makes_room__D12(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "_CONNECTIONS", 2)
    monkeypatch.setattr(http_connection, "_LOOK_EVERY_S", 600)  # what the system takes at first does not count
    served = Served(tmp_path)
    try:
        with contextlib.ExitStack() as opened:
            readers, left = [], []
            for n in range(3):
                readers.append(opened.enter_context(small(socket.socket(), served.port)))
                left.append(asked(readers[n]))
                wait_for(lambda: sum(each._owes == "to read" for each in connections_of(served)) == min(len(left), 2))
            wait_for(lambda: len(connections_of(served)) == 2)
            silent = [opened.enter_context(socket.create_connection(("127.0.0.1", served.port), 20)) for _ in range(4)]
            wait_until_closed(silent[0])  # those that say nothing close only each other
            assert [rest(reader, size) == size for reader, size in zip(readers, left, strict=True)] == [
                False,
                True,
                True,
            ]
    finally:
        served.close()


PAGE_BYTES = 30 * 30_000 * 6


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """With a page of `PAGE_BYTES` and more, of which there is room for one."""
    monkeypatch.setattr(answers, "_MOST", 6_000_000)
    served = Served(tmp_path)
    for n in range(30):
        message = {"id": f"{n}", "key": "\1" * 30_000, "due": 4_000_000_000_000}  # six bytes each in the page
        assert served.ask("POST", "/messages", message).status == 201
    yield served
    served.close()


@contextlib.contextmanager
def unread_page(served: Served) -> Iterator[socket.socket]:
    """The client that has asked for the page, and reads nothing."""
    with small(socket.socket(), served.port) as connection:
        connection.sendall(b"GET /messages HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        wait_for(lambda: any(each._owes == "to read" for each in connections_of(served)))
        yield connection


def test_answers_that_wait_for_their_readers_have_a_bound_in_all__D12(large: Served) -> None:
    with unread_page(large) as connection:
        reply = large.ask("GET", "/messages")
        assert reply[:2] == (
            503,
            {"reason": "too many answers wait to be read", "allowed": "the same request again, later"},
        )
        assert reply.headers["retry-after"] == "1"
        assert large.ask("POST", "/messages", {"id": "small", "due": 4_000_000_000_000}).status == 201
        assert large.ask("GET", "/status").status == 200
        while large.ask("GET", "/messages").status != 200:  # until so much is read that there is room again
            assert rest(connection, 500_000)


def test_without_room_the_answer_that_waits_longest_gives_way__D12(
    large: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "_SLOW_S", 0)
    with unread_page(large) as connection:
        assert large.ask("GET", "/messages").status == 200
        assert rest(connection, PAGE_BYTES) < PAGE_BYTES  # it was cut off


def test_the_answer_to_a_change_is_given_whatever_waits__D11_D12(large: Served) -> None:
    with unread_page(large) as connection:
        kind = {"content-type": "application/x-ndjson"}
        assert large.ask("POST", "/messages", BODY, headers=kind).status == 200
        assert rest(connection, PAGE_BYTES) < PAGE_BYTES  # it was cut off


def test_the_deadline_of_the_next_head_begins_once_the_answer_is_read__D12(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (connections, http_connection):
        monkeypatch.setattr(module, "HEAD_WITHIN_S", 0.2)
    served = Served(tmp_path)
    try:
        with socket.socket() as connection:
            left = asked(small(connection, served.port))
            with socket.create_connection(("127.0.0.1", served.port), 20) as silent:
                wait_until_closed(silent)  # so that time has passed
            assert rest(connection, left) == left
    finally:
        served.close()


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def encrypted(ca: Pair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served(tmp_path_factory.mktemp("encrypted"), certificates=Certificates(TlsFiles(*signed(ca))))
    yield served
    served.close()


def test_the_end_of_tls_waits_until_the_answer_is_read__D12(ca: Pair, encrypted: Served) -> None:
    context = ssl.create_default_context(cafile=ca.cert)
    with context.wrap_socket(small(socket.socket(), encrypted.port), server_hostname="127.0.0.1") as connection:
        left = asked(connection, b"connection: close")
        plain = socket.create_connection(("127.0.0.1", encrypted.port), 20)
        with context.wrap_socket(plain, server_hostname="127.0.0.1") as other:
            other.sendall(b"GET /livez HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
            assert other.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
            with socket.socket(fileno=other.detach()) as silent:  # it does not end TLS, and is closed after a second
                silent.settimeout(20)
                wait_until_closed(silent)
        assert rest(connection, left) == left


def test_an_answer_over_tls_that_is_not_read_is_given_up__D12(
    ca: Pair, encrypted: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connection, "_READ_WITHIN_S", 0.2)
    monkeypatch.setattr(http_connection, "_LOOK_EVERY_S", 0.05)
    context = ssl.create_default_context(cafile=ca.cert)
    with context.wrap_socket(small(socket.socket(), encrypted.port), server_hostname="127.0.0.1") as connection:
        asked(connection)
        while encrypted.ports._server.server_state.connections:
            pass


def test_an_answer_over_tls_waits_for_its_reader_as_soon_as_one_without__D12(ca: Pair, encrypted: Served) -> None:
    """asyncio itself lets 512 KiB wait before a sender waits, and until then an answer does not count."""
    context = ssl.create_default_context(cafile=ca.cert)
    with context.wrap_socket(small(socket.socket(), encrypted.port), server_hostname="127.0.0.1") as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        assert connection.recv(12) == b"HTTP/1.1 200"
        assert {each.transport.get_write_buffer_limits()[1] for each in connections_of(encrypted)} == {65_536}
