"""Whose message it is (D24): every way in, what comes out, and the limits of each tenant."""

import asyncio
import json
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from tickwheel.commands import tickwheel
from tickwheel.delivery import (
    Answer,
    AsyncDeliveryQueue,
    BadRecord,
    Delivery,
    DeliveryQueue,
    Letter,
    Message,
    StoreView,
    WrongUsage,
)
from tickwheel.delivery.outbox import create_table, enqueue

pytestmark = pytest.mark.timeout(60)
FAR_MS = 4_000_000_000_000
FIELDS: dict[str, Any] = {"id": "a", "due": FAR_MS, "payload": 1, "tenant": "acme"}


def run(*args: object) -> Result:
    return CliRunner().invoke(tickwheel, [*map(str, args)])


def test_every_way_into_a_queue_takes_it__D1_D24(tmp_path: Path) -> None:
    with DeliveryQueue(tmp_path / "s.db", to=print) as queue:
        assert queue.put("a", 1, due=FAR_MS, tenant="acme") is Answer.ACCEPTED
        assert queue.view.list().messages[0].tenant == "acme"
        assert queue.put_many([FIELDS, Message("a", None, FAR_MS, b"", tenant="acme")]) == ["duplicate", "conflict"]
        assert queue.submit_ndjson(json.dumps(FIELDS).encode()).result() == [Answer.DUPLICATE]
        assert queue.put_many([FIELDS | {"tenant": it} for it in ("other", None)]) == [Answer.CONFLICT] * 2
        with pytest.raises(BadRecord, match="'a b' is no name of a tenant") as refused:
            queue.put("b", due=FAR_MS, tenant="a b")
        assert refused.value.allowed.startswith("1 to 100 of A-Z, a-z, 0-9")
        with pytest.raises(BadRecord, match="tenant is not text"):
            queue.put("b", due=FAR_MS, tenant=5)  # type: ignore[arg-type]
        with pytest.raises(BadRecord, match="tenant is 5"):
            queue.put_many([Message("b", None, FAR_MS, b"", tenant=5)])  # type: ignore[arg-type]
        assert queue.put("a", 1, due=FAR_MS, tenant="other", replace=True) is Answer.REPLACED
        assert queue.view.list().messages[0].tenant == "other"


def test_a_function_is_told_it_and_so_is_an_async_one__D11_D24(tmp_path: Path) -> None:
    came: list[str | None] = []

    async def later(delivery: Delivery) -> None:
        came.append(delivery.message.tenant)

    async def main() -> None:
        async with AsyncDeliveryQueue(tmp_path / "async.db", to=later) as queue:
            await queue.put("a", tenant="acme", delay_ms=0)
            await queue.put_many([{"id": "b", "delay_ms": 0}])
            while len(came) < 2:
                await asyncio.sleep(0.001)

    asyncio.run(main())
    with DeliveryQueue(tmp_path / "s.db", to=lambda it: came.append(it.message.tenant)) as queue:
        queue.put("a", tenant="zenith", delay_ms=0)
        assert queue.wait_until_empty(10)
    assert sorted(came, key=str) == [None, "acme", "zenith"]


def test_it_recurs_and_expires_with_its_tenant__D17_D19_D24(tmp_path: Path) -> None:
    letters: list[Letter] = []
    with DeliveryQueue(tmp_path / "s.db", to=print, on_dead_letter=letters.append) as queue:
        queue.put("rule", every=60_000, due=FAR_MS, tenant="acme")
        [recurring] = queue.view.list("recurring", tenant="acme").messages
        assert recurring.tenant == "acme"
        occurrence = queue.view.show(queue.view.show("rule").next_id)  # type: ignore[union-attr, arg-type]
        assert occurrence is not None
        assert occurrence.tenant == "acme"
        queue.put("late", due=1_000_000_000_000, expires=1_000_000_000_001, tenant="acme")
        while queue.state("late") is not Answer.EXPIRED:
            pass
        [kept] = queue.view.dead(tenant="acme").letters
    assert [json.loads(it)["tenant"] for it in (letters[0].record, kept.record)] == ["acme"] * 2


@pytest.mark.parametrize("form", ["ndjson", "csv", "parquet"])
@pytest.mark.parametrize("name", ["tenant", "customer"])
def test_deliver_reads_it_by_its_name_and_writes_it_out__D1_D24(tmp_path: Path, form: str, name: str) -> None:
    given = tmp_path / f"in.{form}"
    rows = [{"id": str(n), "due": 1_000_000_000_000, "payload": 1, name: tenant} for n, tenant in enumerate("tu")]
    if form == "csv":
        given.write_text("\n".join([",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]) + "\n")
    elif form == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), given)
    else:
        given.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = () if name == "tenant" else ("--tenant", name)
    out = tmp_path / "out.ndjson"
    done = run("deliver", given, "--store", tmp_path / "s.db", "--to", f"file:{out}", *options)
    assert done.exit_code == 0, done.output
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(it["id"], it["tenant"]) for it in lines] == [("0", "t"), ("1", "u")]


