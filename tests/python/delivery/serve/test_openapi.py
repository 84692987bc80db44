"""`docs/openapi.yaml` and the server: each route, parameter, member, status and header, both ways (rules D11, D12)."""

import http.client
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import yaml
from jsonschema import Draft202012Validator
from msgspec.structs import fields
from openapi_spec_validator import validate

from delivery.batches import batch, stream
from tickwheel._native import NdjsonLines
from tickwheel.delivery import Answer, Delivery, DeliveryFailed, Unavailable
from tickwheel.delivery.model.entries import ActionKind
from tickwheel.delivery.model.message import MAX_PAYLOAD, Columns
from tickwheel.delivery.model.operations import REPLIES
from tickwheel.delivery.read.hand_off_rows import HANDED, batch_of
from tickwheel.delivery.serve import actions, bodies, listing
from tickwheel.delivery.serve import http as served_http
from tickwheel.delivery.serve.bodies import Bodies
from tickwheel.delivery.serve.guard import right_of
from tickwheel.delivery.serve.live import Live
from tickwheel.delivery.serve.tokens import Right, Tokens, names_of
from tickwheel.delivery.sight import (
    Action,
    DestinationSeen,
    DestinationShown,
    Details,
    LetterSeen,
    Rule,
    Seen,
    State,
    StoreStatus,
    TenantPage,
    TenantSeen,
)
from tickwheel.delivery.sinks import Destination

from .conftest import ARROW, Reply, Served

pytestmark = pytest.mark.timeout(60)
SPEC: dict[str, Any] = yaml.safe_load((Path(__file__).parents[4] / "docs/openapi.yaml").read_text())
SCHEMAS = SPEC["components"]["schemas"]
Operation: TypeAlias = tuple[str, str]
OPERATIONS: dict[Operation, dict[str, Any]] = {
    (method.upper(), path): {**operation, "parameters": [*item.get("parameters", ()), *operation.get("parameters", ())]}
    for path, item in SPEC["paths"].items()
    for method, operation in item.items()
    if method != "parameters"
}
OPEN = [operation for operation in OPERATIONS if OPERATIONS[operation].get("security") == []]
HEALTH = [operation for operation in OPEN if OPERATIONS[operation]["tags"] == ["Health"]]
EVENTS = ("GET", "/events")
HAND_OFF, MARKS = ("POST", "/hand-off"), ("GET", "/hand-off/marks")
NDJSON = {"content-type": "application/x-ndjson"}
OF_ANY_ANSWER = {"content-type", "content-length", "date", "server", "transfer-encoding"}
FAR_MS = 4_000_000_000_000
TOKENS = Tokens({names_of(right)[:1].encode() * 32: right for right in Right})


def resolved(given: dict[str, Any]) -> dict[str, Any]:
    """What a reference names."""
    if "$ref" not in given:
        return given
    found: Any = SPEC
    for part in given["$ref"].removeprefix("#/").split("/"):
        found = found[part]
    return dict(found)


def address(operation: Operation, query: str = "") -> str:
    """With what it needs, and this query."""
    required = {("DELETE", "/remembered"): ("key", "id")}.get(operation, ("id",) if operation[1] == "/message" else ())
    query = "&".join(
        [*(f"{name}=some" for name in required if not query.startswith(f"{name}=")), *filter(None, [query])]
    )
    return operation[1].replace("{id}", "some").replace("{name}", "some") + (f"?{query}" if query else "")


def handed(id_: str) -> bytes:
    """A hand-off of one message."""
    line = json.dumps({"id": id_, "due": FAR_MS}).encode()
    return stream(batch_of(NdjsonLines("in", Columns(), MAX_PAYLOAD).read(line)).select(HANDED.names))


def kind_of(operation: Operation) -> dict[str, str]:
    """The headers that a body needs."""
    return dict(ARROW) if operation == HAND_OFF else {}


