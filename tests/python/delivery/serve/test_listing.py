"""What `GET` shows of messages, and `PATCH` changes (rules D14, D16)."""

import json
import os
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from tickwheel.commands import tickwheel as command
from tickwheel.delivery import Delivery

from .conftest import Served

FAR_MS = 4_000_000_000_000
FAR = "2096-10-02T07:06:40.000Z"


def put(served: Served, id_: str, key: str, due_ms: int = FAR_MS, **more: object) -> None:
    message = {"id": id_, "key": key, "due": due_ms, "payload": {"n": 1}, **more}
    assert served.ask("POST", "/messages", message).status == 201


def every(served: Served, query: str) -> list[dict[str, Any]]:
    """All pages."""
    found: list[dict[str, Any]] = []
    cursor = ""
    while True:
        page = served.ask("GET", f"/messages?{query}{cursor}")
        assert page.status == 200, page
        found += page.body["messages"]
        if page.body["next"] is None:
            return found
        cursor = f"&cursor={page.body['next']}"


def test_a_message_is_shown_with_its_payload__D14(served: Served) -> None:
    put(served, "shown", "a key")
    reply = served.ask("GET", "/messages/shown?key=a+key")
    assert reply.status == 200
    assert reply.body.pop("seq") > 0
    assert reply.body == {
        "id": "shown",
        "key": "a key",
        "state": "waiting",
        "due": FAR,
        "attempts": 0,
        "last_error": None,
        "next_try": None,
        "redelivered": False,
        "ended": None,
        "lateness_ms": None,
        "rule": None,
        "destination": None,
        "tenant": None,
        "event_name": None,
        "next_id": None,
        "key_paused_since": None,
        "payload": {"n": 1},
        "payload_base64": None,
        "expires": None,
        "traceparent": None,
        "until_event": None,
        "cause": None,
        "event": None,
    }


def test_pages_have_every_message_of_a_filter_once_and_in_order__D14(served: Served) -> None:
    for place in range(7):
        put(served, f"p{place}", "paged", FAR_MS + 10 - place)
    put(served, "other", "not paged")
    for limit in (1, 3, 7, 8):
        found = every(served, f"key=paged&limit={limit}")
        assert [it["id"] for it in found] == ["p6", "p5", "p4", "p3", "p2", "p1", "p0"]
    part = every(served, f"key=paged&due_from={FAR_MS + 5}&due_before=2096-10-02T07:06:40.009Z")
    assert [it["id"] for it in part] == ["p5", "p4", "p3", "p2"]


def test_what_has_its_outcome_is_listed_with_it__D14(served: Served) -> None:
    put(served, "over", "ended", 1_700_000_000_005)
    assert served.arrived.get(timeout=10).message.id == "over"
    deadline_s = time.monotonic() + 10
    while not (found := every(served, "state=delivered&key=ended")):
        assert time.monotonic() < deadline_s
    assert (found[0]["id"], found[0]["attempts"]) == ("over", 1)
    assert found[0]["lateness_ms"] > 0
    put(served, "gone", "ended")
    served.ask("DELETE", "/messages/gone?key=ended")
    assert [it["id"] for it in every(served, "state=cancelled&key=ended")] == ["gone"]
    assert every(served, "key=ended") == []


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("state=lost", "state is 'lost'"),
        ("limit=0", "a page can't have 0 entries"),
        ("limit=1001", "a page can't have 1001 entries"),
        ("limit=ten", "limit is 'ten'"),
        ("cursor=ten", "'ten' is no cursor"),
        ("cursor=9999999999999999999.1", "is no cursor"),
        ("state=delivered&cursor=9999999999999999999", "is no cursor"),
        ("due_from=12", "due_from is 12, which looks like seconds"),
        ("kye=k", "the address has 'kye'"),
        ("key=k&key=l", "the address has 'key twice'"),
        ("key", "the address can't be read"),
        ("key=%FF", "the address can't be read"),
    ],
)
def test_a_page_that_can_not_be_is_refused__D14(query: str, reason: str, served: Served) -> None:
    reply = served.ask("GET", f"/messages?{query}")
    assert reply.status == 400
    assert reason in reply.body["reason"]


def test_the_dead_letters_are_shown_in_pages__D14(tmp_path: Path) -> None:
    def refuse(_: Delivery) -> None:
        raise ValueError("no such customer")

    served = Served(tmp_path, to=refuse, max_attempts=1)
    try:
        for n in range(3):
            put(served, f"bad {n}", f"k{n}", 1_700_000_000_005 + n)
        assert served.running.wait(10)
        first = served.ask("GET", "/dead?limit=2")
        rest = served.ask("GET", f"/dead?limit=2&cursor={first.body['next']}")
        assert (first.status, rest.status, rest.body["next"]) == (200, 200, None)
        letters = first.body["letters"] + rest.body["letters"]
        assert sorted(json.loads(it["record"])["id"] for it in letters) == ["bad 0", "bad 1", "bad 2"]
        assert {it["reason"] for it in letters} == {"gave up after 1 attempt: ValueError: no such customer"}
        shown = msgspec.to_builtins(served.running.view.dead())
        assert served.ask("GET", "/dead").body == shown
    finally:
        served.close()


