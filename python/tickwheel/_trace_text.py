"""Prints the steps of `tickwheel.trace` as text and tables, from 60 columns up, with or without colours.

Times are shown as a time of day in UTC, and where a calculation needs it also in milliseconds.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tickwheel import trace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import Console

    from tickwheel._native import Snapshot

Line = tuple[int, str]
"""The indentation of a line, and its text."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def show(steps: Iterable[trace.Step], console: Console) -> None:
    """Print each step: its name, what happened, and the wheel after it."""
    advances = 0
    for step in steps:
        title = step.name
        if step.now_ms is not None:
            advances += 1
            title = f"advance {advances} to {_time(step.now_ms)}"
        console.rule(Text(title, style="bold"), align="left")
        for depth, line in _explain(step):
            console.print(Padding(Text(line), (0, 0, 0, 2 * depth), expand=False))
        _show_wheel(step.snapshot, console)


def _time(ms: int) -> str:
    return (_EPOCH + timedelta(milliseconds=ms)).strftime("%H:%M:%S.%f")[:-3]


def _span(from_ms: int, until_ms: int) -> str:
    return f"[{_time(from_ms)}, {_time(until_ms)})"


def _explain(step: trace.Step) -> Iterator[Line]:
    if step.added is not None:
        yield from _explain_add(step, step.added)
    elif step.now_ms is not None:
        yield from _explain_advance(step, step.now_ms)
    else:
        yield from _explain_start()


def _explain_start() -> Iterator[Line]:
    day = _EPOCH + timedelta(milliseconds=trace.START_MS)
    yield 0, f"{len(trace.DELAYS_MS)} tasks, due after {', '.join(map(str, trace.DELAYS_MS))} ms."
    yield 0, f"A tick is {trace.TICK_MS} ms, a level has {trace.WHEEL_SIZE} buckets."
    yield 0, f"It starts at {_time(trace.START_MS)} UTC on {day:%Y-%m-%d} ({trace.START_MS} ms)."
    yield 0, 'This timer has precision="tick", as Kafka\'s: a task runs when its bucket is due, up to a tick early.'
    yield 0, 'The default, precision="exact", is never early: see tickwheel trace.'


def _explain_add(step: trace.Step, entry: trace.Entry) -> Iterator[Line]:
    yield 0, f"expires at {_time(entry.expiration_ms)} ({entry.expiration_ms} ms)"
    if entry.placement is not None:
        yield from _explain_placement(step, entry, entry.placement, depth=0)


def _explain_advance(step: trace.Step, now_ms: int) -> Iterator[Line]:
    levels = step.snapshot["levels"]
    yield 0, f"now {now_ms} ms"
    yield 0, "1. The clocks move."
    for clock in step.clocks:
        if clock.from_ms != clock.to_ms:
            yield 1, f"level {clock.level}: {_time(clock.from_ms)} -> {_time(clock.to_ms)}"
        else:
            tick_ms = levels[clock.level - 1]["tick_ms"]
            yield 1, f"level {clock.level}: stays at {_time(clock.to_ms)}, a full tick of {tick_ms} ms has not passed"
    yield 0, "2. The due buckets leave the queue; their entries are added again."
    next_tick_ms = levels[0]["current_time_ms"] + levels[0]["tick_ms"]
    for flush in step.flushed:
        yield 1, f"level {flush.bucket['level']} bucket {flush.bucket['bucket']}:"
        for entry in flush.entries:
            expires = f"{entry.task} ({_time(entry.expiration_ms)})"
            if entry.placement is None:
                early_ms = entry.expiration_ms - now_ms
                yield (
                    2,
                    f"{expires} is expired, {early_ms} ms early, as the next tick of level 1 is {_time(next_tick_ms)}",
                )
            else:
                place = entry.placement
                yield 2, f"{expires} cascades to level {place.level} bucket {place.bucket}"
                yield from _explain_placement(step, entry, place, depth=3)
    yield 0, f"Run so far: {', '.join(step.expired)}."


def _explain_placement(
    step: trace.Step, entry: trace.Entry, placement: trace.Placement, *, depth: int
) -> Iterator[Line]:
    for asked in placement.asked:
        level = step.snapshot["levels"][asked.level - 1]
        if asked.level in step.new_levels:
            yield (
                depth,
                f"level {asked.level} is new: tick {level['tick_ms']} ms, start {_time(level['start_ms'])}, "
                f"current time {_time(level['current_time_ms'])}",
            )
        answer = "covered" if asked.covered else "not covered"
        yield depth, f"level {asked.level} {_span(asked.from_ms, asked.until_ms)}: {answer}"
    level = step.snapshot["levels"][placement.level - 1]
    yield depth, f"virtual id: {entry.expiration_ms} // {level['tick_ms']} = {placement.virtual_id}"
    yield depth, f"bucket: {placement.virtual_id} % {len(level['buckets'])} = {placement.bucket}"
    bucket = f"level {placement.level} bucket {placement.bucket} {_span(placement.from_ms, placement.until_ms)}"
    if placement.arms:
        yield depth, f"{bucket} is now armed, it enters the queue"
    else:
        yield depth, f"{bucket} was armed already, nothing enters the queue"


def _show_wheel(wheel: Snapshot, console: Console) -> None:
    levels = _table("level", "tick ms", "current time", "covers until")
    buckets = _table("level", *(f"bucket {index}" for index in range(trace.WHEEL_SIZE)))
    for level in wheel["levels"]:
        number = str(level["level"])
        covers_until = _time(level["covers_ms"][1])
        levels.add_row(number, str(level["tick_ms"]), _time(level["current_time_ms"]), covers_until)
        buckets.add_row(
            number,
            *(
                "\n".join([_time(bucket["expiration_ms"]), *map(str, bucket["tasks"])])
                if bucket["expiration_ms"] >= 0
                else "-"
                for bucket in level["buckets"]
            ),
        )
    queue = _table("leaves at", "bucket")
    for armed in wheel["queue"]:
        queue.add_row(_time(armed["expiration_ms"]), f"level {armed['level']} bucket {armed['bucket']}")
    console.print(levels, buckets)
    if wheel["queue"]:
        console.print(f"queue ({wheel['size']} pending)", queue)
    else:
        console.print("queue: empty")
    console.print()


def _table(*headings: str) -> Table:
    table = Table()
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table