def text_of(operation: Operation) -> bytes:
    """A body that can be used."""
    if operation == HAND_OFF:
        return handed("some")
    bodies = {
        ("POST", "/messages"): {"id": "some", "due": FAR_MS},
        ("PATCH", "/messages/{id}"): {"delay_ms": FAR_MS},
        ("PATCH", "/message"): {"delay_ms": FAR_MS},
        ("POST", "/requeue"): {"id": "some"},
        ("POST", "/actions"): {"kind": "cancel", "key": "none"},
        ("PUT", "/destinations/{name}"): {"url": "https://a.example/"},
        ("PUT", "/tenants/{name}"): {"weight": 2},
    }
    return json.dumps(bodies[operation]).encode() if operation in bodies else b""


class Seeing:
    """Asks, and compares each answer with what the file says of it."""

    def __init__(self) -> None:
        self.statuses: set[tuple[Operation, str]] = set()
        self.headers: set[tuple[Operation, str, str]] = set()

    def check(self, operation: Operation, reply: Reply) -> Reply:
        responses = OPERATIONS[operation]["responses"]
        assert str(reply.status) in responses, f"{operation} answers {reply.status}, which is not described: {reply}"
        described = resolved(responses[str(reply.status)])
        self.statuses.add((operation, str(reply.status)))
        kind = reply.headers["content-type"].partition(";")[0]
        schema = described["content"][kind]["schema"]
        if kind == "application/json":
            errors = [*Draft202012Validator({**schema, "components": SPEC["components"]}).iter_errors(reply.body)]
            assert not errors, f"{operation} {reply.status}: {errors[0].message}"
        given = {name.lower(): value for name, value in reply.headers.items() if name.lower() not in OF_ANY_ANSWER}
        for name, value in given.items():
            schema = resolved(described["headers"][name])["schema"]
            assert schema.get("const", value) == value, (operation, reply.status, name)
            self.headers.add((operation, str(reply.status), name))
        return reply


@pytest.fixture
def seeing() -> Seeing:
    return Seeing()


def test_it_is_a_file_of_openapi() -> None:
    validate(SPEC)


def test_it_has_every_route_of_the_server_and_no_other__D11(served: Served) -> None:
    routes: Any = served_http.app(served.running, 1, Bodies(lambda _: True), Live(served.running, served.access))
    found = {
        (method, route.path.replace(":any", "").replace(":path", ""))
        for route in routes.routes
        for method in route.methods - {"HEAD"}
    }
    assert set(OPERATIONS) == found


@pytest.mark.parametrize("operation", [each for each in OPERATIONS if each not in OPEN], ids=" ".join)
def test_it_says_which_right_a_request_needs__D12(operation: Operation) -> None:
    assert OPERATIONS[operation]["x-right"] == names_of(right_of(*operation))


def test_it_has_every_parameter_of_the_server_and_no_other__D11(served: Served) -> None:
    told = {
        operation: [
            each["name"] for each in map(resolved, OPERATIONS[operation]["parameters"]) if each["in"] == "query"
        ]
        for operation in OPERATIONS
    }
    known = {
        ("GET", "/messages"): [*listing._PARAMETERS],
        ("GET", "/dead"): [*listing._PARAMETERS_OF_DEAD],
        **{("GET", path): [*listing._PARAMETERS_OF_A_PAGE] for path in ("/destinations", "/tenants")},
        ("DELETE", "/destinations/{name}"): ["messages"],
        ("POST", "/messages"): ["replace", "at_latest_ms"],
        **{(method, "/messages/{id}"): ["key"] for method in ("GET", "DELETE", "PATCH")},
        **{(method, "/message"): ["id", "key"] for method in ("GET", "DELETE", "PATCH")},
        **{("POST", path): ["key", "destination", "tenant"] for path in ("/pause", "/resume")},
        ("POST", "/again"): ["key", "id"],
        ("DELETE", "/remembered"): ["key", "id"],
        HAND_OFF: ["store"],
    }
    assert {operation: names for operation, names in told.items() if names} == known
    values = {"state": "dead", "due_from": str(FAR_MS), "due_before": str(FAR_MS), "limit": "1", "replace": "true"}
    values |= {"key": "k", "at_latest_ms": "1", "messages": "dead"}
    for operation, names in told.items():
        for name in names:
            text = f"{name}={values.get(name, '1')}" + ("&replace=true" if name == "at_latest_ms" else "")
            if name != "cursor":  # of which only the server makes one
                path = address(operation, text)
                reply = served.ask(operation[0], path, text_of(operation), headers=kind_of(operation))
                is_taken = reply.status != 400 or "there is no destination '1'" in reply.body["reason"]
                assert is_taken, (operation, name, reply.body)
        if operation not in HEALTH and operation != ("GET", "/metrics"):
            path = address(operation, "other=1")
            reply = served.ask(operation[0], path, text_of(operation), headers=kind_of(operation))
            assert reply.status == 400, operation


