"""A timer's events as a Parquet file: every event once, in order; and the results of a replay (rules S6, S7)."""

import random
import re
import subprocess
import sys
import threading
from array import array
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tickwheel import SystemTimer, Timer, TimerTask, recording
from tickwheel._native import Replay
from tickwheel.recording import KINDS, SCHEMA, BadRecording, Recording, read_recording, replay
from tickwheel.testing import ManualTimer

pytestmark = pytest.mark.timeout(60)

PRECISIONS = ("exact", "tick")


def rows(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pa.Table.from_batches(read_recording(path), SCHEMA).to_pylist()
    return found


def traffic(timer: ManualTimer, seed: int, unit_ms: int = 1) -> None:
    """Adds, moves and cancels in whole milliseconds."""
    rng = random.Random(seed)
    tasks: list[TimerTask] = []
    for _ in range(400):
        timer.advance(rng.choice([1, 3, 40, 900]) * unit_ms)
        delay_ms = rng.choice([0, 1, 7, 30, 400, 9_000]) * unit_ms + rng.randrange(5) * unit_ms
        match rng.randrange(4):
            case 0 | 1:
                tasks.append(timer.after(delay_ms, int))
            case 2 if tasks:
                tasks.pop(rng.randrange(len(tasks))).cancel()
            case _:
                task = TimerTask(delay_ms, int)
                timer.add(task)
                timer.advance(rng.choice([1, 5]) * unit_ms)
                timer.add(task)
    timer.advance(2_000 * unit_ms)


def counters(timer: Timer) -> dict[str, Any]:
    """The values that a timer's own counters and a replay have in common, on a manual clock."""
    stats: Any = timer.stats()
    return {name: stats[name] for name in ("added", "moved", "cancelled", "expired", "cascaded", "pending")}


def test_one_task_after_the_other_by_hand__S6(tmp_path: Path) -> None:
    timer = ManualTimer(wheel_size=4)
    with Recording(timer, tmp_path / "e.parquet"):
        first = timer.after(2, int)
        timer.after(9, int)
        moved = TimerTask(3, int)
        timer.add(moved)
        timer.advance(1)
        first.cancel()
        timer.add(moved)
        timer.advance(9)
    names = ("at_us", "kind", "number", "due_us", "level", "was", "tasks")
    found = [tuple(row[name] for name in names) for row in rows(tmp_path / "e.parquet")]
    assert found == [
        (0, "added", 1, 2000, 1, None, None),
        (0, "added", 2, 9000, 2, None, None),
        (0, "added", 3, 3000, 1, None, None),
        (1000, "cancelled", 1, 2000, None, None, None),
        (1000, "moved", 4, 4000, 1, 3, None),
        (4000, "cascaded", None, 4000, 1, None, 1),
        (4000, "expired", 4, 4000, None, None, None),
        (8000, "cascaded", None, 8000, 2, None, 1),
        (9000, "cascaded", None, 9000, 1, None, 1),
        (9000, "expired", 2, 9000, None, None, None),
    ]
    about = recording.about(tmp_path / "e.parquet")
    assert (about.timer, about.at_us, about.ended_us, about.lost) == ("manual", 0, 10_000, 0)
    assert [path.name for path in tmp_path.iterdir()] == ["e.parquet"]


@pytest.mark.parametrize("seed", range(6))
def test_a_replay_tells_what_stats_tells_of_the_timer_that_was_recorded__S7(tmp_path: Path, seed: int) -> None:
    for precision in PRECISIONS:
        timer = ManualTimer(tick_ms=1, wheel_size=4, precision=precision, start_ms=17)  # type: ignore[arg-type]
        with Recording(timer, tmp_path / "e.parquet"):
            traffic(timer, seed)
        found: Any = replay(tmp_path / "e.parquet", 1, 4, precision=precision)  # type: ignore[arg-type]
        assert {name: found[name] for name in counters(timer)} == counters(timer)
        assert found["unknown"] == 0
        assert min(found["moved"], found["cancelled"], *found["cascaded"][:3]) > 0, "a poor test"


@pytest.mark.parametrize("wheel_size", [2, 20, 64, 256, [10, 6]])
def test_a_replay_tells_what_stats_would_tell_of_another_wheel__S7(tmp_path: Path, wheel_size: int | list[int]) -> None:
    with ManualTimer() as timer, Recording(timer, tmp_path / "e.parquet"):
        traffic(timer, 7)
    other = ManualTimer(wheel_size=wheel_size)
    traffic(other, 7)
    found: Any = replay(tmp_path / "e.parquet", 1, wheel_size)
    assert {name: found[name] for name in counters(other)} == counters(other)
    assert sum(found["flushed"]) > 100
    assert found["max_early_us"] == 0


def test_a_coarse_tick_is_early_by_less_than_a_tick_and_wakes_less__S7_T5(tmp_path: Path) -> None:
    with ManualTimer() as timer, Recording(timer, tmp_path / "e.parquet"):
        for delay_ms in range(100, 300):
            timer.after(delay_ms, int)
        timer.advance(1_000)
    exact, tick = (replay(tmp_path / "e.parquet", 10, 20, precision=precision) for precision in PRECISIONS)  # type: ignore[arg-type]
    assert (exact["expired"], tick["expired"]) == (200, 200)
    assert (exact["max_early_us"], tick["max_early_us"]) == (0, 9_000)
    assert sum(tasks for _, tasks in tick["early_us"]) == 200
    assert tick["wake_ups"] < exact["wake_ups"] / 5


def test_all_threads_are_recorded_and_nothing_is_lost_or_twice__S6(tmp_path: Path) -> None:
    """On a real timer: adds, cancels and callbacks at the same time, while the file is written."""
    with SystemTimer("busy") as timer, Recording(timer, tmp_path / "e.parquet") as written:

        def work() -> None:
            for i in range(20_000):
                task = timer.after(i % 50, int)
                if i % 3 == 0:
                    task.cancel()

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        timer.add_many(pa.array(range(1000), pa.int64()), lambda _: None).cancel_all()
        timer.shutdown()
        stats = timer.stats()
    assert written.lost == 0
    found = rows(tmp_path / "e.parquet")
    counts = Counter(row["kind"] for row in found)
    assert counts["added"] == stats["added"] == 61_000
    assert counts["cancelled"] == stats["cancelled"] > 20_000
    assert counts["expired"] == stats["expired"] > 10_000
    assert counts["woke"] == stats["wake_ups"]
    by_level: Counter[int] = Counter()
    for row in found:
        by_level[row["level"]] += row["tasks"] or 0
    assert [by_level[level] for level in range(1, len(stats["cascaded"]) + 1)] == stats["cascaded"]
    added = [row["number"] for row in found if row["kind"] == "added"]
    assert sorted(added) == list(range(1, 61_001))
    ended = [row["number"] for row in found if row["kind"] in {"cancelled", "expired"}]
    assert len(ended) == len(set(ended)) <= len(added)


def test_what_does_not_fit_is_counted_as_lost__S6(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timer = ManualTimer()
    monkeypatch.setattr(recording, "_KEPT", 1)
    with Recording(timer, tmp_path / "e.parquet") as written:
        # With the GIL held throughout, so no other thread takes events out meanwhile.
        sys.setswitchinterval(100)
        try:
            for _ in range(10_000):
                timer.after(1, int)
        finally:
            sys.setswitchinterval(0.005)
    kept = len(rows(tmp_path / "e.parquet"))
    assert kept + written.lost == 10_000
    assert recording.about(tmp_path / "e.parquet").lost == written.lost > 0


def test_a_timer_is_recorded_by_one_at_a_time_and_again_after_it__S6(tmp_path: Path) -> None:
    timer = ManualTimer("mine")
    with Recording(timer, tmp_path / "a.parquet") as first:
        with pytest.raises(ValueError, match="timer 'mine' is being recorded already: close that recording first"):
            Recording(timer, tmp_path / "b.parquet")
        timer.after(1, int)
    first.close()
    timer.after(1, int)
    with Recording(timer, tmp_path / "b.parquet"):
        pass
    assert [len(rows(tmp_path / name)) for name in ("a.parquet", "b.parquet")] == [1, 0]
    assert replay(tmp_path / "b.parquet")["added"] == 0


def test_the_next_recording_may_begin_while_the_last_one_is_being_closed__S6(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timer = ManualTimer()
    begun: list[Recording] = []
    add = pq.ParquetWriter.add_key_value_metadata

    def begin_the_next(writer: pq.ParquetWriter, metadata: dict[bytes, str]) -> None:
        add(writer, metadata)
        if not begun:
            begun.append(Recording(timer, tmp_path / "b.parquet"))

    monkeypatch.setattr(pq.ParquetWriter, "add_key_value_metadata", begin_the_next)
    Recording(timer, tmp_path / "a.parquet").close()
    timer.after(1, int)
    begun[0].close()
    assert [len(rows(tmp_path / name)) for name in ("a.parquet", "b.parquet")] == [0, 1]


def test_where_the_file_cannot_be_made_the_timer_is_as_before__S6(tmp_path: Path) -> None:
    timer = ManualTimer()
    with pytest.raises(FileNotFoundError):
        Recording(timer, tmp_path / "none" / "e.parquet")
    with Recording(timer, tmp_path / "e.parquet"):
        timer.after(1, int)
    assert len(rows(tmp_path / "e.parquet")) == 1


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        ({"timer": None}, "timer must be a SystemTimer or a ManualTimer, got NoneType: pass the timer itself"),
        ({"path": None}, "path must be text or a path, got NoneType: name the file to write"),
    ],
)
def test_a_bad_argument_of_a_recording_is_refused__S6_T13(tmp_path: Path, bad: dict[str, Any], text: str) -> None:
    with pytest.raises(TypeError, match=f"^{re.escape(text)}$"):
        Recording(**{"timer": ManualTimer(), "path": tmp_path / "e.parquet", **bad})
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_ends_the_recording_and_not_the_timer__S6(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    timer = ManualTimer()
    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    monkeypatch.setattr(recording, "_GROUP", 1)
    written = Recording(timer, tmp_path / "e.parquet")
    timer.after(1, int)
    written._thread.join(20)
    assert not written._thread.is_alive()
    timer.after(1, int)
    with pytest.raises(OSError, match="No space left"):
        written.close()
    assert not (tmp_path / "e.parquet").exists()
    assert timer.advance(5) == 2


def test_a_killed_process_leaves_no_half_recording_in_place__S6(tmp_path: Path) -> None:
    script = """if True:
        import os, sys
        from tickwheel.recording import Recording
        from tickwheel.testing import ManualTimer
        timer = ManualTimer()
        written = Recording(timer, sys.argv[1])
        timer.after(1, int)
        if sys.argv[2] == "fork" and os.fork() == 0:
            written.close()
            os._exit(0)
        os._exit(os.wait()[1] if sys.argv[2] == "fork" else 9)
        """
    for how, code in (("kill", 9), ("fork", 0)):
        path = tmp_path / f"{how}.parquet"
        assert subprocess.run([sys.executable, "-c", script, path, how], timeout=30, check=False).returncode == code
        assert not path.exists()


def test_another_file_is_refused_and_says_why__S7(tmp_path: Path) -> None:
    path = tmp_path / "e.parquet"
    path.write_text("no Parquet")
    with pytest.raises(
        BadRecording, match=r"e\.parquet is not a recording that can be used: .*name a file that tickwheel"
    ):
        replay(path)
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(BadRecording, match="it is another Parquet file"):
        replay(path)
    with pytest.raises(FileNotFoundError):
        replay(tmp_path / "none.parquet")
    timer = ManualTimer()
    with Recording(timer, path):
        for delay_ms in range(10_000):
            timer.after(delay_ms, int)
    data = bytearray(path.read_bytes())
    data[200:2000] = bytes(1800)
    path.write_bytes(data)
    with pytest.raises(BadRecording, match="it can't be read to its end"):
        replay(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recording, "_VERSION", 2)
        with Recording(timer, path):
            pass
    with pytest.raises(BadRecording, match="it has version 2, and this tickwheel reads version 1"):
        replay(path)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([[1], [0], [1], [5], []], r"the columns of events must be equally long, got \[1, 1, 1, 1, 0\]"),
        ([[1], [6], [1], [5], [0]], "kind must be from 0 to 5, got 6"),
        ([[1], [-1], [1], [5], [0]], "kind must be from 0 to 5, got -1"),
        ([[-1], [0], [1], [5], [0]], "event 0: at_us must be 0 or more, got -1"),
        ([[1, 1], [0, 0], [7, 7], [5, 5], [0, 0]], "the number of an added task must be new, got 7 twice"),
        ([[1], [0], [1], [1 << 62], [0]], "a task must be due before"),
    ],
)
def test_events_that_cannot_be_are_refused__S7(columns: list[list[int]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Replay().feed(*(pa.array(column, pa.int64()) for column in columns))


@pytest.mark.parametrize("until_us", [-1, 2**52 * 1000, 2**64 - 1, 2**64, -(2**63)])
def test_an_end_that_no_clock_reaches_is_refused_and_the_replay_goes_on__S7_T13(until_us: int) -> None:
    replay = Replay()
    columns = [[0], [0], [1], [50], [0]]
    replay.feed(*(array("q", column) for column in columns))
    text = (
        f"until_us must be from 0 to {2**52 * 1000 - 1}, got {until_us}: pass the instant at which the recording "
        "ended, in microseconds"
    )
    with pytest.raises(ValueError, match=f"^{text}$"):
        replay.finish(until_us)
    assert replay.finish(100)["expired"] == 1


@pytest.mark.parametrize("until_us", [True, 1.5, "1", None])
def test_an_end_that_is_no_int_is_refused__S7_T13(until_us: Any) -> None:
    with pytest.raises(TypeError, match=r"^until_us must be an int, got .*: pass the instant at which"):
        Replay().finish(until_us)


def test_an_event_that_no_clock_reaches_is_refused__S7_T13() -> None:
    columns = [[2**52 * 1000], [0], [1], [2**53 * 1000], [0]]
    text = rf"^event 0: at_us must be below 2\^52 ms, got {2**52 * 1000} us: no clock goes further$"
    with pytest.raises(ValueError, match=text):
        Replay().feed(*(array("q", column) for column in columns))


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        (0, -1, "at_us must be 0 or more, got -1"),
        (1, 6, "kind must be from 0 to 5, got 6"),
        (2, -2, "number must be 0 or more, got -2"),
        (3, -3, "due_us must be 0 or more, got -3"),
        (4, -4, "other must be 0 or more, got -4"),
    ],
)
def test_a_bad_event_is_named_by_its_place__S7_T13(column: int, value: int, text: str) -> None:
    columns = [[1, 2, 3], [0, 0, 0], [1, 2, 3], [5, 5, 5], [0, 0, 0]]
    columns[column][2] = value
    with pytest.raises(ValueError, match=f"^event 2: {text}$"):
        Replay().feed(*(array("q", column) for column in columns))


