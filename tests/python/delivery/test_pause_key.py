"""A key pauses and goes on, from Python and on the command line (rule D16)."""

import json
import queue as queues
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tickwheel.commands import tickwheel as command
from tickwheel.delivery import BadRecord, DeliveryQueue, StoreView, WrongUsage, check_store

pytestmark = pytest.mark.timeout(60)

OVERDUE_MS = 1_700_000_000_000


def run(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def test_of_a_paused_key_nothing_is_sent_until_it_is_resumed_and_others_go_on__D16(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    arrived: queues.Queue[str] = queues.Queue()
    with DeliveryQueue(tmp_path / "s.db", to=lambda it: arrived.put(it.message.id)) as queue:
        queue.pause(key="k")
        assert not queue.is_paused
        queue.put_many([("k1", OVERDUE_MS, None, "k"), ("l1", OVERDUE_MS, None, "l"), ("none", OVERDUE_MS, None)])
        assert {arrived.get(timeout=10), arrived.get(timeout=10)} == {"l1", "none"}
        assert not queue.wait_until_empty(0.2)
        assert queue.state("k1", "k") == "waiting"
        shown = queue.view.show("k1", "k")
        assert shown is not None
        assert shown.key_paused_since is not None
    with DeliveryQueue(tmp_path / "s.db", to=lambda it: arrived.put(it.message.id)) as queue:
        queue.put("k2", key="k", due=OVERDUE_MS)
        assert not queue.wait_until_empty(0.2)
        assert arrived.empty()
        queue.resume(key="k")
        assert [arrived.get(timeout=10), arrived.get(timeout=10)] == ["k1", "k2"]
        assert queue.wait_until_empty(10)
    told = [record.message.split(";")[0] for record in caplog.records if "paused" in record.message]
    assert told == ["keys that are paused: 1", "keys that are paused: 1", "no key is paused any more"]


def test_a_key_that_is_none_is_refused_and_so_is_one_in_one_order_of_all__D16(tmp_path: Path) -> None:
    with DeliveryQueue(tmp_path / "s.db", to=lambda _: None) as queue:
        with pytest.raises(BadRecord, match="key is empty"):
            queue.pause(key="")
        with pytest.raises(BadRecord, match="key"):
            queue.pause(key=5)  # type: ignore[arg-type]
        queue.pause(key="k")
    with pytest.raises(WrongUsage, match="keys are paused in this store, and in one order of all messages none can be"):
        DeliveryQueue(tmp_path / "s.db", to=lambda _: None, order="global")
    with DeliveryQueue(tmp_path / "t.db", to=lambda _: None, order="global") as queue:
        with pytest.raises(WrongUsage, match="with one order of all messages no key can be paused"):
            queue.pause(key="k")
        queue.put("a", key="k", delay_ms=0)
        assert queue.wait_until_empty(10)


def test_a_key_of_a_store_that_is_not_in_use_is_paused_by_the_command__D16(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    with DeliveryQueue(store, to=lambda _: None) as queue:
        queue.put("a", key="two words", due=OVERDUE_MS + 10**12)
        assert run("pause", store, "--key", "two words").exit_code == 2
    seen = run("pause", store, "--key", "two words")
    resume = f"tickwheel resume {store} --key 'two words'"
    assert (seen.exit_code, seen.stdout) == (0, f"{store}: the key 'two words' is paused. To go on: {resume}\n")
    status = json.loads(run("status", store, "--json").stdout)
    assert (status["paused_keys"], status["paused_key_names"]) == (1, ["two words"])
    assert status["paused_since"] is None
    assert "paused key names: two words\n" in run("status", store).stdout
    assert "key paused since:" in run("show", store, "a", "--key", "two words").stdout
    assert check_store(store).problems == ()
    assert run("resume", store, "--key", "other").exit_code == 0
    assert StoreView(store).status().paused_keys == 1
    seen = run("resume", store, "--key", "two words")
    assert (seen.exit_code, seen.stdout) == (0, f"{store}: the key 'two words' is resumed.\n")
    assert StoreView(store).status().paused_keys == 0
    assert "key paused since:" not in run("show", store, "a", "--key", "two words").stdout
    run("pause", store, "--key", "k")
    run("resume", store)
    assert StoreView(store).status().paused_keys == 1, "each key waits for its own resume"


@pytest.mark.parametrize(("key", "problem"), [("", "it is empty"), ("\udc80", "text that can be written in UTF-8")])
def test_the_command_refuses_what_is_no_key__D16(tmp_path: Path, key: str, problem: str) -> None:
    DeliveryQueue(tmp_path / "s.db", to=lambda _: None).close()
    seen = run("pause", tmp_path / "s.db", "--key", key)
    assert seen.exit_code == 2
    assert problem in seen.stderr