@pytest.mark.parametrize(
    ("schema", "struct"),
    [
        ("Name", served_http._Name),
        ("Due", served_http._Due),
        ("Asked", actions._Asked),
        ("Seen", Seen),
        ("Details", Details),
        ("Rule", Rule),
        ("Letter", LetterSeen),
        ("Action", Action),
        ("Status", StoreStatus),
        ("DestinationSeen", DestinationSeen),
        ("DestinationShown", DestinationShown),
        ("TenantSeen", TenantSeen),
        ("TenantPage", TenantPage),
    ],
)
def test_a_body_has_the_members_of_the_code_and_no_others__D14(schema: str, struct: type) -> None:
    assert set(SCHEMAS[schema]["properties"]) == {field.encode_name for field in fields(struct)}


def test_it_has_every_word_that_an_answer_may_have__D7_D14() -> None:
    of_others = {Answer.CONFLICT, Answer.FULL, Answer.PAUSED, Answer.RESUMED, Answer.REMOVED}  # they have their own
    assert set(SCHEMAS["Answer"]["enum"]) == {str(answer) for answer in set(Answer) - of_others}
    assert set(SCHEMAS["Sending"]["properties"]["state"]["enum"]) == {Answer.PAUSED, Answer.RESUMED, Answer.UNKNOWN}
    for kind in ("destination", "tenant"):
        told = set(SCHEMAS[f"StateOf{kind.capitalize()}"]["properties"]["state"]["enum"])
        assert told == {*REPLIES[f"set_{kind}"], *REPLIES[f"remove_{kind}"]}
    assert set(SCHEMAS["Tried"]["properties"]["state"]["enum"]) == set(REPLIES["again"])
    assert set(SCHEMAS["State"]["enum"]) == set(State)
    assert set(SCHEMAS["Action"]["properties"]["kind"]["enum"]) == set(ActionKind)


def test_every_answer_that_it_describes_is_given_and_is_so__D11_D12(
    tmp_path: Path, seeing: Seeing, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path / "usual") as served:
        go_through(served, seeing)
        send_the_examples(served, seeing)
        read_from_a_page_of_its_own(served, seeing)
        try_one_that_is_away(served, seeing)
        send_too_much_and_too_slowly(served, seeing, monkeypatch)
        ask_for_too_much_at_a_time(served, seeing)
    with serving(tmp_path / "named", to=Destination.named(), allow_addresses=()) as served:
        set_and_remove(served, seeing)
    with serving(tmp_path / "guarded", tokens=TOKENS) as served:
        ask_without_the_right(served, seeing)
    with serving(tmp_path / "global", order="global") as served:
        told = ("POST", "/pause")
        assert seeing.check(told, served.ask(*told)).status == 200
        for what in ("key", "tenant"):
            assert seeing.check(told, served.ask("POST", f"/pause?{what}=k")).status == 409
        told = ("PUT", "/tenants/{name}")
        assert seeing.check(told, served.ask("PUT", "/tenants/a", {})).status == 409
    with pytest.raises(DeliveryFailed, match="on purpose"):
        ask_one_that_has_failed(tmp_path / "failed", seeing)

    described = {(operation, status) for operation in OPERATIONS for status in OPERATIONS[operation]["responses"]}
    assert seeing.statuses == described
    headers = {
        (operation, status, name)
        for operation, status in described
        for name in resolved(OPERATIONS[operation]["responses"][status]).get("headers", ())
    }
    # Where a body is given up in the middle: `Later` is one description for all requests, and most have no body.
    assert headers - seeing.headers == {each for each in headers if each[1:] == ("503", "connection")}


