"""`tickwheel tenants`, `pause --tenant` and `status --tenants`, of a store at rest and of a server (D24)."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from delivery.serve.conftest import Served
from tickwheel.commands import tickwheel as command
from tickwheel.delivery import DeliveryQueue

pytestmark = pytest.mark.timeout(120)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(command, [*map(str, arguments)])


@pytest.fixture(params=["file", "server"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "file":
        DeliveryQueue(tmp_path / "store.db", to=lambda _: None).close()
        yield str(tmp_path / "store.db")
        return
    with closing(Served(tmp_path)) as served:
        yield served.url


def test_one_is_set_changed_paused_shown_and_removed__D24(target: str) -> None:
    made = run("tenants", "set", target, "acme", "--rate", "10/s", "--weight", "3")
    assert (made.exit_code, made.stdout) == (0, "acme: set.\n"), made.output
    paused = f"{target}: the tenant acme is paused. To go on: tickwheel resume {target} --tenant acme\n"
    assert run("pause", target, "--tenant", "acme").stdout == paused
    assert run("tenants", "set", target, "acme", "--concurrency", "2").stdout == "acme: changed.\n"
    found = json.loads(run("tenants", "show", target, "acme", "--json").stdout)
    assert (found["paused"], found["settings"]) == (True, {"concurrency": 2}), "a change leaves the pause"
    shown = run("tenants", "show", target, "acme").stdout.splitlines()
    assert [line.split() for line in (shown[0], shown[1], shown[-1])] == [
        ["name:", "acme"],
        ["paused:", "True"],
        ["concurrency:", "2"],
    ]
    titles, row = run("tenants", "list", target).stdout.splitlines()
    told = dict(zip(titles.split(), row.split(), strict=True))
    figures = dict.fromkeys(("waiting", "overdue", "failing", "out"), "0") if "://" in target else {}
    assert told == {"name": "acme", "state": "paused", "concurrency": "2"} | figures
    assert run("resume", target, "--tenant", "acme").stdout == f"{target}: the tenant acme is resumed.\n"
    assert run("pause", target, "--tenant", "zenith").exit_code == 0
    page = json.loads(run("tenants", "list", target, "--json").stdout)
    assert [(it["name"], it["paused"]) for it in page["tenants"]] == [("acme", False), ("zenith", True)]
    assert run("tenants", "remove", target, "acme").stdout == "acme: removed.\n"
    for one in ("show", "remove"):
        gone = run("tenants", one, target, "acme")
        assert (gone.exit_code, gone.stderr) == (1, "acme: no tenant of this name was set or paused\n"), gone.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["acme", "--weight", "0"], "weight is 0"),
        (["acme", "--rate", "fast"], "write it as 100/s"),
        (["a b"], "is no name of a tenant"),
    ],
)
def test_what_is_not_allowed_is_told__D24(target: str, arguments: list[str], said: str) -> None:
    told = run("tenants", "set", target, *arguments)
    assert (told.exit_code, said in (text := " ".join(told.stderr.split()))) == (2, True), told.output
    assert "answers 4" not in text, "nothing is said about HTTP"
    assert run("pause", target, "--tenant", "acme", "--key", "k").exit_code == 2


def test_the_busiest_are_told_by_a_server__D14_D24(tmp_path: Path) -> None:
    with closing(Served(tmp_path)) as served:
        assert run("pause", served.url, "--tenant", "busy").exit_code == 0
        for n in range(3):
            served.ask("POST", "/messages", {"id": f"{n}", "delay_ms": 0, "tenant": "busy"})
        while served.running.engine.tenant_figures(1, [])[0][0]["overdue"] < 3:
            pass
        for words in (("status", served.url, "--tenants"), ("tenants", "list", served.url)):
            *_, heading, titles, row = run(*words).stdout.splitlines()
            assert heading == "the busiest tenants:"
            assert titles.split() == ["name", "state", "waiting", "overdue", "failing", "out"]
            assert row.split() == ["busy", "paused", "3", "3", "0", "0"]
        assert "busiest" not in run("status", served.url).stdout
        told = json.loads(run("status", served.url, "--tenants", "--json").stdout)
        assert [(it["name"], it["out"]) for it in told["tenants"]] == [("busy", 0)]
        assert told["waiting"] == 3
    assert run("status", tmp_path / "store.db", "--tenants").exit_code == 0, "only a server knows them"


def test_a_server_with_one_order_of_all_sets_none__D24(tmp_path: Path) -> None:
    with closing(Served(tmp_path, order="global")) as served:
        told = run("tenants", "set", served.url, "acme", "--weight", "2")
        assert (told.exit_code, told.stdout) == (2, "")
        assert "acme is not set: all messages have one order" in " ".join(told.stderr.split())
        assert run("pause", served.url, "--tenant", "acme").exit_code == 2
