"""`POST`, `GET` and `DELETE` on messages, and invalid requests (rules D7, D11, D12)."""

import base64
import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tickwheel.delivery import DeliveryFailed, StoreFailed
from tickwheel.delivery.model.message import MAX_PAYLOAD
from tickwheel.delivery.serve.tokens import Right, Tokens, names_of

from .conftest import TOKEN, Served

pytestmark = pytest.mark.timeout(30)
FAR_MS = 4_000_000_000_000


def test_a_message_is_accepted_and_delivered__D11(served: Served) -> None:
    body = b'{"id": "accepted", "key": "k", "due": 1700000000005, "payload": {"n": 1.50}}'
    reply = served.ask("POST", "/messages", body)
    due = "2023-11-14T22:13:20.005Z"
    assert reply[:2] == (201, {"id": "accepted", "key": "k", "due": due, "state": "accepted"})
    delivery = served.arrived.get(timeout=10)
    assert (delivery.message.id, delivery.message.key) == ("accepted", "k")
    assert bytes(delivery.message.payload) == b'{"n": 1.50}'


def test_the_same_again_is_a_duplicate_and_other_content_a_conflict__D5(served: Served) -> None:
    message = {"id": "again", "due": FAR_MS}
    assert served.ask("POST", "/messages", message).status == 201
    assert served.ask("POST", "/messages", message)[:2] == (200, {"id": "again", "key": None, "state": "duplicate"})
    reply = served.ask("POST", "/messages", message | {"payload": 2})
    assert reply.status == 409
    assert reply.body["reason"] == "this key and id were accepted before with other content"
    assert reply.body["allowed"] == "the same content again, or another id"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "not a JSON object"),
        (b"[1]", "not a JSON object"),
        (b'{"id":"a","id":"a","due": 1700000000005}', "a name occurs twice"),
        (b'{"id":"a","due":1790000000}', "due is 1790000000, which looks like seconds"),
        (b'{"id":"a"}', "due is missing"),
        (b'{"due": 1700000000005}', "id is missing"),
        (b'{"id":"a","due":"2026-01-01T00:00:00"}', "due has no zone"),
        (b'{"id":"a","due":1700000000005,"op":"delete"}', "op is not known"),
        (b'{"id":"a\xff","due": 1700000000005}', "is not UTF-8"),
        (b"[" * 100_000, "nested too deep"),
    ],
)
def test_a_bad_record_is_answered_with_what_is_wrong_and_what_is_allowed__D2(
    body: bytes, reason: str, served: Served
) -> None:
    reply = served.ask("POST", "/messages", body)
    assert reply.status == 400
    assert sorted(reply.body) == ["allowed", "reason"]
    assert reason in reply.body["reason"]


@pytest.mark.parametrize(
    "body", [b'{"id": "a", "delay_ms": 1}\n{"id": "b", "delay_ms": 1}', b'[{"id": "a"}]', b"id,due\na,1"]
)
def test_many_messages_without_their_type_are_told_it__D11(body: bytes, served: Served) -> None:
    reply = served.ask("POST", "/messages", body)
    assert reply.status == 400
    assert reply.body["allowed"].endswith("for many, one on each line, send Content-Type: application/x-ndjson")


def test_a_cancel_is_answered_for_certain__D7(served: Served) -> None:
    served.ask("POST", "/messages", {"id": "c", "key": "k", "due": FAR_MS})
    assert served.ask("GET", "/messages/c?key=k").body["state"] == "waiting"
    assert served.ask("DELETE", "/messages/c").status == 202  # without a key it is another message
    for _ in range(2):
        assert served.ask("DELETE", "/messages/c?key=k")[:2] == (200, {"id": "c", "key": "k", "state": "cancelled"})
    assert served.ask("GET", "/messages/c?key=k").body["state"] == "cancelled"


def test_a_cancel_of_what_has_not_come_is_remembered__D7(served: Served) -> None:
    assert served.ask("GET", "/messages/early").status == 404
    reply = served.ask("DELETE", "/messages/early")
    assert (reply.status, reply.body["state"]) == (202, "unknown")
    note = "no message without a key has this id yet, and one that comes is cancelled; one with a key needs ?key=K"
    assert reply.body["note"] == note
    assert "note" not in served.ask("DELETE", "/messages/early?key=k").body
    assert served.ask("POST", "/messages", {"id": "early", "due": 1700000000005})[:2] == (
        200,
        {"id": "early", "key": None, "state": "cancelled"},
    )


