"""Destinations that messages name (D23)."""

import asyncio
import sqlite3
import ssl
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import msgspec
import pytest

from delivery.certificates import authority, signed
from delivery.webhook_receiver import Receiver
from tickwheel.delivery import AsyncDeliveryQueue, DeliveryQueue, StoreView
from tickwheel.delivery.base.errors import BadRecord, WrongUsage
from tickwheel.delivery.model.entries import Answer, Letter
from tickwheel.delivery.model.message import Message

pytestmark = pytest.mark.timeout(60)
FAR_MS = 4_000_000_000_000


@pytest.fixture
def queue(tmp_path: Path) -> Any:
    with DeliveryQueue(tmp_path / "s.db", to=None, allow_addresses=["127.0.0.1"]) as queue:
        yield queue


def posts(receiver: Receiver) -> list[dict[str, Any]]:
    return [msgspec.json.decode(body) for _, body in receiver.requests]


def test_every_way_in_names_a_destination_and_its_name_comes_out__D23(queue: DeliveryQueue, receiver: Receiver) -> None:
    assert queue.set_destination("here", receiver.url, headers={"X-Team": "17"}) is Answer.ACCEPTED
    assert queue.set_destination("here", receiver.url, rate="100/s") is Answer.REPLACED
    assert queue.put("a", 1, delay_ms=0, destination="here") is Answer.ACCEPTED
    assert (
        queue.put_many(
            [
                {"id": "b", "payload": 1, "delay_ms": 0, "destination": "here"},
                Message("c", None, 1, b"1", destination="here"),
            ]
        )
        == [Answer.ACCEPTED] * 2
    )
    line = b'{"id": "d", "due": 1000000000000, "payload": 1, "destination": "here"}\n'
    assert queue.submit_ndjson(line).result(30) == [Answer.ACCEPTED]
    assert queue.wait_until_empty(30)
    assert sorted(post["id"] for post in posts(receiver)) == ["a", "b", "c", "d"]
    assert {post["destination"] for post in posts(receiver)} == {"here"}


def test_one_that_is_not_set_or_not_named_is_refused__D23(queue: DeliveryQueue) -> None:
    for destination, why in (("nobody", "there is no destination 'nobody'"), (None, "it names no destination, or one")):
        with pytest.raises(BadRecord, match=why):
            queue.put("a", 1, delay_ms=0, destination=destination)
    given = {"id": "a", "payload": 1, "delay_ms": 0}
    assert queue.put_many([given, given | {"destination": "nobody"}]) == [Answer.REFUSED] * 2
    for name in ("no body", ".."):
        with pytest.raises(BadRecord, match="no name of a destination"):
            queue.put("a", 1, delay_ms=0, destination=name)
    assert queue.summary.accepted == 0


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"url": "example.org"}, "names no host"),
        ({"url": "http://h/", "rate": "fast"}, "write it as 100/s"),
        ({"url": "http://h/", "concurrency": 0}, "concurrency is 0"),
        ({"url": "http://h/", "headers": {"Host": "x"}}, "the header 'Host' is set by tickwheel"),
        ({"url": "http://h/", "secrets": ["s3cret"]}, "whsec_"),
        ({"url": "http://h/", "waits_s": [0]}, "a wait of waits_s is 0 s"),
        ({"url": "http://h/", "waits_s": []}, "waits_s has 0 waits: it may have 1 to 1,000, or be left out"),
        ({"url": "http://h/", "waits_s": [1] * 100_000}, "waits_s has 100,000 waits"),
        (
            {"url": "http://h/", "headers": {"X-A": "s3cret", "x-a": "s3cret"}},
            "headers has a name twice, in another case",
        ),
        ({"url": ""}, "url is missing"),
        ({"url": "http://h/", "secrets": "s3cret"}, "invalid type: a text, expected a sequence"),
        ({"url": "http://h/", "body": "envelop"}, 'allowed: "envelope", "payload", or an object'),
        ({"url": "http://h/", "body": {"a": ["{{name}}"]}}, "has the place 'name' .allowed: id, key"),
        ({"url": "http://h/", "certificates": "s3cret"}, "have no certificate in PEM"),
    ],
)
def test_a_setting_that_is_not_allowed_is_told__D23(queue: DeliveryQueue, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(WrongUsage, match=said) as error:
        queue.set_destination("x", **settings)
    assert "s3cret" not in str(error.value)


def test_a_body_is_the_payload_or_made_from_it__D23(queue: DeliveryQueue, receiver: Receiver) -> None:
    template = {"text": "{{payload.name|nobody}}: {{payload.n}}", "n": "{{payload.n}}", "of": [1, "{{id}}"]}
    for body in ("payload", template):
        queue.set_destination("here", receiver.url, body=body)
        queue.put(f"a {len(receiver.requests)}", {"n": 17}, delay_ms=0, destination="here")
        assert queue.wait_until_empty(30)
    assert posts(receiver) == [{"n": 17}, {"text": "nobody: 17", "n": 17, "of": [1, "a 1"]}]
    assert receiver.requests[0][0]["tickwheel-id"] == "a%200"


def test_a_destination_has_certificates_of_its_own__D23(tmp_path: Path, receiver: Receiver) -> None:
    trusted = authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*signed(trusted))
    receiver.socket = context.wrap_socket(receiver.socket, server_side=True)
    url = receiver.url.replace("http:", "https:")
    reasons: list[str] = []
    with DeliveryQueue(
        tmp_path / "s.db",
        to=None,
        allow_addresses=["127.0.0.1"],
        waits_s=[0.001],
        waits_end=True,
        on_dead_letter=lambda letter: reasons.append(letter.reason),
    ) as queue:
        queue.set_destination("trusting", url, certificates=trusted.cert.read_text())
        queue.set_destination("another", url)
        for destination in ("trusting", "another", "trusting"):
            queue.put(f"{destination} {len(receiver.requests)}", 1, delay_ms=0, destination=destination)
            assert queue.wait_until_empty(30)
    assert {post["destination"] for post in posts(receiver)} == {"trusting"}
    assert len(receiver.requests) == 2
    assert "signed by no trusted authority" in reasons[0]


