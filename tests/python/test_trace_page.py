"""`tickwheel trace` prints one page: seven tasks, none of them early."""

import re

from click.testing import CliRunner

from tickwheel import _trace_page
from tickwheel.commands import tickwheel as command


def page() -> str:
    done = CliRunner().invoke(command, ["trace"])
    assert done.exit_code == 0
    return done.stdout


def test_each_task_runs_at_its_due_instant_and_in_order__T5() -> None:
    _, courses = _trace_page.run()
    due_ms = [_trace_page.START_MS + delay_ms for delay_ms in _trace_page.DELAYS_MS]
    assert [course.due_ms for course in courses] == due_ms
    assert [course.ran_ms for course in courses] == due_ms


def test_the_tasks_come_down_the_levels_at_the_seconds_of_their_buckets__T4() -> None:
    _, courses = _trace_page.run()
    at = {second: _trace_page.START_MS - 558 + (second - 20) * 1000 for second in (21, 24)}
    start_ms = _trace_page.START_MS
    assert [course.levels for course in courses] == [
        [(start_ms, 1)],
        [(start_ms, 1)],
        [(start_ms, 2), (at[21], 1)],
        [(start_ms, 2)],
        [(start_ms, 2), (at[24], 1)],
        [(start_ms, 2), (at[24], 1)],
        [(start_ms, 3), (at[21], 2)],
    ]


def test_the_page_shows_the_wheel_after_the_adds__T14() -> None:
    shown = [re.split(r" {2,}", line.strip()) for line in page().splitlines() if line.startswith("  level ")]
    assert shown == [
        ["level 1", "21.000: 1", "22.000: 2", "-"],
        ["level 2", "21.000: 3", "24.000: 4, 5, 6", "-"],
        ["level 3", "-", "-", "21.000: 7"],
    ]


def test_the_page_shows_each_task_with_what_it_came_through_and_that_it_was_not_early__T5() -> None:
    rows = [re.split(r" {2,}", line.strip()) for line in page().splitlines() if re.match(r"  \d ", line)]
    assert [row[0] for row in rows] == ["1", "2", "3", "4", "5", "6", "7"]
    assert [row[2:] for row in rows] == [[due := f"{second}.558", due, "0 ms"] for second in range(21, 28)]
    assert (rows[0][1], rows[2][1], rows[6][1]) == ("1", "2, then 1 at 21.000", "3, then 2 at 21.000")


def test_it_fits_on_a_terminal_of_60_columns_and_24_lines_with_the_prompt() -> None:
    lines = page().splitlines()
    assert max(map(len, lines)) <= 60
    assert len(lines) <= 23
