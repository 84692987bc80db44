"""A store that outlives its machine: `--replicate-to` of the commands, and `replicate_to` of a queue (rule D21)."""

import asyncio
import json
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

from delivery.pgbouncer import pgbouncer
from delivery.postgres_server import PostgresServer
from delivery.sinks.tables import PostgresTable, SqliteTable, Table
from delivery.webhook_receiver import Receiver
from tickwheel.commands import tickwheel
from tickwheel.delivery import (
    AsyncDeliveryQueue,
    Delivery,
    DeliveryFailed,
    DeliveryQueue,
    StoreFailed,
    StoreUnavailable,
    StoreView,
    WrongUsage,
    backup_store,
    restore_store,
)
from tickwheel.delivery.engine.upkeep import leave_replication

from .conftest import Server, ask
from .test_waiting import free_port

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
    assert (delivery.json(), delivery.owner and delivery.owner[1]) == ("kept", 2)


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
        [(epoch,)] = table.ask(f"SELECT first_seq FROM {table.name}_ids WHERE store LIKE 'epoch of %'")
        assert epoch == 1
    queue = DeliveryQueue(tmp_path / "s.db", to=table.spec, replicate_to=address)
    table.ask(f"UPDATE {table.name}_ids SET first_seq = 9 WHERE store LIKE 'epoch of %'")
    queue.put("b", {}, delay_ms=0)
    with pytest.raises(DeliveryFailed, match="it has epoch 9, and this one 2: start again"):
        queue.wait_until_empty(20)
    with pytest.raises(DeliveryFailed):
        queue.close()
    assert table.ask(arrived) == [("a",)]
    table.ask(f"UPDATE {table.name}_ids SET first_seq = 2 WHERE store LIKE 'epoch of %'")
    with DeliveryQueue(tmp_path / "s.db", to=table.spec, replicate_to=address) as queue:
        assert queue.wait_until_empty(20)
    assert table.ask(arrived) == [("a",), ("b",)]


def test_a_standby_lives_is_not_ready_and_says_who_owns_the_store_until_it_takes_over__D21(
    tmp_path: Path, start: Start, address: str
) -> None:
    first = start(tmp_path / "one.db", "--replicate-to", VARIABLE).listening()
    port = free_port()
    second = start(tmp_path / "two.db", "--replicate-to", VARIABLE, "--listen", f"127.0.0.1:{port}")
    owner = f"process {first.process.pid} on {socket.gethostname()} owns the store"
    assert second.says() == f"{owner}: waiting for it to end\n"
    assert [ask(port, "GET", path)[:2] for path in ("/livez", "/healthz")] == [(200, {"status": "ok"})] * 2
    assert ask(port, "GET", "/readyz")[:2] == (503, {"status": "standby", "reason": owner})
    for method, path in (("POST", "/messages"), ("GET", "/messages"), ("GET", "/metrics"), ("GET", "/")):
        refused = ask(port, method, path, {"id": "a", "delay_ms": 0} if method == "POST" else None)
        assert (refused.status, refused.headers["retry-after"]) == (503, "3")
        assert refused.body["reason"] == f"this process is a standby: {owner}"
    first.ask("POST", "/messages", {"id": "a", "delay_ms": 60_000})
    first.kill()
    second.listening()
    assert second.port == port
    assert ask(port, "GET", "/readyz")[:2] == (200, {"status": "ok"})
    assert ask(port, "GET", "/messages/a").body["state"] == "waiting"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_a_standby_at_once__D13(
    number: int, code: int, tmp_path: Path, start: Start, address: str
) -> None:
    start(tmp_path / "one.db", "--replicate-to", VARIABLE).listening()
    second = start(tmp_path / "two.db", "--replicate-to", VARIABLE)
    assert "waiting for it to end" in second.says()
    began_s = time.monotonic()
    assert second.kill(number) == code
    assert time.monotonic() - began_s < 2
    assert "Traceback" not in second.rest()[2]


def test_a_standby_on_the_machine_of_the_owner_leaves_it_the_port__D21(
    tmp_path: Path, start: Start, address: str
) -> None:
    options = ("--replicate-to", VARIABLE, "--listen", f"127.0.0.1:{free_port()}")
    first = start(tmp_path / "one.db", *options).listening()
    second = start(tmp_path / "two.db", *options)
    assert "waiting for it to end" in second.says()
    assert first.kill(signal.SIGTERM) == 0
    assert second.listening().ask("GET", "/readyz")[:2] == (200, {"status": "ok"})


