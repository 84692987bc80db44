"""`docs/openapi.yaml` and the server agree on each value of a body: both take it, or both refuse it (D1, D11)."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from .conftest import Served
from .test_openapi import FAR_MS, SCHEMAS, SPEC

pytestmark = pytest.mark.timeout(60)

LAST_MS = 253_402_300_799_999
TIMES = [FAR_MS, "2096-10-02T09:06:40+02:00", None, -1, LAST_MS + 1, 1.5, True, [FAR_MS]]
DELAYS = [FAR_MS / 10, 0, None, LAST_MS + 1, "5", True]
TEXTS = ["k", "", None, 5, ["k"]]
IDS = ["a", "é", "", None, 5]
OTHERS = [1, None, "x"]
MEMBERS: dict[str, dict[str, list[Any]]] = {
    "Record": {
        "id": IDS,
        "key": TEXTS,
        "due": TIMES,
        "delay_ms": DELAYS,
        "expires": [LAST_MS, None, -1, True],
        "payload": [1, {"a": [None]}, None],
        "payload_base64": ["/w==", None, 5],
        "traceparent": [None, 5],
        "op": ["cancel", "reschedule", None, "other", 5],
        "every": [1_000, None, 0, -1, 1.5, LAST_MS + 1, True, "1"],
        "cron": ["0 9 * * *", None, 5],
        "tz": ["Europe/Paris", None, "", 5],
        "missed": ["all", "skip", "last", None, "other", 5],
    },
    "Due": {"due": TIMES, "delay_ms": DELAYS, "other": OTHERS},
    "Name": {"id": IDS, "key": TEXTS, "other": OTHERS},
    "Asked": {
        "kind": ["cancel", "requeue", "other", None, 5],
        "id": [None, "", 5],
        "key": TEXTS,
        "key_prefix": TEXTS,
        "due_from": TIMES,
        "due_before": TIMES,
        "all": [True, False, None, "true", 1],
        "other": OTHERS,
    },
}
BASES: list[tuple[str, str, str, dict[str, Any]]] = [
    ("Record", "POST", "/messages", {"id": "r", "due": FAR_MS, "payload": 1}),
    ("Record", "POST", "/messages", {"id": "r", "delay_ms": FAR_MS / 10, "payload": {}}),
    ("Record", "POST", "/messages", {"id": "m", "op": "reschedule", "delay_ms": 5}),
    ("Record", "POST", "/messages", {"id": "c", "op": "cancel"}),
    ("Record", "POST", "/messages", {"id": "e", "every": 3_600_000, "payload": 1}),
    ("Record", "POST", "/messages", {"id": "p", "cron": "0 9 * * *", "tz": "Europe/Berlin", "payload": 1}),
    ("Due", "PATCH", "/messages/none", {"due": FAR_MS}),
    ("Due", "PATCH", "/message?id=none", {"delay_ms": 5}),
    ("Due", "PATCH", "/messages/none", {}),
    ("Name", "POST", "/requeue", {"id": "none"}),
    ("Name", "POST", "/requeue", {}),
    ("Asked", "POST", "/actions", {"kind": "cancel", "key": "none"}),
    ("Asked", "POST", "/actions", {"kind": "requeue", "due_from": FAR_MS, "due_before": FAR_MS}),
    ("Asked", "POST", "/actions", {"kind": "cancel", "all": True}),
    ("Asked", "POST", "/actions", {"kind": "cancel"}),
]


def changed(schema: str, base: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The base, it without each member, and it with each value of each member."""
    yield dict(base)
    for name in base:
        yield {other: value for other, value in base.items() if other != name}
    for name, values in MEMBERS[schema].items():
        for value in values:
            yield base | {name: value}


@pytest.mark.parametrize(("schema", "method", "path", "base"), BASES, ids=[f"{it[0]} {it[3]}" for it in BASES])
def test_a_body_is_taken_by_the_server_exactly_if_the_file_allows_it__D1_D11(
    schema: str, method: str, path: str, base: dict[str, Any], served: Served
) -> None:
    validator = Draft202012Validator({**SCHEMAS[schema], "components": SPEC["components"]})
    wrong = []
    for number, body in enumerate(changed(schema, base)):
        if "id" in base and body.get("id") == base["id"]:
            body["id"] = f"{body['id']} {base} {number}"  # so no message is of another content
        reply = served.ask(method, path, body)
        is_allowed = validator.is_valid(body)
        if (reply.status != 400) != is_allowed:
            wrong.append((json.dumps(body), "allowed" if is_allowed else "forbidden", reply.status, reply.body))
    assert not wrong, "\n".join(map(str, wrong))