def test_a_cancel_may_be_posted_too__D1(served: Served) -> None:
    served.ask("POST", "/messages", {"id": "posted", "due": FAR_MS})
    cancel = {"id": "posted", "op": "cancel"}
    assert served.ask("POST", "/messages", cancel)[:2] == (200, {"id": "posted", "key": None, "state": "cancelled"})


@pytest.mark.parametrize(
    ("path", "id_", "key"),
    [
        ("a/b", "a/b", None),
        ("a%2Fb%2F?key=x%2Fy", "a/b/", "x/y"),
        ("/a//b", "/a//b", None),
        ("%C3%A9%20%3F?key=%E2%82%AC", "é ?", "€"),
        ("line%0Aend%0A", "line\nend\n", None),
        ("a+b?key=c+d", "a+b", "c d"),
        ("%2E%2E?key=a%26b%3Dc", "..", "a&b=c"),
    ],
)
def test_any_id_and_key_can_be_named__D11(path: str, id_: str, key: str | None, served: Served) -> None:
    assert served.ask("POST", "/messages", {"id": id_, "key": key, "due": FAR_MS}).status == 201
    reply = served.ask("GET", f"/messages/{path}")
    assert (reply.status, *(reply.body[part] for part in ("id", "key", "state"))) == (200, id_, key, "waiting")
    assert served.ask("DELETE", f"/messages/{path}").status == 200


@pytest.mark.parametrize("path", ["", "?key=k", "a?key=", "a?kye=k", "a?key=k&key=l", "%FF", "a?key=%FF", "a?k"])
def test_an_address_that_names_no_message_is_refused__D11(path: str, served: Served) -> None:
    reply = served.ask("DELETE", f"/messages/{path}")
    assert reply.status == 400
    assert sorted(reply.body) == ["allowed", "reason"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/messagess", 404),
        ("POST", "/messages/a", 405),
        ("DELETE", "/messages", 405),
        ("PUT", "/messages/a", 405),
        ("POST", "/metrics", 405),
        ("DELETE", "/healthz", 405),
        ("GET", "/metrics/", 404),
    ],
)
def test_what_there_is_not_is_answered_with_what_there_is__D11(
    method: str, path: str, status: int, served: Served
) -> None:
    reply = served.ask(method, path)
    assert reply.status == status
    assert reply.body == {
        "reason": f"there is no {method} {path}",
        "allowed": "GET or POST /messages, GET, DELETE or PATCH /messages/{id}?key=K or /message?id=I&key=K,"
        " GET /dead, GET /status,"
        " POST /requeue, POST /again?key=K or ?id=I, POST /hand-off, GET /hand-off/marks, GET or POST /actions,"
        " GET /actions/{id}, GET /destinations, PUT, GET or DELETE /destinations/{name},"
        " POST /destinations/{name}/test, DELETE /remembered?key=K&id=I,"
        " GET /tenants, PUT, GET or DELETE /tenants/{name},"
        " POST /pause or /resume, also with ?key=K, ?destination=NAME or ?tenant=NAME,"
        " GET /metrics, GET /livez, GET /readyz, GET / (a page), GET /events",
    }
    assert (status == 405) == ("allow" in reply.headers)


def chunks(size: int) -> Iterator[bytes]:
    while size > 0:
        yield b" " * min(size, 8192)
        size -= 8192


LIMIT = 2 * 1000 + 65536


@pytest.mark.parametrize("size", [LIMIT + 1, 3_000_000])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_large_is_refused__D12(size: int, chunked: bool, guarded: Served) -> None:
    token = {"authorization": "Bearer " + TOKEN.decode()}
    body: Any = chunks(size) if chunked else b" " * size
    reply = guarded.ask("POST", "/messages", body, headers=token, encode_chunked=chunked)
    assert reply[:2] == (413, {"reason": "the body is too large", "allowed": f"at most {LIMIT:,} bytes"})
    assert reply.headers["connection"] == "close"


@pytest.mark.parametrize("chunked", [False, True])
def test_the_largest_body_is_read__D12(chunked: bool, guarded: Served) -> None:
    token = {"authorization": "Bearer " + TOKEN.decode()}
    body: Any = chunks(LIMIT) if chunked else b" " * LIMIT
    assert guarded.ask("POST", "/messages", body, headers=token, encode_chunked=chunked).status == 400


def test_a_body_that_says_how_large_it_is_is_refused_before_it_is_sent__D12(guarded: Served) -> None:
    head = f"POST /messages HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN.decode()}\r\nexpect: 100-continue\r\n"
    with socket.create_connection(("127.0.0.1", guarded.port), timeout=10) as connection:
        connection.sendall(f"{head}content-length: 999999999\r\n\r\n".encode())
        assert connection.recv(4096).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("name", ["payload", "payload_base64"])
