"""`tickwheel load`: the same inputs into a store or a server, by one command that ends (rule D11)."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from delivery.serve.conftest import Served
from tickwheel.commands import tickwheel as command
from tickwheel.delivery import DeliveryQueue, StoreView

pytestmark = pytest.mark.timeout(60)
FAR = "2096-10-02T07:06:40Z"
LINES = [
    {"id": "a", "due": FAR, "key": "k", "payload": {"n": 1}, "until_event": ["paid"]},
    {"id": "b", "delay_ms": 86_400_000.5, "expires": "2099-01-01T00:00:00Z", "tenant": "t"},
    {"id": "c", "due": FAR, "payload_base64": "/wA="},
    {"id": "every", "due": FAR, "every": 60_000},
    {"id": "cron", "cron": "0 9 * * *", "tz": "Europe/Berlin", "missed": "all"},
    {"id": "bad"},
    {"id": "c", "op": "cancel"},
    {"id": "none", "op": "cancel"},
    {"id": "a", "key": "k", "op": "reschedule", "due": "2096-10-03T00:00:00Z"},
    {"id": "e", "key": "k", "op": "event", "event": "other", "payload": 5},
    {"id": "x", "due": FAR, "destination": "nobody"},
]


class Into:
    """A store that nothing delivers from, or a server with it."""

    def __init__(self, folder: Path, is_server: bool) -> None:
        self.store = folder / "store.db"
        self.served = Served(folder) if is_server else None
        self.target = f"http://127.0.0.1:{self.served.port}" if self.served else str(self.store)

    def load(self, *arguments: str, **more: Any) -> Result:
        return CliRunner().invoke(command, ["load", self.target, *arguments], catch_exceptions=False, **more)


@pytest.fixture(params=[False, True], ids=["store", "server"])
def into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Into]:
    monkeypatch.chdir(tmp_path)
    made = Into(tmp_path, request.param)
    yield made
    if made.served:
        made.served.close()


def shown(store: Path) -> dict[str, Any]:
    view = StoreView(store)
    waiting = {it.id: (it.key, it.due, it.tenant) for it in view.list().messages if it.id != "b"}
    rules = {it.id: it.rule for it in view.list(state="recurring").messages}
    return {"waiting": waiting, "rules": rules}


def test_every_kind_of_record_is_put_and_counted_and_the_command_ends__D11(into: Into) -> None:
    Path("in.ndjson").write_text("".join(json.dumps(line) + "\n" for line in LINES))
    seen = into.load("in.ndjson", "--summary", "s.json", "--dead-letters", "dead.ndjson")
    assert seen.exit_code == 1, seen.output
    assert f"Loaded into {into.target}; nothing was delivered." in " ".join(seen.stderr.split())
    summary = json.loads(Path("s.json").read_text())
    counts = {name: value for name, value in summary.items() if value and name not in ("lateness_ms", "not_delivered")}
    assert counts == {
        "accepted": 5 if into.served else 7,  # a store also counts the first occurrence of each rule
        "cancelled": 1,
        "cancels_unknown": 1,
        "rescheduled": 1,
        "events": 1,
        "dead_letters": 2,
    }
    no_destination = "it names no destination, or one that is not set"
    if not into.served:
        no_destination = "there is no destination 'nobody'"
    letters = [json.loads(line) for line in Path("dead.ndjson").read_text().splitlines()]
    assert [(it["line"], it["reason"]) for it in letters] == [
        (6, "due is missing"),
        (11, no_destination),
    ]
    assert [json.loads(it["record"])["id"] for it in letters] == ["bad", "x"]
    found = shown(into.store)
    assert found["rules"].keys() == {"every", "cron"}
    assert found["waiting"]["a"] == ("k", "2096-10-03T00:00:00.000Z", None)
    again = into.load("in.ndjson", "--summary", "s.json")
    assert again.exit_code == (1 if into.served else 0)  # a store knows how far it was read
    if into.served:
        assert json.loads(Path("s.json").read_text())["duplicates"] >= 4
    assert shown(into.store) == found


def test_columns_have_other_names__D1(into: Into) -> None:
    rows = "flight;tail;at;text\nf1;N1;2096-10-02 07:06:40;hello\nf2;N2;2096-10-02 07:06:40;\n"
    options = ("--id", "flight", "--key", "tail", "--due", "at", "--payload", "text", "--zone", "Asia/Tokyo")
    Path("flights.csv").write_text(rows)
    seen = into.load("flights.csv", *options)
    assert seen.exit_code == 0, seen.output
    details = StoreView(into.store).show("f1", "N1")
    assert details is not None
    assert (details.due, bytes(details.payload or b"")) == ("2096-10-01T22:06:40.000Z", b'"hello"')


def test_what_was_loaded_is_delivered_by_the_next_process__D11(tmp_path: Path) -> None:
    into = Into(tmp_path, is_server=False)
    (tmp_path / "in.ndjson").write_text('{"id": "a", "due": 1700000000000}\n')
    assert into.load(str(tmp_path / "in.ndjson")).exit_code == 0
    assert StoreView(into.store).status().overdue == 1
    got: list[str] = []
    with DeliveryQueue(into.store, to=lambda it: got.append(it.message.id)) as queue:
        assert queue.wait_until_empty(20)
    assert got == ["a"]


def test_a_store_that_is_open_elsewhere_names_the_address__D9(tmp_path: Path) -> None:
    (tmp_path / "in.ndjson").write_text('{"id": "a", "due": 1700000000000}\n')
    with DeliveryQueue(tmp_path / "store.db", to=lambda _: None):
        seen = Into(tmp_path, is_server=False).load(str(tmp_path / "in.ndjson"))
    assert seen.exit_code == 2
    assert f"process {os.getpid()} works with" in seen.stderr
    assert "name the address of its tickwheel serve" in " ".join(seen.stderr.split())


def test_a_server_that_is_away_or_refuses_ends_it_with_the_exit_codes_of_deliver__D13(into: Into) -> None:
    Path("in.ndjson").write_text('{"id": "a", "due": 1700000000000}\n')
    assert into.load("none.ndjson").exit_code == 2
    into.target = "http://127.0.0.1:1"
    seen = into.load("in.ndjson")
    assert seen.exit_code == 3
    assert "Failed: http://127.0.0.1:1 can't be asked: " in " ".join(seen.stderr.split())
    assert "The input was not begun. To go on, run it again" in " ".join(seen.stderr.split())
