"""The log of a shard: what is given at once, in the order in which it came, beside the messages that wait.

    rows --keep--> controls: cancels, reschedules, dead letters --give--> UNSURE <-- GIVEN --> TAKEN --settle--> gone

A control stays until all messages that waited when it came are settled, because a store that replaces a lost store must
know it too. The log may be given again, from any row on, to the same store or to another one. If a later reschedule
undoes a reschedule, the earlier one is not given again.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from tickwheel.spark.packing import as_repeats, names_of
from tickwheel.spark.packing import chunks as cut
from tickwheel.spark.shard_index import Chunks, Index, Log, Stage

_MANY: Final = 32


def keep(index: Index, chunks: Chunks, rows: Any, until_ms: int) -> None:
    """Keep the rows that are not messages, until all messages that are due by `until_ms` are settled."""
    index.controls += [_log(chunks, chunk, Log(0, until_ms, 0, 0)) for chunk in cut(rows)]


def give(index: Index, chunks: Chunks) -> Iterator[Any]:
    """Give the taker the rows that it does not know, in order."""
    if any(it.stage == Stage.UNSURE or it.is_again for it in index.controls):
        index.controls = _for_once_more(index.controls, chunks)
    for it in index.controls:
        if it.stage < Stage.GIVEN:
            may_be_known = it.stage == Stage.UNSURE or it.is_again
            it.stage = Stage.GIVEN
            rows = chunks.get(it.chunk)
            yield as_repeats(rows) if may_be_known else rows


def _for_once_more(log: Sequence[Log], chunks: Chunks) -> list[Log]:
    """The log without reschedules that a later one undoes: given once more, they could make a message early."""
    later = set[Any]()
    kept: list[Log] = []
    for it in reversed(log):
        if it.stage >= Stage.GIVEN:
            kept.append(it)
            continue
        rows = chunks.get(it.chunk)
        names, stays = names_of(rows), np.ones(rows.num_rows, bool)
        is_move = pc.and_(pc.is_valid(rows.column("due_ms")), pc.is_null(rows.column("payload")))
        for at in reversed(np.flatnonzero(is_move.to_numpy(zero_copy_only=False)).tolist()):
            stays[at] = names[at] not in later
            later.add(names[at])
        if stays.all():
            kept.append(it)
        elif stays.any():
            kept.append(_log(chunks, rows.filter(pa.array(stays)), it))
    return kept[::-1]


def settle(index: Index, chunks: Chunks, mark_ms: int) -> None:
    """The taker has what it was given, and has settled all until then."""
    for it in index.controls:
        if it.stage == Stage.GIVEN:
            it.stage, it.is_again = Stage.TAKEN, False
    # Late messages still wait if their deliverer does not answer; a given part may have settled rows too.
    over_ms = min([mark_ms, *(part.since_ms - 1 for part in index.parts())])
    left = [it for it in index.controls if it.stage < Stage.TAKEN or it.until_ms > over_ms]
    index.controls = _joined(left, chunks)


def settle_all(index: Index) -> None:
    """The same without marks: given rows are gone."""
    index.controls = [it for it in index.controls if it.stage < Stage.GIVEN]


def take_back(index: Index) -> None:
    """It is not known whether the taker has what it was given last."""
    for it in index.controls:
        if it.stage == Stage.GIVEN:
            it.stage = Stage.UNSURE


def forget_taker(index: Index) -> None:
    """Another store gets everything."""
    for it in index.controls:
        it.is_again |= it.stage > Stage.WAITS
        it.stage = Stage.WAITS


def _joined(log: list[Log], chunks: Chunks) -> list[Log]:
    """The log with few chunks: small ones that follow each other are joined if there are many."""
    if sum(it.stage == Stage.TAKEN and it.is_small for it in log) <= _MANY:
        return log
    joined: list[Log] = []
    for is_small, some in groupby(log, key=lambda it: it.stage == Stage.TAKEN and it.is_small):
        each = [*some]
        if is_small and len(each) > 1:
            like = replace(each[0], until_ms=max(it.until_ms for it in each))
            rows = pa.concat_batches([chunks.get(it.chunk) for it in each])
            each = [_log(chunks, chunk, like) for chunk in cut(rows)]
        joined += each
    return joined


def _log(chunks: Chunks, rows: Any, like: Log) -> Log:
    return replace(like, chunk=chunks.put(rows), rows=rows.num_rows, size=rows.nbytes)