def test_a_payload_is_bounded_by_the_option__D12(name: str, guarded: Served) -> None:
    token = {"authorization": "Bearer " + TOKEN.decode()}

    def of(size: int) -> str:
        return "x" * (size - 2) if name == "payload" else base64.b64encode(b"x" * size).decode()

    def post(size: int) -> Any:
        message = {"id": f"{name} {size}", "due": FAR_MS, name: of(size)}
        return guarded.ask("POST", "/messages", message, headers=token)

    assert post(1000).status == 201
    reply = post(1001)
    assert reply[:2] == (413, {"reason": "the payload has 1,001 bytes", "allowed": "at most 1,000 bytes"})


@pytest.mark.parametrize("token", [None, "Bearer not-for-other-eyeS", f"Basic {TOKEN.decode()}", TOKEN.decode()])
@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/messages"), ("DELETE", "/messages/a"), ("GET", "/messages/a"), ("GET", "/metrics"), ("GET", "/x")],
)
def test_without_the_token_nothing_is_done_nor_told__D12(
    method: str, path: str, token: str | None, guarded: Served
) -> None:
    headers = {} if token is None else {"authorization": token}
    reply = guarded.ask(method, path, {"id": "a", "due": 1700000000005}, headers=headers)
    assert (reply.status, reply.headers["www-authenticate"]) == (401, "Bearer")
    assert reply.body["allowed"] == "authorization: Bearer TOKEN, with a token of the server's --token-file"
    assert TOKEN.decode() not in str(reply.body)
    known = guarded.ask("GET", "/messages/a", headers={"authorization": "Bearer " + TOKEN.decode()})
    assert (known.status, known.body["state"]) == (404, "unknown")


def test_health_needs_no_token__D12(guarded: Served) -> None:
    assert guarded.ask("GET", "/healthz")[:2] == (200, {"status": "ok"})


@pytest.mark.parametrize("headers", [{"origin": "https://evil.example"}, {"host": "evil.example:7400"}])
def test_a_web_page_does_not_get_in__D12(headers: dict[str, str], served: Served) -> None:
    assert served.ask("POST", "/messages", {"id": "web", "due": 1700000000005}, headers=headers).status == 403
    assert served.ask("GET", "/messages/web", headers=headers).status == 403
    assert served.ask("GET", "/messages/web").status == 404


@pytest.mark.parametrize("failure", [StoreFailed("the disk is full"), DeliveryFailed("the destination is gone")])
def test_once_delivery_has_failed_everything_says_so__D11(failure: DeliveryFailed, tmp_path: Path) -> None:
    served = Served(tmp_path)
    try:
        assert served.ask("GET", "/healthz")[:2] == (200, {"status": "ok"})
        served.running.fail(failure)
        bad = served.ask("POST", "/messages", {"id": "", "due": FAR_MS})
        assert (bad.status, bad.body["reason"]) == (400, "id is empty"), "nothing of it has to be on disk"
        assert served.ask("GET", "/healthz")[:2] == (503, {"status": "failed"})
        for method, path in (("POST", "/messages"), ("DELETE", "/messages/a"), ("GET", "/messages/a")):
            reply = served.ask(method, path, {"id": "a", "due": 1700000000005})
            assert (reply.status, reply.body["reason"]) == (503, str(failure))
    finally:
        with pytest.raises(type(failure), match=str(failure)):
            served.close()


def test_requests_at_the_same_time_share_commits_and_get_each_their_own_answer__D11(served: Served) -> None:
    from concurrent.futures import ThreadPoolExecutor

    messages = [{"id": f"many {n % 30}", "due": FAR_MS, "payload": n % 30} for n in range(60)]
    with ThreadPoolExecutor(16) as pool:
        replies = list(pool.map(lambda message: served.ask("POST", "/messages", message), messages))
    assert [reply.body["id"] for reply in replies] == [message["id"] for message in messages]
    assert sorted(reply.body["state"] for reply in replies) == ["accepted"] * 30 + ["duplicate"] * 30


