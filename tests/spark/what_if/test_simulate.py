"""`tickwheel simulate`: the figures of every wheel equal that wheel's own `stats()` (rule S7)."""

import random
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from delivery.report.test_browser import chromium, measured  # noqa: F401, a fixture
from tickwheel import TimerTask
from tickwheel.commands.simulate import simulate
from tickwheel.recording import Recording, replay
from tickwheel.spark import what_if
from tickwheel.spark.what_if import FIGURES
from tickwheel.testing import ManualTimer

pytestmark = pytest.mark.timeout(240)

TICKS_MS, SIZES = (1, 10), (4, 64)
RUN = "from tickwheel.commands.simulate import simulate; simulate(prog_name='simulate')"


def traffic(timer: ManualTimer, seed: int) -> None:
    """Requests with time-outs in whole milliseconds; many are cancelled, half a millisecond away from a time-out."""
    rng = random.Random(seed)
    live: list[TimerTask] = []
    timer.advance(0.5)
    for _ in range(600):
        timer.advance(rng.choice([0.5, 1.5, 4.5, 249.5]))
        task = TimerTask(rng.choice([5, 30, 500, 30_000]) + rng.randrange(20), int)
        timer.add(task)
        live.append(task)
        if rng.random() < 0.1:
            timer.add(rng.choice(live[-10:]))
        timer.advance(0.5)
        if rng.random() < 0.5:
            live.pop(rng.randrange(len(live))).cancel()
    timer.advance(10)


def record(path: Path, seed: int) -> Path:
    with ManualTimer(f"timer <{seed}>") as timer, Recording(timer, path):
        traffic(timer, seed)
    return path


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("recordings")
    return [record(folder / "a <b>&.parquet", 1), record(folder / "b ?#%20.parquet", 2)]


