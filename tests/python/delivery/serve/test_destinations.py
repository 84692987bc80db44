"""Destinations over HTTP (D23): settings are literal, secrets are only written, and the right is its own (D12)."""

import http.client
import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from delivery.serve.conftest import Served, Server
from delivery.webhook_receiver import Receiver
from tickwheel.commands import tickwheel as command
from tickwheel.delivery.serve.tokens import Right, Tokens
from tickwheel.delivery.sinks import Destination

pytestmark = pytest.mark.timeout(60)
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.fixture
def named(tmp_path: Path) -> Iterator[Served]:
    opened = Served(tmp_path, to=Destination.named(), allow_addresses=("127.0.0.1",))
    yield opened
    opened.close()


def test_what_is_set_is_literal_and_no_secret_comes_back__D12_D23(
    named: Served, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_SERVER", "its secret")
    settings = {"url": receiver.url, "headers": {"x-team": "env:OF_THE_SERVER"}, "secrets": [SECRET]}
    assert named.ask("PUT", "/destinations/here", settings).status == 201
    told = named.ask("GET", "/destinations/here")
    assert SECRET not in str(told.body)
    assert told.body["settings"]["secrets_set"]
    assert named.ask("PUT", "/destinations/here", told.body).status == 422, "these are no settings"
    assert named.ask("PUT", "/destinations/here", told.body["settings"]).status == 200, "these are"
    answer = named.ask("PUT", "/destinations/here", settings | {"secrets": ["file:/etc/passwd"]})
    assert answer.status == 422
    assert "whsec_" in answer.body["reason"]
    assert named.ask("POST", "/messages", {"id": "a", "delay_ms": 0, "destination": "here"}).status == 201
    assert named.running.wait(30)
    [(headers, _)] = receiver.requests
    assert headers["x-team"] == "env:OF_THE_SERVER"


@pytest.mark.parametrize("name", ["Content-Length", "transfer-encoding", "HOST", "connection", "upgrade", "te"])
def test_a_header_that_frames_the_request_is_refused__D23(named: Served, name: str) -> None:
    answer = named.ask("PUT", "/destinations/a", {"url": "https://a.example/", "headers": {name: "1"}})
    assert answer.status == 422
    assert answer.body["reason"].startswith(f"the header '{name}' is set by tickwheel: leave it out")


def test_a_test_send_says_what_came_back_and_is_in_no_store__D23(named: Served, receiver: Receiver) -> None:
    receiver.statuses.extend([204, 404])
    assert named.ask("PUT", "/destinations/here", {"url": receiver.url, "paused": True}).status == 201
    first, second = (named.ask("POST", "/destinations/here/test").body for _ in range(2))
    assert (first["state"], first["error"]) == ("accepted", None)
    assert second["state"] == "refused"
    assert second["error"].startswith("status 404")
    assert first["took_ms"] > 0
    assert [b'"test"' in body for _, body in receiver.requests] == [True, True]
    assert named.running.engine.waiting == 0
    assert named.ask("GET", "/messages/test?key=test").status == 404


def test_tests_that_hang_hold_up_no_test_of_another_destination__D14_D23(named: Served, receiver: Receiver) -> None:
    def begin(name: str) -> http.client.HTTPConnection:
        request = stack.enter_context(closing(http.client.HTTPConnection("127.0.0.1", named.port, timeout=30)))
        request.request("POST", f"/destinations/{name}/test")
        sends.append(silent.accept()[0])  # it is being sent
        return request

    assert named.ask("PUT", "/destinations/here", {"url": receiver.url}).status == 201
    with ExitStack() as stack:
        silent = stack.enter_context(closing(socket.create_server(("127.0.0.1", 0))))
        silent.settimeout(20)
        sends: list[socket.socket] = []
        for number in range(16):
            url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
            assert named.ask("PUT", f"/destinations/hangs-{number}", {"url": url}).status == 201
        tests = [begin("hangs-0")]
        for _ in range(6):
            again = named.ask("POST", "/destinations/hangs-0/test")
            assert (again.status, again.headers["retry-after"]) == (503, "1")
            assert again.body["reason"] == "another test of this destination is under way"
        tests += [begin(f"hangs-{number}") for number in range(1, 15)]
        assert named.ask("POST", "/destinations/here/test").body["state"] == "accepted"
        tests.append(begin("hangs-15"))
        full = named.ask("POST", "/destinations/here/test")
        assert (full.status, full.headers["retry-after"]) == (503, "1")
        assert full.body["reason"] == "too many requests for destination-tests at a time"
        for send in sends:
            send.close()
        told = [json.loads(test.getresponse().read()) for test in tests]
        assert {it["state"] for it in told} == {"unanswered"}
        tests = [begin("hangs-0")]
        sends[-1].close()
        assert tests[0].getresponse().status == 200, "it can be tested again"


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:9/", "http://[::1]:9/", "http://localhost:9/", "http://0x7f000001:9/"]
)
def test_a_test_send_reaches_nothing_inside__D23(tmp_path: Path, url: str) -> None:
    served = Served(tmp_path, to=Destination.named(), allow_addresses=())
    try:
        assert served.ask("PUT", "/destinations/inside", {"url": url}).status == 201
        told = served.ask("POST", "/destinations/inside/test").body
        assert told["state"] == "unanswered"
        assert "inside" in told["error"]
    finally:
        served.close()


