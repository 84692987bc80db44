"""Messages that wait for an event or their deadline, on each way in and each way out (D22)."""

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from queue import Queue
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from delivery.batches import stream
from delivery.serve.conftest import ARROW, Served
from tickwheel._native import NdjsonLines
from tickwheel.commands import tickwheel as command
from tickwheel.delivery import (
    Answer,
    AsyncDeliveryQueue,
    BadRecord,
    Delivery,
    DeliveryQueue,
    Message,
    StoreView,
    WrongUsage,
)
from tickwheel.delivery.model.message import MAX_PAYLOAD, Columns
from tickwheel.delivery.outbox import create_table, enqueue, event
from tickwheel.delivery.read.hand_off_rows import HANDED, batch_of
from tickwheel.delivery.sinks import kafka

pytestmark = pytest.mark.timeout(60)
FAR_MS = 4_000_000_000_000
LONG_S = 20


class Opened:
    def __init__(self, folder: Path, **options: Any) -> None:
        self.came: Queue[Delivery] = Queue()
        self.store = folder / "store.db"
        self.queue = DeliveryQueue(self.store, self.came.put, **options)

    def next(self) -> Delivery:
        return self.came.get(timeout=LONG_S)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    opened = Opened(tmp_path)
    yield opened
    opened.queue.close()


