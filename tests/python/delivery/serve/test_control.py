"""Replace, requeue, and actions on many messages over HTTP (rules D16, D17)."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from delivery.serve.conftest import Served, ask
from tickwheel.commands import tickwheel as command
from tickwheel.delivery import Delivery, Unavailable
from tickwheel.delivery.serve.tokens import Right, Tokens

pytestmark = pytest.mark.timeout(60)

FAR = "2096-10-02T07:06:40.000Z"


def refuse(delivery: Delivery) -> None:
    raise ValueError("never")


@pytest.fixture
def refusing(tmp_path: Path) -> Iterator[Served]:
    opened = Served(tmp_path, to=refuse)
    yield opened
    opened.close()


def ended(served: Served, id_: str) -> dict[str, Any]:
    while (reply := served.ask("GET", f"/actions/{id_}")).body.get("ended") is None:
        assert reply.status in (200, 404), reply
        time.sleep(0.005)
    found: dict[str, Any] = reply.body
    return found


def test_a_message_takes_the_place_of_another__D16(served: Served) -> None:
    message = {"id": "place", "due": FAR, "payload": 1}
    assert served.ask("POST", "/messages?replace=true", message).status == 201
    reply = served.ask("POST", "/messages?replace=true", {**message, "payload": 2})
    assert (reply.status, reply.body) == (200, {"id": "place", "key": None, "state": "replaced"})
    assert served.ask("GET", "/messages/place").body["payload"] == 2
    lines = b'{"id": "place", "delay_ms": 900000, "payload": 3}\n{"id": "place"}\n'
    headers = {"content-type": "application/x-ndjson"}
    reply = served.ask("POST", "/messages?replace=true&at_latest_ms=600000", lines, headers=headers)
    assert '{"line":1,"status":200,"state":"replaced"}' in reply.body
    assert '"status":400,"reason":"due is missing"' in reply.body
    due = served.ask("GET", "/messages/place").body["due"]
    assert due < FAR, "10 minutes after the first"


def test_the_answer_says_when_a_message_that_was_put_off_is_due__D16(served: Served) -> None:
    message = {"id": "put off", "due": FAR, "payload": 1}
    for status, state in (201, "accepted"), (200, "replaced"):
        reply = served.ask("POST", "/messages?replace=true&at_latest_ms=900000", message)
        assert (reply.status, reply.body["state"]) == (status, state)
        assert reply.body["due"] == served.ask("GET", "/messages/put%20off").body["due"] < FAR


def test_the_status_names_the_keys_that_fail_for_longest__D14(tmp_path: Path) -> None:
    def away(delivery: Delivery) -> None:
        raise Unavailable("not now", retry_after_s=3_600)

    served = Served(tmp_path, to=away)
    try:
        assert served.ask("GET", "/status").body["in_doubt"]["longest"] == []
        for number in range(4):  # fewer than five keys are no outage
            key = f"shop {number}" if number % 2 else None
            served.ask("POST", "/messages", {"id": str(number), "key": key, "delay_ms": 0, "payload": 1})
            while served.ask("GET", "/status").body["retrying"] <= number:
                time.sleep(0.005)
        found = served.ask("GET", "/status").body["in_doubt"]
        assert found["keys"] == 4
        assert (found["spare_places"], found["spare_places_taken"]) == (64, 0)
        assert [(it["key"], it["id"]) for it in found["longest"]] == [
            (f"shop {number}" if number % 2 else None, str(number)) for number in range(4)
        ]
        first = found["longest"][0]
        assert (first["fails"], first["last_error"]) == (1, "not now")
        assert first["since"] < first["next_try"]
        seen = CliRunner().invoke(command, ["status", f"http://127.0.0.1:{served.port}"]).stdout
        assert "keys in doubt:    4\n" in seen
        assert "spare places:     0 of 64 taken\n" in seen
        assert "shop 3" in seen
        assert served.ask("POST", "/again?key=shop%201").body["state"] == "tried"
    finally:
        served.close()


@pytest.mark.parametrize(
    "query",
    [
        "replace=false",
        "replace",
        "at_latest_ms=5",
        "replace=true&at_latest_ms=-5",
        "replace=true&x=1",
        "replace=true&replace=true",
        "replace=true&at_latest_ms=1&at_latest_ms=2",
        "replace=true&at_latest_ms=" + "9" * 16,
    ],
)
def test_another_query_is_refused__D11(served: Served, query: str) -> None:
    reply = served.ask("POST", f"/messages?{query}", {"id": "no", "due": FAR, "payload": 1})
    assert reply.status == 400
    assert reply.body["reason"].startswith("the address ")
    assert served.ask("GET", "/messages/no").status == 404


def test_a_dead_letter_is_tried_anew__D16(refusing: Served) -> None:
    assert refusing.ask("POST", "/requeue", {"id": "dead"}).status == 404
    refusing.ask("POST", "/messages", {"id": "late", "due": 100_000_000_000, "expires": 100_000_000_001, "payload": 1})
    while refusing.ask("GET", "/messages/late").body["state"] != "expired":
        time.sleep(0.005)
    reply = refusing.ask("POST", "/requeue", {"id": "late", "key": None})
    assert (reply.status, reply.body) == (200, {"id": "late", "key": None, "state": "requeued"})
    assert refusing.ask("POST", "/requeue", {"id": "late"}).status == 409
    for body in {"id": 5}, {"key": "k"}, {"id": "a", "x": 1}, [], {"id": ""}, {"id": "a", "key": ""}:
        assert refusing.ask("POST", "/requeue", body).status == 400, body


def test_a_record_may_ask_for_another_time__D1_D16(served: Served) -> None:
    served.ask("POST", "/messages", {"id": "moved", "due": FAR, "payload": 1})
    to = {"op": "reschedule", "due": "2096-10-02T08:06:40.000Z"}
    reply = served.ask("POST", "/messages", {"id": "moved", **to})
    assert (reply.status, reply.body["state"]) == (200, "rescheduled")
    assert served.ask("POST", "/messages", {"id": "no such", **to}).status == 404
    lines = b'{"id": "m2", "due": 4000000000000}\n{"id": "moved", "op": "reschedule", "due": 4000000000001}\n'
    reply = served.ask("POST", "/messages", lines, headers={"content-type": "application/x-ndjson"})
    assert [line.count("201") + 2 * line.count("rescheduled") for line in reply.body.splitlines()] == [1, 2]


def test_a_body_that_is_no_text_is_refused__D2(served: Served) -> None:
    for method, path in ("POST", "/requeue"), ("POST", "/actions"), ("PATCH", "/messages/a"):
        reply = served.ask(method, path, b'{"id": "\xff", "due": "\xff"}')
        assert (reply.status, "can't be read" in reply.body["reason"]) == (400, True)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/actions", b'{"kind": "cancel", "key": "a", "key": "b"}'),
        ("POST", "/requeue", b'{"id": "a", "id": "b"}'),
        ("PATCH", "/messages/a", b'{"delay_ms": 1, "delay_ms": 2}'),
        ("PUT", "/destinations/a", b'{"url": "https://a.example/", "headers": {"x": "1", "x": "2"}}'),
    ],
)
def test_a_name_that_comes_twice_is_refused__D2(method: str, path: str, body: bytes, served: Served) -> None:
    answer = served.ask(method, path, body)
    assert (answer.status, answer.body["reason"]) == (400, "the body can't be read: a name occurs twice in the object")


def test_a_body_that_is_nested_too_deep_is_refused__D2(served: Served) -> None:
    answer = served.ask("PUT", "/destinations/a", b'{"body": %b%b}' % (b"[" * 100_000, b"]" * 100_000))
    assert (answer.status, answer.body["reason"][:22]) == (400, "the body can't be read")


def test_many_are_cancelled_by_an_action_with_an_id__D16(served: Served) -> None:
    for number in range(10):
        served.ask("POST", "/messages", {"id": str(number), "key": f"many/{number % 2}", "due": FAR, "payload": 1})
    reply = served.ask("POST", "/actions", {"kind": "cancel", "key": "many/0"})
    assert (reply.status, reply.body["state"]) == (202, "accepted")
    found = ended(served, reply.body["id"])
    assert (found["kind"], found["changed"], found["too_late"], found["key"]) == ("cancel", 5, 0, "many/0")
    own = {"kind": "cancel", "id": "my own/1", "key_prefix": "many/"}
    assert served.ask("POST", "/actions", own).status == 202
    assert served.ask("POST", "/actions", own).status == 200
    other = served.ask("POST", "/actions", {**own, "key_prefix": "other"})
    assert (other.status, other.body["reason"]) == (409, "this id is of another action")
    assert ended(served, "my%20own/1")["changed"] == 5
    listed = served.ask("GET", "/actions").body["actions"]
    assert [it["id"] for it in listed[:2]] == ["my own/1", reply.body["id"]]
    assert served.ask("GET", "/actions/other").status == 404


@pytest.mark.parametrize(
    "body",
    [
        {"kind": "cancel"},
        {"kind": "cancel", "all": True, "key": "k"},
        {"kind": "move", "all": True},
        {"kind": "cancel", "key": 5},
        {"kind": "cancel", "key": ""},
        {"kind": "cancel", "due_from": 5},
        {"kind": "cancel", "due_from": "tomorrow"},
        {"kind": "cancel", "all": True, "id": ""},
        {"kind": "cancel", "all": True, "more": 1},
        [],
        "x",
    ],
)
def test_an_action_that_does_not_say_which_messages_is_refused__D16(served: Served, body: object) -> None:
    reply = served.ask("POST", "/actions", body)
    assert reply.status == 400, reply
    assert reply.body["reason"]
    assert reply.body["allowed"]


def test_a_list_of_actions_with_long_names_is_bounded__D12(served: Served) -> None:
    for number in range(10):
        asked = {"id": f"long {number}", "kind": "cancel", "key": "\u0001" * 650_000}
        assert served.ask("POST", "/actions", asked).status in {200, 202}
    listed = served.ask("GET", "/actions").body["actions"]
    assert [it["id"] for it in listed] == [f"long {number}" for number in range(9, 2, -1)], "7 have 4 MiB"
    assert served.ask("GET", "/actions/long%200").body["key"] == "\u0001" * 650_000


def test_actions_need_the_right_to_control__D12(tmp_path: Path) -> None:
    tokens = Tokens({b"producer-of-messages": Right.PRODUCE, b"one-who-steers-it-all": Right.CONTROL})
    served = Served(tmp_path, tokens=tokens)
    try:
        body = {"kind": "cancel", "all": True}
        for token, status in ("producer-of-messages", 403), ("one-who-steers-it-all", 202):
            headers = {"authorization": f"Bearer {token}"}
            assert ask(served.port, "POST", "/actions", body, headers).status == status
            assert ask(served.port, "POST", "/requeue", {"id": "a"}, headers).status in (status, 404)
    finally:
        served.close()