def test_columns_after_one_that_fails_are_not_asked_for__S7() -> None:
    asked: list[str] = []

    class Column:
        def __init__(self, name: str) -> None:
            self.name = name

        def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
            asked.append(self.name)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Replay().feed(*map(Column, ("at_us", "kind", "number", "due_us", "other")))
    assert asked == ["at_us"]


def test_settings_that_are_not_allowed_are_refused_as_by_a_timer__S7_T13(tmp_path: Path) -> None:
    with ManualTimer() as timer, Recording(timer, tmp_path / "e.parquet"):
        pass
    for settings, message in [((0, 20), "tick_ms must be from 1"), ((1, 1), "wheel_size must be from 2")]:
        with pytest.raises(ValueError, match=message):
            replay(tmp_path / "e.parquet", *settings)
    with pytest.raises(ValueError, match="precision must be 'exact' or 'tick', got 'rough'"):
        replay(tmp_path / "e.parquet", precision="rough")  # type: ignore[arg-type]
    wheel = Replay()
    wheel.finish(0)
    with pytest.raises(ValueError, match="this replay is finished: make a new one"):
        wheel.finish(0)


def test_kinds_stand_at_the_numbers_of_the_timer__S6(tmp_path: Path) -> None:
    with SystemTimer("x") as timer, Recording(timer, tmp_path / "e.parquet"):
        done = threading.Event()
        task = TimerTask(500, int)
        timer.add(task)
        timer.add(task)
        timer.after(500, int).cancel()
        timer.after(30, done.set)
        assert done.wait(20)
    assert {row["kind"] for row in rows(tmp_path / "e.parquet")} == set(KINDS)