def go_through(served: Served, seeing: Seeing) -> None:
    """What a client sees that does everything once."""

    def ask(method: str, path: str, status: int, body: object = None, at: str = "", **more: Any) -> Any:
        reply = served.ask(method, at or path, body, **more)
        assert reply.status == status, (method, path, reply)
        return seeing.check((method, path), reply).body

    message = {"id": "one", "key": "k", "due": FAR_MS, "payload": {"n": 1}}
    ask("POST", "/messages", 201, message)
    ask("POST", "/messages", 200, message)
    ask("POST", "/messages", 409, message | {"payload": 2})
    ask("POST", "/messages", 400, {"id": "one"})
    ask("POST", "/messages", 422, {"id": "nowhere", "due": FAR_MS, "destination": "nowhere"})
    ask("POST", "/messages", 202, {"id": "early", "op": "cancel"})
    ask("POST", "/messages", 404, {"id": "none", "op": "reschedule", "due": FAR_MS})
    ask("POST", "/messages", 200, {"id": "one", "key": "k", "op": "reschedule", "due": FAR_MS + 1})
    ask("POST", "/messages", 200, message | {"payload": 3}, "/messages?replace=true&at_latest_ms=9999999999999")
    ask("POST", "/messages", 201, {"id": "beat", "every": 3_600_000, "payload": 1, "missed": "all"})
    ask("POST", "/messages", 201, {"id": "nine", "cron": "0 9 * * *", "tz": "Europe/Berlin", "payload": 1})
    ask("POST", "/messages", 201, {"id": "bytes", "due": FAR_MS, "payload_base64": "/w==", "expires": FAR_MS + 1})
    waits = {"id": "waits", "key": "e", "due": FAR_MS, "until_event": ["paid"], "payload": 1}
    ask("POST", "/messages", 201, waits)
    ask("GET", "/messages", 200, at="/messages?until=paid")
    event = {"op": "event", "id": "happens", "key": "e", "event": "paid", "remember_ms": 60_000}
    assert ask("POST", "/messages", 200, event)["let_go"] == 1
    ask("GET", "/messages/{id}", 200, at="/messages/waits?key=e")
    assert served.arrived.get(timeout=10).cause == "event"
    ask("DELETE", "/remembered", 200, at="/remembered?key=e&id=happens")
    ask("DELETE", "/remembered", 404, at="/remembered?key=e&id=happens")
    ask("DELETE", "/remembered", 400)
    lines = ask("POST", "/messages", 200, b'{"id": "many", "due": 4000000000000}\n\noops\n', headers=NDJSON)
    told = [json.loads(line) for line in lines.splitlines()]
    assert [line["line"] for line in told] == [1, 3]
    for line in told:
        Draft202012Validator({**SCHEMAS["LineAnswer"], "components": SPEC["components"]}).validate(line)

    rows = stream(batch(id=["row", None], due=[FAR_MS] * 2))
    lines = ask("POST", "/messages", 200, rows, headers=ARROW)
    told = [json.loads(line) for line in lines.splitlines()]
    assert [line["status"] for line in told] == [201, 400]
    for line in told:
        Draft202012Validator({**SCHEMAS["LineAnswer"], "components": SPEC["components"]}).validate(line)
    ask(*HAND_OFF, 200, handed("handed"), headers=ARROW)
    ask(*HAND_OFF, 409, handed("handed"), "/hand-off?store=other", headers=ARROW)
    ask(*HAND_OFF, 400, rows, headers=ARROW)
    ask(*HAND_OFF, 415, {"id": "handed"})
    ask(*MARKS, 200)
    ask(*MARKS, 400, at="/hand-off/marks?partition=0")

    ask("POST", "/messages", 201, {"id": "late", "due": 1_700_000_000_000})
    assert served.arrived.get(timeout=10).message.id == "late"
    until(lambda: served.ask("GET", "/messages/late").body["state"] == "delivered")
    ask("POST", "/messages", 409, {"id": "late", "op": "cancel"})
    for one, before, key in (("/messages/{id}", "/messages/", "?key="), ("/message", "/message?id=", "&key=")):
        for name, k in (("one", f"{key}k"), ("beat", ""), ("nine", ""), ("bytes", ""), ("late", "")):
            ask("GET", one, 200, at=f"{before}{name}{k}")
        ask("GET", one, 404, at=f"{before}none")
        ask("GET", one, 400, at=f"{before}one{key}")
        ask("PATCH", one, 200, {"delay_ms": FAR_MS / 2}, f"{before}one{key}k")
        ask("PATCH", one, 404, {"due": FAR_MS}, f"{before}none")
        ask("PATCH", one, 409, {"due": FAR_MS}, f"{before}late")
        ask("PATCH", one, 400, {}, f"{before}one{key}k")
        ask("DELETE", one, 200, at=f"{before}nine")
        ask("DELETE", one, 202, at=f"{before}nobody-{len(before)}")
        ask("DELETE", one, 409, at=f"{before}late")
        ask("DELETE", one, 400, at=f"{before}one{key}k&k=k")
    ask("GET", one, 400, at="/message?key=k")
    ask("DELETE", one, 200, at="/message?id=one&key=k")

    for state in SCHEMAS["State"]["enum"]:
        ask("GET", "/messages", 200, at=f"/messages?state={state}&limit=1")
    ask("GET", "/messages", 400, at="/messages?limit=0")
    ask("GET", "/status", 200)
    ask("GET", "/status", 400, at="/status?x=1")
    ask("GET", "/metrics", 200)
    ask("GET", "/", 200)
    ask("GET", "/", 400, at="/?x=1")
    assert seeing.check(EVENTS, first_event(served)).body.startswith("event: hello\n")
    ask("GET", "/events", 400, at="/events?x=1")
    for path in ("/livez", "/readyz", "/healthz"):
        ask("GET", path, 200)

    action = {"kind": "cancel", "key_prefix": "none/", "id": "a/b", "due_from": "2026-01-01T00:00:00Z"}
    ask("POST", "/actions", 202, action)
    ask("POST", "/actions", 200, action)
    ask("POST", "/actions", 409, action | {"key_prefix": "other/"})
    ask("POST", "/actions", 422, {"kind": "cancel", "destination": "nowhere"})
    ask("POST", "/actions", 400, {"kind": "cancel"})
    ask("GET", "/actions", 200)
    ask("GET", "/actions", 400, at="/actions?x=1")
    ask("GET", "/actions/{id}", 200, at="/actions/a%2Fb")
    ask("GET", "/actions/{id}", 404, at="/actions/none")
    ask("GET", "/actions/{id}", 400, at="/actions/a?x=1")

    ask("POST", "/pause", 200)
    ask("POST", "/pause", 200, at="/pause?key=k")
    ask("POST", "/pause", 400, {"key": "k"})
    ask("POST", "/resume", 200, at="/resume?key=k")
    ask("POST", "/resume", 400, at="/resume?key=")
    ask("POST", "/resume", 200)
    ask("PUT", "/destinations/{name}", 409, {"url": "https://a.example/"}, "/destinations/a")
    ask("PUT", "/tenants/{name}", 201, {"rate": "10/s", "paused": True}, "/tenants/a")
    ask("PUT", "/tenants/{name}", 200, {"weight": 2}, "/tenants/a")
    ask("PUT", "/tenants/{name}", 422, {"weight": 0}, "/tenants/a")
    ask("PUT", "/tenants/{name}", 400, {}, "/tenants/a%20b")
    assert ask("GET", "/tenants/{name}", 200, at="/tenants/a")["paused"]
    ask("GET", "/tenants/{name}", 400, at="/tenants/a?x=1")
    ask("GET", "/tenants", 200)
    ask("GET", "/tenants", 400, at="/tenants?limit=0")
    ask("POST", "/pause", 200, at="/pause?tenant=b")
    ask("POST", "/resume", 200, at="/resume?tenant=b")
    ask("DELETE", "/tenants/{name}", 200, at="/tenants/a")
    ask("DELETE", "/tenants/{name}", 400, at="/tenants/a?x=1")
    for method in ("GET", "DELETE"):
        ask(method, "/tenants/{name}", 404, at="/tenants/a")
    ask("POST", "/requeue", 404, {"id": "none"})
    ask("POST", "/requeue", 409, {"id": "late"})
    ask("POST", "/requeue", 400, {"key": "k"})