def test_an_outbox_keeps_it__D11_D24(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "app.db")
    create_table(connection)
    given = [FIELDS, Message("b", None, FAR_MS, b"1", tenant="zenith")]
    for each in given:
        enqueue(connection, each)
    connection.commit()
    with DeliveryQueue(tmp_path / "s.db", to=print, outbox=f"sqlite:{tmp_path}/app.db") as queue:
        while len(queue) < 2:
            time.sleep(0.001)
        assert [it.tenant for it in queue.view.list().messages] == ["acme", "zenith"]
    connection.close()


def test_no_more_than_its_limit_are_out_of_each__D24(tmp_path: Path) -> None:
    out: dict[str | None, int] = {}
    most: dict[str | None, int] = {}
    lock, go_on = threading.Lock(), threading.Event()

    def send(delivery: Delivery) -> None:
        tenant = delivery.message.tenant
        with lock:
            out[tenant] = out.get(tenant, 0) + 1
            most[tenant] = max(most.get(tenant, 0), out[tenant])
            if out == {"t": 2, "u": 2, None: 4}:
                go_on.set()
        assert go_on.wait(20)
        with lock:
            out[tenant] -= 1

    with DeliveryQueue(tmp_path / "s.db", to=send, concurrency=8, tenant_concurrency=2) as queue:
        queue.put_many({"id": f"{it} {n}", "delay_ms": 0, "tenant": it} for it in ("t", "u", None) for n in range(20))
        assert queue.wait_until_empty(40)
    assert go_on.is_set()
    assert (most["t"], most["u"]) == (2, 2)


def test_a_rate_is_of_each__D18_D24(tmp_path: Path) -> None:
    came: list[tuple[str | None, float]] = []
    began_s = time.monotonic()
    with DeliveryQueue(
        tmp_path / "s.db", to=lambda it: came.append((it.message.tenant, time.monotonic())), tenant_rate="10/s"
    ) as queue:
        queue.put_many({"id": f"{it} {n}", "delay_ms": 0, "tenant": it} for it in ("t", "u") for n in range(6))
        queue.put_many([(f"free {n}", 1_000_000_000_000, 1) for n in range(50)])
        assert queue.wait_until_empty(40)
    last_s = {tenant: at_s - began_s for tenant, at_s in came}
    assert last_s["t"] >= 0.45
    assert last_s["u"] >= 0.45
    assert last_s[None] < last_s["t"]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"tenant_concurrency": 0}, "tenant-concurrency is 0: it may be 1 to 1,000,000"),
        ({"tenant_concurrency": 1.5}, "tenant-concurrency is 1.5: it may be a whole number, 1 to 1,000,000"),
        ({"tenant_rate": "fast"}, "tenant-rate: the rate 'fast' is none: write it as 100/s"),
        ({"tenant_rate": "2000000/s"}, "tenant-rate: rate is '2000000/s': it may be one a day to 1,000,000 a second"),
    ],
)
def test_a_limit_that_can_not_be_is_refused__D24(tmp_path: Path, given: dict[str, Any], why: str) -> None:
    with pytest.raises(WrongUsage) as refused:
        DeliveryQueue(tmp_path / "s.db", to=print, **given)
    assert str(refused.value).startswith(why)


def test_the_commands_take_the_limits__D24(tmp_path: Path) -> None:
    given, out = tmp_path / "in.ndjson", tmp_path / "out.ndjson"
    given.write_text("".join(json.dumps({"id": str(n), "delay_ms": 0, "tenant": "t"}) + "\n" for n in range(6)))
    began_s = time.monotonic()
    deliver = ("deliver", given, "--store", tmp_path / "s.db", "--to", f"file:{out}")
    done = run(*deliver, "--tenant-concurrency", 1, "--tenant-rate", "10/s")
    assert (done.exit_code, out.read_text().count('"tenant":"t"')) == (0, 6), done.output
    assert time.monotonic() - began_s >= 0.45
    for option, value, why in (
        ("--tenant-concurrency", "0", "tenant-concurrency is 0: it may be 1 to 1,000,000"),
        ("--tenant-rate", "x", "the rate 'x' is none: write it as 100/s"),
    ):
        refused = run(*deliver, option, value)
        assert (refused.exit_code, why in refused.output) == (2, True), refused.output


def test_of_one_order_for_all_a_tenant_is_not_kept__D4_D24(tmp_path: Path) -> None:
    with DeliveryQueue(tmp_path / "s.db", to=print, order="global") as queue:
        queue.put("a", due=FAR_MS, tenant="acme")
        assert StoreView(tmp_path / "s.db").list().messages[0].tenant is None
