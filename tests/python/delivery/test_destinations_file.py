"""`--destinations FILE` of `deliver` and `serve`: what it sets at the start, and what is refused (D23)."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from delivery.webhook_receiver import Receiver
from tickwheel.commands import tickwheel as command
from tickwheel.delivery import DeliveryQueue, StoreView

pytestmark = pytest.mark.timeout(120)
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def deliver(folder: Path, text: str, *messages: dict[str, object], to: str = "named") -> Result:
    (folder / "hooks.toml").write_text(text)
    (folder / "in.ndjson").write_text("".join(f"{json.dumps(message)}\n" for message in messages))
    paths = [str(folder / "in.ndjson"), "--store", str(folder / "s.db"), "--destinations", str(folder / "hooks.toml")]
    return CliRunner().invoke(command, ["deliver", *paths, "--to", to, "--allow-address", "127.0.0.1"])


def test_it_sets_what_it_names_and_reads_secrets_where_it_says__D23(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEAM", "17\n")
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    with DeliveryQueue(tmp_path / "s.db", to=None) as queue:
        queue.set_destination("other", "https://other.example/")
    text = f"""
        [acme]
        url = "{receiver.url}"
        headers = {{X-Team = "env:TEAM", X-Literal = "a:b"}}
        secrets = ["file:{tmp_path}/secret"]
        waits_s = [1, 2.5]
        [acme.body]
        text = "{{{{id}}}}"
    """
    ran = deliver(tmp_path, text, {"id": "a", "delay_ms": 0, "payload": 1, "destination": "acme"})
    assert ran.exit_code == 0, ran.output
    [(headers, body)] = receiver.requests
    assert (headers["x-team"], headers["x-literal"], json.loads(body)) == ("17", "a:b", {"text": "a"})
    assert headers["webhook-signature"]
    found = StoreView(tmp_path / "s.db").destinations().destinations
    assert [it.name for it in found] == ["acme", "other"]
    assert found[0].settings["waits_s"] == [1, 2.5]


def test_a_start_with_the_same_file_changes_nothing__D23(tmp_path: Path) -> None:
    text = f"""
        [gone]
        url = "https://gone.example/"
        secrets = ["{SECRET}"]
        disable_after_days = 5
    """
    assert deliver(tmp_path, text).exit_code == 0
    with closing(sqlite3.connect(tmp_path / "s.db")) as db, db:
        db.execute("UPDATE destinations SET failing_ms = 1700000000000")
    before = StoreView(tmp_path / "s.db").destination("gone")
    assert deliver(tmp_path, text).exit_code == 0
    assert StoreView(tmp_path / "s.db").destination("gone") == before
    assert deliver(tmp_path, text.replace("= 5", "= 6")).exit_code == 0
    changed = StoreView(tmp_path / "s.db").destination("gone")
    assert before is not None
    assert changed is not None
    assert (before.failing_since, changed.failing_since) == ("2023-11-14T22:13:20.000Z", None)
    assert before.settings["secrets_set"] == changed.settings["secrets_set"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[a", "hooks.toml is no TOML: "),
        ('a = "http://h/"', "hooks.toml: a is no table: write [a], and its settings below it"),
        ('["a b"]\nurl = "http://h/"', "hooks.toml: a b: url: 'a b' is no name of a destination"),
        ("[a]\nrate = '1/s'", "hooks.toml: a: url: url is missing"),
        ("[a]\nurl = 'h'", "hooks.toml: a: url: 'h' names no host"),
        ("[a]\nurl = 'http://h/'\nrate = 'fast'", "hooks.toml: a: rate: "),
        ("[b]\nurl = 'http://h/'\n[a]\nurl = 'http://h/'\nspare = 's3cret'", "hooks.toml: a: spare: "),
        ("[a]\nurl = 'http://h/'\nretries = 3", "hooks.toml: a: retries: the settings can't be read: unknown field"),
        ("[a]\nurl = 'http://h/'\nsecrets = ['s3cret']", "hooks.toml: a: secrets: "),
        (
            "[a]\nurl = 'http://h/'\nsecrets = ['env:NO_SUCH']",
            "hooks.toml: a: secrets: the environment has no variable",
        ),
        (
            "[a]\nurl = 'http://h/'\nheaders = {X = 'file:/no/such'}",
            "hooks.toml: a: headers: 'X' /no/such can't be read",
        ),
        ("[a]\nurl = 'http://h/'\ndisable_after_days = nan", "hooks.toml: a: disable_after_days is nan: write a text"),
        ("[a]\nurl = 'http://h/'\nbody = 2020-01-01", "hooks.toml: a: body is 2020-01-01: write a text, a number"),
        ("[a]\nurl = 'http://h/'\nheaders = {Host = 's3cret'}", "hooks.toml: a: headers: the header 'Host' is set by"),
    ],
)
def test_what_is_not_allowed_is_told_with_its_place_and_nothing_starts__D2_D12_D23(
    tmp_path: Path, text: str, said: str
) -> None:
    ran = deliver(tmp_path, text)
    assert (ran.exit_code, (tmp_path / "s.db").exists()) == (2, False), ran.output
    assert said in " ".join(ran.stderr.split()), ran.stderr
    assert "s3cret" not in ran.output


def test_without_webhooks_it_is_refused__D23(tmp_path: Path) -> None:
    ran = deliver(tmp_path, "[a]\nurl = 'http://h/'", to=f"file:{tmp_path}/out")
    assert (ran.exit_code, "--destinations: named destinations stand beside a webhook" in ran.stderr) == (2, True), (
        ran.output
    )
