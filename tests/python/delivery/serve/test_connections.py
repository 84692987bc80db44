"""Connections that say nothing, or too slowly, take no place of others (rule D12)."""

import asyncio
import contextlib
import resource
import select
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from delivery.batches import batch, stream
from tickwheel.delivery.serve import application, bodies, connections, http_connection
from tickwheel.delivery.serve.bodies import Bodies

from .conftest import ARROW, Room, Served

pytestmark = pytest.mark.timeout(60)
MANY = 260
FAR_MS = 4_000_000_000_000
STREAM_HEAD = b"POST /messages HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: %s\r\ncontent-length: %%d\r\n\r\n" % (
    ARROW["content-type"].encode()
)
HEAD = b"POST /messages HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 100000\r\n\r\n"


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path)
    yield served
    served.close()


@contextlib.contextmanager
def opened(port: int, count: int = MANY, first: bytes = b"") -> Iterator[list[socket.socket]]:
    """So many connections, each of which sends these bytes and no more."""
    with contextlib.ExitStack() as stack:
        made = []
        for _ in range(count):
            made.append(stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20)))
            if first:
                with contextlib.suppress(ConnectionError):
                    made[-1].sendall(first)
        yield made


def half_closed(port: int) -> contextlib.AbstractContextManager[list[socket.socket]]:
    @contextlib.contextmanager
    def made() -> Iterator[list[socket.socket]]:
        with opened(port, first=HEAD + b"{") as found:
            for each in found:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_WR)
            yield found

    return made()


def is_closed(connection: socket.socket) -> bool:
    """Once it is closed by the other side, whatever was sent before; the time-out of the socket is an error."""
    try:
        while connection.recv(65536):
            pass
    except ConnectionError:
        pass
    return True


