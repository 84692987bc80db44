"""The page that `tickwheel trace` prints: seven tasks on a real wheel, the example of seed 002.

At most 60 columns and 23 lines, so it is plain text. All its times and places are read from the timer while it runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tickwheel import TimerTask
from tickwheel.testing import ManualTimer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tickwheel._native import LevelSnapshot, Snapshot

TICK_MS = 1000
WHEEL_SIZE = 3
START_MS = 1_675_752_020_558
DELAYS_MS = (1000, 2000, 3000, 4000, 5000, 6000, 7000)


@dataclass(slots=True)
class Course:
    """The course of one task: when it is due, the levels that it came through, each with its time, and when it ran."""

    number: int
    due_ms: float
    levels: list[tuple[float, int]] = field(default_factory=list)
    ran_ms: float | None = None


def run() -> tuple[Snapshot, list[Course]]:
    """Add the seven tasks, and let time go on until all have run. Returns the wheel after the adds, and the courses.

    >>> wheel, courses = run()
    >>> wheel["size"], courses[2].ran_ms == courses[2].due_ms
    (7, True)
    """
    with ManualTimer(tick_ms=TICK_MS, wheel_size=WHEEL_SIZE, start_ms=START_MS, strict=True) as timer:
        courses: dict[str, Course] = {}

        def ran(name: str) -> None:
            courses[name].ran_ms = timer.now_ms()

        for number, delay_ms in enumerate(DELAYS_MS, start=1):
            name = f"task-{number}"
            timer.add(TimerTask(delay_ms, ran, name, name=name))
            courses[name] = Course(number, timer.now_ms() + delay_ms)
        wheel = timer.snapshot()
        _note(wheel, timer.now_ms(), courses)
        while timer.run_next():
            _note(timer.snapshot(), timer.now_ms(), courses)
        return wheel, list(courses.values())


def _note(wheel: Snapshot, now_ms: float, courses: dict[str, Course]) -> None:
    """Add the level of each task to its course, if it is a new one."""
    for level in wheel["levels"]:
        for bucket in level["buckets"]:
            for task in bucket["tasks"]:
                levels = courses[str(task)].levels
                if not levels or levels[-1][1] != level["level"]:
                    levels.append((now_ms, level["level"]))


def page() -> str:
    """Return the page."""
    return "\n".join(_lines(*run()))


def _lines(wheel: Snapshot, courses: list[Course]) -> Iterator[str]:
    first_s, last_s = DELAYS_MS[0] // 1000, DELAYS_MS[-1] // 1000
    yield f"{len(courses)} tasks on a real wheel, its clock moved by hand. They are"
    yield f"due {first_s} to {last_s} s after second {_second(START_MS)}, and none runs early."
    yield f"A tick is {TICK_MS} ms, a level has {WHEEL_SIZE} buckets. After the adds:"
    yield ""
    for level in wheel["levels"]:
        buckets = "".join(f"{text:<17}" for text in _buckets(level, courses))
        yield f"  level {level['level']}  {buckets}".rstrip()
    yield ""
    yield "At its second a bucket is emptied: its tasks move to a lower"
    yield "level, or wait in order for the exact instant of each."
    yield ""
    yield f"  task  {'level':<23}{'due':<8}{'ran':<8}early"
    for course in courses:
        yield _course(course)


def _buckets(level: LevelSnapshot, courses: list[Course]) -> Iterator[str]:
    numbers = {f"task-{course.number}": str(course.number) for course in courses}
    for bucket in level["buckets"]:
        tasks = ", ".join(numbers[str(task)] for task in bucket["tasks"])
        yield f"{_second(bucket['expiration_ms'])}: {tasks}" if tasks else "-"


def _course(course: Course) -> str:
    (_, first), *moves = course.levels
    levels = ", ".join([str(first), *(f"then {level} at {_second(at_ms)}" for at_ms, level in moves)])
    assert course.ran_ms is not None, "the timer has run all"
    early_ms = course.due_ms - course.ran_ms
    return f"  {course.number:<6}{levels:<23}{_second(course.due_ms)}  {_second(course.ran_ms)}  {early_ms:.0f} ms"


def _second(ms: float) -> str:
    """The second of its minute, to the millisecond."""
    return f"{ms / 1000 % 60:06.3f}"
