"""The client of a deliverer's port: what each answer means, and how a call is ended from outside (rules S3, D12)."""

import contextlib
import http.client
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from delivery.certificates import authority, signed
from tickwheel.delivery.serve.client_tls import ClientTls
from tickwheel.spark.client import PASSING, Access, Client, NotTaken, Refused, reason_of

pytestmark = pytest.mark.timeout(30)
Answer = Callable[[int], tuple[int, bytes] | None]


class Peer:
    """A port that answers each request as the test says; `None`: not before the end."""

    def __init__(self, answer: Answer, context: ssl.SSLContext | None = None) -> None:
        peer = self
        self.over = threading.Event()
        self.asked = threading.Semaphore(0)
        self.count = 0

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                peer.count += 1
                found = answer(peer.count)
                peer.asked.release()
                if found is None:
                    peer.over.wait(20)
                    self.close_connection = True
                    return
                self.send_response(found[0])
                self.send_header("content-length", str(len(found[1])))
                self.end_headers()
                self.wfile.write(found[1])

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._serving = threading.Thread(target=self._server.serve_forever, args=[0.01])
        self._serving.start()
        self.at = f"127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self.over.set()
        self._server.shutdown()
        self._serving.join()
        self._server.server_close()


@contextlib.contextmanager
def peer(answer: Answer, context: ssl.SSLContext | None = None) -> Iterator[Peer]:
    made = Peer(answer, context)
    try:
        yield made
    finally:
        made.close()


def problem(reason: str) -> bytes:
    return json.dumps({"reason": reason, "allowed": "something else"}).encode()


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 413, 415, 408, 409, 500, 503])
def test_an_answer_says_whether_waiting_will_mend_it__S3(status: int) -> None:
    with peer(lambda _: (status, problem("no\n  such"))) as other:
        client = Access().connect(other.at, 20)
        may_pass = status in (408, 409, 500, 503)
        with pytest.raises(NotTaken if may_pass else Refused) as refused:
            client.marks()
        assert isinstance(refused.value, PASSING) == may_pass
        assert reason_of(refused.value) == f"{status}: no such; allowed: something else"
        client.close()


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'"x"', b'{"reason": 1}', b"\xff", b"null"])
def test_an_answer_of_something_else_is_told_as_that__S3(body: bytes) -> None:
    with peer(lambda _: (503, body)) as other:
        client = Access().connect(other.at, 20)
        with pytest.raises(NotTaken, match="503, by something that is no tickwheel serve"):
            client.marks()
        client.close()


@pytest.fixture(params=["plain", "TLS"])
def contexts(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[ClientTls | None, ssl.SSLContext | None]:
    """How both sides encrypt."""
    if request.param == "plain":
        return None, None
    ca = authority(tmp_path)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*signed(ca))
    return ClientTls.read(ca.cert), server


@pytest.mark.parametrize("before", [0, 1, 2])
def test_a_client_that_is_closed_ends_its_call_and_asks_no_more__S3(
    before: int, contexts: tuple[ClientTls | None, ssl.SSLContext | None]
) -> None:
    """Also on a connection that was used before, where an end may be the peer's, which had been idle for too long."""
    tls, context = contexts
    with peer(lambda number: (200, b"{}") if number <= before else None, context) as other:
        client = Access(None, tls).connect(other.at, 20)
        for _ in range(before):
            assert client.marks() == {}
            assert other.asked.acquire(timeout=20)
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(client.marks)
            assert other.asked.acquire(timeout=20)
            client.close()
            with pytest.raises(NotTaken, match="closed here"):
                asked.result(10)
        with pytest.raises(NotTaken):
            client.marks()
        assert other.count == before + 1


@pytest.mark.parametrize("step", ["connect", "request"])
def test_a_client_that_is_closed_while_it_begins_to_ask_asks_nothing__S3(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with peer(lambda _: (200, b"{}")) as other:
        client = Access().connect(other.at, 20)
        goes_on = getattr(http.client.HTTPConnection, step)

        def late(connection: http.client.HTTPConnection, *given: object) -> None:
            client.close()
            goes_on(connection, *given)

        monkeypatch.setattr(http.client.HTTPConnection, step, late)
        with pytest.raises(NotTaken):
            client.marks()
        assert other.count == 0


def test_a_peer_that_says_nothing_for_too_long_is_given_up__S3() -> None:
    with peer(lambda _: None) as other:
        client = Access().connect(other.at, 0.2)
        with pytest.raises(TimeoutError):
            client.marks()
        assert other.count == 1, "it is not asked again"
        client.close()


def test_an_answer_may_be_of_some_size_and_is_read_to_its_end__S4() -> None:
    text = json.dumps({"openings": [["k" * 1_000, 7]] * 250}).encode()
    with peer(lambda _: (200, text)) as other:
        client = Access().connect(other.at, 20)
        for _ in range(2):
            assert client.marks() == json.loads(text)
        client.close()


@pytest.mark.parametrize(("address", "host"), [("[::1]:7400", "::1"), ("h.example:1", "h.example")])
def test_an_address_may_be_of_any_kind__S5(address: str, host: str) -> None:
    assert Client(address, Access(), 1)._peer == (host, int(address.rpartition(":")[2]))