def run(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def test_a_handler_gets_the_cause_and_the_event__d22(opened: Opened) -> None:
    queue = opened.queue
    queue.put("a", key="k", due=FAR_MS, until_event=["paid", "lost"])
    queue.put_many(
        [
            {"id": "b", "key": "k", "due": FAR_MS, "until_event": "paid"},
            Message("c", "k", FAR_MS, b"", until_event=["lost"]),
        ]
    )
    queue.put("d", key="k", delay_ms=0, until_event=["paid"])
    queue.put("e", delay_ms=0)
    seen = {it.message.id: (it.cause, it.event) for it in (opened.next(), opened.next())}
    assert seen == {"d": ("deadline", None), "e": (None, None)}
    assert queue.event("k", "paid", id="1", payload={"sum": 12.5}) == 2
    first = opened.next()
    assert (first.cause, first.event) == ("event", {"name": "paid", "id": "1", "payload": {"sum": 12.5}})
    assert (first.message.id, first.message.until_event) == ("a", ("lost", "paid"))
    assert json.loads(first.line)["event"]["payload"] == {"sum": 12.5}
    assert opened.next().message.id == "b"
    assert queue.event("k", "lost", id="2", payload=b"\xff", remember_ms=timedelta(hours=1)) == 1
    assert opened.next().event == {"name": "lost", "id": "2", "payload_base64": "/w=="}
    assert queue.summary.events == 2
    assert queue.summary.let_go == 3


def test_an_event_again_has_its_first_count_and_another_one_is_refused__d22(opened: Opened) -> None:
    queue = opened.queue
    queue.put("a", key="k", due=FAR_MS, until_event=["paid"])
    assert queue.event("k", "paid", id="1") == 1
    assert queue.event("k", "paid", id="1") == 1
    with pytest.raises(BadRecord, match="other content"):
        queue.event("k", "paid", id="1", payload=1)
    for wrong in ({"remember_ms": 0}, {"remember_ms": 1.5}, {"id": ""}, {"name": "two words"}, {"key": ""}):
        given: dict[str, Any] = {"key": "k", "name": "paid", "id": "2"} | wrong
        with pytest.raises(BadRecord):
            queue.event(given.pop("key"), given.pop("name"), **given)
    answers = queue.submit_ndjson(b'{"op":"event","id":"1","key":"k","event":"lost"}').result(LONG_S)
    assert answers == [Answer.CONFLICT]
    assert not queue.view.dead().letters, "the caller has the answer"


def test_one_more_than_a_thousand_of_a_key_is_refused__d22(opened: Opened) -> None:
    message = {"key": "k", "due": FAR_MS, "until_event": ["paid"]}
    answers = opened.queue.put_many([{"id": f"{n}", **message} for n in range(1_001)])
    assert (answers.count(Answer.ACCEPTED), answers[-1]) == (1_000, Answer.FULL)
    with pytest.raises(BadRecord, match="1,000 messages of its key wait"):
        opened.queue.put("more", key="k", due=FAR_MS, until_event=["paid"])


def test_a_remembered_event_is_counted_and_forgotten__d22(opened: Opened) -> None:
    queue = opened.queue
    assert [queue.event("k", "paid", id=f"{n}", payload=n, remember_ms=60_000) for n in range(3)] == [0, 0, 0]
    assert queue.view.status().remembered_events == 3
    assert queue.forget_event("k", "2") is Answer.CANCELLED
    assert queue.forget_event("k", "2") is Answer.UNKNOWN
    queue.put("a", key="k", due=FAR_MS, until_event=["paid"])
    assert opened.next().event == {"name": "paid", "id": "1", "payload": 1}
    assert queue.view.status().remembered_events == 2


def test_remembered_events_are_listed_in_parts_by_the_end_of_their_time__d14_d22(opened: Opened) -> None:
    queue = opened.queue
    for n, (key, name) in enumerate((("k", "paid"), ("j", "paid"), ("k", "lost"), ("k", "paid"))):
        queue.event(key, name, id=f"{n}", remember_ms=timedelta(days=4 - n))
    queue.event("k", "paid", id="at once")

    def ids(**which: Any) -> list[str]:
        return [it.id for it in queue.view.list("remembered", **which).messages]

    assert ids() == ["3", "2", "1", "0"]
    assert (ids(key="k"), ids(until="paid"), ids(key="k", until="lost")) == (["3", "2", "0"], ["3", "1", "0"], ["2"])
    first = queue.view.list("remembered", limit=3)
    assert ids(limit=3, cursor=first.next) == ["0"]
    seen = first.messages[0]
    assert (seen.key, seen.event_name, seen.state, seen.destination) == ("k", "paid", "remembered", None)
    assert ids(due_before=seen.due) == []
    assert ids(due_from=seen.due, limit=1) == ["3"]
    for wrong in ({"tenant": "a"}, {"destination": "a"}):
        with pytest.raises(WrongUsage, match="list remembered ones by key and name"):
            ids(**wrong)
    assert queue.forget_event("k", "3") is Answer.CANCELLED
    assert ids() == ["2", "1", "0"]


def test_names_of_events_are_text_and_a_time_may_be_as_long_as_names_are_kept__d22(tmp_path: Path) -> None:
    opened = Opened(tmp_path, keep_ids_days=3_650)
    try:
        for wrong in (b"paid", [b"paid"], 5, {"paid": 1}):
            with pytest.raises(BadRecord, match="neither a list of names nor text"):
                opened.queue.put("a", key="k", due=FAR_MS, until_event=wrong)  # type: ignore[arg-type]
        assert opened.queue.event("k", "paid", id="1", remember_ms=timedelta(days=1_000)) == 0
        [found] = opened.queue.view.list("remembered").messages
        left = datetime.fromisoformat(found.due or "") - datetime.now(UTC)
        assert timedelta(days=999) < left <= timedelta(days=1_000)
        with pytest.raises(BadRecord, match="36,500 days"):
            opened.queue.event("k", "paid", id="2", remember_ms=timedelta(days=36_501))
    finally:
        opened.queue.close()


def test_an_asynchronous_queue_does_the_same__d22(tmp_path: Path) -> None:
    async def main() -> Any:
        came: asyncio.Queue[Delivery] = asyncio.Queue()
        async with AsyncDeliveryQueue(tmp_path / "store.db", came.put) as queue:
            await queue.put("a", key="k", due=FAR_MS, until_event=["paid"])
            count = await queue.event("k", "paid", id="1", remember_ms=5_000)
            delivery = await asyncio.wait_for(came.get(), LONG_S)
            remembered = (await queue.view.status()).remembered_events
            return count, delivery.cause, remembered, await queue.forget_event("k", "1")

    assert asyncio.run(main()) == (1, "event", 1, Answer.CANCELLED)


CSV = """id,key,due,op,until_event,event,remember_ms,payload
a,k,4000000000000,,paid lost,,,1
b,k,4000000000000,,lost,,,2
e,k,,event,,paid,60000,"{""sum"": 12}"
c,k,4000000000000,,paid,,,3
b,k,,cancel,,,,
"""
COLUMNS: dict[str, Any] = {
    "id": ["a", "b", "e", "c", "b"],
    "key": ["k"] * 5,
    "due": [FAR_MS, FAR_MS, None, FAR_MS, None],
    "op": [None, None, "event", None, "cancel"],
    "until_event": [["paid", "lost"], ["lost"], None, ["paid"], None],
    "event": [None, None, "paid", None, None],
    "remember_ms": [None, None, 60_000, None, None],
    "payload": ["1", "2", '{"sum": 12}', "3", None],
}


def write(folder: Path, kind: str) -> Path:
    path = folder / f"in.{kind}"
    if kind == "csv":
        path.write_text(CSV)
    elif kind == "parquet":
        pq.write_table(pa.table(COLUMNS), path)
    else:
        rows = [dict(zip(COLUMNS, row, strict=True)) for row in zip(*COLUMNS.values(), strict=True)]
        for row in rows:
            row["payload"] = row["payload"] and json.loads(row["payload"])
        path.write_bytes(b"\n".join(map(msgspec.json.encode, rows)))
    return path


@pytest.mark.parametrize("kind", ["csv", "parquet", "ndjson"])
def test_a_file_has_messages_that_wait_and_events__d1_d22(tmp_path: Path, kind: str) -> None:
    out = tmp_path / "out.ndjson"
    seen = run("deliver", write(tmp_path, kind), "--store", tmp_path / "store.db", "--to", f"file:{out}")
    assert seen.exit_code == 0, seen.output
    came = [json.loads(line) for line in out.read_text().splitlines()]
    event = {"name": "paid", "id": "e", "payload": {"sum": 12}}
    assert [(it["id"], it["payload"], it["cause"], it["event"]) for it in came] == [
        ("a", 1, "event", event),
        ("c", 3, "event", event),
    ]


def test_an_event_of_a_replay_is_a_dead_letter__d22(tmp_path: Path) -> None:
    letters = tmp_path / "dead.ndjson"
    given = write(tmp_path, "ndjson")
    given.write_bytes(
        b'{"id":"e","key":"k","op":"event","event":"paid"}\n{"id":"a","key":"k","due":100000000000,"until_event":["paid"]}\n'
    )
    seen = run(
        "deliver",
        given,
        "--speed",
        "1000",
        "--store",
        tmp_path / "s.db",
        "--to",
        f"file:{tmp_path}/o",
        "--dead-letters",
        letters,
    )
    [letter] = map(json.loads, letters.read_text().splitlines())
    assert (letter["line"], letter["reason"]) == (1, "an event is of now, which a replay does not have"), seen.output
    assert json.loads((tmp_path / "o").read_text())["cause"] == "deadline"


def test_an_event_in_a_transaction_of_the_program_counts_once_it_is_committed__d5_d22(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "app.db")) as connection:
        create_table(connection)
        enqueue(connection, {"id": "a", "key": "k", "due": FAR_MS, "until_event": ["paid"]})
        enqueue(connection, Message("b", "k", FAR_MS, b"1", until_event=("paid",)))
        event(connection, "k", "paid", id="0")
        connection.rollback()
        create_table(connection)
        event(connection, "k", "paid", id="1", payload={"sum": 12}, remember_ms=timedelta(hours=1))
        enqueue(connection, {"id": "a", "key": "k", "due": FAR_MS, "until_event": ["paid"]})
        enqueue(connection, Message("b", "k", FAR_MS, b"1", until_event=("paid",)))
        for wrong in ({"id": "2", "remember_ms": 0}, {"id": "", "remember_ms": None}):
            with pytest.raises(BadRecord):
                event(connection, "k", "paid", **wrong)  # type: ignore[arg-type]
        connection.commit()
    opened = Opened(tmp_path, outbox=f"sqlite:{tmp_path / 'app.db'}")
    try:
        seen = [opened.next(), opened.next()]
    finally:
        opened.queue.close()
    assert [(it.message.id, it.event) for it in seen] == [
        (id_, {"name": "paid", "id": "1", "payload": {"sum": 12}}) for id_ in ("a", "b")
    ]