def set_and_remove(served: Served, seeing: Seeing) -> None:
    """Destinations, on a server that has some."""

    def ask(method: str, path: str, status: int, body: object = None, of: str = "/destinations/{name}") -> Any:
        reply = served.ask(method, path, body)
        assert reply.status == status, (method, path, reply)
        return seeing.check((method, of), reply).body

    settings = {"url": "https://a.example/", "secrets": ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"], "waits_s": [1]}
    ask("PUT", "/destinations/a", 201, settings)
    ask("PUT", "/destinations/a", 200, settings | {"headers": {"x": "y"}, "paused": True})
    ask("PUT", "/destinations/a", 422, {"url": "nowhere"})
    ask("PUT", "/destinations/a%20b", 400, settings)
    ask("GET", "/destinations/a", 200)
    for path in ("/pause", "/resume"):
        ask("POST", f"{path}?destination=a", 200, of=path)
        ask("POST", f"{path}?destination=b", 404, of=path)
    ask("GET", "/destinations/b", 404)
    ask("GET", "/destinations/a?x=1", 400)
    ask("GET", "/destinations?limit=1", 200, of="/destinations")
    ask("GET", "/destinations?limit=0", 400, of="/destinations")
    served.ask("PUT", "/destinations/inside", {"url": "http://127.0.0.1:9/"})
    told = ask("POST", "/destinations/inside/test", 200, of="/destinations/{name}/test")
    assert told["state"] == "unanswered"
    assert "inside" in told["error"]
    ask("POST", "/destinations/b/test", 404, of="/destinations/{name}/test")
    ask("POST", "/destinations/a/test?x=1", 400, of="/destinations/{name}/test")
    served.ask("POST", "/messages", {"id": "one", "due": FAR_MS, "destination": "a"})
    ask("DELETE", "/destinations/a", 409)
    ask("DELETE", "/destinations/a?messages=kept", 400)
    ask("DELETE", "/destinations/a?messages=dead", 200)
    ask("DELETE", "/destinations/a", 404)
    until(lambda: bool(served.ask("GET", "/dead").body["letters"]))
    refused = ask("POST", "/requeue", 409, {"id": "one"}, of="/requeue")
    assert refused["state"] == "refused"
    assert refused["reason"].startswith("its destination is not set any more: set it again")


def send_the_examples(served: Served, seeing: Seeing) -> None:
    """Each is one that the server takes."""
    for operation, told in OPERATIONS.items():
        kinds = told.get("requestBody", {}).get("content", {})
        if "application/json" in kinds:
            schema = resolved(kinds["application/json"]["schema"])
            for example in schema["examples"]:
                Draft202012Validator({**schema, "components": SPEC["components"]}).validate(example)
                reply = served.ask(operation[0], address(operation), example)
                assert seeing.check(operation, reply).status != 400, (operation, example, reply)


def read_from_a_page_of_its_own(served: Served, seeing: Seeing) -> None:
    """Dead letters: one that the destination refuses is tried anew."""
    served.ask("POST", "/messages", {"id": "refused", "delay_ms": 0})
    until(lambda: bool(served.ask("GET", "/dead").body["letters"]))
    dead, anew = ("GET", "/dead"), ("POST", "/requeue")
    assert seeing.check(dead, served.ask(*dead)).body["letters"][0]["source"] == "delivery"
    assert seeing.check(dead, served.ask("GET", "/dead?limit=0")).status == 400
    assert seeing.check(anew, served.ask(*anew, {"id": "refused"})).status == 200


def try_one_that_is_away(served: Served, seeing: Seeing) -> None:
    served.ask("POST", "/messages", {"id": "away", "key": "k", "delay_ms": 0})
    until(lambda: bool(served.ask("GET", "/messages/away?key=k").body["next_try"]))
    again = ("POST", "/again")
    for method, path, status in (
        ("POST", "/again?key=k", 200),
        ("POST", "/again?id=none", 404),
        ("POST", "/again?id=bytes", 409),
        ("POST", "/again", 400),
        ("POST", "/again?key=k&id=away", 400),
    ):
        assert seeing.check(again, served.ask(method, path)).status == status, path


def send_too_much_and_too_slowly(served: Served, seeing: Seeing, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as short:
        short.setattr(bodies, "_WITHIN_S", 0.2)
        for operation in OPERATIONS:
            if "413" in OPERATIONS[operation]["responses"]:
                length = {"content-length": str(1 << 27), "expect": "100-continue"}  # so it waits for the answer
                too_long = served.ask(operation[0], address(operation), headers=length | kind_of(operation))
                assert seeing.check(operation, too_long).status == 413
                length = {"content-length": "5"}
                slow = served.ask(operation[0], address(operation), headers=length | kind_of(operation))
                assert seeing.check(operation, slow).status == 408
                coding = {"content-encoding": "gzip"}
                packed = served.ask(operation[0], address(operation), b"\x1f", headers=coding | kind_of(operation))
                assert seeing.check(operation, packed).status == 415


def ask_for_too_much_at_a_time(served: Served, seeing: Seeing) -> None:
    guard = served.ports._application._guarded
    guard._left = -10  # what ends meanwhile gives its place back
    for operation in OPERATIONS:
        if operation not in OPEN:
            reply = served.ask(operation[0], address(operation), text_of(operation), headers=kind_of(operation))
            assert seeing.check(operation, reply).status == 503
            assert reply.headers["retry-after"] == "1"
    guard._left = 100


def ask_without_the_right(served: Served, seeing: Seeing) -> None:
    weaker = {"read": b"p", "produce": b"r", "control": b"r", "hand-off": b"p", "destinations": b"c"}
    for operation, told in OPERATIONS.items():
        if operation in OPEN:
            continue
        reply = seeing.check(operation, served.ask(operation[0], address(operation), text_of(operation)))
        assert (reply.status, reply.headers["www-authenticate"]) == (401, "Bearer")
        token = {"authorization": f"Bearer {(weaker[told['x-right']] * 32).decode()}"}
        assert seeing.check(operation, served.ask(*operation, text_of(operation), headers=token)).status == 403


def ask_one_that_has_failed(folder: Path, seeing: Seeing) -> None:
    with serving(folder) as served:
        served.running.fail(DeliveryFailed("on purpose"))
        for operation in HEALTH:
            assert seeing.check(operation, served.ask(*operation)).status == 503


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("PUT", "/messages", {}, 405),
        ("GET", "/none", {}, 404),
        ("GET", "/livez", {"x": "x" * 200_000}, 431),
        ("POST", "/messages", {"content-length": "1", "transfer-encoding": "chunked"}, 400),
    ],
)
def test_any_other_request_is_a_problem_too__D12(
    served: Served, method: str, path: str, headers: Mapping[str, str], status: int
) -> None:
    reply = served.ask(method, path, None, headers=headers)
    assert reply.status == status
    Draft202012Validator(SCHEMAS["Problem"]).validate(reply.body)
    if status == 400:
        assert reply.headers["connection"] == "close"


def test_a_head_is_answered_as_a_get__D11(served: Served) -> None:
    for operation in OPERATIONS:
        if operation[0] == "GET":
            told = first_event(served) if operation == EVENTS else served.ask("GET", address(operation))
            assert served.ask("HEAD", address(operation)).status == told.status


def first_event(served: Served) -> Reply:
    """The first event of a stream that has no end."""
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=20)
    connection.request("GET", "/events")
    answer = connection.getresponse()
    lines = [answer.readline(), answer.readline()]
    connection.close()
    return Reply(answer.status, b"".join(lines).decode(), answer.headers)


@contextmanager
def serving(folder: Path, **how: Any) -> Iterator[Served]:
    folder.mkdir()

    def send(delivery: Delivery) -> None:
        if delivery.message.id == "refused":
            raise ValueError("not today")
        if delivery.message.id == "away":
            raise Unavailable("not today", retry_after_s=3_600)
        served.arrived.put(delivery)

    served = Served(folder, **{"to": send, "max_attempts": 1, **how})
    try:
        yield served
    finally:
        served.close()


def until(is_so: Callable[[], bool]) -> None:
    """Ask until it is; at most ten seconds."""
    deadline_s = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < deadline_s