@pytest.fixture(scope="module")
def out(session: Any, recordings: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("what_if") / "out %20 é"
    assert what_if.simulate(session, recordings, TICKS_MS, SIZES, folder) == folder / "index.html"
    return folder


@pytest.fixture(scope="module")
def rows(out: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(out / "figures.parquet").to_pylist()
    return found


def test_every_recording_is_replayed_on_every_wheel_once_and_in_order__S7(rows: list[dict[str, Any]]) -> None:
    asked = [(row["recording"], row["tick_ms"], row["wheel_size"], row["precision"]) for row in rows]
    assert asked == [
        (recording, tick_ms, size, precision)
        for recording in range(2)
        for tick_ms in TICKS_MS
        for size in SIZES
        for precision in ("exact", "tick")
    ]
    assert list(rows[0]) == FIGURES.names


def test_figures_are_those_of_the_real_timers_own_stats__S7(rows: list[dict[str, Any]]) -> None:
    """The same traffic on a real timer of each wheel."""
    compared = 0
    for row in rows:
        timer = ManualTimer(tick_ms=row["tick_ms"], wheel_size=row["wheel_size"], precision=row["precision"])
        traffic(timer, row["recording"] + 1)
        stats: Any = timer.stats()
        names = ("added", "moved", "cancelled", "expired", "pending", "cascaded")
        # Unlike a manual clock, a reaper does not stop at each bucket of a coarse tick.
        if row["precision"] == "tick" or row["tick_ms"] == 1:
            assert {name: row[name] for name in names} == {name: stats[name] for name in names}
            assert row["cascades"] == sum(stats["cascaded"][1:])
            compared += 1
        assert row["max_early_us"] == (0 if row["precision"] == "exact" else row["max_early_us"])
        assert row["max_early_us"] < row["tick_ms"] * 1000
        assert 0 <= row["early_p50_us"] <= row["early_p99_us"] <= row["max_early_us"]
    assert compared == 12
    assert min(row["cascades"] for row in rows if row["wheel_size"] == 4) > 100, "a poor test"


def test_workers_tell_what_a_replay_in_this_process_tells__S7(
    rows: list[dict[str, Any]], recordings: list[Path]
) -> None:
    for row in rows:
        counts: Any = replay(
            recordings[row["recording"]], row["tick_ms"], row["wheel_size"], precision=row["precision"]
        )
        same = counts.keys() & row.keys()
        assert {name: row[name] for name in same} == {name: counts[name] for name in same}
        assert len(same) == 12


def test_the_page_shows_every_wheel_and_escapes_names__S7_D12(out: Path, rows: list[dict[str, Any]]) -> None:
    page = (out / "index.html").read_text(encoding="utf-8")
    assert "What if: 2 recordings" in page
    assert "a &lt;b&gt;&amp;.parquet" in page
    assert "timer &lt;1&gt;" in page
    assert "<b>" not in page
    assert page.count("tick 10 ms, size 64</th>") == 2
    assert not re.search(r"(src|href)=\"[^#]|url\([^#]", page), "it needs no other file"
    both = [row for row in rows if (row["tick_ms"], row["wheel_size"], row["precision"]) == (1, 4, "exact")]
    per_task = sum(row["cascades"] for row in both) / sum(row["added"] + row["moved"] for row in both)
    line = re.search(r"tick 1 ms, size 4</th>(.*?)</tr>", page.replace("\n", ""))
    assert line
    assert f"{per_task:.3f}" in line[1]
    assert {path.name for path in out.iterdir()} == {"index.html", "figures.parquet", ".tickwheel"}


@pytest.mark.parametrize("width", [390, 1200])
def test_the_page_fits_on_the_screen_and_can_be_read__S7(
    chromium: str,  # noqa: F811
    tmp_path: Path,
    out: Path,
    width: int,
) -> None:
    page = (out / "index.html").read_text(encoding="utf-8")
    assert measured(chromium, tmp_path, page, width) is None, "its own policy lets no script run"
    page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page, count=1)
    found = measured(chromium, tmp_path, page, width)
    assert found is not None
    inner, scroll, too_wide, charts, smallest, overlaps = found
    assert (int(inner), int(too_wide), int(charts), int(overlaps)) == (width, 0, 5, 0)
    assert int(scroll) <= width
    assert float(smallest) >= 10, "pixels of the smallest letters in a chart"


def test_a_run_of_the_command_and_ctrl_c__S7_D13(recordings: list[Path], tmp_path: Path) -> None:
    args = [sys.executable, "-c", RUN, recordings[0], "--ticks", "1", "--sizes", "20,64", "--out", "out"]
    with subprocess.Popen(args, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("Starting Spark"):
                process.send_signal(signal.SIGINT)
                break
        output = process.stderr.read()
        assert process.wait(100) == 130, output
    assert output.endswith("Stopped by Ctrl-C: out has not changed. Run the same command again.\n")
    assert "Traceback" not in output
    assert list(tmp_path.iterdir()) == []
    done = subprocess.run(args, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith(
        "Replaying 4 times: every recording on every wheel, exact and to the tick.\n"
        "Making index.html.\nDone: out/index.html\n"
    )
    assert len(pq.read_table(tmp_path / "out" / "figures.parquet")) == 4


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["none.parquet", "--out", "out"], "there is no recording none.parquet"),
        (["page.txt", "--out", "out"], "page.txt is not a recording that can be used"),
        (["e.parquet", "--out", "."], "--out: . holds other things"),
        (["e.parquet", "--out", "out", "--ticks", "1,x"], "'1,x' is not a list of whole numbers, as in 1,5,10"),
        (["e.parquet", "--out", "out", "--ticks", "0,1"], "--ticks: 0 is not in the range 1 to"),
        (["e.parquet", "--out", "out", "--sizes", "1"], "--sizes: 1 is not in the range 2 to 65536"),
        (["e.parquet", "--out", "out", "--sizes", ",".join(map(str, range(2, 400)))], "at most 1,000 are possible"),
        (["e.parquet"], "Missing option '--out'"),
        (["--out", "out"], "Missing argument 'EVENTS...'"),
    ],
)
def test_wrong_usage_is_told_before_spark_starts__D2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    record(Path("e.parquet"), 1)
    Path("page.txt").write_text("no recording")
    result = CliRunner().invoke(simulate, args, catch_exceptions=False)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert "Starting Spark" not in result.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"page.txt", "e.parquet"}


def test_what_is_broken_in_the_middle_is_told_in_our_own_words__D2(tmp_path: Path) -> None:
    with ManualTimer() as timer, Recording(timer, tmp_path / "e.parquet"):
        for delay_ms in range(10_000):
            timer.after(delay_ms, int)
    data = bytearray((tmp_path / "e.parquet").read_bytes())
    data[200:2000] = bytes(1800)
    (tmp_path / "e.parquet").write_bytes(data)
    args = [sys.executable, "-c", RUN, "e.parquet", "--sizes", "20", "--ticks", "1", "--out", "out"]
    done = subprocess.run(args, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 3, done.stderr
    assert "e.parquet is not a recording that can be used: it can't be read to its end" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr.splitlines()[-1]
