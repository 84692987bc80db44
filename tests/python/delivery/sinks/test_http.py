"""Webhooks by the engine's own client, against receivers on this machine that answer as each test says."""

import json
import logging
import socket
import ssl
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tickwheel
from delivery.sinks.making import MIB, ODD_IDS
from tickwheel.delivery import Answer, DeliveryQueue, Letter, Message
from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.delivery.sinks import Destination, open_sink

pytestmark = pytest.mark.timeout(60)

Reply = Callable[["Receiver", "Hook"], None]

JSON = msgspec.Raw(b'{"x": 1.50}')
LONG_S = 30
FIELDS = ["id", "key", "due", "payload", "delivered_at", "lateness_ms", "attempt", "redelivered"]


class Receiver(ThreadingHTTPServer):
    """Records each request; `answer` decides the response."""

    daemon_threads = True
    request_queue_size = 512

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Hook)
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self.connections = 0
        self.over = threading.Event()
        self.answer: Reply = lambda server, hook: hook.reply(200)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections += 1
        super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores connections that the sink closed, as some tests intend."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(body) for *_, body in self.requests]

    @property
    def ids(self) -> list[str]:
        return [body["id"] for body in self.bodies]


class Hook(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Receiver

    def handle_anything(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.requests.append((self.command, self.path, headers, body))
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


@contextmanager
def receiving(port: int = 0) -> Iterator[Receiver]:
    with Receiver(port) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.over.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as server:
        yield server


class Told(logging.Handler):
    """What the engine logs: when the destination goes down, and when it comes up."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.outages: list[str] = []
        self.is_down = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text.startswith("the destination is down: "):
            self.outages.append(text.removeprefix("the destination is down: "))
            self.is_down.set()
        elif text.startswith("the destination is up again"):
            self.outages.append("up")


@pytest.fixture
def told() -> Iterator[Told]:
    handler = Told()
    logger = logging.getLogger("tickwheel.delivery")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


@pytest.fixture
def queue_to(tmp_path: Path) -> Iterator[Callable[..., DeliveryQueue]]:
    """Opens a queue; `letters` of it has what was given up."""
    made: list[DeliveryQueue] = []

    def make(url: str, **settings: Any) -> DeliveryQueue:
        letters: list[Letter] = []
        path = tmp_path / f"{len(made)}.db"
        queue = DeliveryQueue(path, to=url, on_dead_letter=letters.append, **settings)
        queue.letters = letters  # type: ignore[attr-defined]
        made.append(queue)
        return queue

    yield make
    for queue in made:
        queue.close()


@pytest.fixture
def outcome(queue_to: Callable[..., DeliveryQueue]) -> Callable[..., list[str]]:
    """Delivers some messages by one attempt each, and returns the reasons of those that were given up."""

    def deliver(url: str, *messages: Message, **settings: Any) -> list[str]:
        queue = queue_to(url, **{"max_attempts": 1, **settings})
        assert set(queue.put_many(messages or [message("a")])) == {Answer.ACCEPTED}
        assert queue.wait_until_empty(LONG_S)
        queue.close()
        return [letter.reason for letter in queue.letters]  # type: ignore[attr-defined]

    return deliver


Outcome = Callable[..., list[str]]
QueueTo = Callable[..., DeliveryQueue]


def message(id_: str, payload: msgspec.Raw | bytes = JSON, key: str | None = "k", due_ms: int = 1) -> Message:
    return Message(id_, key, due_ms, payload)


def in_order(count: int, keys: Sequence[str] = ("a", "b")) -> list[Message]:
    return [message(str(number), key=keys[number % len(keys)], due_ms=1 + number) for number in range(count)]


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


# --- The request ---------------------------------------------------------


def test_the_request_is_what_the_file_sink_writes__D10(receiver: Receiver, outcome: Outcome) -> None:
    assert outcome(f"{receiver.url}/hooks/in?token=t%20t", message("a"), message("b", b"\xff\x00")) == []
    method, path, headers, body = receiver.requests[0]
    assert (method, path) == ("POST", "/hooks/in?token=t%20t")
    assert headers["content-type"] == "application/json"
    assert headers["user-agent"] == f"tickwheel/{tickwheel.__version__}"
    assert body.startswith(
        b'{"id":"a","key":"k","due":"1970-01-01T00:00:00.001Z","payload":{"x": 1.50},"delivered_at":"2'
    )
    assert body.endswith(b',"attempt":1,"redelivered":false}\n')
    assert list(json.loads(body)) == FIELDS
    assert receiver.bodies[1]["payload_base64"] == "/wA="


def test_any_id_arrives_and_none_gets_into_the_headers_but_as_a_digest__D10(
    receiver: Receiver, outcome: Outcome
) -> None:
    names = [*((key, id_) for id_ in [*ODD_IDS, "nul\0byte"] for key in (id_, None)), ("a", 'b","c'), ('a","b', "c")]
    assert outcome(receiver.url, *(message(id_, key=key) for key, id_ in names)) == []
    found = {
        (body["key"], body["id"]): request[2] for request, body in zip(receiver.requests, receiver.bodies, strict=True)
    }
    assert found.keys() == set(names)
    usual = {"host", "content-length", "content-type", "user-agent"}
    for name, headers in found.items():
        assert headers.keys() == {*usual, "idempotency-key"}
        digest = blake2b(msgspec.json.encode(name), digest_size=16).hexdigest()
        assert headers["idempotency-key"] == digest


def test_a_payload_of_a_mebibyte_arrives__D10(receiver: Receiver, outcome: Outcome) -> None:
    payload = b'"' + b"x" * (MIB - 2) + b'"'
    assert outcome(receiver.url, message("a", msgspec.Raw(payload)), message("b", b"\xff" * MIB)) == []
    assert payload in receiver.requests[0][3]
    assert len(receiver.requests[1][3]) > 4 * MIB // 3


def test_a_key_has_one_connection_and_others_their_own__D10(receiver: Receiver, outcome: Outcome) -> None:
    assert outcome(receiver.url, *in_order(40, ["k"])) == []
    assert (receiver.connections, receiver.ids) == (1, [str(number) for number in range(40)])


def test_no_proxy_is_taken_from_the_environment__D12(
    receiver: Receiver, outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert outcome(receiver.url) == []


# --- What an answer means ------------------------------------------------


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_two_hundred_and_something_has_arrived__D10(receiver: Receiver, outcome: Outcome, status: int) -> None:
    receiver.answer = lambda server, hook: hook.reply(status)
    assert outcome(receiver.url) == []


@pytest.mark.parametrize("status", [400, 401, 404, 409, 413, 500])
def test_another_status_is_a_failed_attempt_with_what_was_said__D6(
    receiver: Receiver, outcome: Outcome, status: int
) -> None:
    said = "schön\n\x1b[31m".encode() + b"\xff" + b"x" * 500
    receiver.answer = lambda server, hook: hook.reply(status, said)
    [reason] = outcome(receiver.url)
    answer = reason.removeprefix(f"gave up after 1 attempt: status {status}: ")
    assert answer.startswith("schön  [31m\ufffd")
    assert len(answer) == 200
    assert len(receiver.requests) == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed__D12(receiver: Receiver, outcome: Outcome, status: int) -> None:
    receiver.answer = lambda server, hook: hook.reply(status, Location=f"{receiver.url}/elsewhere")
    [reason] = outcome(f"{receiver.url}/here")
    assert f"status {status}, a redirect, which is not followed" in reason
    assert [path for _, path, *_ in receiver.requests] == ["/here"]


def _status_only(_server: Receiver, hook: Hook) -> None:
    hook.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nhalf of it")
    hook.close_connection = True


def _endless(_server: Receiver, hook: Hook) -> None:
    hook.send_response(200)
    hook.end_headers()
    while True:
        hook.wfile.write(b"x" * 65536)


@pytest.mark.parametrize("answer", [_status_only, _endless])
def test_a_status_of_two_hundred_counts_whatever_becomes_of_the_rest__D5_D8(
    receiver: Receiver, outcome: Outcome, answer: Reply
) -> None:
    receiver.answer = answer
    began_s = time.monotonic()
    assert outcome(receiver.url, *in_order(2)) == []
    assert time.monotonic() - began_s < 10  # and not until the time-out


@pytest.mark.parametrize("said", [b"", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 2x0 OK\r\n\r\n", b"\x00\xff" * 9])
def test_an_answer_that_is_not_http_is_a_failed_attempt__D6(receiver: Receiver, outcome: Outcome, said: bytes) -> None:
    def answer(_server: Receiver, hook: Hook) -> None:
        hook.wfile.write(said)
        hook.close_connection = True

    receiver.answer = answer
    [_] = outcome(receiver.url, unanswered_for_s=0.001)


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
def test_a_receiver_that_does_not_answer_in_time_is_given_up__D6(
    receiver: Receiver, outcome: Outcome, answer: Reply
) -> None:
    receiver.answer = answer
    began_s = time.monotonic()
    [reason] = outcome(receiver.url, sink_timeout_s=0.3, unanswered_for_s=0.1)
    assert "no answer in time" in reason or "status 500: sorry" in reason
    assert time.monotonic() - began_s < 5


# --- Down ----------------------------------------------------------------


def test_a_port_that_is_closed_for_a_while_costs_no_message_and_no_order__D6(queue_to: QueueTo, told: Told) -> None:
    port, keys = closed_port(), [f"k{number}" for number in range(10)]
    queue = queue_to(f"http://127.0.0.1:{port}/", max_attempts=1)
    queue.put_many(in_order(100, keys))
    assert told.is_down.wait(LONG_S)
    assert not queue.wait_until_empty(1.5)  # some tries
    with receiving(port) as receiver:
        assert queue.wait_until_empty(LONG_S)
        queue.close()
        by_key = {key: [int(body["id"]) for body in receiver.bodies if body["key"] == key] for key in keys}
        assert by_key == {key: list(range(number, 100, 10)) for number, key in enumerate(keys)}
        assert max(body["attempt"] for body in receiver.bodies) > 1
        assert not any(body["redelivered"] for body in receiver.bodies), "it is certain that none arrived before"
    assert "refused" in told.outages[0]
    assert told.outages[1:] == ["up"]
    assert queue.letters == []  # type: ignore[attr-defined]


def test_a_port_that_is_closed_for_four_keys_is_not_down__D6(queue_to: QueueTo, told: Told) -> None:
    port = closed_port()
    queue = queue_to(f"http://127.0.0.1:{port}/", max_attempts=1)
    queue.put_many(in_order(40, ["a", "b", "c", "d"]))
    assert not queue.wait_until_empty(2.5)
    assert (told.outages, queue.letters) == ([], [])  # type: ignore[attr-defined]


def test_a_name_that_does_not_resolve_is_down_for_five_keys__D6(queue_to: QueueTo, told: Told) -> None:
    queue = queue_to("http://nothing.invalid/", max_attempts=1)
    queue.put_many([message(str(number), key=None) for number in range(5)])
    assert told.is_down.wait(LONG_S)
    assert "lookup" in told.outages[0]
    queue.close()
    assert queue.letters == []  # type: ignore[attr-defined]
    assert queue.summary.delivered == 0


def test_503_with_a_time_is_asked_again_then_and_not_before__D6(
    receiver: Receiver, queue_to: QueueTo, told: Told
) -> None:
    began_s = time.monotonic()
    busy_at_s: defaultdict[str, list[float]] = defaultdict(list)

    def answer(_server: Receiver, hook: Hook) -> None:
        at_s = time.monotonic() - began_s
        if at_s > 3:
            return hook.reply(200)
        busy_at_s[hook.headers["Idempotency-Key"]].append(at_s)
        return hook.reply(503, b"busy", **{"Retry-After": "2"})

    receiver.answer = answer
    queue = queue_to(receiver.url, max_attempts=1)
    queue.put_many([message(str(number), key=None) for number in range(4)])
    assert queue.wait_until_empty(LONG_S)
    queue.close()
    assert told.outages == [], "four keys are too few"
    waits_s = [after_s - before_s for at_s in busy_at_s.values() for before_s, after_s in pairwise(at_s)]
    assert waits_s
    assert min(waits_s) >= 1.9
    assert all(body["redelivered"] == (body["attempt"] > 1) for body in receiver.bodies)
    assert (queue.summary.delivered, queue.letters) == (4, [])  # type: ignore[attr-defined]


def test_a_receiver_that_hangs_is_down_after_five_keys_and_no_attempt_counts__D6(
    receiver: Receiver, queue_to: QueueTo, told: Told
) -> None:
    receiver.answer = _never
    queue = queue_to(receiver.url, max_attempts=1, sink_timeout_s=0.3)
    queue.put_many([message(str(number), key=None) for number in range(5)])
    assert told.is_down.wait(LONG_S)
    receiver.answer = lambda server, hook: hook.reply(200)
    receiver.over.set()
    assert queue.wait_until_empty(LONG_S)
    queue.close()
    assert told.outages == ["no answer in time", "up"]
    assert {body["redelivered"] for body in receiver.bodies if body["attempt"] > 1} == {True}
    assert (queue.summary.delivered, queue.letters) == (5, [])  # type: ignore[attr-defined]


def test_a_poisonous_message_among_a_thousand_good_ones_stops_nothing__D6(
    receiver: Receiver, queue_to: QueueTo, told: Told
) -> None:
    def choke(_server: Receiver, hook: Hook) -> None:
        hook.reply(500 if hook.headers["Idempotency-Key"] == poison else 200, b"I choke")

    poison = blake2b(msgspec.json.encode([None, "poison"]), digest_size=16).hexdigest()
    receiver.answer = choke
    queue = queue_to(receiver.url, max_attempts=2)
    many = [message(str(number), key=None) for number in range(1000)]
    queue.put_many([*many[:500], message("poison", key=None), *many[500:]])
    assert queue.wait_until_empty(LONG_S)
    queue.close()
    assert (queue.summary.delivered, told.outages) == (1000, [])
    [letter] = queue.letters  # type: ignore[attr-defined]
    assert "status 500: I choke" in letter.reason
    assert receiver.ids.count("poison") == 2


def _certificate(folder: Path) -> tuple[Path, Path]:
    names = folder / "cert.pem", folder / "key.pem"
    kind = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
    details = ["-addext", "subjectAltName=IP:127.0.0.1", "-out", str(names[0]), "-keyout", str(names[1])]
    subprocess.run(["openssl", *kind.split(), *details], check=True, capture_output=True)
    return names


def test_a_certificate_is_checked_and_one_that_is_not_trusted_is_down__D6_D10(
    receiver: Receiver, queue_to: QueueTo, told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = _certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    receiver.socket = context.wrap_socket(receiver.socket, server_side=True)
    url = receiver.url.replace("http:", "https:")

    untrusting = queue_to(url)
    untrusting.put_many([message(str(number), key=None) for number in range(5)])
    assert told.is_down.wait(LONG_S)
    assert told.outages[0].startswith(
        "the receiver's certificate is self-signed, or an authority's own, and not trusted: add it to the certificates"
    )
    untrusting.close()
    assert untrusting.letters == []  # type: ignore[attr-defined]
    assert receiver.requests == []

    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    told.is_down.clear()
    told.outages.clear()
    other = queue_to(f"https://localhost:{receiver.server_port}")
    other.put_many([message(str(number), key=None) for number in range(5)])
    assert told.is_down.wait(LONG_S)
    assert told.outages[0].startswith(
        "the receiver's certificate is for 127.0.0.1, not for localhost: write the name of the certificate in the"
    )
    other.close()

    friend = queue_to(f"{url}/a?b=c")
    friend.put_many(in_order(3))
    assert friend.wait_until_empty(LONG_S)
    friend.close()
    assert [path for _, path, *_ in receiver.requests] == ["/a?b=c"] * 3


# --- The address ---------------------------------------------------------


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


@pytest.mark.parametrize(
    "spec",
    [
        "https://me:s3cret@host/x",
        "https://s3cret@host",
        "https://me:s3/cret@host/x",
        "https://host:port/s3cret?s3cret",
        "https://host/hook?password=s3cret#",
    ],
)
def test_a_secret_in_the_address_is_not_shown__D10(spec: str) -> None:
    with pytest.raises(WrongUsage) as error:
        open_sink(spec)
    assert "s3" not in str(error.value)
    assert "s3" not in repr(open_sink("https://host/s3cret?s3cret"))


@pytest.mark.parametrize(
    "spec", ["https://host", "http://host:8080/@user/x?y=z@a", "http://[::1]:80/", "https://1.2.3.4/"]
)
def test_ordinary_addresses_are_taken__D10(spec: str) -> None:
    assert isinstance(open_sink(spec), Destination)


def test_no_more_requests_are_open_than_the_concurrency__D18(receiver: Receiver, queue_to: QueueTo) -> None:
    fourth_is_open, lock = threading.Event(), threading.Lock()
    open_now, most = 0, 0

    def hold(_: Receiver, hook: Hook) -> None:
        nonlocal open_now, most
        with lock:
            open_now += 1
            most = max(most, open_now)
        if most > 3:
            fourth_is_open.set()
        fourth_is_open.wait(0.2)  # time in which a fourth would come
        with lock:
            open_now -= 1
        hook.reply(200)

    receiver.answer = hold
    queue = queue_to(receiver.url, concurrency=3)
    queue.put_many([message(str(place), key=None) for place in range(9)])
    assert queue.wait_until_empty(LONG_S)
    assert most == 3
    assert queue.summary.delivered == 9
