"""The comparison with other timers: all workloads run on the sides that need no package; a failing side is reported."""

import importlib
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

EVERY_SIDE = [
    "add",
    "add, GC off",
    "cancel",
    "cancel, calls alone",
    "rolling pair",
    "burst fire",
    "spread fire",
    "add from another thread",
    "bytes per timer",
    "gc.collect with 1M pending",
    "idle CPU",
    "lateness p50",
    "lateness p99",
    "early",
]
ONLY_TICKWHEEL = ["add, TimerTask", "add_many, per timer", "bytes per TimerTask"]
MAY_BE_ZERO = {"early", "bytes per timer", "bytes per TimerTask"}  # a few may fit into memory already allocated


@pytest.fixture(autouse=True)
def benches_can_be_imported(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)


def timers(*arguments, suite="timers", **environment):
    command = [sys.executable, "-m", f"benches.python.{suite}", "--pace", "0.05", *arguments]
    return subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, timeout=100)


def test_every_work_has_a_figure_for_every_side(tmp_path):
    output = tmp_path / "python.json"
    sides = ["--only-side", "tickwheel", "--only-side", "tickwheel, slack_us=1000", "--only-side", "asyncio"]
    done = timers("--count", "1000", "--repeats", "1", *sides, "--output", str(output))
    assert done.returncode == 0, done.stderr

    run = json.loads(output.read_text())
    assert (run["suite"], run["repeats"]) == ("python", 1)
    assert {"python", "tickwheel"} <= run["versions"].keys()
    check_conditions(run["conditions"])
    records = {(record["work"], record["side"]): record for record in run["records"]}
    expected = {(work, side) for work in EVERY_SIDE for side in ("tickwheel", "asyncio")}
    expected |= {(work, "tickwheel") for work in ONLY_TICKWHEEL} | {("spread fire", "tickwheel, slack_us=1000")}
    assert records.keys() == expected
    assert len(run["records"]) == len(expected)
    for (work, _), record in records.items():
        (value,) = record["values"]
        assert math.isfinite(value)
        assert value > 0 or (work in MAY_BE_ZERO and value == 0)
        assert record["better"] == ("higher" if work == "burst fire" else "lower")
        assert record["count"] == 1000
    assert records["early", "tickwheel"]["values"] == [0]


def check_conditions(conditions):
    assert conditions["huge_pages"] in ("always", "madvise", "never", "none seen")
    assert conditions["governor"]
    assert 0 <= conditions["others_percent"] <= 100
    assert 0 <= conditions["stolen_percent"] <= 100
    assert min(conditions["calibration_ms"]) > 0


def test_a_process_beside_the_run_is_seen_and_one_of_the_run_is_not(monkeypatch):
    conditions = importlib.import_module("benches.python.conditions")
    at = iter([(1000, 300, 10, 200), (2000, 900, 60, 500)])
    monkeypatch.setattr(conditions, "ticks", lambda: next(at))
    noted = conditions.Conditions().noted()
    assert (noted["others_percent"], noted["stolen_percent"]) == (30, 5)


def test_the_ticks_of_this_process_and_its_children_are_its_own():
    ticks = importlib.import_module("benches.python.conditions").ticks
    before, times = ticks(), os.times()
    busy = "import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    subprocess.run([sys.executable, "-c", busy], check=True)
    after, spent_s = ticks(), sum(os.times()[:4]) - sum(times[:4])
    total, busy_ticks, stolen, own = (new - old for new, old in zip(after, before, strict=True))
    assert own / os.sysconf("SC_CLK_TCK") == pytest.approx(spent_s, abs=0.05)
    assert own >= 25
    assert total >= busy_ticks >= 25
    assert stolen >= 0


def test_settings_are_read_from_the_kernels_files(tmp_path, monkeypatch):
    conditions = importlib.import_module("benches.python.conditions")
    monkeypatch.setattr(conditions, "HUGE_PAGES", tmp_path / "enabled")
    monkeypatch.setattr(conditions, "PROCESSORS", tmp_path)
    assert (conditions.huge_pages(), conditions.governor()) == ("none seen", "none seen")
    (tmp_path / "enabled").write_text("always [madvise] never\n")
    for number, governor in enumerate(("powersave", "performance", "powersave")):
        folder = tmp_path / f"cpu{number}/cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_governor").write_text(f"{governor}\n")
    assert (conditions.huge_pages(), conditions.governor()) == ("madvise", "performance, powersave")


