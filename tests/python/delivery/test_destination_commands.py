"""`tickwheel destinations`, of a store at rest and of a server (D23)."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from delivery.serve.conftest import Served
from delivery.webhook_receiver import Receiver
from tickwheel.commands import tickwheel as command
from tickwheel.commands.control import control_of
from tickwheel.commands.options import ACCESS
from tickwheel.delivery import DeliveryQueue, StoreView
from tickwheel.delivery.model.entries import SetDestination
from tickwheel.delivery.sinks import Destination

pytestmark = pytest.mark.timeout(120)
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
FAR_MS = 4_000_000_000_000


def run(*arguments: object) -> Result:
    return CliRunner().invoke(command, ["destinations", *map(str, arguments)])


@pytest.fixture(params=["file", "server"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "file":
        DeliveryQueue(tmp_path / "store.db", to=None).close()
        yield str(tmp_path / "store.db")
        return
    served = Served(tmp_path, to=Destination.named(), allow_addresses=("127.0.0.1",))
    yield served.url
    served.close()


def shown(target: str, name: str = "acme") -> dict[str, Any]:
    told = run("show", target, name, "--json")
    assert told.exit_code == 0, told.output
    return dict(json.loads(told.stdout))


def test_one_is_set_changed_paused_shown_and_removed__D23(target: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET)
    (tmp_path / "header").write_text("Bearer 17\n")
    more = ["--webhook-secret-file", tmp_path / "secret", "--webhook-header", f"authorization: file:{tmp_path}/header"]
    url = ["--url", "https://acme.example/hooks"]
    made = run("set", target, "acme", *url, *more, "--rate", "10/s", "--waits", "5s,5m", "--sink-timeout", "2s",
        "--disable-after", "5d")  # fmt: skip
    assert (made.exit_code, made.stdout) == (0, "acme: set.\n"), made.output
    told = shown(target)["settings"]
    assert told.pop("secrets_set")
    assert told == {
        "url": "https://acme.example/hooks",
        "headers": {"authorization": "Bearer 17"},
        "rate": "10/s",
        "waits_s": [5.0, 300.0],
        "sink_timeout_s": 2.0,
        "disable_after_days": 5.0,
    }
    assert SECRET not in run("show", target, "acme").output

    paused = f"{target}: the destination acme is paused. To go on: tickwheel resume {target} --destination acme\n"
    assert CliRunner().invoke(command, ["pause", target, "--destination", "acme"]).stdout == paused
    assert run("set", target, "acme", *url, *more, "--rate", "20/s").exit_code == 0, "a change leaves the pause"
    told = shown(target)
    assert (told["state"], told["rate"], bool(told["settings"]["secrets_set"])) == ("paused", "20/s", True)
    titles, row = run("list", target).stdout.splitlines()
    assert titles.split() == ["name", "state", "waiting", "overdue", "rate"]
    assert [*row.split()[:3], *row.split()[-3:]] == ["acme", "paused", "for", "0", "0", "20/s"]
    resumed = CliRunner().invoke(command, ["resume", target, "--destination", "acme"])
    assert resumed.stdout == f"{target}: the destination acme is resumed.\n"
    assert shown(target)["state"] == "sending"
    assert run("set", target, "acme", *url, "--no-secrets").stdout == "acme: changed.\n"
    assert shown(target)["settings"] == {"url": "https://acme.example/hooks"}
    assert run("remove", target, "acme").stdout == "acme: removed.\n"
    for one in ("show", "remove", "test"):
        gone = run(one, target, "acme")
        assert (gone.exit_code, gone.stderr) == (
            1,
            "there is no destination 'acme' (allowed: the name of one that is set)\n",
        ), (one, gone.output)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--url", "nowhere"], "names no host"),
        (["--url", "https://a.example", "--rate", "fast"], "write it as 100/s"),
        (["--url", "https://a.example", "--webhook-header", "host: x"], "the header 'host' is set by tickwheel"),
        (["--url", "https://a.example", "--webhook-header", "x: 1", "--webhook-header", "x: 2"], "has a name twice"),
        (["--url", "https://a.example", "--webhook-header", "x: env:NO_SUCH"], "has no variable NO_SUCH"),
        (["--url", "https://a.example", "--webhook-header", "x-a: 1", "--webhook-header", "X-A: 2"], "in another case"),
        (["--url", "https://a.example", "--sink-timeout", "0"], "sink_timeout_s is 0 s: it may be 0.001 to 86,400 s"),
        ([], "Missing option '--url'"),
    ],
)
def test_what_is_not_allowed_is_told__D23(target: str, arguments: list[str], said: str) -> None:
    told = run("set", target, "acme", *arguments)
    assert told.exit_code == 2, told.output
    assert said in (text := " ".join(told.stderr.split()))
    assert "answers 4" not in text, "nothing is said about HTTP"


def test_a_pause_changes_no_number_of_a_template__D16_D23(target: str) -> None:
    """In JSON 1.50 is another text than 1.5, and a receiver may see it."""
    with closing(control_of(target, dict.fromkeys(ACCESS))) as control:
        control.ask(SetDestination("acme", '{"url": "https://acme.example/", "body": {"n": 1.50}}'))
    before = run("show", target, "acme", "--json").stdout
    for asked in ("pause", "resume"):
        told = CliRunner().invoke(command, [asked, target, "--destination", "acme"])
        assert told.exit_code == 0, told.output
        told = CliRunner().invoke(command, [asked, target, "--destination", "nobody"])
        assert (told.exit_code, told.stderr) == (
            1,
            "there is no destination 'nobody' (allowed: the name of one that is set)\n",
        )
        told = CliRunner().invoke(command, [asked, target, "--destination", "acme", "--key", "k"])
        assert told.exit_code == 2
    assert run("show", target, "acme", "--json").stdout == before
    if Path(target).exists():
        with closing(sqlite3.connect(target)) as db:
            assert db.execute("""SELECT settings LIKE '%{"n": 1.50}%' FROM destinations""").fetchall() == [(1,)]


def test_a_name_that_is_none_is_told__D23(target: str) -> None:
    told = run("set", target, "a b", "--url", "https://a.example")
    assert told.exit_code == 2
    assert "is no name of a destination" in " ".join(told.stderr.split())


def test_one_with_messages_is_kept_and_they_become_dead_letters_in_the_next_run__D23(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    with DeliveryQueue(store, to=None) as queue:
        queue.set_destination("acme", "https://acme.example/")
        queue.put("a", 1, due=FAR_MS, destination="acme")
    kept = run("remove", store, "acme")
    assert kept.exit_code == 2
    assert "acme has messages: wait for them, or give --messages dead" in " ".join(kept.stderr.split())
    assert run("remove", store, "acme", "--messages", "dead").exit_code == 0
    assert StoreView(store).status().waiting == 1
    told: list[str] = []
    with DeliveryQueue(store, to=None, on_dead_letter=lambda letter: told.append(letter.reason)) as queue:
        assert queue.wait_until_empty(30)
    assert told == ["its destination acme was removed"]


def test_a_test_send_says_what_came_back__D23(tmp_path: Path, receiver: Receiver) -> None:
    receiver.statuses.extend([200, 503])
    served = Served(tmp_path, to=Destination.named(), allow_addresses=("127.0.0.1",))
    try:
        assert run("set", served.url, "here", "--url", receiver.url).exit_code == 0
        good, bad = run("test", served.url, "here"), run("test", served.url, "here")
    finally:
        served.close()
    assert (good.exit_code, good.stdout.startswith("here: accepted after ")) == (0, True), good.output
    assert bad.exit_code == 1
    assert bad.stderr.startswith("here: unanswered after ")
    assert "status 503" in bad.stderr
    inside = run("test", tmp_path / "store.db", "here")
    assert inside.exit_code == 1
    assert "an address inside" in inside.stderr


def test_a_template_is_set_from_a_file_and_shown__D23(target: str, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text('{"text": "{{payload.name|nobody}}"}')
    assert run("set", target, "chat", "--url", "https://chat.example/", "--body", tmp_path / "t.json").exit_code == 0
    assert shown(target, "chat")["settings"]["body"] == {"text": "{{payload.name|nobody}}"}
    told = run("show", target, "chat")
    assert (told.exit_code, '{"text": "{{payload.name|nobody}}"}' in told.stdout) == (0, True), told.output
    assert CliRunner().invoke(command, ["pause", target, "--destination", "chat"]).exit_code == 0
    assert shown(target, "chat")["settings"]["body"] == {"text": "{{payload.name|nobody}}"}
    assert "is no file with JSON" in run("set", target, "chat", "--url", "http://h/", "--body", "nothing").output


def test_the_list_says_since_when_one_fails_that_is_to_be_paused__D14_D23(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    with DeliveryQueue(store, to=None) as queue:
        queue.set_destination("gone", "https://gone.example/", disable_after_days=5)
    assert "fails" not in run("list", store).stdout
    with closing(sqlite3.connect(store)) as db, db:
        db.execute("UPDATE destinations SET failing_ms = 1700000000000")
    assert "sending, fails for " in run("list", store).stdout
    assert shown(str(store), "gone")["failing_since"] == "2023-11-14T22:13:20.000Z"
