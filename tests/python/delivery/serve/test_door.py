"""What clients without a token, and those whose token is taken back, can do and learn (D12)."""

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from delivery.batches import batch, stream
from tickwheel.delivery.serve.tokens import ALL, Tokens

from .conftest import ARROW, TOKEN, Reply, Served

pytestmark = pytest.mark.timeout(60)
FAR_MS = 4_000_000_000_000
BEARER = b"authorization: Bearer " + TOKEN + b"\r\n"
OTHER = b"another-token-of-the-file"
HEAD = b"POST /messages HTTP/1.1\r\nhost: x\r\n%bcontent-length: %d\r\ncontent-type: %b\r\n\r\n"


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path, tokens=Tokens({TOKEN: ALL}))
    yield served
    served.close()


def known(served: Served, method: str, path: str, body: object = None, token: bytes = TOKEN) -> Reply:
    return served.ask(method, path, body, headers={"authorization": f"Bearer {token.decode()}"})


def connect(stack: ExitStack, served: Served, first: bytes = b"") -> socket.socket:
    connection = stack.enter_context(socket.create_connection(("127.0.0.1", served.port), timeout=20))
    connection.sendall(first)
    return connection


def test_connections_without_a_token_take_no_place_of_uploads_with_one__D12(guarded: Served) -> None:
    body = json.dumps({"id": "a", "due": FAR_MS}).encode()
    with ExitStack() as stack:
        uploads = [
            connect(stack, guarded, HEAD % (BEARER, len(body), b"application/json") + body[:5]) for _ in range(5)
        ]
        assert known(guarded, "GET", "/status").status == 200  # the uploads are being received
        for _ in range(300):
            connect(stack, guarded)
        assert known(guarded, "GET", "/status").status == 200  # and all these are accepted
        for upload in uploads:
            upload.sendall(body[5:])
        assert [upload.recv(12) for upload in uploads] == [b"HTTP/1.1 201"] + [b"HTTP/1.1 200"] * 4


def test_a_token_that_is_taken_back_ends_the_events_of_a_page__D12(guarded: Served) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", guarded.port, timeout=20)) as page:
        page.request("GET", "/events", headers={"authorization": f"Bearer {TOKEN.decode()}"})
        events = page.getresponse()
        assert events.readline() == b"event: hello\n"
        guarded.access.tokens = Tokens({OTHER: ALL})
        events.read()  # to its end


@pytest.mark.parametrize("kind", ["application/json", "application/x-ndjson", ARROW["content-type"]])
def test_a_token_that_is_taken_back_ends_a_body_on_its_way__D12(kind: str, guarded: Served) -> None:
    body = json.dumps({"id": "a", "due": FAR_MS}).encode() + b"\n"
    if kind == ARROW["content-type"]:
        body = stream(batch(id=["a"], due=[FAR_MS]))
    with ExitStack() as stack:
        upload = connect(stack, guarded, HEAD % (BEARER, len(body), kind.encode()) + body[:-10])
        assert known(guarded, "GET", "/status").status == 200
        guarded.access.tokens = Tokens({OTHER: ALL})
        upload.sendall(body[-10:])
        assert upload.recv(12) == b"HTTP/1.1 401"
    assert known(guarded, "GET", "/messages/a", token=OTHER).status == 404


def test_a_token_that_stays_when_the_file_is_read_again_ends_nothing__D12(guarded: Served) -> None:
    body = json.dumps({"id": "a", "due": FAR_MS}).encode()
    with ExitStack() as stack:
        upload = connect(stack, guarded, HEAD % (BEARER, len(body), b"application/json") + body[:-10])
        assert known(guarded, "GET", "/status").status == 200
        guarded.access.tokens = Tokens({TOKEN: ALL, OTHER: ALL})
        upload.sendall(body[-10:])
        assert upload.recv(12) == b"HTTP/1.1 201"


def test_a_client_learns_no_folder_and_no_error_of_the_program__D12(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError(f"a secret of {tmp_path}")

    monkeypatch.setattr(served.running.view.__class__, "actions", broken)
    answer = served.ask("GET", "/actions")
    assert answer.status == 500
    assert answer.body == {
        "reason": "this server has an error, and its log says which",
        "allowed": "the same request again, later",
    }


def test_an_error_that_names_the_store_names_no_folder__D12(tmp_path: Path) -> None:
    served = Served(tmp_path)
    try:
        (tmp_path / "store.db").rename(tmp_path / "moved.db")
        answers = [served.ask("GET", path) for path in ("/status", "/messages", "/dead", "/metrics", "/actions")]
    finally:
        served.close()
    assert 503 in [answer.status for answer in answers]
    for answer in answers:
        assert "store.db" in str(answer.body) or answer.status == 200
        assert str(tmp_path.parent) not in str(answer.body)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:1", "127.0.0.1:%d"])
def test_a_target_with_a_host_is_the_same_request__D12(host: str, served: Served) -> None:
    target = f"http://{host}/message".replace("%d", str(served.port))
    assert (
        served.ask("POST", target.removesuffix("/message") + "/messages", {"id": "of a proxy", "due": FAR_MS}).status
        < 300
    )
    assert served.ask("GET", target + "?id=of%20a%20proxy").body["id"] == "of a proxy"
    assert served.ask("GET", f"http://{host}".replace("%d", str(served.port))).status == 200


def test_the_host_in_a_target_is_the_one_that_counts__D12(served: Served) -> None:
    refused = served.ask("GET", "http://foreign.example/status")
    assert refused.status == 403
    assert "foreign.example" in refused.body["reason"]
    assert served.ask("GET", "http://127.0.0.1/status", headers={"host": "foreign.example"}).status == 200


def test_a_byte_order_mark_is_passed_over_in_json_as_in_ndjson__D1(served: Served) -> None:
    mark = b"\xef\xbb\xbf"
    record = mark + json.dumps({"id": "with a mark", "due": FAR_MS}).encode()
    assert served.ask("POST", "/messages", record).status == 201
    ndjson = served.ask("POST", "/messages", record + b"\n", headers={"content-type": "application/x-ndjson"})
    assert '"status":200' in ndjson.body
    assert served.ask("PATCH", "/messages/with%20a%20mark", mark + b'{"delay_ms": 5e9}').status == 200
    assert served.ask("POST", "/requeue", mark + b'{"id": "with a mark"}').status == 409