def test_the_spread_of_each_row_is_told_while_it_runs(tmp_path):
    only = ["--only-work", "add", "--only-side", "asyncio"]
    done = timers("--count", "100", "--repeats", "3", *only, "--output", str(tmp_path / "python.json"))
    assert done.returncode == 0, done.stderr
    number = r"[\d.,]+"
    line = rf"    add: asyncio {number} ns; {number} / {number} / {number}, spread \d+ %"
    assert len(re.findall(line, done.stderr)) == 3
    assert "huge_pages: " in done.stdout


@pytest.mark.parametrize(
    ("option", "given", "said"),
    [("--repeats", "0", "must be at least 1, got 0"), ("--count", "-5", "must be at least 1, got -5")]
    + [("--pace", given, f"must be above 0, got {given}") for given in ("0", "nan", "inf")],
)
def test_a_run_that_would_measure_nothing_is_refused(option, given, said):
    done = timers(option, given)
    assert done.returncode == 2
    assert f"argument {option}: {said}" in done.stderr


def test_a_side_that_fails_is_told_and_the_others_are_kept(tmp_path):
    (tmp_path / "uvloop.py").write_text("raise ImportError('no uvloop today')")
    output = tmp_path / "python.json"
    only = ["--only-work", "add", "--only-side", "uvloop", "--only-side", "asyncio"]
    done = timers("--count", "100", "--repeats", "2", *only, "--output", str(output), PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert "no uvloop today" in done.stderr
    assert "FAILED add: uvloop" in done.stderr
    (record,) = json.loads(output.read_text())["records"]
    assert (record["side"], len(record["values"])) == ("asyncio", 2)


@pytest.mark.parametrize(
    ("suite", "work"),
    [
        ("timers", "burst fire"),
        ("timers", "spread fire"),
        ("timers", "lateness p50"),
        ("loops", "longest wait while all are due at once, on uvloop"),
    ],
)
def test_a_process_that_was_stopped_while_it_added_timers_is_started_again(suite, work, tmp_path):
    (tmp_path / "uvloop.py").write_text("""
import asyncio, pathlib, time
was_stopped = pathlib.Path(__file__).with_name("was stopped")

class Loop(asyncio.SelectorEventLoop):
    def call_at(self, when, *arguments, **options):
        if self.time() < when < self.time() + 60 and not was_stopped.exists():
            was_stopped.touch()
            time.sleep(when - self.time())
        return super().call_at(when, *arguments, **options)

new_event_loop = Loop
""")
    output = tmp_path / "python.json"
    only = ["--only-work", work, "--only-side", "uvloop", "--count", "100", "--repeats", "1"]
    done = timers(*only, "--output", str(output), suite=suite, PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("the timers were due before all were added") == 1
    assert (tmp_path / "was stopped").exists()
    assert all(len(record["values"]) == 1 for record in json.loads(output.read_text())["records"])


def test_loops_with_a_wheel_are_measured_beside_those_without(tmp_path):
    output = tmp_path / "asyncio.json"
    works = ["call_later, 10,000 pending", "pair, 1M pending", "longest turn while time-outs roll", "lateness p50"]
    works += ["longest wait while all are due at once", "CPU per timer, one a ms, slack_us=500"]
    works += ["echo server with idle time-outs, CPU per message"]
    only = [argument for work in works for argument in ("--only-work", work)]
    sides = ["--only-side", "tickwheel", "--only-side", "asyncio"]
    done = timers("--count", "1000", "--repeats", "1", *only, *sides, "--output", str(output), suite="loops")
    assert done.returncode == 0, done.stderr
    run = json.loads(output.read_text())
    records = {(record["work"], record["side"]): record["values"] for record in run["records"]}
    assert run["suite"] == "asyncio"
    assert records.keys() == {(work, side) for work in (*works, "early") for side in ("tickwheel", "asyncio")}
    assert records["early", "tickwheel"] == [0]
    assert all(value >= 0 for [value] in records.values())
