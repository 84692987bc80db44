"""Messages that come again and again, over HTTP (rule D19)."""

import json

import pytest

from delivery.serve.conftest import Served

pytestmark = pytest.mark.timeout(60)


def test_it_is_put_shown_and_cancelled_over_http__D11_D19(served: Served) -> None:
    record = {"id": "report", "cron": "0 9 * * *", "tz": "Europe/Berlin", "due": "2096-10-02T07:06:40Z", "payload": 1}
    reply = served.ask("POST", "/messages", record)
    assert (reply.status, reply.body["state"], reply.body["due"]) == (201, "accepted", "2096-10-03T07:00:00.000Z")
    assert served.ask("POST", "/messages", record).body["state"] == "duplicate"
    reply = served.ask("POST", "/messages", {**record, "missed": "all"})
    assert (reply.status, reply.body["state"]) == (200, "replaced")
    reply = served.ask("GET", "/messages/report")
    assert (reply.status, reply.body["state"]) == (200, "recurring")
    assert reply.body["rule"] == {"missed": "all", "cron": "0 9 * * *", "tz": "Europe/Berlin"}
    assert reply.body["next_id"] == "report@2096-10-03T07:00:00.000Z"
    [listed] = served.ask("GET", "/messages?state=recurring").body["messages"]
    assert listed["id"] == "report"
    assert served.ask("POST", "/requeue", {"id": "report"}).status == 409
    assert 'tickwheel_messages{state="recurring"} 1.0' in served.ask("GET", "/metrics").body
    replaced = served.ask("POST", "/messages?replace=true", {**record, "every": 5, "cron": None, "tz": None})
    assert (replaced.status, replaced.body["state"]) == (200, "replaced")
    assert served.ask("GET", "/messages/report").body["state"] == "recurring"
    assert served.ask("DELETE", "/messages/report").body["state"] == "cancelled"
    ended = served.ask("GET", "/messages/report").body
    assert (ended["state"], ended["due"]) == ("cancelled", None)
    listed = served.ask("GET", "/messages?state=cancelled").body["messages"]
    assert [it["due"] for it in listed if it["id"] == "report"] == [None]


def test_it_can_not_be_debounced__D16_D19(served: Served) -> None:
    path = "/messages?replace=true&at_latest_ms=5"
    for rule in {"every": 5}, {"cron": "0 9 * * *"}:
        reply = served.ask("POST", path, {"id": "put off", "payload": 1, **rule})
        assert (reply.status, reply.body["reason"]) == (400, "a message that recurs can't be debounced")
    lines = b"""\xef\xbb\xbf{"id": "put off", "every": 5, "payload": 1}

{"id": "once", "delay_ms": 900000, "every": null, "payload": 1}
{"id": "put off", "cron": "0 9 * * *", "payload": 1}
{"id": "put off",
"""
    reply = served.ask("POST", path, lines, headers={"content-type": "application/x-ndjson"})
    answers = [json.loads(line) for line in reply.body.splitlines()]
    assert [(each["line"], each["status"]) for each in answers] == [(1, 400), (3, 201), (4, 400), (5, 400)]
    assert answers[0]["reason"] == answers[2]["reason"] == "a message that recurs can't be debounced"
    assert served.ask("GET", "/messages/put%20off").status == 404
