"""One suite, two engines: the same job in one process and on Spark keeps the same promises (rules D1 to D7, S1).

The job runs once for each engine, as a command, on files with duplicates, conflicts, cancels, reschedules, broken
records, and messages that are overdue, near, expired, and far enough to be held. Then each promise is tested by itself.
"""

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from delivery.webhook_receiver import Receiver, receiver  # noqa: F401, a fixture

pytestmark = pytest.mark.timeout(240)
LONG_S = 180

KEYS = 40
MESSAGES = 3_000
FAR_MS = {"local": 8_000, "spark": 60_000}  # after Spark has started, also where that takes long


@dataclass
class Run:
    """The input and the results."""

    folder: Path
    given: dict[tuple[str | None, str], dict[str, Any]] = field(default_factory=dict)
    cancelled: set[tuple[str | None, str]] = field(default_factory=set)
    expired: set[tuple[str | None, str]] = field(default_factory=set)
    rescheduled: int = 0
    duplicates: int = 0
    conflicts: int = 0
    broken: int = 0
    refused_rules: int = 0
    far_ms: int = 0
    code: int = -1
    output: str = ""

    @property
    def out(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "out").read_text().splitlines()]

    @property
    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "summary.json").read_text())
        return found


def give(run: Run, engine: str, seed: int) -> None:
    """Four files with messages, duplicates and cancels, all of a key in one file, as D4 requires. Only Spark gets a
    recurring message: there it is a dead letter, and in one process the run would not end.
    """
    far_ms = FAR_MS[engine]
    rng = random.Random(seed)
    now_ms = time.time_ns() // 1_000_000
    run.far_ms = now_ms + far_ms
    lines: dict[int, list[str]] = defaultdict(list)
    for number in range(MESSAGES):
        key = None if rng.random() < 0.1 else f"key {rng.randrange(KEYS)}"
        file = hash(key) % 4 if key else number % 4
        due_ms = now_ms + rng.choice([-1_000, far_ms // 2, far_ms]) + rng.randrange(500)
        record = {"id": f"m{number}", "key": key, "due": due_ms, "payload": {"n": number, "x": "é" * rng.randrange(50)}}
        run.given[key, record["id"]] = record
        fate = rng.random()
        if fate < 0.02 and due_ms < now_ms:
            record["expires"] = due_ms + 1
            run.expired.add((key, record["id"]))
        lines[file].append(json.dumps(record))
        if rng.random() < 0.05:
            lines[file].append(json.dumps(record))
            run.duplicates += 1
        if rng.random() < 0.02:
            lines[file].append(json.dumps(record | {"payload": "another"}))
            run.conflicts += 1
        if due_ms >= now_ms + far_ms and fate < 0.03:
            lines[file].append(json.dumps({"id": record["id"], "key": key, "op": "cancel"}))
            run.cancelled.add((key, record["id"]))
        elif due_ms >= now_ms + far_ms and fate < 0.06:
            record["due"] = now_ms + far_ms + 600 + number  # alone in its millisecond
            lines[file].append(json.dumps({"id": record["id"], "key": key, "op": "reschedule", "due": record["due"]}))
            run.rescheduled += 1
        if rng.random() < 0.01:
            lines[file].append('{"id": "no due"}')
            run.broken += 1
    if engine == "spark":
        lines[0].append(json.dumps({"id": "beat", "every": 500, "payload": 1}))
        run.refused_rules = 1
    (run.folder / "in").mkdir()
    for file, found in lines.items():
        (run.folder / "in" / f"{file}.ndjson").write_text("\n".join(found) + "\n")


@pytest.fixture(scope="module", params=["local", "spark"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    made = Run(tmp_path_factory.mktemp(request.param))
    give(made, request.param, seed=int(time.time()))
    options = ["--lead", "3"] if request.param == "spark" else []
    ended = subprocess.run(
        [sys.executable, "-m", "tickwheel.cli", "deliver", "in", "--engine", request.param, *options,
         "--to", "file:out", "--store", "s.db", "--dead-letters", "dead", "--summary", "summary.json"],
        cwd=made.folder, check=False, capture_output=True, text=True, timeout=200, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    made.code, made.output = ended.returncode, ended.stdout + ended.stderr
    return made


def test_nothing_is_lost_and_each_comes_once_as_it_was_given__D1_D5(run: Run) -> None:
    assert run.code == 1, run.output  # there are dead letters
    came = {(line["key"], line["id"]): line for line in run.out}
    assert len(came) == len(run.out)
    assert came.keys() == run.given.keys() - run.cancelled - run.expired
    for name, line in came.items():
        due_ms = round(datetime.fromisoformat(line["due"]).timestamp() * 1000)
        assert (line["payload"], due_ms) == (run.given[name]["payload"], run.given[name]["due"])


def test_nothing_is_early__D3(run: Run) -> None:
    assert all(line["lateness_ms"] >= 0 for line in run.out)


def test_the_messages_of_a_key_come_in_order_of_due_time_and_acceptance__D4(run: Run) -> None:
    """For messages due after all were read; overdue messages are sent as they come."""
    first_ms = run.far_ms
    orders: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for line in run.out:
        record = run.given[line["key"], line["id"]]
        if line["key"] is not None and record["due"] >= first_ms:
            orders[line["key"]].append((record["due"], record["payload"]["n"]))
    assert len(orders) == KEYS
    assert all(order == sorted(order) for order in orders.values())


def test_duplicates_cancels_and_dead_letters_are_counted_each_once__D2_D5_D7(run: Run) -> None:
    found = run.summary
    assert found["accepted"] == MESSAGES
    assert found["delivered"] == MESSAGES - len(run.cancelled) - len(run.expired)
    assert found["cancelled"] == len(run.cancelled) > 0
    assert found["duplicates"] == run.duplicates > 0
    assert found["rescheduled"] == run.rescheduled > 0
    assert found["conflicts"] == run.conflicts > 0
    assert found["expired"] == len(run.expired) > 0
    assert found["dead_letters"] == run.broken + run.refused_rules + run.conflicts + len(run.expired)
    assert found["not_delivered"] == 0


def test_a_dead_letter_says_where_it_comes_from_and_why__D2_D5_D6(run: Run) -> None:
    letters = [json.loads(line) for line in (run.folder / "dead").read_text().splitlines()]
    reasons = Counter(letter["reason"] for letter in letters)
    assert reasons["due is missing"] == run.broken > 0
    assert reasons["this key and id were accepted before with other content"] == run.conflicts
    assert sum(count for reason, count in reasons.items() if "expired" in reason) == len(run.expired)
    assert reasons["a recurring message does not go through Spark"] == run.refused_rules
    assert reasons.total() == run.broken + run.refused_rules + run.conflicts + len(run.expired)
    read = [letter for letter in letters if "expired" not in letter["reason"]]
    assert all(letter["source"].endswith(".ndjson") and letter["line"] > 0 for letter in read)


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_a_message_goes_to_the_destination_that_it_names_and_keeps_its_tenant__D23_D24(
    tmp_path: Path,
    receiver: Receiver,  # noqa: F811
    engine: str,
) -> None:
    (tmp_path / "in").mkdir()
    records = [
        {"id": name, "key": "k", "delay_ms": 4_000, "destination": name, "tenant": f"of-{name}"}
        for name in ("here", "there", "nobody")
    ]
    (tmp_path / "in" / "1.ndjson").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    tables = [f'[{name}]\nurl = "{receiver.url}/{name}"\n' for name in ("here", "there")]
    (tmp_path / "hooks.toml").write_text("".join(tables))
    options = ["--lead", "3"] if engine == "spark" else []
    ended = subprocess.run(
        [sys.executable, "-m", "tickwheel.cli", "deliver", "in", "--engine", engine, *options, "--to", "named",
         "--destinations", "hooks.toml", "--allow-address", "127.0.0.1", "--store", "s.db", "--dead-letters", "dead",
         "--tenant-concurrency", "1", "--tenant-rate", "100/s"],
        cwd=tmp_path, check=False, capture_output=True, text=True, timeout=LONG_S, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert sorted(receiver.paths) == ["/hook/here", "/hook/there"]
    assert sorted(json.loads(body)["tenant"] for _, body in receiver.requests) == ["of-here", "of-there"]
    [letter] = map(json.loads, (tmp_path / "dead").read_text().splitlines())
    assert letter["reason"] == "there is no destination 'nobody'"


def test_a_recurring_message_comes_again_and_again_also_after_a_stop__D19(tmp_path: Path) -> None:
    """In one process; a stream of Spark has none (`test_bad_input.py`)."""
    beat = {"id": "beat", "every": 500, "missed": "all", "payload": [1]}
    records = [beat, beat, beat | {"id": "over", "key": "k"}, {"id": "over", "key": "k", "op": "cancel"}]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.ndjson").write_text("".join(f"{json.dumps(record)}\n" for record in records))

    def start() -> "subprocess.Popen[bytes]":
        with (tmp_path / "log").open("a") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tickwheel.cli", "deliver", "in", "--to", "file:out", "--store", "s.db"],
                cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    for _ in range(2):
        before = len(came(tmp_path / "out"))
        running = start()
        while len(came(tmp_path / "out")) < before + 6:
            assert running.poll() is None, (tmp_path / "log").read_text()
            time.sleep(0.1)
        running.send_signal(signal.SIGINT)
        assert running.wait(LONG_S) == 130, (tmp_path / "log").read_text()
    # Put again after its cancel it is a duplicate. The deliverer says so, and the run ends.
    again = [{"id": "beat", "op": "cancel"}, beat]
    (tmp_path / "in" / "2.ndjson").write_text("".join(f"{json.dumps(record)}\n" for record in again))
    assert start().wait(LONG_S) == 0, (tmp_path / "log").read_text()
    found = came(tmp_path / "out")
    assert {line["id"].partition("@")[0] for line in found} == {"beat"}
    due_ms = [round(datetime.fromisoformat(line["id"].partition("@")[2]).timestamp() * 1000) for line in found]
    assert due_ms == list(range(due_ms[0], due_ms[0] + 500 * len(found), 500)), "each once, in order"
    assert all(line["payload"] == [1] and line["lateness_ms"] >= 0 for line in found)


def came(out: Path) -> list[dict[str, Any]]:
    """What is complete in the output."""
    return (
        [json.loads(line) for line in out.read_text().splitlines(keepends=True) if line.endswith("\n")]
        if out.exists()
        else []
    )