def test_a_queue_waits_for_the_owner_as_long_as_it_is_told__D21(tmp_path: Path, address: str) -> None:
    with (
        DeliveryQueue(tmp_path / "one.db", to=print, replicate_to=address),
        pytest.raises(StoreUnavailable, match=r"owns the store, and wait_s=0\.2 is over: a standby takes over"),
    ):
        DeliveryQueue(tmp_path / "two.db", to=print, replicate_to=address, wait_s=0.2)


def test_an_awaited_queue_that_waits_for_the_owner_can_be_given_up__D21(tmp_path: Path, address: str) -> None:
    async def opened() -> None:
        async with AsyncDeliveryQueue(tmp_path / "two.db", to=print, replicate_to=address):
            pass

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(opened(), 0.5)

    with DeliveryQueue(tmp_path / "one.db", to=print, replicate_to=address):
        asyncio.run(main())
    with DeliveryQueue(tmp_path / "two.db", to=print, replicate_to=address, wait_s=20):
        pass


def test_ctrl_c_ends_the_constructor_of_a_queue_that_waits_for_the_owner__D13(tmp_path: Path, address: str) -> None:
    with DeliveryQueue(tmp_path / "one.db", to=print, replicate_to=address):
        timer = threading.Timer(0.5, signal.raise_signal, [signal.SIGINT])
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            DeliveryQueue(tmp_path / "two.db", to=print, replicate_to=address)
        timer.join()