def test_many_messages_come_in_one_request_and_each_line_has_its_answer__D11(served: Served) -> None:
    lines = [
        b'\xef\xbb\xbf{"id": "line 1", "due": 4000000000000}',
        b"",
        b"oops",
        b'{"id": "line 1", "due": 4000000000000}',
        b" \t\r",
        b'{"id": "line 1", "due": 4000000000001}',
        b'{"id": "line 1", "op": "cancel"}',
        b'{"id": "line 8", "due": 4000000000000, "payload": "%s"}' % (b"x" * MAX_PAYLOAD),
    ]
    reply = served.ask("POST", "/messages", b"\n".join(lines), headers={"content-type": "application/x-ndjson"})
    answers = [json.loads(line) for line in reply.body.splitlines()]
    assert (reply.status, [answer["status"] for answer in answers]) == (200, [201, 400, 200, 409, 200, 413])
    assert [answer["line"] for answer in answers] == [1, 3, 4, 6, 7, 8]
    assert answers[1]["reason"][:18] == "not a JSON object:"
    assert answers[3]["reason"] == "this key and id were accepted before with other content"
    assert answers[5]["reason"] == "the payload has 1,048,578 bytes"
    assert [answers[place]["state"] for place in (0, 2, 4)] == ["accepted", "duplicate", "cancelled"]


def test_a_request_of_many_that_is_too_large_says_that_none_was_accepted__D12(guarded: Served) -> None:
    headers = {"authorization": "Bearer " + TOKEN.decode(), "content-type": "application/x-ndjson"}
    body = b'{"id": "first of many", "due": 4000000000000}\n' * 100_000
    reply = guarded.ask("POST", "/messages", body, headers=headers)
    reason = "the body is too large; none of its messages was accepted"
    assert reply[:2] == (413, {"reason": reason, "allowed": "at most 4,194,304 bytes"})
    assert guarded.ask("GET", "/messages/first%20of%20many", headers=headers).status == 404


def test_a_request_of_many_has_at_most_10_000_bad_records__D12(guarded: Served) -> None:
    headers = {"authorization": "Bearer " + TOKEN.decode(), "content-type": "application/x-ndjson"}
    body = b'{"id": "before bad ones", "due": 4000000000000}\n' + b"x\n" * 10_000
    reply = guarded.ask("POST", "/messages", body.replace(b"before", b"with"), headers=headers)
    assert (reply.status, len(reply.body.splitlines())) == (200, 10_001)
    reply = guarded.ask("POST", "/messages", body + b"\n" * 1000 + b"x", headers=headers)
    assert reply.status == 400
    assert reply.body["reason"].startswith("more than 10,000 records are bad, the first in line 2: not a JSON object:")
    assert reply.body["reason"].endswith("; none of its messages was accepted")
    assert reply.body["allowed"].startswith("at most 10,000 bad records in a request; one JSON object per line")
    assert guarded.ask("GET", "/messages/with%20bad%20ones", headers=headers).status == 200
    assert guarded.ask("GET", "/messages/before%20bad%20ones", headers=headers).status == 404


def test_a_request_of_many_during_a_failure_says_what_became_of_them__D11(tmp_path: Path) -> None:
    served = Served(tmp_path)
    try:
        served.running.fail(StoreFailed("the disk is full"))
        headers = {"content-type": "application/x-ndjson"}
        reply = served.ask("POST", "/messages", b'{"id": "a", "due": 4000000000000}\n', headers=headers)
        assert reply.status == 503
        assert reply.body == {
            "reason": "the disk is full; some of its messages may have been accepted",
            "allowed": "the same request again, later: what was accepted answers duplicate",
        }
    finally:
        with pytest.raises(StoreFailed):
            served.close()


def test_rights_are_asked_for_by_method_and_path__D12(tmp_path: Path) -> None:
    rights = {
        b"of-one-who-produces": Right.PRODUCE,
        b"of-one-who-controls": Right.CONTROL,
        b"of-one-who-reads": Right.READ,
        b"of-one-who-hands-off": Right.HAND_OFF,
    }
    served = Served(tmp_path, tokens=Tokens(rights))
    requests = {
        ("POST", "/messages"): Right.PRODUCE,
        ("DELETE", "/messages/a"): Right.CONTROL,
        ("POST", "/pause"): Right.CONTROL,
        ("POST", "/again"): Right.CONTROL,
        ("GET", "/messages/a"): Right.READ,
        ("GET", "/metrics"): Right.READ,
        ("GET", "/messages/hand-off"): Right.READ,
        ("GET", "/hand-off/marks"): Right.HAND_OFF,
        ("POST", "/hand-off"): Right.HAND_OFF,
    }
    try:
        for token, right in rights.items():
            for (method, path), needed in requests.items():
                authorization = {"authorization": "Bearer " + token.decode()}
                reply = served.ask(method, path, {"id": "a", "due": FAR_MS}, headers=authorization)
                assert (reply.status == 403) == (right != needed), (method, path, right)
                if reply.status == 403:
                    assert f"and the request needs {names_of(needed)}" in reply.body["reason"]
                    assert "www-authenticate" not in reply.headers
        for path in ("/healthz", "/livez", "/readyz"):
            assert served.ask("GET", path).status in (200, 404)
    finally:
        served.close()


