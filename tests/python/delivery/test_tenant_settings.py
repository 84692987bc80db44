"""What one tenant may do, as an item of the engine and in a snapshot of the store (rule D24)."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tickwheel._native import StoreSnapshot
from tickwheel.delivery import Answer, AsyncDeliveryQueue, BadRecord, DeliveryQueue, StoreView, WrongUsage
from tickwheel.delivery.model.entries import Pause, RemoveTenant, SetTenant

Item = Pause | RemoveTenant | SetTenant


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[DeliveryQueue]:
    with closing(DeliveryQueue(tmp_path / "s.db", to=lambda _: None)) as queue:
        yield queue


def ask(queue: DeliveryQueue, item: Item) -> object:
    [receipt] = queue._running.engine.submit([item], format="item")
    [answer] = receipt.answers()
    return answer


def set_tenants(path: Path) -> list[tuple[str, str]]:
    with StoreSnapshot(path) as db:
        return db.tenants("", 10)


def test_a_tenant_is_set_paused_and_removed(queue: DeliveryQueue, tmp_path: Path) -> None:
    assert ask(queue, SetTenant("acme", '{"weight": 2, "rate": "5/s"}')) is Answer.ACCEPTED
    assert ask(queue, SetTenant("acme", '{"weight": 3}')) is Answer.REPLACED
    assert ask(queue, Pause(True, tenant="acme")) is Answer.PAUSED
    assert ask(queue, Pause(True, tenant="zenith")) is Answer.PAUSED
    assert ask(queue, Pause(False, tenant="zenith")) is Answer.RESUMED
    assert set_tenants(tmp_path / "s.db") == [
        ("acme", '{"weight":3,"paused":true,"paused_until_ms":null}'),
        ("zenith", '{"paused":false,"paused_until_ms":null}'),
    ]
    assert ask(queue, RemoveTenant("acme")) is Answer.REMOVED
    assert ask(queue, RemoveTenant("acme")) is Answer.UNKNOWN
    assert queue._running.engine.tenant_figures(10, [])[0] == []


@pytest.mark.parametrize(
    ("settings", "said"),
    [('{"weight": 0}', "weight is 0"), ('{"rate": "5"}', "write it as 100/s"), ('{"url": ""}', "can't be read")],
)
def test_a_setting_that_is_not_allowed_is_refused_with_a_sentence(
    queue: DeliveryQueue, settings: str, said: str
) -> None:
    with pytest.raises(WrongUsage, match=said):
        ask(queue, SetTenant("acme", settings))


def test_one_thing_at_a_time_is_paused() -> None:
    with pytest.raises(WrongUsage, match="a key, a destination, or a tenant"):
        Pause(True, "k", tenant="acme")


def told(queue: DeliveryQueue) -> dict[str, tuple[Mapping[str, Any], bool]]:
    return {it.name: (it.settings, it.paused) for it in queue.view.tenants().tenants}


def test_a_program_sets_pauses_lists_and_removes_tenants__D11_D24(queue: DeliveryQueue, tmp_path: Path) -> None:
    assert queue.set_tenant("acme", concurrency=2, rate="10/s", weight=3) is Answer.ACCEPTED
    assert queue.set_tenant("acme", weight=5, paused=True) is Answer.REPLACED
    assert queue.set_tenant("acme", weight=4) is Answer.REPLACED, "the pause stays, and the rest is as usual"
    queue.pause(tenant="zenith")
    assert told(queue) == {"acme": ({"weight": 4}, True), "zenith": ({}, True)}
    queue.resume(tenant="acme")
    queue.resume(tenant="nobody")
    assert told(queue) == {"acme": ({"weight": 4}, False), "zenith": ({}, True)}
    assert (queue.remove_tenant("acme"), queue.remove_tenant("acme")) == (Answer.REMOVED, Answer.UNKNOWN)
    assert list(told(queue)) == ["zenith"]
    with pytest.raises(WrongUsage, match="weight is 0"):
        queue.set_tenant("acme", weight=0)
    with pytest.raises(BadRecord, match="is no name of a tenant"):
        queue.set_tenant("a b")
    with pytest.raises(WrongUsage, match="a key, a destination, or a tenant"):
        queue.pause("k", tenant="acme")
    [seen] = StoreView(tmp_path / "s.db").tenants().tenants
    assert (seen.paused, seen.settings, seen.waiting) == (True, {}, None), "only the engine knows what waits"


def test_all_of_many_tenants_are_listed__D24(queue: DeliveryQueue) -> None:
    names = [f"t{number:04}" for number in range(1_003)]
    queue._running.engine.submit([SetTenant(name, "{}") for name in names], format="item")
    first = queue.view.tenants(limit=1_000)
    last = queue.view.tenants(limit=1_000, cursor=first.next)
    assert [it.name for it in (*first.tenants, *last.tenants)] == names


def test_messages_of_a_paused_tenant_wait_and_are_told__D14_D24(tmp_path: Path) -> None:
    arrived = []
    with DeliveryQueue(tmp_path / "p.db", to=lambda it: arrived.append(it.message.tenant)) as queue:
        queue.set_tenant("acme", paused=True)
        queue.put_many([{"id": f"{name} {n}", "delay_ms": 0, "tenant": name} for name in ("acme", "b") for n in (1, 2)])
        page = queue.view.tenants()
        while [(it.delivered, it.overdue) for it in page.busiest] != [(0, 2), (2, 0)]:
            page = queue.view.tenants()
        assert arrived == ["b", "b"]
        busiest, b = page.busiest
        assert (b.name, b.waiting, b.late, b.failed_attempts) == ("b", 0, 0, 0)
        assert 0 <= (b.lateness_ms or 0) < 1_000
        assert (busiest.lateness_ms, busiest.late) == (None, 0)
        assert (busiest.name, busiest.paused, busiest.waiting, busiest.failing, busiest.out) == ("acme", True, 2, 0, 0)
        found = queue.view.tenant("acme")
        assert found is not None
        assert (found.waiting, found.first_due, found.settings) == (2, busiest.first_due, {})
        assert queue.view.tenant("acm") is None, "another name begins so"
        queue.resume(tenant="acme")
        assert queue.wait_until_empty(10)
        found = queue.view.tenant("acme")
        assert found is not None
        assert (found.waiting, found.out, found.first_due) == (0, 0, None)


def test_with_one_order_of_all_no_tenant_is_set__D24(tmp_path: Path) -> None:
    with DeliveryQueue(tmp_path / "g.db", to=lambda _: None, order="global") as queue:
        for asked in (lambda: queue.set_tenant("acme"), lambda: queue.pause(tenant="acme")):
            with pytest.raises(WrongUsage, match="one order, so all tenants are one"):
                asked()


def test_a_loop_sets_and_pauses_tenants_too__D11_D24(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncDeliveryQueue(tmp_path / "a.db", to=lambda _: None) as queue:
            assert await queue.set_tenant("acme", rate="1/s") is Answer.ACCEPTED
            await queue.pause(tenant="acme")
            found = await queue.view.tenant("acme")
            assert found is not None
            assert found.settings == {"rate": "1/s"}
            assert (found.paused, [*(await queue.view.tenants()).tenants]) == (True, [found])
            await queue.resume(tenant="acme")
            assert await queue.remove_tenant("acme") is Answer.REMOVED

    asyncio.run(main())
