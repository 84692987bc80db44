"""The demo runs, and its checker finds every kind of problem."""

import copy
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console

Delivered = list[dict[str, Any]]
EXAMPLE = Path(__file__).parents[3] / "examples" / "flights.py"
STARTED_MS = 1_700_000_000_000
SPEED = 1_000


@pytest.fixture(scope="module")
def flights() -> ModuleType:
    spec = importlib.util.spec_from_file_location("flights_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def day(flights: ModuleType) -> list[dict[str, str]]:
    found: list[dict[str, str]] = flights.busiest_day()
    return found


@pytest.fixture(scope="module")
def prepared(flights: ModuleType, day: list[dict[str, str]], tmp_path_factory: pytest.TempPathFactory) -> Any:
    return flights.prepare(day[:50], tmp_path_factory.mktemp("demo"))


@pytest.fixture
def delivered(flights: ModuleType, prepared: Any) -> Delivered:
    """The right output: each message one millisecond late, in order of due times."""
    first_ms = min(prepared.dues_ms)
    found = []
    for (key, id_), message in sorted(prepared.expected.items(), key=lambda item: item[1]["due_ms"]):
        sent_ms = STARTED_MS + 500 + (message["due_ms"] - first_ms) / SPEED + 1
        found.append(
            {
                "id": id_,
                "key": key,
                "due": iso(flights, message["due_ms"]),
                "payload": message["payload"],
                "delivered_at": iso(flights, int(sent_ms)),
                "lateness_ms": 1.0,
                "redelivered": False,
            }
        )
    return copy.deepcopy(found)


def iso(flights: ModuleType, epoch_ms: int) -> str:
    text: str = flights.datetime.fromtimestamp(epoch_ms / 1000, flights.NEW_YORK).isoformat(timespec="milliseconds")
    return text


def check(flights: ModuleType, prepared: Any, delivered: Delivered) -> list[str]:
    problems: list[str] = flights.check_delivered(prepared, delivered, SPEED, STARTED_MS)
    return problems


def test_the_busiest_day_has_1014_flights(day: list[dict[str, str]], flights: ModuleType) -> None:
    assert len(day) == 1_014
    assert {flights.date_of(flight) for flight in day} == {"2013-11-27"}


def test_the_checker_finds_nothing_where_all_is_well(flights: ModuleType, prepared: Any, delivered: Delivered) -> None:
    assert check(flights, prepared, delivered) == []


def test_several_of_a_key_may_come_again_in_their_order_if_they_are_marked(
    flights: ModuleType, delivered: Delivered
) -> None:
    """After a `kill -9`."""
    delivered[7]["key"] = delivered[8]["key"]
    again = [{**message, "redelivered": True} for message in delivered[7:9]]
    assert flights.check_order([*delivered[:9], *again, *delivered[9:]]) == []
    assert flights.check_order([*delivered[:9], *delivered[7:9], *delivered[9:]]) != []


def missing(delivered: Delivered) -> None:
    del delivered[7]


def repeated(delivered: Delivered) -> None:
    delivered.insert(8, delivered[7])


def foreign(delivered: Delivered) -> None:
    delivered[7]["id"] = "somebody else"


def rekeyed(delivered: Delivered) -> None:
    delivered[7]["key"] = "N00000"


def early_by_itself(delivered: Delivered) -> None:
    delivered[7]["lateness_ms"] = -0.001


def early_by_the_clock(delivered: Delivered) -> None:
    delivered[-1]["delivered_at"] = delivered[0]["delivered_at"]


def before_the_command_began(delivered: Delivered) -> None:
    for message in delivered:
        message["delivered_at"] = message["delivered_at"].replace("2023-11-14T", "2023-11-13T")


def other_payload(delivered: Delivered) -> None:
    delivered[7]["payload"]["miles"] += 1


def other_due(delivered: Delivered) -> None:
    delivered[7]["due"] = delivered[7]["due"].replace("2013-", "2014-")


def out_of_order(delivered: Delivered) -> None:
    delivered[7]["key"] = delivered[8]["key"]
    delivered[7], delivered[8] = delivered[8], delivered[7]


@pytest.mark.parametrize(
    ("spoil", "word"),
    [
        (missing, "missing"),
        (repeated, "repeated"),
        (foreign, "never asked for"),
        (rekeyed, "never asked for"),
        (early_by_itself, "early"),
        (early_by_the_clock, "early"),
        (before_the_command_began, "early"),
        (other_payload, "payload changed"),
        (other_due, "due changed"),
    ],
)
def test_the_checker_finds_what_is_wrong(
    flights: ModuleType, prepared: Any, delivered: Delivered, spoil: Callable[[Delivered], None], word: str
) -> None:
    spoil(delivered)
    assert any(problem.startswith(word) for problem in check(flights, prepared, delivered))


def test_the_checker_finds_what_is_out_of_order(flights: ModuleType, delivered: Delivered) -> None:
    out_of_order(delivered)
    assert flights.check_order(delivered) == [f"out of order: {delivered[8]['id']}"]


def test_the_checker_wants_just_the_broken_records_as_dead_letters(flights: ModuleType, prepared: Any) -> None:
    letters = [
        {"line": line, "reason": "r", "allowed": "a", "record": readable(record)}
        for line, record in prepared.broken.items()
    ]
    assert len(letters) == 5
    assert flights.check_dead_letters(prepared, letters) == []
    assert flights.check_dead_letters(prepared, letters[1:])
    assert flights.check_dead_letters(prepared, [*letters, letters[0]])
    assert flights.check_dead_letters(prepared, [*letters, letters[0] | {"line": 1}])
    assert flights.check_dead_letters(prepared, [letters[0] | {"record": "changed"}, *letters[1:]])
    assert flights.check_dead_letters(prepared, [letters[0] | {"reason": ""}, *letters[1:]])


def readable(record: bytes) -> str | dict[str, str]:
    from base64 import b64encode

    return record.decode() if record.isascii() else {"base64": b64encode(record).decode()}


def test_the_checker_counts_for_itself(flights: ModuleType, delivered: Delivered) -> None:
    summary = {"accepted": 50, "delivered": 50, "duplicates": 0, "cancelled": 0, "not_delivered": 0}
    summary |= {"lateness_ms": {"p50": 1.0, "p99": 1.0, "p999": 1.0, "max": 1.0}}  # type: ignore[dict-item]
    assert flights.check_summary(summary, delivered, 50) == []
    for name in summary.keys() - {"lateness_ms"}:
        assert flights.check_summary(summary | {name: 51}, delivered, 50), name
    for told_ms, is_right in ((0.999, False), (1.001, True), (1.002, False), (None, False)):
        late = {"p50": 1.0, "p99": told_ms, "p999": 1.0, "max": 1.0}
        assert (flights.check_summary(summary | {"lateness_ms": late}, delivered, 50) == []) == is_right, told_ms


def test_the_demo_delivers_a_day_in_two_seconds__D11(
    flights: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    console = Console(width=60)
    assert flights.run(2.0, tmp_path, console) == []
    shown = capfd.readouterr().out
    assert "1,014" in shown
    assert max(map(len, shown.splitlines())) <= 60
    assert json.loads((tmp_path / "summary.json").read_text())["delivered"] == 1_014


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("stop", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_a_demo_that_was_stopped_half_way_goes_on__D11(tmp_path: Path, stop: signal.Signals, code: int) -> None:
    command = [sys.executable, str(EXAMPLE), "--seconds", "4", "--folder", str(tmp_path)]
    out = tmp_path / "delivered.ndjson"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True) as run:
        while not out.exists() or out.read_bytes().count(b"\n") < 200:
            assert run.poll() is None
            time.sleep(0.01)
        os.killpg(run.pid, stop)
        assert run.wait() == code
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "A run was stopped after" in again.stdout
    assert "No problems." in again.stdout
    assert not list(tmp_path.glob("store.db*")), "the next run starts from the beginning"