def test_it_is_told_with_its_state_and_figures_and_paused_wins_over_down__D14_D23(named: Served) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as nobody:
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}/"
    named.ask("PUT", "/destinations/gone", {"url": url, "rate": "100/s"})
    named.ask("PUT", "/destinations/idle", {"url": url})
    for number in range(6):
        named.ask("POST", "/messages", {"id": str(number), "delay_ms": 0, "destination": "gone"})
    while (gone := named.ask("GET", "/destinations/gone").body)["state"] != "down":
        assert gone["state"] == "sending"
        time.sleep(0.05)
    assert (gone["waiting"], gone["overdue"], gone["rate"], gone["settings"]) == (
        6,
        6,
        "100/s",
        {"url": url, "rate": "100/s"},
    )
    assert gone["down_since"] is not None
    assert gone["next_try"] is not None
    assert "onnection refused" in gone["last_error"]
    named.ask("POST", "/pause?destination=gone")
    listed, idle = named.ask("GET", "/destinations").body["destinations"]
    assert (listed["name"], listed["state"], listed["down_since"], listed["down_reason"]) == (
        "gone",
        "paused",
        None,
        None,
    )
    assert listed["next_try"] is None
    assert (listed["overdue"], listed["failed_attempts"] >= 6) == (6, True)
    assert (idle["name"], idle["state"], idle["waiting"]) == ("idle", "sending", 0)
    [first, _] = named.ask("GET", "/status").body["destinations"]["first"]
    assert (first["state"], "settings" in first) == ("paused", False), "the right to read shows no settings"
    assert named.ask("GET", "/destinations?limit=1").body["next"] == "idle"


def test_only_its_own_right_sets_reads_or_removes_one__D12_D23(tmp_path: Path) -> None:
    tokens = Tokens({bytes([65 + n]) * 32: right for n, right in enumerate(Right)})
    served = Served(tmp_path, to=Destination.named(), tokens=tokens)
    try:
        for n, right in enumerate(Right):
            headers = {"authorization": f"Bearer {chr(65 + n) * 32}"}
            expected = [201, 200, 200, 200] if right is Right.DESTINATIONS else [403] * 4
            asked = [
                ("PUT", "/destinations/a", {"url": "https://a.example/"}),
                ("GET", "/destinations/a", None),
                ("GET", "/destinations", None),
                ("DELETE", "/destinations/a", None),
            ]
            assert [served.ask(*each, headers=headers).status for each in asked] == expected, right
        headers = {"authorization": f"Bearer {chr(65 + len(Right) - 1) * 32}"}
        assert served.ask("POST", "/messages", {"id": "a", "delay_ms": 0}, headers=headers).status == 403
        assert served.ask("GET", "/status", headers=headers).status == 403
    finally:
        served.close()


@pytest.mark.parametrize(
    ("url", "is_refused"),
    [
        ("http://10.0.0.1/a", True),
        ("http://[::ffff:10.0.0.1]:80/", True),
        ("http://127.0.0.1:1/", False),
        ("https://acme.example/", False),
    ],
)
def test_an_address_inside_is_set_with_a_warning__D23(named: Served, url: str, *, is_refused: bool) -> None:
    answer = named.ask("PUT", "/destinations/a", {"url": url})
    assert (answer.status, "warning" in answer.body) == (201, is_refused)
    told = CliRunner().invoke(command, ["destinations", "set", named.url, "a", "--url", url])
    assert (told.exit_code, told.stdout) == (0, "a: changed.\n")
    assert ("is an address inside, which no destination may have without --allow-address" in told.stderr) is is_refused


def test_a_file_of_them_is_set_before_the_ports_open__D23(
    tmp_path: Path, receiver: Receiver, start: Callable[..., Server]
) -> None:
    (tmp_path / "hooks.toml").write_text(f'[here]\nurl = "{receiver.url}"\n[inside]\nurl = "http://10.0.0.1/"\n')
    (tmp_path / "hooks.toml").chmod(0o600)  # else it is told that others may read it
    more = ("--to", "named", "--allow-address", "127.0.0.1", "--destinations", str(tmp_path / "hooks.toml"))
    server = start(tmp_path / "s.db", *more)
    assert "the destination inside is set, and each send to it is refused: 10.0.0.1 is an address" in server.says()
    server.listening()
    assert server.ask("POST", "/messages", {"id": "a", "delay_ms": 0, "destination": "here"}).status == 201
    while not receiver.requests:
        time.sleep(0.01)
    assert server.ask("PUT", "/destinations/inside", {"url": "http://10.0.0.1/"}).body["warning"]
