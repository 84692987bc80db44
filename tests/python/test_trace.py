"""`tickwheel trace`: the walk equals the golden data, and its text explains every step."""

import io
import json
import re
from pathlib import Path
from typing import Literal

import pytest
from click.testing import CliRunner
from rich.console import Console

from tickwheel import TimerTask, trace
from tickwheel._trace_text import show
from tickwheel.commands import tickwheel as command
from tickwheel.testing import ManualTimer

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "seven_tasks.json").read_text(encoding="utf-8"))
STEP_NAMES = [step["step"] for step in GOLDEN["steps"]]


def text_at(columns: int, *, colours: bool = False) -> str:
    file = io.StringIO()
    colour_system: Literal["standard"] | None = "standard" if colours else None
    console = Console(file=file, width=columns, height=50, force_terminal=colours, color_system=colour_system)
    show(trace.walk(), console)
    return file.getvalue()


def sections(text: str) -> dict[str, str]:
    """The text of each step by its name, with runs of white space (also line ends) replaced by one space."""
    _, *parts = re.split(r"^((?:start|add|advance)[^─\n]*) ─+$", text, flags=re.MULTILINE)
    return {name: " ".join(body.split()) for name, body in zip(parts[::2], parts[1::2], strict=True)}


@pytest.fixture(scope="module")
def steps() -> dict[str, str]:
    return sections(text_at(100))


@pytest.mark.parametrize("number", range(len(STEP_NAMES)), ids=STEP_NAMES)
def test_each_step_equals_the_golden_data_field_for_field__T14(number: int) -> None:
    wanted = GOLDEN["steps"][number]
    step = trace.document()["steps"][number]
    assert {key: step[key] for key in wanted} == wanted


def test_the_walk_has_the_golden_settings_and_no_step_more__T14() -> None:
    document = trace.document()
    assert [step["step"] for step in document["steps"]] == STEP_NAMES
    assert {key: document[key] for key in ("tick_ms", "wheel_size", "start_ms")} == {
        key: GOLDEN[key] for key in ("tick_ms", "wheel_size", "start_ms")
    }


def test_the_bucket_a_task_was_found_in_is_its_virtual_id_modulo_size__T3() -> None:
    entries = [
        entry
        for step in trace.walk()
        for entry in (step.added, *(entry for flush in step.flushed for entry in flush.entries))
        if entry is not None and entry.placement is not None
    ]
    assert len(entries) == 11, "seven adds and four cascades"
    for entry in entries:
        place = entry.placement
        assert place is not None
        assert place.bucket == place.virtual_id % trace.WHEEL_SIZE
        assert place.from_ms <= entry.expiration_ms < place.until_ms
        assert [asked.covered for asked in place.asked] == [False] * (place.level - 1) + [True]


def test_with_all_the_command_prints_the_text() -> None:
    done = CliRunner().invoke(command, ["trace", "--all"])
    assert done.exit_code == 0
    assert list(sections(done.stdout)) == list(sections(text_at(80)))


def test_with_json_the_command_prints_the_document() -> None:
    done = CliRunner().invoke(command, ["trace", "--json"])
    assert done.exit_code == 0
    assert json.loads(done.stdout) == json.loads(json.dumps(trace.document()))


def test_adding_task_3_tells_of_the_new_level__T2(steps: dict[str, str]) -> None:
    told = steps["add task-3"]
    assert "expires at 06:40:23.558 (1675752023558 ms)" in told
    assert "level 1 [06:40:20.000, 06:40:23.000): not covered" in told
    assert "level 2 is new: tick 3000 ms, start 06:40:20.000, current time 06:40:18.000" in told
    assert "level 2 [06:40:18.000, 06:40:27.000): covered" in told
    assert "1675752023558 // 3000 = 558584007" in told
    assert "558584007 % 3 = 0" in told
    assert "level 2 bucket 0 [06:40:21.000, 06:40:24.000) is now armed" in told


