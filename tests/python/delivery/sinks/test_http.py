import json
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tickwheel
from delivery.sinks.making import MIB, ODD_IDS, batch, delivery, opened
from tickwheel.delivery.errors import WrongUsage
from tickwheel.delivery.sinks import open_sink
from tickwheel.delivery.sinks.http import HttpSink, idempotency_key
from tickwheel.delivery.sinks.lines import line_of

pytestmark = pytest.mark.timeout(60)

Answer = Callable[["Receiver", "Hook"], None]


class Receiver(ThreadingHTTPServer):
    """Records each request; `answer` decides the response."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Hook)
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self.connections = 0
        self.over = threading.Event()
        self.answer: Answer = lambda server, hook: hook.reply(200)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections += 1
        super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores connections that the sink closed, as some tests intend."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Hook(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Receiver

    def handle_anything(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.requests.append((self.command, self.path, dict(self.headers), body))
        self.server.answer(self.server, self)

    do_POST = handle_anything  # noqa: N815, the base class's name
    do_GET = handle_anything  # noqa: N815

    def reply(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None: ...


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.over.set()
        server.shutdown()
        thread.join()


def test_the_request_is_what_the_file_sink_writes__D10(receiver: Receiver) -> None:
    given = [delivery(1), delivery(2, payload=b"\xff\x00", redelivered=True, attempt=3)]
    sink = opened(f"{receiver.url}/hooks/in?token=t%20t")
    assert sink.send(given) == {}
    sink.close()
    assert [body for *_, body in receiver.requests] == [line_of(one) for one in given]
    method, path, headers, body = receiver.requests[1]
    assert (method, path) == ("POST", "/hooks/in?token=t%20t")
    assert headers["Content-Type"] == "application/json"
    assert headers["User-Agent"] == f"tickwheel/{tickwheel.__version__}"
    assert json.loads(body)["payload_base64"] == "/wA="


def test_a_repeat_has_the_same_idempotency_key_and_nothing_else_has__D10(receiver: Receiver) -> None:
    given = [("a", "b"), ("a", "b"), (None, "b"), ("", "b"), ("ab", ""), ("a", 'b"'), ('a","b', "c"), ("a", 'b","c')]
    sink = opened(receiver.url)
    sink.send([delivery(seq, id_=id_ or "-", key=key) for seq, (key, id_) in enumerate(given)])
    sink.close()
    keys = [headers["Idempotency-Key"] for _, _, headers, _ in receiver.requests]
    assert keys[0] == keys[1] == idempotency_key("a", "b")
    assert len(set(keys)) == len(keys) - 1
    assert all(len(key) == 32 and int(key, 16) >= 0 for key in keys)


@pytest.mark.parametrize("id_", [*ODD_IDS, "nul\0byte"])
def test_any_id_arrives_and_none_gets_into_the_headers__D10(receiver: Receiver, id_: str) -> None:
    sink = opened(receiver.url)
    assert sink.send([delivery(id_=id_, key=id_)]) == {}
    sink.close()
    ((_, _, headers, body),) = receiver.requests
    assert (json.loads(body)["id"], json.loads(body)["key"]) == (id_, id_)
    usual = {"Host", "Accept-Encoding", "Content-Length", "Content-Type", "User-Agent"}
    assert set(headers) == {*usual, "Idempotency-Key"}


def test_a_payload_of_a_mebibyte_arrives__D10(receiver: Receiver) -> None:
    sink = opened(receiver.url)
    payload = b'"' + b"x" * (MIB - 2) + b'"'
    assert sink.send([delivery(1, payload=msgspec.Raw(payload)), delivery(2, payload=b"\xff" * MIB)]) == {}
    sink.close()
    assert payload in receiver.requests[0][3]
    assert len(receiver.requests[1][3]) > 4 * MIB // 3


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_two_hundred_and_something_has_arrived__D10(receiver: Receiver, status: int) -> None:
    receiver.answer = lambda server, hook: hook.reply(status)
    sink = opened(receiver.url)
    assert sink.send([delivery()]) == {}
    sink.close()


@pytest.mark.parametrize("status", [400, 401, 404, 409, 413, 429, 500, 503])
def test_another_status_is_a_failed_attempt_with_what_was_said__D6(receiver: Receiver, status: int) -> None:
    said = "schön\n\x1b[31m".encode() + b"\xff" + b"x" * 500
    receiver.answer = lambda server, hook: hook.reply(status, said, **{"Retry-After": "0"})
    sink = opened(receiver.url)
    refused = sink.send([delivery()])
    sink.close()
    start = f"status {status}: sch\u00f6n  [31m\ufffd"
    assert refused[0].startswith(start)
    assert len(refused[0]) == len(f"status {status}: ") + 200
    assert len(receiver.requests) == 1  # the deliverer retries, not the sink


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed__D12(receiver: Receiver, status: int) -> None:
    receiver.answer = lambda server, hook: hook.reply(status, Location=f"{receiver.url}/elsewhere")
    sink = opened(f"{receiver.url}/here")
    assert sink.send([delivery()]) == {0: f"status {status}, a redirect, which is not followed: "}
    sink.close()
    assert [path for _, path, *_ in receiver.requests] == ["/here"]


def test_one_refused_message_does_not_keep_the_next_one_back__D6(receiver: Receiver) -> None:
    receiver.answer = lambda server, hook: hook.reply(500 if len(server.requests) == 2 else 200)
    sink = opened(receiver.url)
    assert list(sink.send(batch([1, 2, 3]))) == [1]
    sink.close()


def test_one_connection_is_kept_for_all__D10(receiver: Receiver) -> None:
    receiver.answer = lambda server, hook: hook.reply(200 if len(server.requests) % 2 else 500, b"some answer")
    sink = opened(receiver.url)
    for seq in range(20):
        sink.send([delivery(seq)])
    sink.close()
    assert (receiver.connections, len(receiver.requests)) == (1, 20)


def test_a_connection_that_the_receiver_closed_is_opened_anew__D10(receiver: Receiver) -> None:
    def answer(_server: Receiver, hook: Hook) -> None:
        hook.reply(200, Connection="close")

    receiver.answer = answer
    sink = opened(receiver.url)
    assert [sink.send([delivery(seq)]) for seq in range(5)] == [{}] * 5
    sink.close()
    assert receiver.connections == 5


def test_an_endless_answer_is_not_read_to_its_end__D8(receiver: Receiver) -> None:
    def answer(_server: Receiver, hook: Hook) -> None:
        hook.send_response(200)
        hook.end_headers()
        while True:
            hook.wfile.write(b"x" * 65536)

    receiver.answer = answer
    sink = opened(receiver.url)
    began_s = time.monotonic()
    assert [sink.send([delivery(seq)]) for seq in range(2)] == [{}] * 2
    assert time.monotonic() - began_s < 10  # and not until the time-out
    sink.close()


def test_the_rest_of_a_long_answer_is_not_taken_for_the_next_one__D6(receiver: Receiver) -> None:
    def answer(_server: Receiver, hook: Hook) -> None:
        hook.wfile.write(b"HTTP/1.1 500 No\r\nContent-Length: 70000\r\n\r\n" + b"x" * 65536)
        if hook.rfile.readline():  # the next request, on the same connection
            hook.wfile.write(b"x" * (70000 - 65536))
        hook.close_connection = True

    receiver.answer = answer
    sink = opened(receiver.url)
    assert list(sink.send([delivery(1)])) == [0]
    receiver.answer = lambda server, hook: hook.reply(200)
    assert sink.send([delivery(2)]) == {}
    sink.close()


def test_a_refused_connection_is_a_failed_attempt_each_time__D6() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    sink = opened(f"http://127.0.0.1:{port}/")
    for _ in range(2):
        assert "refused" in sink.send([delivery()])[0]
    sink.close()


def test_a_receiver_that_comes_back_is_reached_by_the_same_sink__D6() -> None:
    with Receiver() as first:
        port = first.server_port
    sink = opened(f"http://127.0.0.1:{port}/")
    assert "refused" in sink.send([delivery()])[0]

    class Again(Receiver):
        def __init__(self) -> None:
            ThreadingHTTPServer.__init__(self, ("127.0.0.1", port), Hook)
            self.requests, self.connections, self.over = [], 0, threading.Event()
            self.answer = lambda server, hook: hook.reply(200)

    with Again() as second:
        thread = threading.Thread(target=second.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        assert sink.send([delivery()]) == {}
        sink.close()
        second.shutdown()
        thread.join()


def _never(server: Receiver, _hook: Hook) -> None:
    server.over.wait()


def _headers_trickle(server: Receiver, hook: Hook) -> None:
    hook.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    while not server.over.wait(0.05):
        hook.wfile.write(b"x")


def _status_trickles(server: Receiver, hook: Hook) -> None:
    hook.wfile.write(b"HTTP/1.1 ")
    while not server.over.wait(0.05):
        hook.wfile.write(b"2")


def _error_body_trickles(server: Receiver, hook: Hook) -> None:
    hook.wfile.write(b"HTTP/1.1 500 No\r\nContent-Length: 1000000\r\n\r\nsorry")
    while not server.over.wait(0.05):
        hook.wfile.write(b"x")


@pytest.mark.parametrize("answer", [_never, _headers_trickle, _status_trickles, _error_body_trickles])
def test_a_receiver_that_does_not_answer_in_time_is_given_up__D6(receiver: Receiver, answer: Answer) -> None:
    receiver.answer = answer
    sink = opened(receiver.url, timeout_s=0.3)
    began_s = time.monotonic()
    refused = sink.send([delivery()])
    took_s = time.monotonic() - began_s
    assert "timed out" in refused[0].lower() or "status 500" in refused[0]
    assert 0.25 < took_s < 3
    receiver.over.set()
    receiver.answer = lambda server, hook: hook.reply(200)
    assert sink.send([delivery()]) == {}
    sink.close()


def test_a_status_of_two_hundred_counts_whatever_becomes_of_the_rest__D5(receiver: Receiver) -> None:
    def answer(server: Receiver, hook: Hook) -> None:
        hook.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nhalf of it")
        hook.close_connection = True

    receiver.answer = answer
    sink = opened(receiver.url)
    assert [sink.send([delivery(seq)]) for seq in range(2)] == [{}] * 2
    sink.close()


@pytest.mark.parametrize("said", [b"", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 2x0 OK\r\n\r\n", b"\x00\xff" * 9])
def test_an_answer_that_is_not_http_is_a_failed_attempt__D6(receiver: Receiver, said: bytes) -> None:
    def answer(_server: Receiver, hook: Hook) -> None:
        hook.wfile.write(said)
        hook.close_connection = True

    receiver.answer = answer
    sink = opened(receiver.url)
    assert list(sink.send([delivery()])) == [0]
    sink.close()


def _certificate(folder: Path) -> tuple[Path, Path]:
    names = folder / "cert.pem", folder / "key.pem"
    kind = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
    details = ["-addext", "subjectAltName=IP:127.0.0.1", "-out", str(names[0]), "-keyout", str(names[1])]
    subprocess.run(["openssl", *kind.split(), *details], check=True, capture_output=True)
    return names


def test_a_certificate_is_checked__D10(receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key = _certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    receiver.socket = context.wrap_socket(receiver.socket, server_side=True)
    url = receiver.url.replace("http:", "https:")

    untrusting = opened(url)
    assert "CERTIFICATE_VERIFY_FAILED" in untrusting.send([delivery()])[0]
    untrusting.close()
    assert receiver.requests == []

    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    friend = opened(f"{url}/a?b=c")
    assert [friend.send([delivery(seq)]) for seq in range(3)] == [{}] * 3
    receiver.answer = _headers_trickle
    quick = opened(url, timeout_s=0.5)
    assert "timed out" in quick.send([delivery()])[0]
    quick.close()
    friend.close()
    assert receiver.requests[0][1] == "/a?b=c"


def test_no_proxy_is_taken_from_the_environment__D12(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    sink = opened(receiver.url)
    assert sink.send([delivery()]) == {}
    sink.close()


@pytest.mark.parametrize(
    "spec",
    [
        "http:",
        "http://",
        "http:///path",
        "https:host/path",
        "http://host:port/",
        "http://host:99999/",
        "http://host:0/",
        "http://[::1/",
        "http://ho st/",
        "http://host/a b",
        "http://host/a\nb",
        "http://host/\x00",
        "http://host/#part",
        "http://\u00fc.example/\u00fc\u200b",
    ],
)
def test_an_address_that_is_none_is_wrong_usage__D10(spec: str) -> None:
    with pytest.raises(WrongUsage):
        open_sink(spec)


@pytest.mark.parametrize("spec", ["https://me:s3cret@host/x", "https://s3cret@host", "https://me:s3/cret@host/x"])
def test_a_user_in_the_address_is_refused_and_not_shown__D10(spec: str) -> None:
    with pytest.raises(WrongUsage) as error:
        open_sink(spec)
    assert "s3" not in str(error.value)


@pytest.mark.parametrize(
    "spec", ["https://host", "http://host:8080/@user/x?y=z@a", "http://[::1]:80/", "https://1.2.3.4/"]
)
def test_ordinary_addresses_are_taken__D10(spec: str) -> None:
    assert callable(open_sink(spec))


def test_one_message_at_a_time_in_each_of_many_threads__D10() -> None:
    assert (HttpSink.max_batch, HttpSink.threads) == (1, 32)
