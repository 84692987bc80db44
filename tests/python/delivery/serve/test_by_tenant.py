"""Messages are listed, cancelled and requeued by their tenant, at one destination or at all (D14, D16, D24)."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tickwheel._native import Destination
from tickwheel.commands import tickwheel
from tickwheel.delivery import DeliveryQueue, StoreView, WrongUsage

from .conftest import Served
from .test_seen_destinations import FAR_MS, set_destination

pytestmark = pytest.mark.timeout(60)
NOWHERE = "http://127.0.0.1:1/"


def run(*args: str) -> Result:
    return CliRunner().invoke(tickwheel, args)


def put(served: Served, due_ms: int = FAR_MS) -> None:
    for tenant, to in (("t", "a"), ("u", "a"), ("t", "b"), (None, "b")):
        record = {"id": f"{tenant} to {to}", "due": due_ms, "payload": 1, "destination": to, "tenant": tenant}
        assert served.ask("POST", "/messages", record).status == 201


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """Two destinations that are paused, with messages of two tenants and of none."""
    with closing(Served(tmp_path, to=Destination.named(), max_attempts=1)) as served:
        for name in ("a", "b"):
            set_destination(served, name, NOWHERE, paused=True)
        put(served)
        yield served


def test_a_page_has_those_of_one__D14_D24(served: Served) -> None:
    def ids(query: str) -> list[str]:
        return [it["id"] for it in served.ask("GET", f"/messages?{query}").body["messages"]]

    assert ids("tenant=t") == ["t to a", "t to b"]
    assert ids("tenant=t&destination=b") == ["t to b"]
    assert (ids("tenant=nobody"), ids("tenant=t&state=dead")) == ([], [])
    assert served.ask("GET", "/message?id=u%20to%20a").body["tenant"] == "u"
    for query in ("/messages?tenant=a%20b", "/dead?tenant="):
        refused = served.ask("GET", query)
        assert (refused.status, "is no name of a tenant" in refused.body["reason"]) == (400, True)
    forgotten = served.ask("GET", "/messages?tenant=t&state=cancelled")
    assert forgotten.status == 400
    assert forgotten.body["reason"].startswith("cancelled messages can't be listed by tenant, which is forgotten")


def test_an_action_is_on_those_of_one__D16_D24(served: Served) -> None:
    assert "cancelled 1;" in run("cancel", served.url, "--tenant", "t", "--destination", "b").output
    assert "cancelled 0;" in run("cancel", served.url, "--tenant", "nobody").output
    assert "'a b' is no name of a tenant" in run("cancel", served.url, "--tenant", "a b").output
    assert "cancelled 1;" in run("cancel", served.url, "--tenant", "t").output
    listed = run("list", served.url).output.splitlines()
    assert listed[0].split() == ["due", "id", "destination", "tenant"]
    assert len(listed) == 3
    [_, nobodys, first] = served.ask("GET", "/actions").body["actions"][:3]
    assert (first["tenant"], first["destination"], first["changed"], nobodys["tenant"]) == ("t", "b", 1, "nobody")


def test_a_file_takes_the_same_filters__D14_D16_D24(served: Served, tmp_path: Path) -> None:
    served.close()
    store = str(tmp_path / "store.db")
    assert len(json.loads(run("list", store, "--tenant", "t", "--json").output)["messages"]) == 2
    assert "cancelled 1;" in run("cancel", store, "--tenant", "u").output
    assert len(StoreView(store).list(tenant="t", destination="a").messages) == 1


def test_dead_letters_of_one_are_listed_and_tried_anew__D14_D16_D24(tmp_path: Path) -> None:
    with closing(Served(tmp_path, to=Destination.named(), max_attempts=1)) as served:
        for name in ("a", "b"):
            set_destination(served, name, NOWHERE, body={"k": "{{key}}"})  # a message without a key is refused
        put(served, 1_000_000_000_000)
        assert served.running.wait(30)

        def letters(query: str) -> list[tuple[str, str]]:
            found = served.ask("GET", f"/dead?{query}").body["letters"]
            return sorted((it["tenant"], it["destination"]) for it in found)

        assert letters("tenant=t") == [("t", "a"), ("t", "b")]
        assert letters("tenant=t&destination=b") == [("t", "b")]
        assert letters("tenant=nobody") == []
        page = served.ask("GET", "/messages?state=dead&tenant=u").body["messages"]
        assert [(it["tenant"], it["last_error"] is None) for it in page] == [("u", False)]
        assert run("dead", served.url, "--tenant", "t").output.count(" t ") == 2
        set_destination(served, "b", NOWHERE, paused=True)
        assert "requeued 1" in run("requeue", served.url, "--tenant", "t", "--destination", "b").output
        [again] = served.ask("GET", "/messages?tenant=t").body["messages"]
        assert (again["id"], again["tenant"], again["redelivered"]) == ("t to b", "t", True)


def test_a_program_names_one__D16_D24(tmp_path: Path) -> None:
    with DeliveryQueue(tmp_path / "s.db", to=print) as queue:
        queue.put_many([{"id": f"{tenant} {n}", "due": FAR_MS, "tenant": tenant} for tenant in "tu" for n in range(3)])
        done = queue.cancel_many(tenant="t")
        while (action := queue.action(done)) is None or action.ended is None:
            pass
        assert (action.tenant, action.changed) == ("t", 3)
        assert {it.tenant for it in queue.view.list().messages} == {"u"}
        assert queue.view.dead(tenant="t").letters == []
        with pytest.raises(WrongUsage, match=r"say which messages, by .*tenant"):
            queue.cancel_many()
