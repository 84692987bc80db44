"""Headers and signatures of webhooks, by the command and from Python, as a receiver sees them (rules D10, D12)."""

import base64
import json
import logging
import subprocess
import sys
import time
from hashlib import blake2b
from pathlib import Path

import pytest
from click.testing import CliRunner

from delivery.webhook_receiver import Receiver, signature
from tickwheel.commands import tickwheel
from tickwheel.delivery import DeliveryQueue, WrongUsage
from tickwheel.delivery.sinks import Destination, Webhook, open_sink

pytestmark = pytest.mark.timeout(60)
OLD, NEW = (f"whsec_{base64.b64encode(bytes([n]) * 32).decode()}" for n in (7, 8))


def secret_file(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "secrets"
    path.touch(mode)
    path.chmod(mode)
    path.write_text(text)
    return path


def deliver(folder: Path, url: str, *more: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tickwheel", "deliver", "-", "--store", str(folder / "s.db"), "--to", url, *more]
    line = '{"id": "a", "key": "k", "due": 1700000000005, "payload": {"n": 1.50}}\n'
    return subprocess.run(command, input=line, env=env, text=True, capture_output=True, timeout=50)


def test_a_request_is_signed_by_each_secret__D12(tmp_path: Path, receiver: Receiver) -> None:
    path = secret_file(tmp_path, f"# the next one first\n{NEW}\n\n{OLD}\n")
    before_s = int(time.time())
    done = deliver(tmp_path, receiver.url, "--webhook-secret-file", str(path))
    assert done.returncode == 0, done.stderr
    [(headers, body)] = receiver.requests
    assert json.loads(body)["id"] == "a"
    assert headers["webhook-signature"].split(" ") == [signature(NEW, headers, body), signature(OLD, headers, body)]
    assert headers["webhook-id"] == headers["idempotency-key"] == blake2b(b'["k","a"]', digest_size=16).hexdigest()
    assert before_s <= int(headers["webhook-timestamp"]) <= time.time()


def test_each_attempt_has_its_own_time_and_the_same_id__D12(tmp_path: Path, receiver: Receiver) -> None:
    receiver.statuses = [400]
    path = secret_file(tmp_path, OLD)
    done = deliver(tmp_path, receiver.url, "--webhook-secret-file", str(path), "--backoff", "2.5,2.5")
    assert done.returncode == 0, done.stderr
    (first, first_body), (second, second_body) = receiver.requests
    assert first["webhook-id"] == second["webhook-id"]
    assert int(first["webhook-timestamp"]) < int(second["webhook-timestamp"])
    assert first["webhook-signature"] == signature(OLD, first, first_body)
    assert second["webhook-signature"] == signature(OLD, second, second_body)


def test_a_dead_letter_that_is_put_again_has_the_same_id_and_is_marked__D5(tmp_path: Path, receiver: Receiver) -> None:
    receiver.statuses = [500]
    with DeliveryQueue(tmp_path / "s.db", to=receiver.url, max_attempts=1, on_dead_letter=lambda _: None) as queue:
        for _ in range(2):
            queue.put("a", 1, due=1_700_000_000_005, key="k")
            assert queue.wait_until_empty(20)
    name = blake2b(b'["k","a"]', digest_size=16).hexdigest()
    sent = [(headers["idempotency-key"], json.loads(body)["redelivered"]) for headers, body in receiver.requests]
    assert sent == [(name, False), (name, True)]


def test_headers_come_from_the_option_the_environment_and_files__D12(tmp_path: Path, receiver: Receiver) -> None:
    key = tmp_path / "key"
    key.touch(0o600)
    key.write_text("\ufeffkey 3\n", "utf-8")  # as some editors begin a file
    given = ["X-Tenant: 17", "Authorization:env:HOOK", f"X-Key: file:{key}", "X-Tenant:18", "Content-Type: x/y"]
    more = [part for header in given for part in ("--webhook-header", header)]
    done = deliver(tmp_path, receiver.url, *more, HOOK="Bearer s3cret\n")
    assert done.returncode == 0, done.stderr
    [(headers, _)] = receiver.requests
    assert headers.get_all("x-tenant") == ["17", "18"]
    assert (headers["authorization"], headers["x-key"]) == ("Bearer s3cret", "key 3")
    assert headers.get_all("content-type") == ["x/y"]
    assert headers["webhook-signature"] is None


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (["--webhook-header", "s3cret"], "--webhook-header 1 is no header: write 'NAME: VALUE'"),
        (["--webhook-header", "A: env:NO_SUCH"], "--webhook-header A: the environment has no variable NO_SUCH"),
        (["--webhook-header", "A: file:/no/file"], "--webhook-header A /no/file can't be read: No such file"),
        (["--webhook-header", "Host: s3cret"], "the header 'Host' is set by tickwheel: leave it out"),
        (["--webhook-header", "A B: s3cret"], "the header 'A B' has no usable name"),
        (["--webhook-header", "A: s3cret\nB: c"], "the header 'A' has a value with a line end"),
        (["--webhook-secret-file", "/no/file"], "--webhook-secret-file /no/file can't be read: No such file"),
    ],
)
@pytest.mark.parametrize("command", [["deliver", "-"], ["serve", "--store", "store.db"]])
def test_what_can_not_be_used_is_told_before_anything_is_made__D12(
    command: list[str], more: list[str], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(tickwheel, [*command, "--to", "http://127.0.0.1:1/", *more])
    assert (result.exit_code, [*tmp_path.iterdir()]) == (2, [])
    assert reason in " ".join(result.output.split())
    assert "s3cret" not in result.output


@pytest.mark.parametrize(
    ("text", "reason"), [("", "has no secret"), ("# none\n", "has no secret"), ("s3cret", "whsec_ and 24 to 64 bytes")]
)
def test_a_file_without_a_secret_is_refused__D12(text: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(WrongUsage, match=reason) as refused:
        open_sink("http://host/", Webhook.read([], secret_file(tmp_path, text)))
    assert "s3cret" not in str(refused.value)


def test_a_secret_that_every_user_can_read_is_a_warning__D12(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = secret_file(tmp_path, OLD, 0o644)
    assert Webhook.read([], path) == Webhook((), (OLD,))
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith(f"--webhook-secret-file {path} can be read by every user")


def test_another_destination_takes_neither__D12(tmp_path: Path) -> None:
    with pytest.raises(WrongUsage, match="are only for http://HOST/PATH or https://HOST/PATH"):
        open_sink("-", Webhook.read(["A: b"], None))


def test_no_secret_is_shown__D12() -> None:
    webhook = Webhook([("authorization", "s3cret")], [OLD])
    shown = repr(webhook) + repr(open_sink("https://host/s3cret", webhook))
    assert "authorization" in shown
    assert "s3cret" not in shown
    assert OLD.removeprefix("whsec_") not in shown


def test_a_queue_takes_a_webhook_with_both__D12(tmp_path: Path, receiver: Receiver) -> None:
    to = Destination.http(receiver.url, headers=[("x-tenant", "17")], secrets=[OLD])
    with DeliveryQueue(tmp_path / "store.db", to=to) as queue:
        queue.put("a", delay_ms=0)
        assert queue.wait_until_empty(20)
    [(headers, body)] = receiver.requests
    assert (headers["x-tenant"], headers["webhook-signature"]) == ("17", signature(OLD, headers, body))


@pytest.mark.parametrize("place", ["{customer}", "{key}", "{key", "{{key}}"])
def test_a_brace_in_an_address_is_refused_and_the_address_not_shown__D12(place: str) -> None:
    with pytest.raises(WrongUsage) as refused:
        open_sink(f"https://host/s3cret/{place}")
    assert str(refused.value).startswith(
        "'https://host/...' has a brace, and an address is the same for all messages: set a"
    )