@pytest.mark.parametrize(
    ("path", "reason", "allowed"),
    [
        (
            "/dead?limit=0",
            "a page can't have 0 entries",
            "/dead with destination, tenant, limit, cursor, each at most once",
        ),
        ("/dead?cursor=ten", "'ten' is no cursor", "/dead with"),
        ("/dead?key=k", "the address has 'key'", "/dead with"),
        ("/status?key=k", "the address has parameters", "/status"),
    ],
)
def test_dead_letters_and_a_status_that_can_not_be_are_refused__D14(
    path: str, reason: str, allowed: str, served: Served
) -> None:
    reply = served.ask("GET", path)
    assert reply.status == 400
    assert reason in reply.body["reason"]
    assert allowed in reply.body["allowed"]


def test_the_status_is_the_one_of_the_command__D14(served: Served) -> None:
    put(served, "stays", "status")
    reply = served.ask("GET", "/status")
    assert (reply.status, reply.body["in_use"], reply.body["process"]) == (200, True, os.getpid())
    told = json.loads(CliRunner().invoke(command, ["status", str(served.running.store), "--json"]).stdout)
    changing = {"at", "log_size", "file_size"}
    assert told["in_doubt"] == reply.body["in_doubt"] | dict.fromkeys(("keys", "spare_places", "spare_places_taken"))
    assert told["destinations"] == reply.body["destinations"] | {"down": None}
    changing |= {"in_doubt", "destinations"}
    assert {name: reply.body[name] for name in reply.body if name not in changing} == {
        name: told[name] for name in told if name not in changing
    }
    assert served.ask("POST", "/status").status == served.ask("POST", "/dead").status == 405


def test_a_message_gets_another_due_time__D16(served: Served) -> None:
    put(served, "moved", "k")
    reply = served.ask("PATCH", "/messages/moved?key=k", {"due": "2096-10-02T07:06:41Z"})
    due = "2096-10-02T07:06:41.000Z"
    assert reply[:2] == (200, {"id": "moved", "key": "k", "due": due, "state": "rescheduled"})
    assert served.ask("GET", "/messages/moved?key=k").body["due"] == due
    assert served.ask("PATCH", "/messages/moved?key=k", {"delay_ms": 1}).status == 200
    assert served.arrived.get(timeout=10).message.id == "moved"
    deadline_s = time.monotonic() + 10
    while served.ask("GET", "/messages/moved?key=k").body["state"] != "delivered":
        assert time.monotonic() < deadline_s
    too_late = served.ask("PATCH", "/messages/moved?key=k", {"delay_ms": 1})
    assert too_late[:2] == (409, {"id": "moved", "key": "k", "state": "delivered"})
    assert served.ask("PATCH", "/messages/moved", {"delay_ms": 1}).status == 404


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({}, "due is missing"),
        ({"due": FAR_MS, "delay_ms": 1}, "both due and delay_ms are given"),
        ({"due": 12}, "looks like seconds"),
        ({"delay_ms": "soon"}, "delay_ms"),
        ({"deu": FAR_MS}, "deu"),
        (b"", "the body can't be read"),
        (b"{", "the body can't be read"),
        ([1], "the body can't be read"),
    ],
)
def test_another_due_time_that_is_none_is_refused__D16(body: object, reason: str, served: Served) -> None:
    reply = served.ask("PATCH", "/messages/a", body)
    assert reply.status == 400
    assert reason in reply.body["reason"]


def test_sending_is_paused_and_goes_on__D16(served: Served) -> None:
    assert served.ask("POST", "/pause")[:2] == (200, {"state": "paused"})
    put(served, "waits", "paused", 1_700_000_000_005)
    assert b"tickwheel_paused 1.0" in served.ask("GET", "/metrics").body.encode()
    assert served.arrived.empty()
    assert served.ask("POST", "/resume")[:2] == (200, {"state": "resumed"})
    assert served.arrived.get(timeout=10).message.id == "waits"
    assert served.ask("GET", "/pause").status == 405


def test_a_key_is_paused_and_goes_on__D16(served: Served) -> None:
    key = "a%20key"
    assert served.ask("POST", f"/pause?key={key}")[:2] == (200, {"key": "a key", "state": "paused"})
    put(served, "waits", "a key", 1_700_000_000_005)
    put(served, "other", "another", 1_700_000_000_005)
    assert served.arrived.get(timeout=10).message.id == "other"
    assert served.ask("GET", f"/messages/waits?key={key}").body["key_paused_since"] is not None
    assert served.arrived.empty()
    assert served.ask("POST", f"/resume?key={key}")[:2] == (200, {"key": "a key", "state": "resumed"})
    assert served.arrived.get(timeout=10).message.id == "waits"


