"""Tokens that are limited to destinations, and who may pause one (D12, D23)."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from delivery.serve.conftest import ARROW, Reply, Served
from delivery.serve.test_seen_destinations import FAR_MS, put, set_destination
from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.delivery.serve.tokens import ALL, Grant, Right, Tokens, read_tokens
from tickwheel.delivery.sinks import Destination

pytestmark = pytest.mark.timeout(60)
NOWHERE = "http://127.0.0.1:1/"
TOKENS = {
    "all": ALL,
    "limited": Grant(ALL, {"destination": frozenset({"a", "later"})}),
    "control": Right.CONTROL,
    "destinations": Right.DESTINATIONS,
    "read": Right.READ,
}


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """Two destinations with a message for each."""
    tokens = Tokens({name.encode(): grant for name, grant in TOKENS.items()})
    opened = Served(tmp_path, to=Destination.named())
    for name in ("a", "b"):
        set_destination(opened, name, NOWHERE, paused=True)
        put(opened, name, 1, FAR_MS)
    opened.access.tokens = tokens
    yield opened
    opened.close()


def by(served: Served, token: str, method: str, path: str, body: object = None, **headers: str) -> Reply:
    return served.ask(method, path, body, headers={"authorization": f"Bearer {token}", **headers})


def message(id_: str, destination: str | None = "a", **more: Any) -> dict[str, Any]:
    return {"id": id_, "due": FAR_MS, "payload": 1, **({"destination": destination} if destination else {}), **more}


def test_it_puts_new_messages_for_its_own_alone__D12_D23(served: Served) -> None:
    assert by(served, "limited", "POST", "/messages", message("1")).status == 201
    refused = [
        message("2", "b"),
        message("3", None),
        message("4", every=1_000),
        {"op": "cancel", "id": f"b {FAR_MS} 0"},
        {"op": "reschedule", "id": f"b {FAR_MS} 0", "due": FAR_MS},
    ]
    for each in refused:
        told = by(served, "limited", "POST", "/messages", each)
        assert told.status == 403, each
        assert told.body["reason"].startswith("this token is limited to destinations, and the record is no new message")
        assert told.body["allowed"].endswith("name one of a, later")
    assert by(served, "limited", "POST", "/messages?replace=true", message("1")).status == 403
    assert by(served, "limited", "POST", "/messages", message("5", "later")).status == 422, "it is not set yet"
    lines = b"\n".join(json.dumps(it).encode() for it in (message("6"), message("7", "b"), message("8", None)))
    told = by(served, "limited", "POST", "/messages", lines, **{"content-type": "application/x-ndjson"})
    assert [it["status"] for it in map(json.loads, told.body.splitlines())] == [201, 403, 403]
    columns = {"id": ["9", "10"], "due": [FAR_MS] * 2, "payload": ["x"] * 2, "destination": ["a", "b"]}
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, (batch := pa.record_batch(columns)).schema) as stream:
        stream.write_batch(batch)
    told = by(served, "limited", "POST", "/messages", sink.getvalue().to_pybytes(), **ARROW)
    assert [it["status"] for it in map(json.loads, told.body.splitlines())] == [201, 403]
    kept = by(served, "all", "GET", "/messages").body["messages"]
    assert sorted(it["id"] for it in kept) == ["1", "6", "9", f"a {FAR_MS} 0", f"b {FAR_MS} 0"]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/messages?destination={}", None),
        ("GET", "/dead?destination={}", None),
        ("POST", "/pause?destination={}", None),
        ("POST", "/resume?destination={}", None),
        ("POST", "/actions", {"kind": "requeue", "destination": "{}"}),
        ("POST", "/actions", {"kind": "cancel", "destination": "{}"}),
        ("GET", "/destinations/{}", None),
        ("PUT", "/destinations/{}", {"url": NOWHERE}),
        ("POST", "/destinations/{}/test", None),
        ("DELETE", "/destinations/{}?messages=dead", None),
    ],
)
def test_a_request_that_names_one_of_its_own_is_served__D12_D23(
    served: Served, method: str, path: str, body: dict[str, str] | None
) -> None:
    for name, token, expected in (("b", "limited", False), ("a", "limited", True), ("b", "all", True)):
        named = None if body is None else {key: text.format(name) for key, text in body.items()}
        told = by(served, token, method, path.format(name), named)
        assert (told.status != 403) is expected, (name, token, told)
        if expected:
            assert told.status in (200, 202), told


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/messages"),
        ("GET", "/messages?destination=a&destination=b"),
        ("GET", "/messages?destination="),
        ("GET", f"/messages/a%20{FAR_MS}%200"),
        ("GET", f"/message?id=a%20{FAR_MS}%200"),
        ("DELETE", f"/messages/a%20{FAR_MS}%200"),
        ("DELETE", f"/messages/a%20{FAR_MS}%200?destination=a"),
        ("PATCH", "/messages/a"),
        ("POST", "/requeue"),
        ("POST", "/again?key=k"),
        ("POST", "/pause"),
        ("POST", "/pause?key=k"),
        ("POST", "/resume?destination=b"),
        ("GET", "/actions"),
        ("GET", "/destinations"),
        ("GET", "/destinations?destination=a"),
        ("GET", "/status"),
        ("GET", "/status?destination=a"),
        ("GET", "/metrics"),
        ("GET", "/events"),
        ("POST", "/hand-off"),
        ("GET", "/hand-off/marks"),
    ],
)
def test_any_other_request_is_refused__D12_D23(served: Served, method: str, path: str) -> None:
    told = by(served, "limited", method, path)
    assert told.status == 403, told
    assert told.body["reason"] == "this token is limited to destinations, and the request names none of them"


def test_it_sees_its_own_actions_alone__D12_D16_D23(served: Served) -> None:
    for name in ("a", "b"):
        begun = by(served, "all", "POST", "/actions", {"kind": "cancel", "destination": name, "id": f"of {name}"})
        assert begun.status == 202
    assert by(served, "all", "POST", "/actions", {"kind": "cancel", "key": "k", "id": "of k"}).status == 202
    assert by(served, "limited", "GET", "/actions/of%20a").body["destination"] == "a"
    assert [by(served, "limited", "GET", f"/actions/of%20{name}").status for name in "bk"] == [404, 404]
    assert by(served, "limited", "POST", "/actions", {"kind": "cancel", "all": True}).status == 403


def test_a_pause_of_a_destination_needs_one_of_two_rights_and_that_of_a_key_control__D12_D23(served: Served) -> None:
    for path, expected in (
        ("/pause?destination=a", [200, 200, 403]),
        ("/resume?destination=a", [200, 200, 403]),
        ("/pause?key=k", [200, 403, 403]),
        ("/resume", [200, 403, 403]),
        ("/pause?key=k&destination=a", [400, 403, 403]),
        ("/pause?destination=a&key=k", [400, 400, 403]),
    ):
        tokens = ("control", "destinations", "read")
        assert [by(served, token, "POST", path).status for token in tokens] == expected, path
    unknown = by(served, "destinations", "POST", "/pause?destination=nobody")
    assert (unknown.status, unknown.body) == (404, {"destination": "nobody", "state": "unknown"})
    told = by(served, "destinations", "POST", "/pause?destination=a")
    assert told.body == {"destination": "a", "state": "paused"}
    assert by(served, "destinations", "GET", "/destinations/a").body["state"] == "paused"
    assert by(served, "read", "GET", "/readyz").body == {"status": "ok"}


def test_the_line_of_a_token_names_them__D12(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(
        "the-first-customers-one produce, read destination=acme,zenith  # two\n"
        "the-other-customers-one destination=acme destination=zenith\n"
    )
    path.chmod(0o600)
    tokens = read_tokens(path)
    both = {"destination": frozenset({"acme", "zenith"})}
    assert tokens.grant_of(b"the-first-customers-one") == (Right.PRODUCE | Right.READ, both)
    assert tokens.grant_of(b"the-other-customers-one") == (ALL, both)
    for wrong in ("destination=", "destination=acme,", "read destination=acme, zenith"):
        path.write_text(f"the-first-customers-one {wrong}\n")
        with pytest.raises(WrongUsage, match="has no name, or a comma too many"):
            read_tokens(path)


def test_a_limit_to_tenants_is_one_to_their_messages__D12_D24(served: Served) -> None:
    by_tenant, by_both = {"tenant": frozenset({"t"})}, {"tenant": frozenset({"t"}), "destination": frozenset({"a"})}
    served.access.tokens = Tokens({b"all": ALL, b"of t": Grant(ALL, by_tenant), b"of both": Grant(ALL, by_both)})

    def statuses(method: str, path: str, body: object = None) -> list[int]:
        return [by(served, token, method, path, body).status for token in ("all", "of t", "of both")]

    assert statuses("POST", "/messages", message("1", "a", tenant="t")) == [201, 200, 200]
    assert statuses("POST", "/messages", message("2", "b", tenant="t")) == [201, 200, 403]
    assert statuses("POST", "/messages", message("3", "a", tenant="u")) == [201, 403, 403]
    assert statuses("POST", "/messages", message("4", "a")) == [201, 403, 403]
    assert statuses("POST", "/messages", {"op": "cancel", "id": "3"}) == [200, 403, 403]
    told = by(served, "of both", "POST", "/messages", message("5")).body
    reason = "this token is limited to destinations and tenants, and the record is no new message for one of them"
    assert (told["reason"], told["allowed"].endswith("name one of a, and one of t")) == (reason, True)
    for path in ("/messages", "/dead"):
        assert statuses("GET", path) == [200, 403, 403]
        assert statuses("GET", f"{path}?tenant=t") == [200, 200, 403]
        assert statuses("GET", f"{path}?tenant=t&destination=a") == [200, 200, 200]
        assert statuses("GET", f"{path}?tenant=u&destination=a") == [200, 403, 403]
    found = by(served, "of t", "GET", "/messages?tenant=t").body["messages"]
    assert [(it["id"], it["tenant"]) for it in found] == [("1", "t"), ("2", "t")]
    assert statuses("GET", "/destinations/a") == [200, 403, 403]
    assert statuses("GET", "/status") == [200, 403, 403]
    for n, (tenant, allowed) in enumerate({"t": 202, "u": 403}.items()):
        act = {"kind": "cancel", "tenant": tenant}
        assert by(served, "of t", "POST", "/actions", act | {"id": f"x{n}"}).status == allowed
        assert by(served, "of both", "POST", "/actions", act | {"id": f"y{n}"}).status == 403
        assert by(served, "all", "POST", "/actions", act | {"id": f"z{n}"}).status == 202
    assert [by(served, "of t", "GET", f"/actions/z{n}").status for n in (0, 1)] == [200, 404]


def test_the_line_of_a_token_names_tenants__D12_D24(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text("the-first-customers-one produce tenant=t,u destination=a\nthe-other-customers-one tenant=v\n")
    path.chmod(0o600)
    tokens = read_tokens(path)
    limits = {"destination": frozenset({"a"}), "tenant": frozenset({"t", "u"})}
    assert tokens.grant_of(b"the-first-customers-one") == (Right.PRODUCE, limits)
    assert tokens.grant_of(b"the-other-customers-one") == (ALL, {"tenant": frozenset({"v"})})
    path.write_text("the-first-customers-one destination=a tenant=\n")
    with pytest.raises(WrongUsage, match="tenant= has no name, or a comma too many"):
        read_tokens(path)
