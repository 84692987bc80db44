"""`tickwheel load`: the same inputs into a store or a server, by one command that ends (rule D11)."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from delivery.serve.conftest import Served
from delivery.serve.scripted import Scripted, accepted, answer
from tickwheel.commands import tickwheel as command
from tickwheel.delivery import DeliveryFailed, DeliveryQueue, StoreView
from tickwheel.delivery.command import job

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


def many(count: int) -> str:
    return "".join(f'{{"id": "{n}", "due": "{FAR}"}}\n' for n in range(count))


REFUSALS = [
    answer(403, b'{"reason":"this token may not","allowed":"produce"}'),
    answer(413, b'{"reason":"too large","allowed":"less"}'),
    answer(200, b"<html>"),
]


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_refusal_after_something_was_accepted_is_a_failure_with_counts__D13(
    refusal: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.ndjson").write_text("{bad\n" + many(20_000))
    into = Into(tmp_path, is_server=False)
    with Scripted(lambda number, body: refusal if number else accepted(body)) as server:
        into.target = server.url
        seen = into.load("in.ndjson", "--summary", "s.json", "--dead-letters", "dead.ndjson")
    assert seen.exit_code == 3, seen.output
    said = " ".join(seen.stderr.split())
    assert f"Failed: {server.url} answers" in said
    assert f"Loaded into {server.url}; nothing was delivered." in said
    count = json.loads(Path("s.json").read_text())["accepted"]
    assert count > 100
    assert f"The input was read up to line {count + 1} of in.ndjson. To go on, run it again" in said
    assert len(Path("dead.ndjson").read_text().splitlines()) == 1


def test_a_refusal_in_the_middle_of_what_was_read_at_once_is_a_failure_too__D13(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    parquet = pytest.importorskip("pyarrow.parquet")
    pa = pytest.importorskip("pyarrow")
    rows = [{"id": f"{n}", "due": FAR, "payload": "x" * 3_000} for n in range(1_000)]
    parquet.write_table(pa.Table.from_pylist(rows), "in.parquet")
    into = Into(tmp_path, is_server=False)
    with Scripted(lambda number, body: REFUSALS[0] if number else accepted(body)) as server:
        into.target = server.url
        seen = into.load("in.parquet", "--summary", "s.json")
    count = json.loads(Path("s.json").read_text())["accepted"]
    assert (seen.exit_code, 0 < count < 1_000) == (3, True)
    assert f"The input was read up to line {count} of in.parquet." in " ".join(seen.stderr.split())


def test_a_refusal_before_anything_was_accepted_is_wrong_usage__D13(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.ndjson").write_text(many(3))
    into = Into(tmp_path, is_server=False)
    with Scripted(lambda _number, _body: REFUSALS[0]) as server:
        into.target = server.url
        seen = into.load("in.ndjson")
    assert (seen.exit_code, "answers 403: this token may not" in " ".join(seen.stderr.split())) == (2, True)


def test_a_server_says_how_large_a_payload_may_be__D12(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    parquet = pytest.importorskip("pyarrow.parquet")
    pa = pytest.importorskip("pyarrow")
    large = "x" * (3 << 20)
    event = {"id": "e", "key": "k", "op": "event", "event": "other", "payload": large}
    lines = [{"id": "a", "due": FAR, "payload": large}, event]
    Path("a.ndjson").write_text("".join(json.dumps(line) + "\n" for line in lines))
    Path("b.csv").write_text(f"id,due,payload\nb,{FAR},{large}\n")
    parquet.write_table(pa.table({"id": ["c"], "due": [FAR], "payload": [large]}), "c.parquet")
    for most, accepted_ in ((4 << 20, 3), (1 << 20, 0)):
        served = Served(tmp_path, name=f"{most}.db", max_payload=most)
        into = Into(tmp_path, is_server=False)
        into.target = served.url
        seen = into.load("a.ndjson", "b.csv", "c.parquet", "--summary", "s.json", "--dead-letters", "dead.ndjson")
        summary = json.loads(Path("s.json").read_text())
        served.close()
        assert (summary["accepted"], summary["dead_letters"]) == (accepted_, 0 if accepted_ else 4), seen.output
        if accepted_:
            assert (seen.exit_code, summary["events"]) == (0, 1)


def test_what_was_loaded_before_is_not_said_to_be_loaded__D13(into: Into) -> None:
    Path("in.ndjson").write_text(many(3))
    assert "Loaded into" in " ".join(into.load("in.ndjson").stderr.split())
    again = " ".join(into.load("in.ndjson").stderr.split())
    assert f"Nothing new was loaded into {into.target}; nothing was delivered." in again
    if not into.served:
        assert "copy it to another name, and name that" in again


def test_a_store_that_can_not_be_opened_is_not_said_to_be_of_deliver__D13(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.ndjson").write_text(many(3))
    into = Into(tmp_path, is_server=False)

    def fails(*_: object, **__: object) -> None:
        raise DeliveryFailed("the store can't be opened")

    monkeypatch.setattr(job, "Running", fails)
    seen = into.load("in.ndjson")
    said = " ".join(seen.stderr.split())
    assert (seen.exit_code, "--store" in said) == (3, False)
    assert f"Nothing new was loaded into {into.target}" in said
    assert "The input was not begun. To go on, run it again" in said
