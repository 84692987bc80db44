"""What one tenant may do, as an item of the engine and in a snapshot of the store (rule D24)."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tickwheel._native import StoreSnapshot
from tickwheel.delivery import Answer, DeliveryQueue, WrongUsage
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
    assert set_tenants(tmp_path / "s.db") == [("acme", '{"weight":3,"paused":true}'), ("zenith", '{"paused":false}')]
    assert ask(queue, RemoveTenant("acme")) is Answer.REMOVED
    assert ask(queue, RemoveTenant("acme")) is Answer.UNKNOWN
    assert queue._running.engine.tenant_figures(10) == []


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