def test_a_queue_that_sends_to_no_webhook_has_none__D23(tmp_path: Path) -> None:
    with DeliveryQueue(tmp_path / "s.db", to=lambda _: None) as queue:
        with pytest.raises(WrongUsage, match="named destinations stand beside a webhook"):
            queue.set_destination("x", "http://h/")
        with pytest.raises(BadRecord, match="there is no destination"):
            queue.put("a", 1, delay_ms=0, destination="x")
    with pytest.raises(WrongUsage, match="is no network: write it as 10"):
        DeliveryQueue(tmp_path / "t.db", to=None, allow_addresses=["10.0.0"])


def test_from_a_coroutine_too__D23(tmp_path: Path, receiver: Receiver) -> None:
    async def run() -> None:
        async with AsyncDeliveryQueue(tmp_path / "s.db", to=None, allow_addresses=["127.0.0.1"]) as queue:
            assert await queue.set_destination("here", receiver.url) is Answer.ACCEPTED
            assert (await queue.view.destination("here")) is not None
            assert await queue.remove_destination("there") is Answer.UNKNOWN
            assert await queue.put("a", 1, delay_ms=0, destination="here") is Answer.ACCEPTED
            while not receiver.requests:
                await asyncio.sleep(0.01)

    asyncio.run(run())
    assert [post["id"] for post in posts(receiver)] == ["a"]


SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def settings(queue: DeliveryQueue) -> Mapping[str, Any]:
    found = queue.view.destination("here")
    assert found is not None
    return found.settings


def test_settings_come_back_without_secrets_and_a_change_keeps_them__D12_D23(
    queue: DeliveryQueue, receiver: Receiver
) -> None:
    queue.set_destination("here", receiver.url, headers={"X-Team": "17"}, secrets=[SECRET], waits_s=[1, 2])
    told = dict(settings(queue))
    assert told.pop("secrets_set").endswith("Z")
    assert told == {"url": receiver.url, "headers": {"X-Team": "17"}, "waits_s": [1.0, 2.0]}
    queue.set_destination("here", receiver.url, paused=True)
    assert settings(queue).keys() == {"url", "secrets_set"}
    queue.put("a", 1, delay_ms=0, destination="here")
    assert not queue.wait_until_empty(0.05), "it is paused"
    queue.set_destination("here", receiver.url)
    assert not queue.wait_until_empty(0.05), "a change leaves the pause"
    queue.resume(destination="here")
    assert queue.wait_until_empty(30), "and goes on at once"
    queue.set_destination("here", receiver.url, secrets=[])
    assert settings(queue) == {"url": receiver.url}
    queue.put("b", 1, delay_ms=0, destination="here")
    assert queue.wait_until_empty(30)
    assert ["webhook-signature" in headers for headers, _ in receiver.requests] == [True, False]