SILENT = {
    "silent": opened,
    "half a head": lambda port: opened(port, first=HEAD[:30]),
    "a slow body": lambda port: opened(port, 600, HEAD + b"{"),  # more than there may be requests at a time
    "a slow stream": lambda port: opened(
        port, 600, STREAM_HEAD % 100_000 + stream(batch(id=["a"], due=[FAR_MS]))[:-30]
    ),
    "half-closed": half_closed,
    "answered": lambda port: opened(port, first=b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"),
}


@pytest.mark.parametrize("kind", SILENT)
def test_others_are_served_beside_260_that_say_nothing__D12(kind: str, fresh: Served) -> None:
    with SILENT[kind](fresh.port):
        for n in range(20):
            assert fresh.ask("GET", "/healthz").status == 200
            assert fresh.ask("POST", "/messages", {"id": f"{n}", "due": FAR_MS}).status == 201
        assert fresh.ask("POST", "/messages", stream(batch(id=["x"], due=[FAR_MS])), headers=ARROW).status == 200
        with opened(fresh.port):  # and as many again
            assert fresh.ask("DELETE", "/messages/7").status == 200
            assert fresh.ask("GET", "/healthz").status == 200


@pytest.fixture
def long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deadlines that play no part."""
    for module in (connections, http_connection):
        monkeypatch.setattr(module, "HEAD_WITHIN_S", 600)


@pytest.mark.usefixtures("long")
def test_the_one_that_waits_longest_makes_room__D12(fresh: Served) -> None:
    with opened(fresh.port, 256) as first:
        assert fresh.ask("GET", "/healthz").status == 200
        assert is_closed(first[0])
        first[1].setblocking(False)
        with pytest.raises(BlockingIOError):
            first[1].recv(1)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deadlines that a test can wait for."""
    for module in (connections, http_connection):
        monkeypatch.setattr(module, "HEAD_WITHIN_S", 0.2)


@pytest.mark.parametrize("first", [b"", HEAD[:30], b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n", b"\r\n" * 10])
@pytest.mark.usefixtures("short")
def test_one_that_says_nothing_is_closed__D12(first: bytes, fresh: Served) -> None:
    with opened(fresh.port, 1, first) as [connection]:
        assert is_closed(connection)


@pytest.mark.usefixtures("short")
def test_one_whose_bytes_trickle_is_closed__D12(fresh: Served) -> None:
    def trickle(connection: socket.socket) -> None:
        for _ in range(4000):  # to the end it would take 20 s
            connection.sendall(b"G")
            time.sleep(0.005)

    with opened(fresh.port, 1) as [connection], pytest.raises(ConnectionError):
        trickle(connection)


@pytest.mark.usefixtures("short")
def test_a_stream_that_has_begun_may_pause_for_longer_than_that__D12(fresh: Served) -> None:
    given = stream(batch(id=["a"], due=[FAR_MS]), batch(id=["b"], due=[FAR_MS]))
    with opened(fresh.port, 1, STREAM_HEAD % len(given) + given[:-30]) as [connection]:
        with opened(fresh.port, 1) as [other]:  # of which the deadline is known to have passed
            assert is_closed(other)
        connection.sendall(given[-30:])
        assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")
    assert fresh.ask("GET", "/messages/b").status == 200


def test_a_body_that_stalls_is_answered_408__D12(monkeypatch: pytest.MonkeyPatch, fresh: Served) -> None:
    monkeypatch.setattr(bodies, "_WITHIN_S", 0.2)
    with opened(fresh.port, 1, HEAD + b"{") as [connection]:
        assert connection.recv(4096).startswith(b"HTTP/1.1 408 ")
        assert is_closed(connection)


@pytest.mark.usefixtures("long")
def test_an_answer_that_is_not_read_is_given_up__D12(monkeypatch: pytest.MonkeyPatch, fresh: Served) -> None:
    monkeypatch.setattr(http_connection, "_READ_WITHIN_S", 0.2)
    message = b'{"id":"a","due":%d}\n'
    body = message % FAR_MS + message % (FAR_MS + 1) * 100_000  # answered with some 14 MB of 409
    head = b"POST /messages HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/x-ndjson\r\n"
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", fresh.port))
        connection.sendall(head + b"content-length: %d\r\n\r\n" % len(body) + body)
        assert connection.recv(100).startswith(b"HTTP/1.1 200 ")
        deadline_s = time.monotonic() + 20
        while fresh.ports._server.server_state.connections:
            assert time.monotonic() < deadline_s


LARGE = stream(batch(id=["large"], due=[FAR_MS], payload=[b" " * 99_000]))


@pytest.mark.parametrize(
    ("begun", "rest", "answer"),
    [
        (HEAD + b" " * 90_000, b" " * 10_000, b"400"),
        (STREAM_HEAD % len(LARGE) + LARGE[:90_000], LARGE[90_000:], b"200"),
    ],
    ids=["whole", "in parts"],
)
def test_bodies_have_a_bound_in_all_and_the_slowest_gives_way__D8_D12(
    begun: bytes, rest: bytes, answer: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bodies, "Bodies", lambda _: Bodies(Room(200_000).take))
    monkeypatch.setattr(bodies, "_SLOW_S", 0)
    monkeypatch.setattr(bodies, "_WITHIN_S", 600)  # only a lack of room ends a body
    served = Served(tmp_path)

    async def sizes() -> list[int]:
        return [it.size for it in served.ports._bodies._on_their_way]

    try:
        with contextlib.ExitStack() as stack:
            [first] = stack.enter_context(opened(served.port, 1, begun))
            while asyncio.run_coroutine_threadsafe(sizes(), served.ports._loop).result(20) != [90_000]:
                time.sleep(0.001)  # its time stands still while a part of it is taken
            [second] = stack.enter_context(opened(served.port, 1, begun))
            message = {"id": "a", "due": FAR_MS, "payload": "x" * 50_000}
            while not select.select([first], [], [], 0)[0]:
                served.ask("POST", "/messages", message)  # until both are there, and the first has given way
            while served.running.summary.duplicates == 0:
                assert served.ask("POST", "/messages", message).status in (200, 201)
            given_up = b"".join(iter(lambda: first.recv(4096), b""))
            assert given_up.startswith(b"HTTP/1.1 408 ")
            assert b"there was no room for all bodies" in given_up
            second.sendall(rest)
            assert second.recv(4096).startswith(b"HTTP/1.1 " + answer)  # it was received
    finally:
        served.close()


def test_without_room_a_fast_body_is_told_to_come_again__D8_D12(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bodies, "Bodies", lambda _: Bodies(Room(50_000).take))
    served = Served(tmp_path)
    try:
        reply = served.ask("POST", "/messages", {"id": "a", "due": FAR_MS, "payload": "x" * 60_000})
        assert reply[:2] == (
            503,
            {"reason": "too many bodies are being received", "allowed": "the same request again, later"},
        )
        assert reply.headers["retry-after"] == "1"
        assert served.ask("POST", "/messages", {"id": "b", "due": FAR_MS}).status == 201
    finally:
        served.close()


@pytest.mark.parametrize(
    ("kind", "made"),
    [
        ("application/x-ndjson", lambda ids: b"".join(b'{"id": "%s", "due": -1}\n' % id_.encode() for id_ in ids)),
        (ARROW["content-type"], lambda ids: stream(batch(id=ids, due=[-1] * len(ids)))),
    ],
)
def test_bad_records_take_room_beside_the_body__D8_D12(
    kind: str, made: Callable[[list[str]], bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bodies, "Bodies", lambda _: Bodies(Room(50_000).take))
    served = Served(tmp_path)
    try:
        for _ in range(3):  # the room is given back
            reply = served.ask("POST", "/messages", made([f"{n}" for n in range(100)]), headers={"content-type": kind})
            assert reply.status == 503
            assert reply.body["reason"].startswith("too many bodies are being received")
            reply = served.ask("POST", "/messages", made([f"{n}" for n in range(30)]), headers={"content-type": kind})
            assert (reply.status, reply.body.count('"status":400')) == (200, 30)
    finally:
        served.close()


def test_requests_have_a_bound_and_health_is_told_beyond_it__D12(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(application, "REQUESTS", 1)
    served = Served(tmp_path)
    try:
        with opened(served.port, 1, HEAD + b"{"):
            while (reply := served.ask("GET", "/messages/a")).status == 404:
                pass  # until the other request is there
            assert reply[:2] == (
                503,
                {"reason": "too many requests at a time", "allowed": "the same request again, later"},
            )
            assert served.ask("GET", "/healthz").status == 200
    finally:
        served.close()


def test_without_files_to_open_it_waits_and_serves_on__D12(
    fresh: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as connection:
        connection.settimeout(20)
        resource.setrlimit(resource.RLIMIT_NOFILE, (connection.fileno() + 1, limits[1]))
        try:
            connection.connect(("127.0.0.1", fresh.port))
            while not caplog.records:
                time.sleep(0.01)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert "a connection can't be accepted: Too many open files" in caplog.records[0].getMessage()
        connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")


def sent(id_: str, more: bytes = b"") -> bytes:
    body = b'{"id": "%s", "due": %d, "payload": 1}' % (id_.encode(), FAR_MS)
    return b"POST /messages HTTP/1.1\r\nhost: 127.0.0.1\r\n%scontent-length: %d\r\n\r\n%s" % (more, len(body), body)


def everything(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(65536), b""))


def test_a_client_that_half_closes_gets_its_answers__D11(fresh: Served) -> None:
    with opened(fresh.port, 1, sent("a") + sent("b") + HEAD[:30]) as [connection]:
        connection.shutdown(socket.SHUT_WR)
        answer = everything(connection)
    assert (answer.count(b"HTTP/1.1 201 "), answer.count(b"HTTP/1.1 ")) == (2, 2)


def test_a_request_with_two_lengths_is_refused_and_its_connection_closed__D12(fresh: Served) -> None:
    two = sent("a", b"transfer-encoding: chunked\r\n").replace(b"\r\n\r\n", b"\r\n\r\n0\r\n\r\n") + sent("b")
    with opened(fresh.port, 1, two) as [connection]:
        answer = everything(connection)
    assert (answer[:13], answer.count(b"HTTP/1.1 ")) == (b"HTTP/1.1 400 ", 1)
    assert b"content-length and transfer-encoding" in answer
    assert fresh.ask("GET", "/messages/b").status == 404


def test_a_connection_that_comes_at_the_end_leaves_no_traceback__D12() -> None:
    async def scenario() -> list[dict[str, object]]:
        found: list[dict[str, object]] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: found.append(context))
        listening = socket.create_server(("127.0.0.1", 0))
        acceptor = connections.Acceptor(listening, lambda: None, lambda _: asyncio.Protocol(), 1)
        accepting = loop.create_task(acceptor.run())
        await asyncio.sleep(0)  # it waits for a connection
        with socket.create_connection(listening.getsockname()):
            loop.call_soon(accepting.cancel)  # in the step of the loop that finds the connection
            await asyncio.wait([accepting])
            await asyncio.sleep(0)
        return found

    assert asyncio.run(scenario()) == []


def test_a_body_that_is_on_its_way_at_the_end_is_answered_503__D9_D11(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bodies, "_END_WITHIN_S", 0.1)
    served = Served(tmp_path)
    try:
        head = HEAD[:-2] + b"content-type: application/x-ndjson\r\nexpect: 100-continue\r\n\r\n"
        with opened(served.port, 1, head) as [connection]:
            assert connection.recv(4096).startswith(b"HTTP/1.1 100 ")
            connection.sendall(b'{"id": "a"')
            served.ports.close()
            answer = everything(connection)
    finally:
        served.close()
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"the server is stopping" in answer
    assert b"; none of its messages was accepted" in answer
    assert b"the same request again, later" in answer