def test_what_is_not_http_ends_its_connection_and_is_no_error_of_the_server__D11(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    head = b"POST /messages HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n"
    at_once = head.replace(b"/messages", b"/healthz") + b"zz\r\n"  # the answer and the fault meet
    for text in (at_once, b"nonsense\r\n\r\n", head + b"5\r\n{", head + b"zz\r\n", head + b"1\r\n{\r\nzz"):
        with socket.create_connection(("127.0.0.1", served.port), timeout=10) as connection:
            connection.sendall(text)
            connection.shutdown(socket.SHUT_WR)
            found = b"".join(iter(lambda: connection.recv(4096), b""))
        assert found[:13] in (b"HTTP/1.1 400 ", b""), found
    assert caplog.records == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"nonsense\r\n\r\n", "illegal request line"),
        (b"\x16\x03\x01\x02\x00\x01", "illegal request line"),  # the begin of TLS
        (b"GET /livez HTTP/1.1\r\n\r\n", "Missing mandatory Host: header"),
        (b"GET /livez HTTP/1.1\r\nhost: a\r\nauthorization Bearer s3cret\r\n\r\n", "illegal header line"),
        (b"GET /livez HTTP/1.1\r\nhost: a\r\nauthorization: s3\x00cret\r\n\r\n", "illegal header line"),
        (b"GET /livez HTTP/1.1\r\nhost: a\r\ncontent-length: many\r\n\r\n", "bad Content-Length"),
    ],
)
def test_what_is_not_http_gets_an_answer_as_other_errors_do__D11(text: bytes, reason: str, served: Served) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as connection:
        connection.sendall(text)
        response = http.client.HTTPResponse(connection)
        response.begin()
        assert (response.status, response.headers["content-type"]) == (400, "application/json")
        assert response.headers["connection"] == "close"
        assert json.loads(response.read()) == {
            "reason": f"this is no request of HTTP: {reason}",
            "allowed": "HTTP/1.1, with a head of at most 16 KiB",
        }


@pytest.mark.parametrize(
    "head",
    [
        b"GET /livez HTTP/1.1\r\nhost: a\r\nx: " + b"y" * 17_000,
        b"GET /livez HTTP/1.1\r\nhost: a\r\nx: " + b"y" * 17_000 + b"\r\n\r\n",
        b"GET /messages/" + b"y" * 17_000 + b" HTTP/1.1\r\nhost: a\r\n\r\n",
        b"GET /messages?id=" + b"y" * 17_000 + b" HTTP/1.1\r\nhost: a\r\n\r\n",
    ],
)
def test_a_head_that_is_too_large_is_refused_whether_or_not_it_came_in_one_piece__D12(
    head: bytes, served: Served
) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as connection:
        connection.sendall(head)
        response = http.client.HTTPResponse(connection)
        response.begin()
        assert (response.status, response.headers["connection"]) == (431, "close")
        assert json.loads(response.read()) == {
            "reason": "the request line and the headers are too large",
            "allowed": "HTTP/1.1, with a head of at most 16 KiB",
        }


def test_csv_is_taken_as_rows_with_an_answer_for_each__D11(served: Served) -> None:
    rows = 'id,key,due,text\r\ncsv 1,k,4000000000000,one\r\ncsv 2,k,,two\r\ncsv 3,k,4000000000000,"three\nlines"\r\n'
    reply = served.ask("POST", "/messages", rows.encode(), headers={"content-type": "text/csv; charset=utf-8"})
    told = [json.loads(line) for line in reply.body.splitlines()]
    assert [(it["line"], it["status"]) for it in told] == [(2, 201), (3, 400), (4, 201)]
    assert served.ask("GET", "/messages/csv%203?key=k").body["payload"] == {"text": "three\nlines"}
    wrong = served.ask("POST", "/messages", b"name,due\na,1\n", headers={"content-type": "text/csv"})
    assert (wrong.status, wrong.body["reason"][:31]) == (400, "the header has no column id; no")
    replaced = served.ask("POST", "/messages?replace=true", rows.encode(), headers={"content-type": "text/csv"})
    assert json.loads(replaced.body.splitlines()[0])["state"] == "replaced"
