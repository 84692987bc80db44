"""HTTP as proxies, probes and clients of other makes speak it (rules D11, D12)."""

import gzip
import http.client
import socket

import pytest

from tickwheel.delivery.serve.access import Access, Address
from tickwheel.delivery.serve.ports import Listening, Ports

from .conftest import Served

pytestmark = pytest.mark.timeout(60)

HOST = "host: 127.0.0.1"


def sent(port: int, *parts: bytes) -> bytes:
    """What comes back until the server closes; the parts go out one after the other."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        for part in parts:
            client.sendall(part)
        received = b""
        while more := client.recv(1 << 16):
            received += more
    return received


def asked(port: int, line: str, *headers: str) -> tuple[int, dict[str, str], bytes]:
    """The status, the headers and the body of the only answer of a connection."""
    text = "\r\n".join((line, HOST, "connection: close", *headers, "", ""))
    head, _, body = sent(port, text.encode()).partition(b"\r\n\r\n")
    first, *rest = head.decode().split("\r\n")
    named = {name.lower(): value for name, _, value in (each.partition(": ") for each in rest)}
    return int(first.split()[1]), named, body


METHODS = [
    ("/messages", {"GET", "HEAD", "POST", "OPTIONS"}),
    ("/actions", {"GET", "HEAD", "POST", "OPTIONS"}),
    ("/messages/a%2Fb", {"GET", "HEAD", "PATCH", "DELETE", "OPTIONS"}),
    ("/message?id=a", {"GET", "HEAD", "PATCH", "DELETE", "OPTIONS"}),
    ("/requeue", {"POST", "OPTIONS"}),
    ("/livez", {"GET", "HEAD", "OPTIONS"}),
    ("/", {"GET", "HEAD", "OPTIONS"}),
]


@pytest.mark.parametrize(("path", "methods"), METHODS)
def test_allow_has_every_method_of_an_address__D11(path: str, methods: set[str], served: Served) -> None:
    for method, status in ("PUT", 405), ("TRACE", 405), ("OPTIONS", 204):
        found, headers, _ = asked(served.port, f"{method} {path} HTTP/1.1")
        assert (found, set(headers["allow"].split(", "))) == (status, methods), method


@pytest.mark.parametrize("line", ["OPTIONS * HTTP/1.1", "OPTIONS / HTTP/1.0"])
def test_a_probe_that_asks_for_options_needs_no_token__D12(line: str, guarded: Served) -> None:
    status, headers, body = asked(guarded.port, line)
    assert (status, body, "GET" in headers["allow"]) == (204, b"", True)


def test_options_of_no_address_are_none__D11(served: Served) -> None:
    assert asked(served.port, "OPTIONS /none HTTP/1.1")[0] == 404


def test_the_port_for_health_answers_options_too__D9() -> None:
    listening = Listening(Address.of("--listen", "127.0.0.1:0"), Address.of("--health", "127.0.0.1:0"))
    ports = Ports(listening, Access(None), None)
    try:
        assert listening.health is not None
        port = listening.health.getsockname()[1]
        assert asked(port, "OPTIONS / HTTP/1.0")[0] == 204
        assert asked(port, "PUT /livez HTTP/1.1")[1]["allow"] == "GET, HEAD, OPTIONS"
    finally:
        ports.close()


def test_a_request_for_another_host_is_refused_with_its_name__D12(served: Served) -> None:
    for path in ("/livez", "/readyz", "/healthz"):
        assert served.ask("GET", path, headers={"host": "timers.example.org"}).status == 200, "health shows one word"
    refused = served.ask("GET", "/status", headers={"host": "timers.example.org"})
    assert refused.status == 403
    assert "'timers.example.org'" in refused.body["reason"]
    assert "tokens" in refused.body["allowed"]
    of_a_page = served.ask("GET", "/status", headers={"origin": "https://evil.example"})
    assert (of_a_page.status, "web page of another site" in of_a_page.body["reason"]) == (403, True)


BODIES = [
    ("POST", "/messages"),
    ("PATCH", "/messages/a"),
    ("PATCH", "/message?id=a"),
    ("POST", "/requeue"),
    ("POST", "/actions"),
    ("POST", "/again?key=k"),
    ("POST", "/pause"),
    ("POST", "/hand-off"),
]


@pytest.mark.parametrize(("method", "path"), BODIES)
@pytest.mark.parametrize("coding", ["gzip", "br", "identity, gzip"])
def test_a_body_with_a_coding_is_refused_and_the_coding_named__D11(
    method: str, path: str, coding: str, served: Served
) -> None:
    body = gzip.compress(b'{"id": "a", "delay_ms": 0}')
    kind = "application/vnd.apache.arrow.stream" if path == "/hand-off" else "application/json"
    reply = served.ask(method, path, body, headers={"content-encoding": coding, "content-type": kind})
    assert (reply.status, reply.body["reason"]) == (415, f"the body has the content-encoding {coding!r}")


def test_a_body_that_says_it_has_no_coding_is_read__D11(served: Served) -> None:
    body = {"id": "plain", "due": 4_000_000_000_000}
    assert served.ask("POST", "/messages", body, headers={"content-encoding": "Identity"}).status == 201


@pytest.mark.parametrize("version", ["0.9", "1.2", "2.0", "3.0"])
def test_another_version_of_http_is_refused__D12(version: str, served: Served) -> None:
    status, headers, body = asked(served.port, f"GET /livez HTTP/{version}")
    assert (status, headers["connection"], f"HTTP/{version}".encode() in body) == (505, "close", True)


ACCEPTS = [
    (None, "text/plain; version=0.0.4"),
    ("text/plain;version=0.0.4;q=1,*/*;q=0.1", "text/plain; version=0.0.4"),
    ("text/plain;version=1.0.0;escaping=allow-utf-8", "text/plain; version=1.0.0"),
    ("application/openmetrics-text;version=1.0.0;q=0.75,text/plain;version=0.0.4", "application/openmetrics-text"),
]


@pytest.mark.parametrize(("accept", "kind"), ACCEPTS)
def test_metrics_are_in_the_format_that_is_asked_for__D15(accept: str | None, kind: str, served: Served) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=20)
    connection.request("GET", "/metrics", headers={} if accept is None else {"accept": accept})
    with connection.getresponse() as answer:
        text = answer.read()
    connection.close()
    assert str(answer.headers["content-type"]).startswith(kind)
    assert b"tickwheel_accepted_messages_total" in text
    assert text.endswith(b"# EOF\n") == kind.startswith("application/openmetrics-text")