def test_a_pause_is_of_one_destination_alone_and_lasts__D16_D23(tmp_path: Path, receiver: Receiver) -> None:
    settings: dict[str, Any] = {"to": None, "allow_addresses": ["127.0.0.1"]}
    with DeliveryQueue(tmp_path / "s.db", **settings) as queue:
        for name in ("held", "well"):
            queue.set_destination(name, receiver.url)
        queue.pause(destination="held")
        for name in ("held", "well"):
            queue.put(name, 1, delay_ms=0, destination=name)
        while not receiver.requests:
            time.sleep(0.01)
        found = queue.view.destination("held")
        assert found is not None
        assert (found.state, found.paused_reason, bool(found.paused_since)) == ("paused", None, True)
        for wrong in (queue.pause, queue.resume):
            with pytest.raises(WrongUsage, match="there is no destination 'nobody'"):
                wrong(destination="nobody")
            with pytest.raises(WrongUsage, match="a key, a destination, or a tenant, or none"):
                wrong("k", destination="held")
            with pytest.raises(BadRecord, match="no name of a destination"):
                wrong(destination="no body")
    with DeliveryQueue(tmp_path / "s.db", **settings) as queue:
        assert not queue.wait_until_empty(0.05)
        queue.resume(destination="held")
        assert queue.wait_until_empty(30)
    assert sorted(post["id"] for post in posts(receiver)) == ["held", "well"]


def test_one_that_fails_for_long_is_paused_and_the_log_says_why__D15_D23(
    tmp_path: Path, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.statuses.extend([410] * 1_000)
    with DeliveryQueue(tmp_path / "s.db", to=None, allow_addresses=["127.0.0.1"]) as queue:
        queue.set_destination("gone", receiver.url, waits_s=[0.01], disable_after_days=0.01)
        queue.put("a", 1, delay_ms=0, destination="gone")
        while not receiver.requests:
            time.sleep(0.01)
    with closing(sqlite3.connect(tmp_path / "s.db")) as db, db:
        db.execute("UPDATE destinations SET failing_ms = 1700000000000")
    failing = StoreView(tmp_path / "s.db").destination("gone")
    assert failing is not None
    assert (failing.state, failing.failing_since) == ("sending", "2023-11-14T22:13:20.000Z")
    with DeliveryQueue(tmp_path / "s.db", to=None, allow_addresses=["127.0.0.1"]) as queue:
        queue.put("b", 1, delay_ms=0, destination="gone")
        while (found := queue.view.destination("gone")) is None or found.state != "paused":
            time.sleep(0.01)
        assert found.paused_reason is not None
        assert found.failing_since is None
        assert found.paused_reason.startswith("no success since 2023-11-14T22:13:20.000Z, at last: status 410")
    [told] = [it.getMessage() for it in caplog.records if "is paused" in it.getMessage()]
    assert told == f"the destination gone is paused: {found.paused_reason}; once it is mended, resume it"


def test_one_with_messages_stays_unless_they_become_dead_letters__D23(tmp_path: Path) -> None:
    letters: SimpleQueue[Letter] = SimpleQueue()
    with DeliveryQueue(tmp_path / "s.db", to=None, on_dead_letter=letters.put) as queue:
        queue.set_destination("gone", "https://gone.example/")
        queue.put_many([{"id": str(n), "payload": n, "due": FAR_MS + n, "destination": "gone"} for n in range(3)])
        assert queue.remove_destination("gone") is Answer.REFUSED
        assert queue.remove_destination("gone", dead=True) is Answer.REMOVED
        assert queue.remove_destination("gone") is Answer.UNKNOWN
        assert queue.wait_until_empty(30)
        told = [letters.get(timeout=30) for _ in range(3)]
        assert {letter.reason for letter in told} == {"its destination gone was removed"}
        with pytest.raises(BadRecord, match="there is no destination"):
            queue.put("late", 1, due=FAR_MS, destination="gone")
        assert queue.requeue("1") is Answer.REFUSED
        assert not queue.view.destinations().destinations
        queue.set_destination("gone", "https://other.example/", paused=True)
        assert queue.requeue("1") is Answer.REQUEUED, "once it is set again"


def test_many_are_told_in_pages__D14_D23(queue: DeliveryQueue) -> None:
    for name in ("b", "c", "a"):
        queue.set_destination(name, "https://a.example/")
    first = queue.view.destinations(limit=2)
    assert ([each.name for each in first.destinations], first.next) == (["a", "b"], "c")
    last = queue.view.destinations(limit=2, cursor=first.next)
    assert ([each.name for each in last.destinations], last.next) == (["c"], None)
    found = queue.view.destination("b")
    assert found is not None
    assert (found.state, found.waiting, found.settings) == ("sending", 0, {"url": "https://a.example/"})
    assert queue.view.destination("aa") is None