@pytest.mark.parametrize("query", ["?key=", "?k=a", "?key=a&key=b", "?a", "?key=%FF"])
def test_a_pause_of_what_is_no_key_is_refused__D16(query: str, served: Served) -> None:
    reply = served.ask("POST", f"/pause{query}")
    assert reply.status == 400
    assert "key" in reply.body["allowed"]


@pytest.mark.parametrize("path", ["/pause", "/resume", "/pause?key=a"])
def test_a_pause_with_a_body_is_refused_as_the_key_is_in_the_address__D16(path: str, served: Served) -> None:
    reply = served.ask("POST", path, {"key": "a"})
    assert (reply.status, reply.body["reason"]) == (400, "there is a body, and this request reads none")
    assert reply.body["allowed"].endswith("?tenant=NAME, not empty: a name is in the address")
    status = served.ask("GET", "/status").body
    assert (status["paused_since"], status["paused_keys"]) == (None, 0)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/requeue?key=z"),
        ("POST", "/actions?all=true"),
        ("GET", "/actions?limit=1"),
        ("GET", "/actions/a?limit=1"),
        ("GET", "/status?key=a"),
    ],
)
def test_parameters_that_are_not_read_are_refused__D11(method: str, path: str, served: Served) -> None:
    reply = served.ask(method, path)
    assert (reply.status, reply.body["reason"]) == (400, "the address has parameters, and this request reads none")
    assert reply.body["allowed"] == path.partition("?")[0]


def test_while_the_store_is_moved_away_what_is_read_of_it_is_503__D14(tmp_path: Path) -> None:
    served = Served(tmp_path)
    try:
        put(served, "a", "k")
        paths = "/status", "/messages", "/dead", "/actions", "/actions/a", "/messages/a?key=k"
        (tmp_path / "store.db").rename(tmp_path / "moved.db")
        for path in paths:
            reply = served.ask("GET", path)
            assert (reply.status, "store.db" in reply.body["reason"]) == (503, True), (path, reply)
        (tmp_path / "moved.db").rename(tmp_path / "store.db")
        assert [served.ask("GET", path).status for path in paths] == [200, 200, 200, 200, 404, 200]
    finally:
        served.close()


@pytest.mark.parametrize(("query", "wrong"), [("kex=x", "'kex'"), ("key=a&key=b", "'key twice'"), ("key=a&b=1", "'b'")])
def test_a_wrong_parameter_of_a_message_is_named__D11(query: str, wrong: str, served: Served) -> None:
    reply = served.ask("GET", f"/messages/a?{query}")
    assert (reply.status, reply.body["reason"]) == (400, f"the address has {wrong}")


def test_times_the_wrong_way_round_are_refused__D14_D16(served: Served) -> None:
    listed = served.ask("GET", f"/messages?due_from={FAR_MS + 1}&due_before={FAR_MS}")
    begun = served.ask("POST", "/actions", {"kind": "cancel", "due_from": FAR_MS + 1, "due_before": FAR_MS})
    for reply in listed, begun:
        assert (reply.status, "which is earlier" in reply.body["reason"]) == (400, True), reply
    assert served.ask("GET", f"/messages?due_from={FAR_MS}&due_before={FAR_MS}").status == 200
    none = served.ask("POST", "/actions", {"kind": "cancel"})
    assert 'or "all": true for every one' in none.body["reason"]


def test_a_due_time_that_may_be_rounded_is_refused_as_in_a_record__D1_D16(served: Served) -> None:
    served.ask("POST", "/messages", {"id": "a", "due": "2096-10-02T07:06:41Z", "payload": 1})
    for due in (b"4.00000E+12", b"4e12"):
        reply = served.ask("PATCH", "/messages/a", b'{"due": ' + due + b"}")
        assert (reply.status, reply.body["reason"]) == (400, f"due is {due.decode()}, which may be rounded")
    assert served.ask("PATCH", "/messages/a", b'{"due": 4000000000000.0}').status == 200


def test_a_second_name_that_is_made_meanwhile_hides_nothing__D9_D14(tmp_path: Path) -> None:
    served = Served(tmp_path)
    try:
        served.ask("POST", "/messages", {"id": "a", "due": "2096-10-02T07:06:41Z", "payload": 1})
        os.link(tmp_path / "store.db", tmp_path / "copy")
        assert served.ask("GET", "/messages/a").status == served.ask("GET", "/status").status == 200
    finally:
        served.close()