def test_deliver_says_which_process_it_waits_for__D21(tmp_path: Path, address: str) -> None:
    (tmp_path / "in.ndjson").write_text('{"id":"a","delay_ms":0}\n')
    command = [sys.executable, "-m", "tickwheel.cli", "deliver", str(tmp_path / "in.ndjson"), "--store"]
    with DeliveryQueue(tmp_path / "one.db", to=print, replicate_to=address):
        process = subprocess.Popen(
            [*command, str(tmp_path / "two.db"), "--replicate-to", VARIABLE],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stderr is not None
        owner = f"process {os.getpid()} on {socket.gethostname()} owns the store"
        assert process.stderr.readline() == f"{owner}: waiting for it to end\n"
    out, err = process.communicate(timeout=30)
    assert (json.loads(out)["epoch"], err.count("owns the store")) == (2, 0)


def test_a_replicated_file_is_written_by_nothing_else_and_read_by_all__D21(tmp_path: Path, address: str) -> None:
    file = tmp_path / "s.db"
    with DeliveryQueue(file, to=print, replicate_to=address) as queue:
        queue.put("a", {}, delay_ms=60_000)
    backup_store(file, tmp_path / "b.db")
    with pytest.raises(StoreFailed, match="it is replicated, and only a process with --replicate-to may write it"):
        DeliveryQueue(file, to=print)
    for code, said, *command in (
        (3, "give commands the address of its HTTP", "cancel", file, "--id", "a"),
        (3, "give commands the address of its HTTP", "pause", file),
        (2, "a replicated store can't be compacted", "store", "compact", file),
        (2, "is replicated: restore to a new file", "store", "restore", tmp_path / "b.db", file, "--force"),
        (0, "epoch 1, taken by process", "status", file),
        (0, "a", "list", file),
        (0, "waiting", "show", file, "a"),
    ):
        ended = CliRunner().invoke(tickwheel, [str(it) for it in command])
        assert (ended.exit_code, said in " ".join(ended.output.split())) == (code, True), ended.output
    restore_store(tmp_path / "b.db", tmp_path / "alone.db")
    with DeliveryQueue(tmp_path / "alone.db", to=print) as queue:
        assert queue.state("a") == "waiting"
        assert queue.view.status().replication is None


def test_the_owner_says_how_far_postgresql_is_behind__D21(tmp_path: Path, start: Start, address: str) -> None:
    server = start(tmp_path / "s.db", "--replicate-to", VARIABLE).listening()
    found = server.ask("GET", "/status").body["replication"]
    owner = f"process {server.process.pid} on {socket.gethostname()}"
    assert (found["role"], found["epoch"], found["owner"], found["trouble"]) == ("owner", 1, owner, None)
    assert found["lag_rows"] in (0, 1)
    assert "tickwheel_replication_epoch 1.0" in server.ask("GET", "/metrics").body
    shown = CliRunner().invoke(tickwheel, ["status", f"http://127.0.0.1:{server.port}"]).output
    assert f"replication:      epoch 1, taken by {owner}; owner; 0.0 s behind: 0 groups, 0 bytes; no base" in shown


def test_an_owner_whose_postgresql_is_away_is_not_ready_and_its_log_says_why__D21(
    tmp_path: Path, start: Start, address: str, postgres_server: PostgresServer
) -> None:
    server = start(tmp_path / "s.db", "--replicate-to", VARIABLE).listening()
    assert server.ask("GET", "/readyz")[:2] == (200, {"status": "ok"})
    postgres_server.stop()
    try:
        while server.ask("GET", "/readyz")[:2] != (503, {"status": "store"}):
            time.sleep(0.05)
        while "nothing could be written for two seconds" not in (line := server.says()):
            assert line
    finally:
        postgres_server.start()
    while server.ask("GET", "/readyz")[:2] != (200, {"status": "ok"}):
        time.sleep(0.05)
    assert server.ask("POST", "/messages", {"id": "a", "delay_ms": 60_000}).status == 201


def test_a_store_moves_into_replication_and_out_of_it__D21(tmp_path: Path, address: str, table: Table) -> None:
    file, copy = tmp_path / "s.db", tmp_path / "copy.db"
    with DeliveryQueue(file, to=table.spec) as queue:
        queue.put("alone", {}, delay_ms=60_000)
    with DeliveryQueue(file, to=table.spec, replicate_to=address) as queue:
        queue.put("replicated", {}, delay_ms=60_000)
        queue.put("a", {}, delay_ms=0)
        with pytest.raises(WrongUsage, match="works with"):
            leave_replication(file, address)
    restored = CliRunner().invoke(tickwheel, ["store", "restore", VARIABLE, str(copy)])
    assert (restored.exit_code, "copy.db: restored" in restored.output) == (0, True), restored.output
    assert {it.id for it in StoreView(copy).list().messages} == {"alone", "replicated"}
    left = CliRunner().invoke(tickwheel, ["store", "leave", str(copy), "--replicate-to", VARIABLE])
    assert (left.exit_code, "not replicated any more" in left.output) == (0, True), left.output
    with pytest.raises(StoreFailed):
        DeliveryQueue(file, to=table.spec, replicate_to=address)
    with DeliveryQueue(copy, to=table.spec, replicate_to=f"{address}-again") as queue:
        queue.put("b", {}, delay_ms=0)
        queue.reschedule("alone", delay_ms=0)
        queue.reschedule("replicated", delay_ms=0)
        assert queue.wait_until_empty(20)
    assert {id_ for (id_,) in table.ask(f"SELECT id FROM {table.name}")} == {"a", "alone", "b", "replicated"}


def test_a_user_without_rights_is_told_and_the_script_makes_the_tables__D21(postgres_url: str, tmp_path: Path) -> None:
    printed = CliRunner().invoke(tickwheel, ["store", "replication-script"])
    assert printed.exit_code == 0
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE without_rights")
        connection.execute("CREATE ROLE weak LOGIN PASSWORD 'not-for-eyes'")
    here = postgres_url.replace("/postgres?", "/without_rights?")
    weak = f"{here.replace('tick:', 'weak:')}&store=s"
    with pytest.raises(DeliveryFailed, match="permission denied"):
        DeliveryQueue(tmp_path / "s.db", to=print, replicate_to=weak)
    with psycopg.connect(here, autocommit=True) as connection:
        connection.execute(printed.output.encode())
        connection.execute("GRANT USAGE ON SCHEMA tickwheel TO weak")
        connection.execute("GRANT SELECT, INSERT, DELETE ON ALL TABLES IN SCHEMA tickwheel TO weak")
    with DeliveryQueue(tmp_path / "s.db", to=print, replicate_to=weak) as queue:
        assert queue.put("a", {}, delay_ms=60_000) == "accepted"


def test_a_pooler_may_be_between_in_transaction_mode__D21(tmp_path: Path, postgres_server: PostgresServer) -> None:
    with pgbouncer(postgres_server, "transaction") as url:
        address = f"{url}&store=through-a-pooler"
        with DeliveryQueue(tmp_path / "one.db", to=print, replicate_to=address) as first:
            assert {first.put(f"m{n}", {}, delay_ms=60_000) for n in range(100)} == {"accepted"}
        with DeliveryQueue(tmp_path / "two.db", to=print, replicate_to=address) as second:
            assert second.put("m7", {}, delay_ms=60_000) == "duplicate"
            assert second.view.status().waiting == 100