def test_a_hand_off_has_dead_letters_in_their_place__d22_s2(tmp_path: Path) -> None:
    lines = (
        {"id": "e", "key": "k", "op": "event", "event": "paid"},
        {"id": "a", "key": "k", "due": FAR_MS, "until_event": ["paid"]},
    )
    read = NdjsonLines("in", Columns(), MAX_PAYLOAD).read(b"\n".join(map(msgspec.json.encode, lines)), now_ns=0)
    served = Served(tmp_path)
    try:
        served.ask("POST", "/hand-off", stream(batch_of(read).select(HANDED.names)), headers=ARROW)
        letters = served.ask("GET", "/dead").body["letters"]
        assert served.ask("GET", "/status").body["waiting"] == 0
    finally:
        served.close()
    assert [(it["line"], it["reason"]) for it in reversed(letters)] == [
        (1, "an event does not go through Spark"),
        (2, "a message with until_event does not go through Spark"),
    ]
    assert json.loads(letters[0]["record"]) == lines[1]


def test_a_server_answers_with_the_count_and_shows_what_waits__d12_d22(tmp_path: Path) -> None:
    served = Served(tmp_path)
    try:
        waits = {"key": "k", "due": FAR_MS, "until_event": ["paid"], "payload": 1}
        lines = b"\n".join(
            msgspec.json.encode(it)
            for it in (
                {"id": "a", **waits},
                {"id": "b", **waits, "until_event": ["lost"]},
                {"op": "event", "id": "0", "key": "k", "event": "other", "remember_ms": 60_000},
            )
        )
        told = served.ask("POST", "/messages", lines, headers={"content-type": "application/x-ndjson"})
        assert [json.loads(line) for line in told.body.splitlines()][1:] == [
            {"line": 2, "status": 201, "state": "accepted"},
            {"line": 3, "status": 200, "let_go": 0, "state": "let_go"},
        ]
        listed = served.ask("GET", "/messages?until=paid").body["messages"]
        assert [it["id"] for it in listed] == ["a"]
        assert served.ask("GET", "/messages?until=paid&state=dead").status == 400
        shown = served.ask("GET", "/messages/a?key=k").body
        assert (shown["until_event"], shown["cause"], shown["event"]) == (["paid"], None, None)
        happens = {"op": "event", "id": "1", "key": "k", "event": "paid", "payload": {"sum": 12}}
        answer = served.ask("POST", "/messages", happens)
        assert answer[:2] == (200, {"id": "1", "key": "k", "let_go": 1, "state": "let_go"})
        assert served.ask("POST", "/messages", happens | {"payload": 1}).status == 409
        assert served.ask("GET", "/status").body["remembered_events"] == 1
        [remembered] = served.ask("GET", "/messages?state=remembered&key=k").body["messages"]
        assert (remembered["id"], remembered["event_name"], remembered["state"]) == ("0", "other", "remembered")
        assert served.ask("GET", "/messages?state=remembered&tenant=a").status == 400
        seen = run("list", served.url, "--state", "remembered")
        assert [line.split()[1:] for line in seen.stdout.splitlines()] == [["event", "key", "id"], ["other", "k", "0"]]
        assert served.ask("DELETE", "/remembered?key=k&id=0")[:2] == (
            200,
            {"id": "0", "key": "k", "state": "cancelled"},
        )
        assert served.ask("DELETE", "/remembered?key=k&id=0").status == 404
        assert served.ask("DELETE", "/remembered?key=k").status == 400
        metrics = served.ask("GET", "/metrics").body
        assert "tickwheel_events_total 2.0" in metrics
        assert "tickwheel_let_go_messages_total 1.0" in metrics
    finally:
        served.close()


