"""What each tenant may do, over HTTP (D24): its settings, pauses and figures, and the tokens that may change them."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tickwheel.delivery.serve import metrics
from tickwheel.delivery.serve.tokens import ALL, Grant, Right, Tokens

from .conftest import Served
from .test_metrics import scrape

pytestmark = pytest.mark.timeout(60)
FAR_MS = 4_000_000_000_000


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Served]:
    with closing(Served(tmp_path)) as served:
        yield served


def put(served: Served, tenant: str, number: int) -> None:
    for n in range(number):
        record = {"id": f"{tenant} {n}", "delay_ms": 0, "tenant": tenant}
        assert served.ask("POST", "/messages", record).status == 201


def test_the_list_has_those_that_were_set_and_the_busiest_of_all__D14_D24(own: Served) -> None:
    assert own.ask("PUT", "/tenants/acme", {"weight": 2, "paused": True}).body == {"name": "acme", "state": "accepted"}
    assert own.ask("PUT", "/tenants/calm", {"rate": "10/s"}).status == 201
    assert own.ask("POST", "/pause").status == 200
    put(own, "acme", 1)
    put(own, "busy", 2)
    while (page := own.ask("GET", "/tenants").body) and [it["overdue"] for it in page["busiest"]] != [2, 1]:
        pass
    assert page["next"] is None
    assert [(it["name"], it["paused"], it["waiting"]) for it in page["busiest"]] == [
        ("busy", False, 2),
        ("acme", True, 1),
    ]
    assert [(it["name"], it["paused"], it["settings"], it["waiting"]) for it in page["tenants"]] == [
        ("acme", True, {"weight": 2}, 1),
        ("calm", False, {"rate": "10/s"}, 0),
    ]
    first = own.ask("GET", "/tenants?limit=1").body
    assert ([it["name"] for it in first["tenants"]], first["next"]) == (["acme"], "calm")
    assert own.ask("GET", "/tenants?cursor=calm").body["tenants"] == page["tenants"][1:]
    assert own.ask("GET", "/tenants/acme").body == page["tenants"][0]
    assert own.ask("GET", "/tenants/busy").body == {"name": "busy", "state": "unknown"}, "it was not set"
    assert own.ask("PUT", "/tenants/acme", page["tenants"][0]["settings"]).status == 200, "the pause stays"
    assert own.ask("GET", "/tenants/acme").body == page["tenants"][0]


def test_its_messages_wait_while_it_is_paused__D16_D24(own: Served) -> None:
    told = own.ask("POST", "/pause?tenant=acme")
    assert (told.status, told.body) == (200, {"tenant": "acme", "state": "paused"})
    put(own, "acme", 1)
    put(own, "other", 1)
    assert own.arrived.get(timeout=10).message.tenant == "other"
    assert own.ask("POST", "/resume?tenant=acme").body == {"tenant": "acme", "state": "resumed"}
    assert own.arrived.get(timeout=10).message.tenant == "acme"
    both = own.ask("POST", "/pause?tenant=acme&key=k")
    assert (both.status, both.body["reason"]) == (400, "the address names a tenant and a key")


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"weight": 101}, "weight is 101"), ({"rate": "5"}, "write it as 100/s"), ({"url": "http://a/"}, "url")],
)
def test_a_setting_that_is_not_allowed_is_told__D24(own: Served, settings: dict[str, object], said: str) -> None:
    refused = own.ask("PUT", "/tenants/acme", settings)
    assert (refused.status, said in refused.body["reason"]) == (422, True), refused.body
    assert own.ask("GET", "/tenants").body["tenants"] == []


def test_control_sets_and_read_reads_and_a_limited_token_its_own__D12_D24(tmp_path: Path) -> None:
    grants = {bytes([65 + n]) * 32: Grant(right) for n, right in enumerate(Right)}
    limited, elsewhere = b"t" * 32, b"d" * 32
    grants[limited] = Grant(ALL, {"tenant": frozenset({"acme"})})
    grants[elsewhere] = Grant(ALL, {"destination": frozenset({"acme"})})
    with closing(Served(tmp_path, tokens=Tokens(grants))) as served:

        def statuses(token: bytes, name: str = "acme") -> list[int]:
            asked = [
                ("PUT", f"/tenants/{name}", {}),
                ("GET", f"/tenants/{name}", None),
                ("POST", f"/pause?tenant={name}", None),
                ("POST", f"/resume?tenant={name}", None),
                ("DELETE", f"/tenants/{name}", None),
                ("GET", "/tenants", None),
            ]
            headers = {"authorization": f"Bearer {token.decode()}"}
            return [served.ask(*each, headers=headers).status for each in asked]

        for n, right in enumerate(Right):
            own = {Right.CONTROL: [201, 403, 200, 200, 200, 403], Right.READ: [403, 404, 403, 403, 403, 200]}
            assert statuses(bytes([65 + n]) * 32) == own.get(right, [403] * 6), right
        assert statuses(limited) == [201, 200, 200, 200, 200, 403]
        assert statuses(limited, "other") == [403] * 6
        assert statuses(elsewhere) == [403] * 6


def test_the_first_tenants_have_time_series_and_the_others_one__D15_D24(
    own: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "NAMED", 2)

    def told() -> dict[str, tuple[float, float]]:
        found, start = scrape(own), "tickwheel_tenant_waiting_messages tenant="
        names = [name.removeprefix(start) for name in found if name.startswith(start)]
        return {
            name: (found[start + name], found[f"tickwheel_tenant_overdue_messages tenant={name}"]) for name in names
        }

    assert told() == {}
    assert own.ask("POST", "/pause").status == 200
    put(own, "a", 1)
    while own.running.engine.tenant_figures(9, [])[0] == []:
        pass
    assert told() == {"a": (1, 1)}
    put(own, "b", 2)
    put(own, "c", 4)
    put(own, "d", 3)
    while sum(it["waiting"] for it in own.running.engine.tenant_figures(9, [])[0]) < 10:
        pass
    assert told() == {"a": (1, 1), "c": (4, 4), "other": (5, 5)}, "the busiest gets the place that is left"
    assert own.ask("POST", "/resume").status == 200
    assert own.running.wait(10)
    assert told() == {"a": (0, 0), "c": (0, 0), "other": (0, 0)}
    found, [first] = scrape(own), own.running.engine.tenant_figures(1, ["a"])[0]
    assert [value for name, value in found.items() if name.startswith("tickwheel_tenant_delivered")] == [1, 4, 5]
    counts = {
        name: found[f"tickwheel_tenant_{name} tenant=a"] for name in ("late_messages_total", "failed_attempts_total")
    }
    assert [*counts.values()] == [first["late"], first["failed_attempts"]]
    lateness_s = found["tickwheel_tenant_lateness_seconds_total tenant=a"]
    assert lateness_s == pytest.approx(first["lateness_us"] / 1e6)
    assert own.ask("POST", "/pause").status == 200
    put(own, "e", 1)
    while own.running.engine.tenant_figures(9, [])[0] == []:
        pass
    assert told() == {"a": (0, 0), "c": (0, 0), "other": (1, 1)}, "no place gets free"
