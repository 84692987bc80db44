"""The comparison with job queues: tickwheel's side runs, and what ran is judged; the report puts lost rows first."""

import dataclasses
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FIRST_MS = 1_000_000


@pytest.fixture
def queues(monkeypatch):
    """The modules, by name."""
    monkeypatch.syspath_prepend(ROOT)
    return lambda name: importlib.import_module(f"benches.queues.{name}")


@pytest.fixture
def judged(queues, tmp_path):
    """The figures and the note from lines of (number, milliseconds late), with two jobs a second."""

    def judge(*lines, count, overdue=False):
        works, common, measure = queues("works"), queues("programs.common"), queues("measure")
        work = works.Overdue(100) if overdue else works.Late(2)
        due_us = [(FIRST_MS + n * 500) * 1000 for n in range(count + 9)]
        out = tmp_path / "out"
        out.write_text("".join(f"{number} {due_us[number] + round(late_ms * 1000)}\n" for number, late_ms in lines))
        asked = {field.name: "" for field in dataclasses.fields(common.Request)}
        request = common.Request(**asked | {"count": count, "rate": 2, "out": str(out)})
        return measure.ran(work, request, FIRST_MS, FIRST_MS * 1000)

    return judge


def test_lateness_is_from_when_a_job_is_due(judged):
    assert judged((1, 3), (0, 1), (2, 2.5), count=3) == ({"2/s, p50": 2.5, "2/s, p99": 3}, "")


def test_a_job_that_did_not_run_is_as_late_as_it_was_awaited(judged):
    assert judged((0, 1), (1, 1), count=3) == ({"2/s, p50": 1, "2/s, p99": 10_000}, "2 of 3 jobs ran")


def test_early_jobs_are_told(judged):
    figures, note = judged((0, -0.5), (1, -2), count=3)
    assert figures["2/s, p50"] == -0.5
    assert note == "2 jobs ran early, by up to 2.0 ms; 2 of 3 jobs ran"


def test_a_job_that_ran_twice_or_was_never_handed_in_is_an_error(judged):
    with pytest.raises(ValueError, match="1 jobs ran twice"):
        judged((0, 1), (0, 2), (1, 1), count=2)
    with pytest.raises(ValueError, match="nobody handed in, such as 2"):
        judged((0, 1), (1, 1), (2, 1), count=2)


def test_overdue_jobs_count_from_the_start_of_the_worker(judged):
    figures, note = judged((0, 0), (1, 500), count=2, overdue=True)
    assert (figures, note) == ({"overdue": 2}, "")


@pytest.mark.timeout(90)
@pytest.mark.parametrize("figure", ["500/s, p50", "accepted, batches", "accepted, 32 clients", "overdue"])
def test_tickwheels_side_runs(queues, figure):
    queues("sides").FOLDER.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "benches.queues.measure", figure, "tickwheel", "500", "1.0"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=80)
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)
    assert measured["note"] == ""
    assert measured["figures"].keys() == {figure, figure.replace("p50", "p99")}
    assert min(measured["figures"].values()) > 0


def test_each_side_has_a_program_and_a_row_of_settings(queues):
    sides = queues("sides")
    page = (ROOT / "docs/internals/queues.md").read_text()
    for side in sides.SIDES:
        folder = {"Node": "node", "Go": ".", "Python": "."}[side.language]
        assert any((sides.HERE / "programs" / folder).glob(f"{side.program}*")), side.name
        assert any(side.name.split(",")[0] in line for line in page.splitlines() if line.startswith("| ")), side.name


def test_the_page_has_lost_rows_first(queues, tmp_path):
    queues("sides")
    (tmp_path / "results").mkdir()
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/queues.md").write_text("By hand.\n\n<!-- generated: queues -->\nold figures\n<!-- end -->\n")
    figures = [("500/s, p99", "tickwheel", 0.2, "ms"), ("500/s, p99", "River", 20, "ms")]
    figures += [("overdue", "tickwheel", 10, "jobs/s"), ("overdue", "River", 30, "jobs/s")]
    records = [
        {
            "work": work, "side": side, "unit": unit, "better": "lower" if unit == "ms" else "higher", "count": 9,
            "values": [value] * 3,
        }
        for work, side, value, unit in figures
    ]  # fmt: skip
    conditions = {"huge_pages": "never", "governor": "none seen", "others_percent": 1, "stolen_percent": 0}
    file = {"suite": "queues", "command": "made up", "versions": {"River": "not measured, go is missing"}}
    file |= {"conditions": conditions | {"calibration_ms": [1]}, "repeats": 3, "records": records}
    (tmp_path / "results/queues.json").write_text(json.dumps(file))
    main = importlib.import_module("benches.report.__main__").main
    assert main(["--results", str(tmp_path / "results"), "--docs", str(tmp_path / "docs")]) == 0
    page = (tmp_path / "docs/queues.md").read_text()
    assert "| overdue (jobs/s) | 10 | River | 30 |" in page
    assert "| tickwheel | **0.200** | 10 |" in page
    assert page.index("Where another is ahead") < page.index("All figures") < page.index("go is missing")
    assert "old figures" not in page
    assert b"20,000" not in (tmp_path / "docs/queues.svg").read_bytes()
