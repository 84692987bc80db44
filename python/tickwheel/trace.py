"""Seven tasks on a real wheel, step by step: the data of `tickwheel trace --all` (the example of seed 002).

Tick 1000 ms, three buckets per level, seven tasks one second apart, precision "tick": a task runs when its bucket is
due, up to a tick early. `walk` makes the steps; `_trace_text.py` prints them. `_trace_page.py` runs the same tasks with
the default precision. A step is read from the wheel's snapshots before and after it: the place of a task is looked up,
not calculated. Times are milliseconds since 1970 in UTC, so that they can be shown as a time of day.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tickwheel import TimerTask
from tickwheel.testing import ManualTimer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tickwheel._native import ArmedBucket, Snapshot

TICK_MS = 1000
WHEEL_SIZE = 3
START_MS = 1_675_752_020_558
DELAYS_MS = (1000, 2000, 3000, 4000, 5000, 6000, 7000)


@dataclass(frozen=True, slots=True)
class Coverage:
    """Whether one level covers an entry: whether its expiration is in `[from_ms, until_ms)`."""

    level: int
    from_ms: int
    until_ms: int
    covered: bool


@dataclass(frozen=True, slots=True)
class Placement:
    """Where an entry is after a step, and the levels below that did not cover it.

    `virtual_id` is `expiration // tick`. `arms` is true if this entry armed its bucket, false if the bucket was armed
    already.
    """

    level: int
    bucket: int
    virtual_id: int
    from_ms: int
    until_ms: int
    arms: bool
    asked: tuple[Coverage, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """A task and its placement; without a placement the task expired and ran."""

    task: str
    expiration_ms: int
    placement: Placement | None


@dataclass(frozen=True, slots=True)
class ClockMove:
    """The current time of one level before and after an advance; equal if no full tick has passed."""

    level: int
    from_ms: int
    to_ms: int


@dataclass(frozen=True, slots=True)
class Flush:
    """A due bucket, and its entries after they were added again."""

    bucket: ArmedBucket
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the walk: the wheel after it, and the changes.

    An add has `added` and perhaps `new_levels`. An advance has `now_ms` and its two phases: `clocks`, `flushed`.
    `expired` has the names of all tasks that have run so far, in order.
    """

    name: str
    snapshot: Snapshot
    expired: tuple[str, ...] = ()
    added: Entry | None = None
    new_levels: tuple[int, ...] = ()
    now_ms: int | None = None
    clocks: tuple[ClockMove, ...] = ()
    flushed: tuple[Flush, ...] = ()


def walk() -> Iterator[Step]:
    """Add the seven tasks, then advance to the head of the bucket queue until it is empty.

    >>> [step.name for step in walk()][:2]
    ['start', 'add task-1']
    """
    with ManualTimer("trace", tick_ms=TICK_MS, wheel_size=WHEEL_SIZE, start_ms=START_MS, precision="tick") as timer:
        expired: list[str] = []
        expirations_ms: dict[str, int] = {}
        before = timer.snapshot()
        yield Step("start", before)
        for number, delay_ms in enumerate(DELAYS_MS, start=1):
            name = f"task-{number}"
            task = TimerTask(delay_ms, expired.append, name, name=name)
            timer.add(task)
            expirations_ms[name] = next(int(due_ms) for due_ms, pending in timer.pending() if pending is task)
            after = timer.snapshot()
            yield Step(
                f"add {name}",
                after,
                tuple(expired),
                added=_entry(name, expirations_ms, before, after),
                new_levels=tuple(level["level"] for level in after["levels"][len(before["levels"]) :]),
            )
            before = after
        while before["queue"]:
            now_ms = before["queue"][0]["expiration_ms"]
            timer.advance_to(now_ms)
            after = timer.snapshot()
            yield Step(
                f"advance to {now_ms}",
                after,
                tuple(expired),
                now_ms=now_ms,
                clocks=_clocks(before, after),
                flushed=_flushed(expirations_ms, before, after),
            )
            before = after


def document() -> dict[str, Any]:
    """Return the walk as plain data: the fields of `tests/data/seven_tasks.json`, and what changed in each step."""
    return {
        "tick_ms": TICK_MS,
        "wheel_size": WHEEL_SIZE,
        "start_ms": START_MS,
        "steps": [_plain(step) for step in walk()],
    }


def _plain(step: Step) -> dict[str, Any]:
    plain: dict[str, Any] = {"step": step.name}
    if step.added is not None:
        plain["expiration_ms"] = step.added.expiration_ms
    if step.now_ms is not None:
        plain["now_ms"] = step.now_ms
    plain |= {key: step.snapshot[key] for key in ("levels", "queue", "size")}
    plain["expired"] = list(step.expired)
    if step.added is not None:
        plain["added"] = dataclasses.asdict(step.added)
        plain["new_levels"] = list(step.new_levels)
    if step.now_ms is not None:
        plain["clocks"] = [dataclasses.asdict(clock) for clock in step.clocks]
        plain["flushed"] = [dataclasses.asdict(flush) for flush in step.flushed]
    return plain


def _clocks(before: Snapshot, after: Snapshot) -> tuple[ClockMove, ...]:
    return tuple(
        ClockMove(new["level"], old["current_time_ms"], new["current_time_ms"])
        for old, new in zip(before["levels"], after["levels"], strict=True)
    )


def _flushed(expirations_ms: Mapping[str, int], before: Snapshot, after: Snapshot) -> tuple[Flush, ...]:
    """Find the buckets that left the bucket queue, and where their tasks are now.

    Of buckets that expire together, the highest level leaves first.
    """
    flushed = []
    for armed in sorted(before["queue"], key=lambda armed: (armed["expiration_ms"], -armed["level"])):
        if armed not in after["queue"]:
            tasks = before["levels"][armed["level"] - 1]["buckets"][armed["bucket"]]["tasks"]
            flushed.append(Flush(armed, tuple(_entry(str(task), expirations_ms, before, after) for task in tasks)))
    return tuple(flushed)


def _entry(task: str, expirations_ms: Mapping[str, int], before: Snapshot, after: Snapshot) -> Entry:
    expiration_ms = expirations_ms[task]
    return Entry(task, expiration_ms, _placement(task, expiration_ms, before, after))


def _placement(task: str, expiration_ms: int, before: Snapshot, after: Snapshot) -> Placement | None:
    """Find the task in the buckets of `after`, and which levels up to there cover it."""
    asked = []
    for level in after["levels"]:
        from_ms, until_ms = level["covers_ms"]
        asked.append(Coverage(level["level"], from_ms, until_ms, from_ms <= expiration_ms < until_ms))
        for index, bucket in enumerate(level["buckets"]):
            if task in bucket["tasks"]:
                armed: ArmedBucket = {
                    "expiration_ms": bucket["expiration_ms"],
                    "level": level["level"],
                    "bucket": index,
                }
                return Placement(
                    level=level["level"],
                    bucket=index,
                    virtual_id=expiration_ms // level["tick_ms"],
                    from_ms=bucket["expiration_ms"],
                    until_ms=bucket["expiration_ms"] + level["tick_ms"],
                    # Of the tasks in a newly armed bucket, the first one armed it.
                    arms=armed not in before["queue"] and bucket["tasks"][0] == task,
                    asked=tuple(asked),
                )
    return None