def test_adding_task_5_finds_its_bucket_armed_already__T3(steps: dict[str, str]) -> None:
    told = steps["add task-5"]
    assert "level 2 bucket 1 [06:40:24.000, 06:40:27.000) was armed already" in told
    assert "is now armed" not in told
    assert "is new" not in told


def test_the_first_advance_moves_three_clocks_and_cascades_task_7__T4(steps: dict[str, str]) -> None:
    told = steps["advance 1 to 06:40:21.000"]
    assert "level 1: 06:40:20.000 -> 06:40:21.000" in told
    assert "level 2: 06:40:18.000 -> 06:40:21.000" in told
    assert "level 3: 06:40:12.000 -> 06:40:21.000" in told
    assert "task-1 (06:40:21.558) is expired" in told
    assert "task-3 (06:40:23.558) cascades to level 1 bucket 2" in told
    assert "level 3 bucket 2: task-7 (06:40:27.558) cascades to level 2 bucket 2" in told
    assert told.index("task-7 (") < told.index("task-3 (") < told.index("task-1 ("), "the highest level leaves first"


def test_the_second_advance_leaves_the_upper_clocks_where_they_are__T4(steps: dict[str, str]) -> None:
    told = steps["advance 2 to 06:40:22.000"]
    assert "level 2: stays at 06:40:21.000, a full tick of 3000 ms has not passed" in told
    assert "level 3: stays at 06:40:21.000, a full tick of 9000 ms has not passed" in told


def test_a_bucket_that_two_cascading_tasks_share_is_armed_by_the_first_only__T3() -> None:
    """Both tasks are new in the bucket between two snapshots; the walk itself has no such pair."""
    timer = ManualTimer(tick_ms=10, wheel_size=3)
    timer.add(TimerTask(41, print, name="a"))
    timer.add(TimerTask(42, print, name="b"))
    before = timer.snapshot()
    timer.advance_to(30)
    (flush,) = trace._flushed({"a": 41, "b": 42}, before, timer.snapshot())
    assert [entry.placement and entry.placement.arms for entry in flush.entries] == [True, False]


def test_a_bucket_that_a_cancel_emptied_is_still_armed__T9() -> None:
    timer = ManualTimer(tick_ms=10, wheel_size=3)
    cancelled = TimerTask(11, print, name="a")
    timer.add(cancelled)
    cancelled.cancel()
    before = timer.snapshot()
    timer.add(TimerTask(12, print, name="b"))
    placement = trace._placement("b", 12, before, timer.snapshot())
    assert placement is not None
    assert not placement.arms


def test_the_text_says_how_early_each_task_runs_and_that_the_default_is_never_early__T5(steps: dict[str, str]) -> None:
    assert 'The default, precision="exact", is never early' in steps["start"]
    runs = [
        line for told in steps.values() for line in re.findall(r"task-\d \([\d:.]+\) is expired, (\d+) ms early", told)
    ]
    assert runs == ["558"] * 7


def test_the_last_step_leaves_an_empty_queue_and_every_level__T2(steps: dict[str, str]) -> None:
    told = steps["advance 7 to 06:40:27.000"]
    assert "level 2 bucket 2: task-7 (06:40:27.558) is expired" in told
    assert "Run so far: task-1, task-2, task-3, task-4, task-5, task-6, task-7." in told
    assert "level 3: stays at 06:40:21.000" in told
    assert told.endswith("queue: empty")


def test_sixty_columns_say_all_that_a_hundred_say(steps: dict[str, str]) -> None:
    narrow = text_at(60)
    assert max(map(len, narrow.splitlines())) <= 60
    assert "…" not in narrow
    numbers = re.compile(r"[\d:.]+")
    assert {name: numbers.findall(told) for name, told in sections(narrow).items()} == {
        name: numbers.findall(told) for name, told in steps.items()
    }


def test_colours_change_nothing_but_colours() -> None:
    coloured = text_at(60, colours=True)
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == text_at(60)
