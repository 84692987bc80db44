"""What a shard keeps beside the messages that wait: cancels, reschedules and dead letters, and recurring messages.

They are given at once. Controls stay until all that waited as they came is settled: a store that takes the place of a
lost one must know them too. A recurring message is handed to the deliverer as it came, and that makes its occurrences;
it stays for good, until another one or a cancel of its name comes. A store that takes the place of a lost one goes on
where that was: at the last instant until which it had settled all.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tickwheel.spark.chunks import Chunks
from tickwheel.spark.packing import chunks as cut
from tickwheel.spark.packing import replaced
from tickwheel.spark.shard_index import NOBODY, Controls, Index

_MANY: Final = 64


def keep(index: Index, chunks: Chunks, rows: Any, until_ms: int) -> None:
    """Keep rows that are no messages to hold."""
    for chunk in cut(rows):
        index.controls.append(_controls(chunks, chunk, until_ms))


def give(index: Index, chunks: Chunks, near_ms: int, *, no_new_rules: bool) -> Iterator[Any]:
    """Give the taker what it does not know, in the order in which it came. What it may do until `near_ms`, a store
    before it may have done.
    """
    rules: set[Any] | None = None
    for it in index.controls:
        if it.is_given or (no_new_rules and it.rules and it.given_to != index.taker):
            continue
        is_elsewhere = it.given_to not in (NOBODY, index.taker)
        it.may_repeat |= is_elsewhere or near_ms <= index.doubtful_ms
        it.given_to, it.is_given = index.taker, True
        rows = chunks.get(it.chunk)
        if is_elsewhere and index.rules:
            rules = rules if rules is not None else _names_of_rules(index, chunks)
            rows = _without_moves(rows, rules)  # of the occurrence that was the next one then
        yield _going_on(rows, it.settled_ms, near_ms) if it.may_repeat and it.rules else rows


def settle(index: Index, chunks: Chunks, mark_ms: int | None) -> None:
    """The taker has what it was given, and has settled all until then; without a mark nothing is needed any more."""
    if mark_ms is None:
        index.controls = [it for it in index.controls if not it.is_given]
        return
    for it in index.controls:
        if it.is_given:
            it.is_taken, it.may_repeat = True, False
            if it.rules:
                it.settled_ms = max(mark_ms, it.settled_ms or 0)
    # What is late waits still, if its deliverer does not answer; a part that is given may have settled rows, too.
    over_ms = min([mark_ms, *(part.first_ms - 1 for part in index.parts())])
    is_over = any(it.others and it.is_taken and it.until_ms <= over_ms for it in index.controls)
    if is_over or sum(it.is_taken for it in index.controls) > _MANY:
        _tidy(index, chunks, over_ms)


def take_back(index: Index) -> None:
    """It is not known whether the taker has what it was given last."""
    for it in index.controls:
        it.is_given = it.is_taken


def forget_taker(index: Index, chunks: Chunks) -> None:
    """Another store gets everything: of each name what came last."""
    for it in index.controls:
        it.is_taken = True
    if index.rules:
        _tidy(index, chunks, None)
    for it in index.controls:
        it.is_given = it.is_taken = False


def _tidy(index: Index, chunks: Chunks, over_ms: int | None) -> None:
    """Drop what is over by then, and recurring messages and cancels that others of their names came after; join what
    is left.
    """
    later: set[Any] = set()
    kept: list[Controls] = []
    for it in reversed(index.controls):
        rows = chunks.get(it.chunk)
        is_rule = _is_rule(rows)
        stays = is_rule | (not it.is_taken or over_ms is None or it.until_ms > over_ms)
        if index.rules:
            is_named = is_rule | _is_cancel(rows)
            for at in reversed(np.flatnonzero(is_named).tolist()):
                name = rows["key"][at].as_py(), rows["id"][at].as_py()
                stays[at] &= name not in later
                if it.is_taken:
                    later.add(name)
        if not stays.all():
            rows = rows.filter(pa.array(stays))
            if not rows.num_rows:
                continue
            it = _copy(it, chunks, rows)
        kept.append(it)
    kept.reverse()
    taken = [it for it in kept if it.is_taken]
    if len(taken) > _MANY:
        taken = [*_joined(chunks, taken, rules=True), *_joined(chunks, taken, rules=False)]
    index.controls = [*taken, *(it for it in kept if not it.is_taken)]


def _joined(chunks: Chunks, many: Sequence[Controls], *, rules: bool) -> Iterator[Controls]:
    """The recurring messages of these, or the others, in few chunks: of each name there is one, in any order."""
    some = [it for it in many if (it.rules if rules else it.others)]
    if not some:
        return
    rows = pa.concat_batches([chunks.get(it.chunk) for it in some])
    settled = [it.settled_ms for it in some if it.settled_ms is not None]
    like = msgspec.structs.replace(
        some[0], until_ms=max(it.until_ms for it in some), settled_ms=min(settled, default=None)
    )
    for chunk in cut(rows.filter(pa.array(_is_rule(rows) == rules))):
        yield _copy(like, chunks, chunk)


def _controls(chunks: Chunks, rows: Any, until_ms: int) -> Controls:
    rules = int(_is_rule(rows).sum())
    return Controls(chunks.put(rows), until_ms, rules, rows.num_rows - rules)


def _copy(it: Controls, chunks: Chunks, rows: Any) -> Controls:
    rules = int(_is_rule(rows).sum())
    return msgspec.structs.replace(it, chunk=chunks.put(rows), rules=rules, others=rows.num_rows - rules)


def _is_rule(rows: Any) -> Any:
    return pc.is_valid(rows.column("recurrence")).to_numpy(zero_copy_only=False)


def _is_cancel(rows: Any) -> Any:
    has_name = pc.is_valid(rows.column("id")).to_numpy(zero_copy_only=False)
    has_time = pc.is_valid(rows.column("due_ms")).to_numpy(zero_copy_only=False)
    return has_name & ~has_time & ~_is_rule(rows)


def _names_of_rules(index: Index, chunks: Chunks) -> set[Any]:
    names: set[Any] = set()
    for it in index.controls:
        if it.rules:
            rows = chunks.get(it.chunk).filter(pa.array(_is_rule(chunks.get(it.chunk))))
            names.update(zip(rows.column("key").to_pylist(), rows.column("id").to_pylist(), strict=True))
    return names


def _without_moves(rows: Any, names: set[Any]) -> Any:
    is_move = pc.is_valid(rows.column("due_ms")).to_pylist()
    named = zip(rows.column("key").to_pylist(), rows.column("id").to_pylist(), strict=True)
    return rows.filter(pa.array([not (it and name in names) for it, name in zip(is_move, named, strict=True)]))


def _going_on(rows: Any, settled_ms: int | None, sent_ms: int) -> Any:
    """Recurring messages for a store that takes the place of another: that has settled all until `settled_ms`, and may
    have sent what was due until `sent_ms`.
    """
    rules = rows.column("recurrence").to_pylist()
    before = {"settled_ms": settled_ms, "sent_ms": sent_ms}
    told = [rule and msgspec.json.encode({**msgspec.json.decode(rule), "before": before}).decode() for rule in rules]
    return replaced(rows, recurrence=told)
