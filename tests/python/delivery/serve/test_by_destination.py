"""Messages are listed, cancelled and requeued by their destination (D14, D16, D23)."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tickwheel._native import Destination
from tickwheel.commands import tickwheel
from tickwheel.delivery import DeliveryQueue
from tickwheel.delivery.base.errors import BadRecord, WrongUsage

from .conftest import Served
from .test_seen_destinations import FAR_MS, put, set_destination

pytestmark = pytest.mark.timeout(60)
NOWHERE = "http://127.0.0.1:1/"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """Two that are paused, with two messages and one."""
    with closing(Served(tmp_path, to=Destination.named(), max_attempts=1)) as served:
        for name, count in {"a": 2, "b": 1}.items():
            set_destination(served, name, NOWHERE, paused=True)
            put(served, name, count, FAR_MS)
        yield served


def run(*args: str) -> Result:
    return CliRunner().invoke(tickwheel, args)


def test_a_page_has_those_of_one__D14_D23(served: Served) -> None:
    def ids(query: str) -> list[str]:
        page = served.ask("GET", f"/messages?{query}").body
        assert {it["destination"] for it in page["messages"]} <= {"a", "b"}
        return [it["id"] for it in page["messages"]]

    assert ids("destination=a") == [f"a {FAR_MS} 0", f"a {FAR_MS} 1"]
    assert (len(ids("destination=b")), len(ids("")), ids("destination=b&state=dead")) == (1, 3, [])
    assert served.ask("GET", f"/message?id=b%20{FAR_MS}%200").body["destination"] == "b"
    refused = served.ask("GET", "/messages?destination=nobody")
    assert (refused.status, refused.body["reason"]) == (400, "there is no destination 'nobody': name one that is set")
    assert served.ask("GET", "/dead?destination=nobody").status == 400
    forgotten = served.ask("GET", "/messages?destination=a&state=delivered")
    assert (forgotten.status, "is forgotten with the outcome" in forgotten.body["reason"]) == (400, True)


def test_an_action_is_on_those_of_one__D16_D23(served: Served) -> None:
    refused = served.ask("POST", "/actions", {"kind": "cancel", "destination": "nobody"})
    assert (refused.status, refused.body["reason"]) == (422, "there is no destination 'nobody'")
    done = run("cancel", served.url, "--destination", "a")
    assert "cancelled 2" in done.output, done.output
    listed = run("list", served.url, "--destination", "b").output.splitlines()
    assert listed[0].split() == ["due", "id", "destination"]
    assert len(listed) == 2
    assert run("list", served.url, "--destination", "a", "--json").output.count('"id"') == 0
    refused_command = run("requeue", served.url, "--destination", "nobody")
    assert (refused_command.exit_code, "there is no destination 'nobody'" in refused_command.output) == (2, True)


def test_a_file_takes_the_same_filters__D14_D16_D23(served: Served, tmp_path: Path) -> None:
    served.close()
    store = str(tmp_path / "store.db")
    assert len(json.loads(run("list", store, "--destination", "a", "--json").output)["messages"]) == 2
    assert "cancelled 1" in run("cancel", store, "--destination", "b").output
    assert "there is no destination 'c'" in run("cancel", store, "--destination", "c").output
    assert run("dead", store, "--destination", "c").exit_code == 2


def test_dead_letters_of_one_are_listed_and_tried_anew__D14_D16_D23(tmp_path: Path) -> None:
    with closing(Served(tmp_path, to=Destination.named(), max_attempts=1)) as served:
        for name in ("a", "b"):
            set_destination(served, name, NOWHERE, body={"k": "{{key}}"})  # a message without a key is refused
            put(served, name, 2)
        assert served.running.wait(30)
        letters = served.ask("GET", "/dead?destination=a").body["letters"]
        assert [it["destination"] for it in letters] == ["a", "a"]
        assert len(served.ask("GET", "/dead").body["letters"]) == 4
        page = served.ask("GET", "/messages?state=dead&destination=b").body["messages"]
        assert [(it["destination"], it["last_error"] is None) for it in page] == [("b", False)] * 2
        assert run("dead", served.url, "--destination", "b").output.count(" b ") == 2
        set_destination(served, "a", NOWHERE, paused=True)
        assert "requeued 2" in run("requeue", served.url, "--destination", "a").output
        assert len(served.ask("GET", "/messages?destination=a").body["messages"]) == 2


def test_a_program_names_one__D16_D23(tmp_path: Path) -> None:
    with DeliveryQueue(tmp_path / "s.db", to=None) as queue:
        queue.set_destination("a", NOWHERE)
        queue.put("m", 1, due=FAR_MS, destination="a")
        with pytest.raises(BadRecord, match="there is no destination 'nobody'"):
            queue.cancel_many(destination="nobody")
        with pytest.raises(WrongUsage, match="there is no destination 'nobody'"):
            queue.view.list(destination="nobody")
        done = queue.cancel_many(destination="a")
        while (action := queue.action(done)) is None or action.ended is None:
            pass
        assert (action.destination, action.changed) == ("a", 1)
