"""The messages of a shard that wait, in runs, and which of them to give now (rules S2, S3).

    rows of a micro-batch --in_order--> a run --+--merge--> a longer run --nearest--> the first rows of all runs
    rows that wait already ------------ runs ---+

A run costs the same however far apart its due times are. Eight or more runs of about a size are merged into one, so
there are few, and a row is written some three times in all.
"""

import heapq
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Final

import numpy as np
from msgspec.structs import replace

from tickwheel.spark.packing import chunks as cut
from tickwheel.spark.packing import due_of, in_order, replaced
from tickwheel.spark.shard_index import Chunks, Index, Part, Run

VISIT_ROWS: Final = 2_000
"""How many rows of a shard a micro-batch gives at most, so that it ends soon; the most urgent ones come first."""
VISIT_BYTES: Final = 8 << 20
_MOST_ROWS: Final = 64_000  # at once in memory, where all of them are due in the same millisecond
_MOST_BYTES: Final = 64 << 20
_AHEAD_MS: Final = 120_000
_PACE_ROWS: Final = 150
"""How many rows a second a shard can surely give. Where more are due in a second, giving begins so much earlier."""
_RUNS: Final = 8
_MERGED_PARTS: Final = 64  # 32 MiB


def rows_of(chunks: Chunks, part: Part) -> Any:
    """The rows of a part."""
    return chunks.get(part.chunk).slice(part.start, part.rows)


def run_of(chunks: Chunks, rows: Any, *, is_again: bool = False, is_unsure: bool = False) -> Run:
    """A run of these rows, which are in order. They are written to the state."""
    parts = []
    for chunk in cut(rows):
        whole = Part(chunks.put(chunk), 0, chunk.num_rows, 0, 0, 0, 0, is_again, chunk.nbytes)
        parts.append(part_of(whole, chunk, 0, chunk.num_rows))
    return Run(parts, is_unsure)


def part_of(part: Part, chunk: Any, start: int, stop: int) -> Part:
    """These rows of a part's chunk, one at least."""
    rows = chunk.slice(start, stop - start)
    due_ms, settled_ms = due_of(rows), settled_of(rows)
    return replace(
        part, start=start, stop=stop, first_ms=int(due_ms[0]), last_ms=int(due_ms[-1]),
        since_ms=int(settled_ms.min()), until_ms=int(settled_ms.max()),
    )  # fmt: skip


def settled_of(rows: Any) -> Any:
    """From which mark on each row has its outcome, as an array."""
    first_ms = rows.column("due_ms").to_numpy(zero_copy_only=False)
    return np.minimum(first_ms, due_of(rows))


def merge(index: Index, chunks: Chunks, number: int) -> None:
    """Merge runs of about a size where there are many; not in all shards, by their `number`, at the same time."""
    alike: dict[Any, list[Run]] = {}
    for run in index.runs:
        kind = run.is_unsure, run.parts[0].is_again
        alike.setdefault((*kind, run.rows.bit_length() // 3), []).append(run)
    for (is_unsure, is_again, _), runs in alike.items():
        runs.sort(key=lambda run: len(run.parts))  # those of large messages are left as they are
        sizes = accumulate(len(run.parts) for run in runs)
        runs = [run for run, size in zip(runs, sizes, strict=True) if size <= _MERGED_PARTS]
        if len(runs) >= _RUNS + number % _RUNS:
            rows, _ = in_order([rows_of(chunks, part) for run in runs for part in run.parts])
            merged = {id(run) for run in runs}
            index.runs = [run for run in index.runs if id(run) not in merged]
            index.runs.append(run_of(chunks, rows, is_again=is_again, is_unsure=is_unsure))


def give_nearest(
    index: Index, chunks: Chunks, runs: Sequence[Run], near_ms: int, until_ms: int | None = None
) -> Iterator[Any]:
    """Take the first rows of these runs of the shard out of them, as given, by their due times. None is due after
    `until_ms`.

    Rows that are due until `near_ms` are given, at most `VISIT_ROWS` and some `VISIT_BYTES`. If more are due soon after
    than can be given in time, some of these are given too.
    """
    found, count = _nearest(chunks, runs, near_ms, until_ms)
    if not count:
        return
    batches = [rows_of(chunks, part) for _, part in found]
    rows, order = in_order(batches)
    from_part = np.repeat(np.arange(len(batches)), [batch.num_rows for batch in batches])[order[:count]]
    for (run, part), given in zip(found, np.bincount(from_part, minlength=len(batches)).tolist(), strict=True):
        if given:
            chunk, split = chunks.get(part.chunk), part.start + given
            at = run.parts.index(part)
            run.parts[at : at + 1] = [part_of(part, chunk, split, part.stop)] if split < part.stop else []
            index.given.append(part_of(part, chunk, part.start, split))
    index.runs = [run for run in index.runs if run.parts]
    is_again = np.array([part.is_again for _, part in found])[from_part]
    yield from cut(replaced(rows.slice(0, count), again=is_again))


def _nearest(
    chunks: Chunks, runs: Sequence[Run], near_ms: int, until_ms: int | None
) -> tuple[list[tuple[Run, Part]], int]:
    """Parts with their runs, and how many of their first rows to give."""
    ahead = min(VISIT_ROWS, _rows_ahead(runs, near_ms))
    found: list[tuple[Run, Part]] = []
    due: list[Any] = []
    heads = [(run.first_ms, number, 0) for number, run in enumerate(runs)]
    heapq.heapify(heads)
    read = size = 0
    # Parts in the order of their first row, until enough rows come before all that is not read.
    while heads and heads[0][0] <= near_ms + _AHEAD_MS and read < _MOST_ROWS and size < _MOST_BYTES:
        first_ms, number, place = heads[0]
        enough = VISIT_ROWS if first_ms <= near_ms else ahead
        if read >= enough or size >= VISIT_BYTES:
            before = _count_until(due, first_ms, "left")
            if before >= enough or (before and size >= VISIT_BYTES):
                break
        heapq.heappop(heads)
        part = runs[number].parts[place]
        rows = rows_of(chunks, part)
        found.append((runs[number], part))
        due.append(due_of(rows))
        read, size = read + part.rows, size + rows.nbytes
        if place + 1 < len(runs[number].parts):
            heapq.heappush(heads, (runs[number].parts[place + 1].first_ms, number, place + 1))
    count = min(VISIT_ROWS, max(ahead, _count_until(due, near_ms, "right")))
    if heads:  # unless thousands are due in the same millisecond
        count = min(count, _count_until(due, heads[0][0], "left") or count)
    return found, count if until_ms is None else min(count, _count_until(due, until_ms, "right"))


def _count_until(due: Sequence[Any], at_ms: int, side: Any) -> int:
    return sum(int(np.searchsorted(it, at_ms, side)) for it in due)


def _rows_ahead(runs: Sequence[Run], near_ms: int) -> int:
    """How many rows, of those due soon after `near_ms`, must be given by now because one visit can't give them all."""
    soon = ((part.last_ms, part.rows) for run in runs for part in run.parts if part.last_ms <= near_ms + _AHEAD_MS)
    rows = most = 0
    for last_ms, count in sorted(soon):
        rows += count
        most = max(most, rows - VISIT_ROWS - max(0, last_ms - near_ms) * _PACE_ROWS // 1000)
    return most
