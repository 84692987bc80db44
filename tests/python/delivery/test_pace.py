"""How fast messages go out, and how many at a time (rule D18): from Python and on the command line."""

import json
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tickwheel.commands import tickwheel as command
from tickwheel.delivery import DeliveryQueue, WrongUsage

pytestmark = pytest.mark.timeout(60)


def test_a_rate_may_be_a_day_s_as_that_of_a_destination__D18(tmp_path: Path) -> None:
    with DeliveryQueue(tmp_path / "s.db", rate="10/day", tenant_rate="0.5/min") as queue:
        queue.set_destination("acme", "https://example.com", rate="10/day")
    arguments = ["deliver", "-", "--store", str(tmp_path / "s.db"), "--rate", "10/day", "--to", "named"]
    assert CliRunner().invoke(command, arguments, input="").exit_code == 0


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"rate": "0/s"}, "rate is '0/s': it may be one a day to 1,000,000 a second"),
        ({"rate": "1000001/s"}, "rate is '1000001/s': it may be one a day to 1,000,000 a second"),
        ({"rate": "0.04/h"}, "rate is '0.04/h': it may be one a day to"),
        ({"rate": "-5/s"}, "the rate '-5/s' is none: write it as 100/s, 0.5/min, 500/h or 1/day"),
        ({"rate": "5"}, "the rate '5' is none: write"),
        ({"rate": "5/year"}, "the rate '5/year' is none: write"),
        ({"rate": "5/s\n"}, "the rate '5/s\\n' is none: write"),
        ({"rate": "\u0665/s"}, "is none: write"),
        ({"rate": 5}, "the rate '5' is none: write"),
        ({"rate": ""}, "the rate '' is none: write"),
        ({"concurrency": 0}, "concurrency is 0: it may be 1 to 1,000,000"),
        ({"concurrency": -1}, "concurrency is -1: it may be 1 to"),
        ({"concurrency": 2.5}, "concurrency is 2.5: it may be a whole number, 1 to"),
        ({"concurrency": True}, "concurrency is True: it may be a whole number, 1 to"),
    ],
)
def test_a_pace_that_is_none_is_told_what_is_allowed__D18(tmp_path: Path, given: Any, problem: str) -> None:
    with pytest.raises(WrongUsage) as error:
        DeliveryQueue(tmp_path / "s.db", to=lambda _: None, **given)
    assert problem in str(error.value)
    assert [*tmp_path.iterdir()] == []
    [(name, value)] = given.items()
    if not isinstance(value, float | bool):
        arguments = ["deliver", "-", "--store", str(tmp_path / "s.db"), f"--{name}", str(value)]
        seen = CliRunner().invoke(command, arguments)
        assert seen.exit_code == 2
        assert name in seen.stderr
        assert [*tmp_path.iterdir()] == []


def test_a_queue_keeps_to_its_rate_and_leaves_the_rest_in_the_store__D18(tmp_path: Path) -> None:
    sent: list[float] = []
    two = threading.Event()

    def note(_: object) -> None:
        sent.append(time.monotonic())
        if len(sent) == 2:
            two.set()

    with DeliveryQueue(tmp_path / "s.db", to=note, rate="5/s") as queue:
        queue.put_many([(str(n), 1_700_000_000_000, None) for n in range(20)])
        assert two.wait(20)
    assert sent[1] - sent[0] >= 0.19
    assert 2 <= queue.summary.delivered < 20
    delivered = queue.summary.delivered
    with DeliveryQueue(tmp_path / "s.db", to=lambda _: None) as queue:
        assert queue.wait_until_empty(20)
    assert queue.summary.delivered == 20 - delivered


def test_a_function_has_no_more_calls_at_a_time_than_the_concurrency__D18(tmp_path: Path) -> None:
    both, now, most = threading.Barrier(2), set[int](), 0

    def call(_: object) -> None:
        nonlocal most
        now.add(threading.get_ident())
        most = max(most, len(now))
        both.wait(20)
        now.remove(threading.get_ident())

    with DeliveryQueue(tmp_path / "s.db", to=call, concurrency=2) as queue:
        queue.put_many([(str(n), 1_700_000_000_000, None) for n in range(10)])
        assert queue.wait_until_empty(20)
    assert most == 2
    assert queue.summary.delivered == 10


def test_deliver_takes_its_time__D18(tmp_path: Path) -> None:
    path, out = tmp_path / "in.ndjson", tmp_path / "out.ndjson"
    path.write_text("".join(f'{{"id": "{n}", "due": 1700000000000, "key": "k{n % 2}"}}\n' for n in range(6)))
    arguments = ["deliver", str(path), "--to", f"file:{out}", "--rate", "600/min", "--concurrency", "1"]
    seen = CliRunner().invoke(command, arguments)
    assert seen.exit_code == 0, seen.stderr
    sent = [json.loads(line) for line in out.read_text().splitlines()]
    assert [it["id"] for it in sent] == [*"012345"]
    first, last = (datetime.fromisoformat(sent[place]["delivered_at"]) for place in (0, -1))
    assert (last - first).total_seconds() >= 0.499  # five tokens at ten a second; the times are whole milliseconds
