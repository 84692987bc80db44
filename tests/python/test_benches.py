"""The comparison with other timers: all workloads run on the sides that need no package; a failing side is reported."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

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
