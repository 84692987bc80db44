"""`tickwheel list`, `show`, `dead`, `status` as a person runs them, also beside a process that delivers (rule D14)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tickwheel.commands import tickwheel as command
from tickwheel.delivery import Delivery, DeliveryQueue

pytestmark = pytest.mark.timeout(60)
FAR_MS = 4_000_000_000_000


def run(*args: object) -> Result:
    return CliRunner().invoke(command, [str(arg) for arg in args], catch_exceptions=False)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Three of key k and one without that wait, one that arrived, one that was given up."""

    def send(delivery: Delivery) -> None:
        if delivery.message.id == "bad":
            raise ValueError("no such\ncustomer")

    path = tmp_path / "s.db"
    with DeliveryQueue(path, to=send, max_attempts=1, on_dead_letter=lambda _: None) as queue:
        queue.put_many([(f"m{n}", FAR_MS + n, {"n": n}, "k") for n in range(3)])
        queue.put("\x1b[31mred", "x", due=FAR_MS + 9)
        queue.put("good", due=1_700_000_000_000)
        queue.put("bad", due=1_700_000_000_000)
    return path


def test_the_lists_are_tables__D14(store: Path) -> None:
    seen = run("list", store)
    assert seen.stdout.splitlines()[0].split() == ["due", "id", "key"]
    assert [line.split()[1] for line in seen.stdout.splitlines()[1:]] == ["m0", "m1", "m2", "␛[31mred"]
    assert (seen.exit_code, seen.stderr) == (0, "")
    some = run("list", store, "--key", "k", "--limit", 2)
    assert [line.split()[1:] for line in some.stdout.splitlines()[1:]] == [["m0", "k"], ["m1", "k"]]
    cursor = some.stderr.split()[-1]
    assert some.stderr == f"There are more: --cursor {cursor}\n"
    assert [
        line.split()[1] for line in run("list", store, "--key", "k", "--cursor", cursor).stdout.splitlines()[1:]
    ] == ["m2"]
    [title, good] = run("list", store, "--state", "delivered").stdout.splitlines()
    assert title.split() == ["due", "id", "tried", "ended", "late"]
    assert good.split()[1:3] == ["good", "1"]
    [_, bad] = run("dead", store).stdout.splitlines()
    assert "no such" in bad


def test_json_is_the_object_that_http_gives__D14(store: Path) -> None:
    page = json.loads(run("list", store, "--json", "--limit", 1).stdout)
    assert [it["id"] for it in page["messages"]] == ["m0"]
    assert page["next"] is not None
    assert json.loads(run("show", store, "m1", "--key", "k", "--json").stdout)["payload"] == {"n": 1}
    assert json.loads(run("dead", store, "--json").stdout)["letters"][0]["source"] == "delivery"
    assert json.loads(run("status", store, "--json").stdout)["waiting"] == 4


def test_a_message_that_is_not_there_ends_with_1__D14(store: Path) -> None:
    seen = run("show", store, "m1")
    assert (seen.exit_code, seen.stdout) == (1, "")
    assert seen.stderr.splitlines() == [
        "There is no message 'm1' without a key: it has not come, or it is forgotten.",
        "There is one of another key: --key k",
    ]
    shown = run("show", store, "m1", "--key", "k").stdout.splitlines()
    assert shown[-1].split(maxsplit=1) == ["payload:", '{"n":1}']
    assert [line.split(maxsplit=1) for line in shown[:3]] == [["id:", "m1"], ["key:", "k"], ["state:", "waiting"]]


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (["list", "none.db"], "there is no store none.db"),
        (["list", "S", "--limit", "0"], "a page can't have 0 entries: ask for 1 to 1,000"),
        (["list", "S", "--cursor", "x"], "'x' is no cursor"),
        (["list", "S", "--key", "\udcff"], "give text in UTF-8"),
        (["show", "S", "\udcff"], "give text in UTF-8"),
        (["list", "S", "--due-from", "yesterday"], "RFC 3339"),
        (["status", "pyproject.toml"], "is not a store of tickwheel"),
    ],
)
def test_wrong_usage_ends_with_2__D14(args: list[str], reason: str, store: Path) -> None:
    Path(store.parent, "pyproject.toml").write_text("x" * 5_000)
    named = {"S": str(store), "pyproject.toml": str(store.parent / "pyproject.toml")}
    seen = run(*(named.get(arg, arg) for arg in args))
    assert seen.exit_code == 2
    assert reason in " ".join(seen.stderr.split())


def test_another_process_may_look_while_one_delivers__D14(store: Path) -> None:
    with DeliveryQueue(store, to=lambda _: None) as queue:
        queue.put("late", due=FAR_MS - 1)
        seen = subprocess.run(
            [sys.executable, "-m", "tickwheel.cli", "list", str(store), "--limit", "1", "--json"],
            capture_output=True,
            check=True,
            timeout=50,
        )
        assert json.loads(seen.stdout)["messages"][0]["id"] == "late"


def test_the_status_says_which_process_works_with_the_store__D14(store: Path) -> None:
    def told() -> list[str]:
        command_line = [sys.executable, "-m", "tickwheel.cli", "status", str(store)]
        return subprocess.run(command_line, capture_output=True, check=True, text=True, timeout=50).stdout.splitlines()

    assert told()[1].split() == ["in", "use:", "no"]
    assert not any("process" in line for line in told())
    with DeliveryQueue(store, to=lambda _: None):
        assert told()[1].split() == ["in", "use:", "yes,", "by", "process", str(os.getpid())]
    found = json.loads(run("status", store, "--json").stdout)
    assert (found["in_use"], found["process"]) == (False, None)


def test_show_without_a_key_names_the_keys_that_have_the_id__D14(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with DeliveryQueue(path, to=print) as queue:
        queue.put_many([("a", FAR_MS, n, f"k {n}") for n in range(2)])
    assert run("show", path, "a").stderr.splitlines() == [
        "There is no message 'a' without a key: it has not come, or it is forgotten.",
        "There is one of another key: --key 'k 0', 'k 1'",
    ]
    assert run("show", path, "a", "--key", "k").stderr.splitlines()[1:] == [
        "There is one of another key: --key 'k 0', 'k 1'"
    ]
    assert len(run("show", path, "b").stderr.splitlines()) == 1
    with DeliveryQueue(path, to=print) as queue:
        queue.put_many([("a", FAR_MS, n, f"k{n}") for n in range(2, 9)])
    assert run("show", path, "a").stderr.endswith("--key 'k 0', 'k 1', k2, k3, k4, and 4 more\n")


@pytest.mark.parametrize("command_", ["list", "pause"])
def test_a_user_in_the_address_of_a_server_is_not_printed_and_a_token_is_advised__D10(command_: str) -> None:
    refused = run(command_, "http://me:s3cret@127.0.0.1:7400")
    assert refused.exit_code == 2
    assert "leave it out, and give a token (--token-file FILE)" in " ".join(refused.stderr.split())
    assert "s3cret" not in refused.stderr
