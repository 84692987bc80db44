"""A store that outlives its machine: `--replicate-to` of the commands, and `replicate_to` of a queue (rule D21)."""

import json
import queue
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from delivery.sinks.tables import PostgresTable, SqliteTable, Table
from delivery.webhook_receiver import Receiver
from tickwheel.delivery import Delivery, DeliveryFailed, DeliveryQueue, WrongUsage

from .conftest import Server

pytestmark = pytest.mark.timeout(90)
Start = Callable[..., Server]
VARIABLE = "env:TO_REPLICATE_TO"


@pytest.fixture
def address(postgres_url: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A chain of this test alone. The variable of `VARIABLE` has it too."""
    name = f"{postgres_url}&store={abs(hash(request.node.nodeid))}"
    monkeypatch.setenv(VARIABLE.removeprefix("env:"), name)
    return name


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_an_empty_folder_elsewhere_delivers_all_that_was_accepted_on_a_disk_that_is_lost__D21(
    tmp_path: Path, start: Start, address: str
) -> None:
    here, there, out = tmp_path / "here", tmp_path / "there", tmp_path / "out"
    here.mkdir()
    there.mkdir()
    options = ("--to", f"file:{out}", "--replicate-to", VARIABLE)
    first = start(here / "s.db", *options).listening()
    messages = [{"id": f"m{n}", "key": f"k{n % 7}", "delay_ms": n % 4 * 400, "payload": n} for n in range(200)]
    answers = [first.ask("POST", "/messages", message).status for message in messages]
    assert answers == [201] * 200
    first.kill()
    shutil.rmtree(here)

    second = start(there / "s.db", *options).listening()
    again = second.ask("POST", "/messages", messages[0])
    assert again.body["state"] == "duplicate"
    assert second.kill(signal.SIGTERM) == 0
    arrived = lines(out)
    marked = {it["id"] for it in arrived if it.get("redelivered")}
    assert {it["id"] for it in arrived} == {it["id"] for it in messages}
    assert {name for name, count in Counter(it["id"] for it in arrived).items() if count > 1} <= marked


def test_a_queue_goes_on_with_what_another_one_has_left_in_the_chain__D21(tmp_path: Path, address: str) -> None:
    with DeliveryQueue(tmp_path / "one.db", to=print, replicate_to=address) as first:
        first.put("a", "kept", delay_ms=60_000)
    arrived: queue.SimpleQueue[Delivery] = queue.SimpleQueue()
    with DeliveryQueue(tmp_path / "two.db", to=arrived.put, replicate_to=address) as second:
        second.reschedule("a", delay_ms=0)
        delivery = arrived.get(timeout=20)
    assert (delivery.json(), delivery.epoch) == ("kept", 2)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("postgresql://me:not-for-eyes@db/x", "names no store"),
        ("postgresql://me:not-for-eyes@db/x?store=a%20b", "letters, digits"),
        ("postgresql://me:not-for-eyes@db:not-for-eyes/x?store=a", "can't be read"),
    ],
)
def test_a_wrong_address_is_told_without_its_password__D21(wrong: str, said: str, tmp_path: Path, start: Start) -> None:
    with pytest.raises(WrongUsage, match=said) as told:
        DeliveryQueue(tmp_path / "s.db", to=print, replicate_to=wrong)
    assert "not-for-eyes" not in str(told.value)
    code, _, err = start(tmp_path / "s.db", "--replicate-to", wrong).rest()
    assert (code, "not-for-eyes" in err, said in " ".join(err.split())) == (2, False, True)
    assert not (tmp_path / "s.db").exists()


def test_a_postgresql_that_refuses_is_told_without_the_password__D21(tmp_path: Path, address: str) -> None:
    wrong = address.replace("not-for-eyes", "quite-secret")
    with pytest.raises(DeliveryFailed, match="password authentication failed") as told:
        DeliveryQueue(tmp_path / "s.db", to=print, replicate_to=wrong)
    assert "quite-secret" not in str(told.value)


def test_the_configuration_that_is_shown_has_no_password__D21(tmp_path: Path, start: Start) -> None:
    shown = start(tmp_path / "s.db", "--replicate-to", "postgresql://me:not-for-eyes@db/x?store=a", "--show-config")
    code, out, _ = shown.rest()
    assert (code, 'replicate-to = "postgresql://...@db/x?store=a"' in out) == (0, True)


def test_a_temporary_store_is_not_replicated__D21(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from tickwheel.commands import tickwheel

    (tmp_path / "in.ndjson").touch()
    ended = CliRunner().invoke(tickwheel, ["deliver", str(tmp_path / "in.ndjson"), "--replicate-to", "env:NONE"])
    assert ended.exit_code == 2
    assert "--replicate-to needs --store FILE" in ended.output


def test_a_webhook_gets_the_store_and_the_epoch_and_others_do_not__D21(
    tmp_path: Path, address: str, receiver: Receiver
) -> None:
    for to in (None, address, address):
        with DeliveryQueue(tmp_path / f"{bool(to)}.db", to=receiver.url, replicate_to=to) as queue:
            queue.put("a" if to is None else f"b{len(receiver.requests)}", {}, delay_ms=0)
            assert queue.wait_until_empty(20)
    bodies = [json.loads(body) for _, body in receiver.requests]
    store = bodies[1]["store"]
    assert [(it.get("store"), it.get("epoch")) for it in bodies] == [(None, None), (store, 1), (store, 2)]
    headers = [(it["tickwheel-store"], it["tickwheel-epoch"]) for it, _ in receiver.requests]
    assert headers == [(None, None), (store, "1"), (store, "2")]


@pytest.fixture(params=["sqlite", "postgresql"])
def table(request: pytest.FixtureRequest, tmp_path: Path, postgres_url: str) -> Iterator[Table]:
    if request.param == "postgresql":
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            yield PostgresTable(postgres_url, connection)
        return
    sqlite = SqliteTable(tmp_path / "out.db")
    yield sqlite
    sqlite.database.close()


def test_a_table_takes_nothing_from_an_owner_after_a_newer_one_has_written__D21(
    table: Table, tmp_path: Path, address: str
) -> None:
    arrived = f"SELECT id FROM {table.name} ORDER BY id"
    with DeliveryQueue(tmp_path / "s.db", to=table.spec, replicate_to=address) as queue:
        queue.put("a", {}, delay_ms=0)
        assert queue.wait_until_empty(20)
        [(epoch,)] = table.ask(f"SELECT first_seq FROM {table.name}_ids WHERE store LIKE '% epoch'")
        assert epoch == 1
    queue = DeliveryQueue(tmp_path / "s.db", to=table.spec, replicate_to=address)
    table.ask(f"UPDATE {table.name}_ids SET first_seq = 9 WHERE store LIKE '% epoch'")
    queue.put("b", {}, delay_ms=0)
    with pytest.raises(DeliveryFailed, match="it has epoch 9, and this one 2: start again"):
        queue.wait_until_empty(20)
    with pytest.raises(DeliveryFailed):
        queue.close()
    assert table.ask(arrived) == [("a",)]
    table.ask(f"UPDATE {table.name}_ids SET first_seq = 2 WHERE store LIKE '% epoch'")
    with DeliveryQueue(tmp_path / "s.db", to=table.spec, replicate_to=address) as queue:
        assert queue.wait_until_empty(20)
    assert table.ask(arrived) == [("a",), ("b",)]
