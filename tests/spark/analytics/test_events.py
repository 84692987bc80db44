"""Recorded timer events in the analysis, against a plain computation on the same recordings (rule S6)."""

import random
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.slow import ranked
from tickwheel import recording
from tickwheel.analysis.written import WRITTEN, WRITTEN_OF_EVENTS
from tickwheel.recording import Recording, read_recording
from tickwheel.spark.analytics import analyze
from tickwheel.testing import ManualTimer

from .conftest import fill_nothing

pytestmark = pytest.mark.timeout(240)

WALL_MS = 1_700_000_012_345


def record(path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some minutes of traffic on a timer whose clock differs from the wall clock."""
    rng = random.Random(seed)
    monkeypatch.setattr(recording, "_wall_ms", lambda: WALL_MS + seed * 40_000)
    timer = ManualTimer(f"t{seed}", start_ms=5_000 * seed, wheel_size=4, tick_ms=3)
    with Recording(timer, path):
        for _ in range(500):
            timer.advance(rng.choice([0.3, 7, 900]))
            task = timer.after(rng.choice([0, 2, 80, 3_000]) + rng.random(), int)
            if rng.random() < 0.3:
                task.cancel()
            elif rng.random() < 0.2:
                timer.add(task)
        timer.advance(100_000)


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("recordings")
    paths = [folder / "a ?#%20.parquet", folder / "b é.parquet"]
    with pytest.MonkeyPatch.context() as monkeypatch:
        for number, path in enumerate(paths, 1):
            record(path, number, monkeypatch)
    return paths


@pytest.fixture(scope="module")
def out(session: Any, recordings: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("events")
    fill_nothing(folder / "s.db")
    analyze(session, [folder / "s.db"], folder / "out", recordings=recordings)
    return folder / "out"


@pytest.fixture(scope="module")
def rows(recordings: list[Path]) -> list[dict[str, Any]]:
    """All events, each with its recording and its wall time."""
    begun = [recording.about(path) for path in recordings]
    return [
        row | {"file": number, "at_ms": begun[number].wall_ms + (row["at_us"] - begun[number].at_us) // 1000}
        for number, path in enumerate(recordings)
        for row in pa.Table.from_batches(read_recording(path)).to_pylist()
    ]


def figure(out: Path, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(out / f"{name}.parquet").to_pylist()
    return found


def test_what_happened_by_minute__S6(out: Path, rows: list[dict[str, Any]]) -> None:
    minutes: dict[int, Counter[str]] = defaultdict(Counter)
    for row in rows:
        at = minutes[row["at_ms"] // 60_000 * 60_000]
        at[row["kind"]] += 1
        at["cascades"] += row["tasks"] if row["kind"] == "cascaded" and row["level"] > 1 else 0
    names: Mapping[str, str] = {name: name for name in ("added", "moved", "cancelled", "expired", "cascades")}
    expected = [
        {"start_ms": start, **{name: at[kind] for name, kind in (names | {"wake_ups": "woke"}).items()}}
        for start, at in sorted(minutes.items())
    ]
    assert figure(out, "timer_by_minute") == expected
    assert len(expected) > 3
    assert sum(row["cascades"] for row in expected) > 100, "a poor test"


def test_what_each_level_had_and_how_late_it_ran__S6(out: Path, rows: list[dict[str, Any]]) -> None:
    put: dict[tuple[int, int], int] = {}
    counts: dict[int, Counter[str]] = defaultdict(Counter)
    late: dict[int, list[dict[str, int]]] = defaultdict(list)
    for row in rows:
        if row["kind"] in {"added", "moved"}:
            put[row["file"], row["number"]] = row["level"]
            counts[row["level"]]["put"] += 1
        elif row["kind"] == "cascaded":
            counts[row["level"]]["flushed"] += 1
            counts[row["level"]]["cascaded"] += row["tasks"]
        elif row["kind"] == "expired":
            late[put[row["file"], row["number"]]].append({"lateness_us": row["at_us"] - row["due_us"]})
    found = figure(out, "timer_levels")
    assert [row["level"] for row in found] == sorted(counts)
    for row in found:
        level = row["level"]
        moved = {name: counts[level][name] for name in ("put", "flushed", "cascaded")}
        ran = ranked(late[level])
        assert row == {"level": level, **moved, "expired": ran.pop("messages"), **ran}
    assert len(found) > 4


def test_the_page_shows_them_and_a_later_analysis_without_them_does_not__S6(
    session: Any, out: Path, recordings: list[Path]
) -> None:
    page = (out / "index.html").read_text(encoding="utf-8")
    assert "<h2>Timer</h2>" in page
    assert ">level 2<" in page
    assert all(name in page for name in WRITTEN_OF_EVENTS)
    assert {path.name for path in out.iterdir()} == {"index.html", ".tickwheel", *WRITTEN, *WRITTEN_OF_EVENTS}
    analyze(session, [out.parent / "s.db"], out)
    page = (out / "index.html").read_text(encoding="utf-8")
    assert "<h2>Timer</h2>" not in page
    assert not any(name in page for name in WRITTEN_OF_EVENTS)
    assert {path.name for path in out.iterdir()} == {"index.html", ".tickwheel", *WRITTEN}
    with ManualTimer() as timer, Recording(timer, out.parent / "none.parquet"):
        pass
    analyze(session, [out.parent / "s.db"], out, recordings=[out.parent / "none.parquet"])
    assert "The recordings hold no event." in (out / "index.html").read_text(encoding="utf-8")
    assert figure(out, "timer_levels") == figure(out, "timer_by_minute") == []
