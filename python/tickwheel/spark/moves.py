"""Reschedules of messages that a shard has (rules S4, D16).

A row that is rescheduled leaves its part, and is written again with its new due time. It stays at the same stage, and
is in order with all other rows. Its content, and so its first due time, stays as it was given.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tickwheel.spark.packing import digest_of, in_order, names_of, replaced
from tickwheel.spark.runs import part_of, run_of, settled_of
from tickwheel.spark.shard_index import Chunks, Index, Part, Stage


def in_turn(rows: Any) -> Iterator[Any]:
    """These rows in pieces: within one no message comes after a reschedule of its name, which is not about it."""
    has_time, has_payload = (
        rows.column(name).is_valid().to_numpy(zero_copy_only=False) for name in ("due_ms", "payload")
    )
    is_move = has_time & ~has_payload
    start, moved = 0, set[Any]()
    for at, name in enumerate(names_of(rows)) if is_move.any() else ():
        if is_move[at]:
            moved.add(name)
        elif has_time[at] and name in moved:
            yield rows.slice(start, at - start)
            start, moved = at, set()
    yield rows.slice(start)


def as_moved(index: Index, messages: Any) -> Any:
    """These messages. If a message was rescheduled and comes again, it is due at the new time, because another store
    may get this copy first.
    """
    if not index.moved:
        return messages
    to_ms = [index.moved.get(digest_of(name)) for name in names_of(messages)]
    return replaced(messages, moved_to_ms=to_ms)


def move(index: Index, chunks: Chunks, controls: Any, mark_ms: int) -> Any:
    """Reschedule the messages that the shard has. Returns the controls that the taker must get. If the taker surely
    does not have a message, the message brings its new due time along, and the control is left out. A message that is
    settled, by the mark, is not put off.

    Looks through all kept messages: 0.1 s for 150,000.
    """
    is_move, names = controls["due_ms"].is_valid().to_pylist(), names_of(controls)
    to_ms = {
        name: due_ms for name, due_ms in zip(names, controls["due_ms"].to_pylist(), strict=True) if due_ms is not None
    }
    if not to_ms:
        return controls
    found = {chunk: _Found.of(chunks.peek(chunk), to_ms) for chunk in {part.chunk for part in index.parts()}}
    out: dict[tuple[Stage, bool], list[Any]] = {}

    def left(parts: Sequence[Part], stage: Stage) -> list[Part]:
        kept = []
        for part in parts:
            pieces, rows = found[part.chunk].cut(part, mark_ms if stage >= Stage.GIVEN else None)
            kept += pieces
            if rows.num_rows:
                out.setdefault((stage, part.is_again), []).append(rows)
        return kept

    for run in index.runs:
        run.parts = left(run.parts, Stage.UNSURE if run.is_unsure else Stage.WAITS)
    index.runs = [run for run in index.runs if run.parts]
    index.given, index.taken = left(index.given, Stage.GIVEN), left(index.taken, Stage.TAKEN)
    has, lacks = set[Any](), set[Any]()
    for (stage, is_again), batches in out.items():
        rows = pa.concat_batches(batches)
        moved = names_of(rows)
        rows, _ = in_order([replaced(rows, moved_to_ms=[to_ms[name] for name in moved])])
        run = run_of(chunks, rows, is_again=is_again, is_unsure=stage == Stage.UNSURE)
        if stage >= Stage.GIVEN:
            (index.given if stage == Stage.GIVEN else index.taken).extend(run.parts)
        else:
            index.runs.append(run)
        index.moved |= {digest_of(name): to_ms[name] for name in moved}
        (lacks if stage == Stage.WAITS and not is_again else has).update(moved)
    needless = lacks - has
    return controls.filter(
        pa.array([not (moves and name in needless) for moves, name in zip(is_move, names, strict=True)])
    )


@dataclass(frozen=True, slots=True)
class _Found:
    """A chunk, and which of its rows are rescheduled: `places` in order, and the rows there."""

    chunk: Any
    settled_ms: Any
    places: Any
    rows: Any

    @classmethod
    def of(cls, chunk: Any, names: Mapping[Any, int]) -> "_Found":
        is_one = pc.is_in(chunk.column("id"), pa.array([id_ for _, id_ in names], pa.string()))
        places = np.flatnonzero(is_one.to_numpy(zero_copy_only=False))
        rows = chunk.take(pa.array(places))
        is_named = np.array([name in names for name in names_of(rows)], bool)
        return cls(chunk, settled_of(chunk), places[is_named], rows.filter(pa.array(is_named)))

    def cut(self, part: Part, settled_ms: int | None) -> tuple[list[Part], Any]:
        """The pieces of a part that stay, and the rows that leave it."""
        first, stop = np.searchsorted(self.places, (part.start, part.stop)).tolist()
        which = np.arange(first, stop)
        if settled_ms is not None:
            which = which[self.settled_ms[self.places[which]] > settled_ms]
        pieces, start = [], part.start
        for place in [*self.places[which].tolist(), part.stop]:
            if start < place:
                pieces.append(part if place - start == part.rows else part_of(part, self.chunk, start, place))
            start = place + 1
        return pieces, self.rows.take(pa.array(which))