def test_commands_let_go_and_show_what_waits__d14_d22(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    with DeliveryQueue(store, lambda _: None) as queue:
        for id_, names in (("a", ["paid"]), ("b", ["lost", "paid"]), ("c", ["lost"])):
            queue.put(id_, key="k", due=FAR_MS, until_event=names)
    assert [it["id"] for it in json.loads(run("list", store, "--until", "paid", "--json").stdout)["messages"]] == [
        "a",
        "b",
    ]
    seen = run("event", store, "--key", "k", "paid", "--payload", '{"sum": 12}', "--remember", "1h")
    id_, _, count = seen.stdout.strip().rpartition(": let go ")
    assert (count, len(id_)) == ("2", 36), seen.output
    again = run("event", store, "--key", "k", "--id", id_, "paid", "--payload", '{"sum": 12}', "--remember", "1h")
    assert again.stdout == f"{id_}: let go 2\n"
    shown = run("show", store, "a", "--key", "k").stdout
    assert "until event:      paid" in shown
    assert '"payload":{"sum": 12}' in shown
    assert "waiting for events: 1" in run("status", store).stdout
    assert run("event", store, "--key", "k", "--id", id_, "lost").exit_code == 2
    assert run("event", store, "--key", "k", "paid", "--payload", "{").exit_code == 2
    assert run("forget-event", store, "--key", "k", "--id", id_).stdout == f"{id_}: cancelled\n"
    assert run("forget-event", store, "--key", "k", "--id", id_).exit_code == 1


@pytest.mark.parametrize("payload", ["{", '1,"remember_ms":5', ""])
def test_a_payload_that_is_no_json_is_told_before_the_server_is_asked__d22(payload: str) -> None:
    seen = run("event", "http://127.0.0.1:1", "--key", "k", "paid", "--payload", payload)
    assert seen.exit_code == 2
    assert "Invalid value for '--payload': it is no JSON: " in seen.output


def test_a_dead_letter_says_what_has_let_it_go__d22(tmp_path: Path) -> None:
    def refuse(_: Delivery) -> None:
        raise ValueError("no")

    letters: Queue[Any] = Queue()
    with DeliveryQueue(tmp_path / "s.db", refuse, max_attempts=1, on_dead_letter=letters.put) as queue:
        queue.put("a", key="k", due=FAR_MS, until_event=["paid"])
        queue.put("b", key="j", delay_ms=0, until_event=["paid"])
        queue.put("c", key="i", delay_ms=0)
        queue.event("k", "paid", id="1")
        for _ in range(3):
            letters.get(timeout=LONG_S)
    found = {json.loads(it.record)["id"]: it for it in StoreView(tmp_path / "s.db").dead().letters}
    assert [found[id_].cause for id_ in "abc"] == ["event", "deadline", None]
    assert msgspec.json.decode(found["a"].event or b"") == {"name": "paid", "id": "1", "payload": None}
    assert json.loads(found["a"].record)["until_event"] == "paid"


def test_a_record_of_kafka_has_it_in_its_headers__d10_d22(opened: Opened) -> None:
    opened.queue.put("a", key="k", due=FAR_MS, until_event=["paid"])
    opened.queue.event("k", "paid", id="1", payload=[1])
    headers = kafka._record(opened.next(), "store")["headers"]
    assert headers["tickwheel-cause"] == b"event"
    assert json.loads(headers["tickwheel-event"]) == {"name": "paid", "id": "1", "payload": [1]}
    opened.queue.put("b", key="k", delay_ms=0)
    assert "tickwheel-cause" not in kafka._record(opened.next(), "store")["headers"]
