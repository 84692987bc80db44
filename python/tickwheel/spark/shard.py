"""The messages of one shard that the hold keeps, and what one micro-batch does to them (rules S2, S4, S5).

    rows of a micro-batch --sort--> a run --near--> given --mark--> gone
                                    |  ^              |
                                    merged            not taken, or its deliverer is lost: it waits again

- A **chunk** is some rows in the order of delivery, written once. A **part** is a range of its rows.
- A **run** is a list of parts in order. A micro-batch adds one run, however far apart its due times are. Eight or more
  runs of about a size are merged into one, so there are few, and a row is written some three times in all.
- A released row is **given**. It is **taken** when its deliverer has it on its disk. It stays until the deliverer's
  mark has passed it.
- **Controls** (cancels, reschedules, dead letters) and recurring messages are given at once: see `controls.py`.

A shard gives to one deliverer, its **taker**. It changes only when the taker before has settled all, or is lost. The
state has a new taker before the taker gets a row, because a repeated micro-batch must give to the same taker.
"""

import heapq
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import accumulate
from operator import itemgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from tickwheel.spark import controls
from tickwheel.spark.chunks import Chunks, ChunkState
from tickwheel.spark.orders import Orders, Seen, Taker, name_of, store_of
from tickwheel.spark.packing import chunks as cut
from tickwheel.spark.packing import digest_of, due_of, in_order, replaced, unpack
from tickwheel.spark.shard_index import NOBODY, Index, Part, Run

VISIT_ROWS: Final = 2_000
"""How many rows of a shard a micro-batch gives at most, so that it ends soon; the most urgent ones come first."""
VISIT_BYTES: Final = 8 << 20
_MOST_ROWS: Final = 64_000  # at once in memory, where all of them are due in the same millisecond
_MOST_BYTES: Final = 64 << 20
_AHEAD_MS: Final = 120_000
_PACE_ROWS: Final = 150
"""How many rows a second a shard can surely give. Where more are due in a second, giving begins so much earlier."""
_RUNS: Final = 8
_LEAD_STEP_MS: Final = 10_000
_LONGEST_LEAD_MS: Final = 3_600_000
"""Of a run before, whose lead is not known, and whose deliverer is lost."""
_TAKEN_PARTS: Final = 100
_MERGED_PARTS: Final = 64  # 32 MiB


class Shard:
    """One visit. Call, in this order: `settle`, if there are orders; `keep`; `give`; `settle_all`, if there are no
    orders; `tidy`.
    """

    def __init__(self, number: int, index: Index, state: ChunkState, now_ms: int) -> None:
        self.index = index
        self._number = number
        self._chunks = Chunks(index, state)
        self._now_ms = now_ms
        self._gives_again_only = False
        self._has_taker = True
        self._is_again = False
        self._lost_to: Taker | None = None
        self._is_lost = False
        self.went_back = False
        self._seen: Seen | None = None
        self._mark_ms = 0

    # --- What became of what was given ---------------------------------------

    def settle(self, orders: Orders, near_ms: int) -> Taker | None:
        """Forget messages that have their outcome, and take back messages that were not taken. Returns the deliverer to
        give to, if there is one now.

        The first try of a repeated micro-batch may have sent rows that the state does not know. So the repeated one
        gives the same rows, and more: from the same state, as early as any try did. If it can't, because the deliverer
        does not answer or is lost, the state says that they were given.
        """
        index, number = self.index, self._number
        assigned = orders.at(orders.assigned[number])
        self._is_again = orders.is_again and index.taker != NOBODY
        self._has_taker = False
        if index.taker == NOBODY:
            self._change_taker(assigned, near_ms)
            return None
        if orders.is_lost(index.taker, index.address):
            self._is_lost, self._lost_to = True, assigned
            return None
        is_home = assigned is not None and assigned.store_id == store_of(index.taker)
        taker = assigned if is_home else orders.with_store(index.taker)
        if taker and not taker.has_all_of(index.seen):
            # It has some of the messages, and delivers them. So it gets the others too, wherever the shard belongs.
            self.went_back = self._is_lost = True
            self._lost_to = taker
            return None
        had_given = index.has_given
        if number in orders.failed:
            self._take_back_given()
        elif taker and taker.was_opened_since(index.seen):
            # It took them. If it is a copy from before that, it lacks them; otherwise it drops them.
            index.given = [replace(part, is_again=True) for part in index.given]
            self._take_back_given()
        elif taker:
            self._note_taken()
            self._mark_ms = taker.marks[number]
            open_names = taker.recurring.get(number)
            self._drop_until(self._mark_ms, None if open_names is None else {*open_names})
        if taker is None:
            return None
        self._seen = taker.seen
        if had_given:
            index.seen = self._seen
        index.address = taker.address
        if orders.is_again:
            index.moving_since_ms = 0  # the first time it may have given what a move must not
        elif not is_home and not index.is_bound:
            taker = self._to_another(taker, assigned, near_ms)
            self._has_taker = taker is not None
            return taker
        self._has_taker = True
        # A row that it gives must not be given to another taker by a repeated move.
        self._gives_again_only = self._is_moving(near_ms)
        index.moving_since_ms = 0
        return taker

    def _to_another(self, taker: Taker, assigned: Taker | None, near_ms: int) -> Taker | None:
        """Give nothing new until the taker has settled all. Its messages may be put off for days: then the shard stays
        where it is, and tries later. The moment of the next try depends only on time, so a repeated visit does the
        same.
        """
        index = self.index
        tried_ms = self._now_ms - index.moving_since_ms
        if index.moving_since_ms == 0 or not 0 <= tried_ms < 10 * self._patience_ms(near_ms):
            index.moving_since_ms = self._now_ms if assigned is not None else 0  # and the next one moves
        elif self._is_moving(near_ms):
            if assigned and not index.is_unsettled:
                self._change_taker(assigned, near_ms)
                return None
            self._gives_again_only = True
        return taker

    def _is_moving(self, near_ms: int) -> bool:
        since_ms = self.index.moving_since_ms
        return since_ms > 0 and 0 <= self._now_ms - since_ms <= self._patience_ms(near_ms)

    def _patience_ms(self, near_ms: int) -> int:
        return 30_000 + 3 * (near_ms - self._now_ms)

    def settle_all(self) -> None:
        """The same without marks: given messages are gone."""
        self._drop_until(None)

    def _take_back_given(self) -> None:
        """It is not known whether the taker has what was given last."""
        index = self.index
        index.runs += [Run([part], index.taker) for part in index.given]
        index.given = []
        controls.take_back(index)

    def _leave_lost(self, near_ms: int) -> None:
        """The messages of the taker wait for another taker."""
        index = self.index
        index.runs += [Run([part], index.taker) for part in index.at_taker()]
        index.taken, index.given = [], []
        controls.take_back(index)
        self._change_taker(self._lost_to, near_ms)

    def _note_taken(self) -> None:
        index = self.index
        for part in index.given:
            before = index.taken[-1] if index.taken else None
            if before and len(index.taken) > _TAKEN_PARTS and _can_join(before, part):  # a mark far behind
                part = replace(part, start=before.start, first_ms=before.first_ms)
                index.taken.pop()
            index.taken.append(part)
        index.given = []
        small = [part for part in index.taken if part.is_small]
        if len(small) > _TAKEN_PARTS:
            self._join_taken(small)

    def _join_taken(self, small: Sequence[Part]) -> None:
        """Write these into few chunks: they are many where a message that was put off holds up the mark."""
        index = self.index
        joined = {id(part) for part in small}
        index.taken = [part for part in index.taken if id(part) not in joined]
        for is_again in (False, True):
            parts = [part for part in small if part.is_again == is_again]
            if parts:
                rows, _ = in_order([self._rows_of(part) for part in parts])
                index.taken += [replace(part, is_again=is_again) for part in self._run_of(rows).parts]

    def _change_taker(self, taker: Taker | None, near_ms: int) -> None:
        if taker is None:
            return
        index = self.index
        if index.taker != NOBODY:
            controls.forget_taker(index, self._chunks, near_ms)
        index.taker, index.address, index.moving_since_ms = name_of(taker, index.taker), taker.address, 0
        index.seen = None

    def _drop_until(self, mark_ms: int | None, open_names: Set[Any] | None = None) -> None:
        index = self.index
        for parts in (index.taken, index.given):
            parts[:] = [part for part in parts if mark_ms is not None and part.open_ms > mark_ms]
        controls.settle(index, self._chunks, mark_ms, open_names)

    # --- What comes -----------------------------------------------------------

    def keep(self, pieces: Sequence[bytes]) -> None:
        """Keep the rows of a micro-batch."""
        if not pieces:
            return
        for rows in _in_turn(pa.concat_batches([unpack(piece) for piece in pieces])):
            self._keep(rows)

    def _keep(self, rows: Any) -> None:
        index = self.index
        is_message = pc.and_(pc.is_valid(rows.column("due_ms")), pc.is_valid(rows.column("payload")))
        messages = rows.filter(is_message)
        if messages.num_rows:
            index.runs += self._runs_of(messages)
            self._merge()
        if messages.num_rows < rows.num_rows:
            others = self._move(rows.filter(pc.invert(is_message)))
            waiting = (run.until_ms for run in index.runs)
            until_ms = max(self._now_ms, *waiting, *(part.last_ms for part in index.at_taker()), 0)
            controls.keep(index, self._chunks, others, self._now_ms, until_ms)

    def _move(self, others: Any) -> Any:
        """Rescheduled messages become parts of their own. Given messages do too, because another store may have to get
        them. Returns the controls that the deliverer must get. Controls of messages that it surely does not have are
        left out, because the message brings them along.

        Looks through all kept messages: 0.1 s for 150,000.
        """
        moves = others.filter(pc.is_valid(others.column("due_ms")))
        columns = (moves.column(name).to_pylist() for name in ("key", "id", "due_ms"))
        to_ms = {(key, id_): due_ms for key, id_, due_ms in zip(*columns, strict=True)}
        if not to_ms:
            return others
        index = self.index
        here = {part.chunk for part in index.parts()}
        found = {chunk: self._named(chunk, to_ms) for chunk in here}
        unheard: set[Any] = set()
        given: set[Any] = set()
        runs: list[Run] = []
        for run in index.runs:
            pieces = [piece for part in run.parts for piece in _cut(part, found[part.chunk], to_ms)]
            runs.append(Run([part for part, name in pieces if name is None], run.given_to))
            runs += [Run([part], run.given_to) for part, name in pieces if name is not None]
            (unheard if run.given_to == NOBODY else given).update(name for _, name in pieces if name)
        index.runs = [run for run in runs if run.parts]
        # A settled message is delivered, so it is not put off.
        for parts in (index.taken, index.given):
            cuts = [piece for part in parts for piece in _cut(part, found[part.chunk], to_ms, self._mark_ms)]
            parts[:] = [part for part, _ in cuts]
            given.update(name for _, name in cuts if name)
        names = zip(others.column("key").to_pylist(), others.column("id").to_pylist(), strict=True)
        is_move = pc.is_valid(others.column("due_ms")).to_pylist()
        needless = unheard - given
        return others.filter(pa.array([not (it and name in needless) for it, name in zip(is_move, names, strict=True)]))

    def _named(self, chunk: int, names: Mapping[Any, int]) -> tuple[Any, Sequence[tuple[int, Any]]]:
        """The due times of a chunk's rows; and which rows have these names."""
        rows = self._chunks.peek(chunk)
        is_one = pc.is_in(rows.column("id"), pa.array([id_ for _, id_ in names], pa.string()))
        places = np.flatnonzero(is_one.to_numpy(zero_copy_only=False)).tolist()
        found = [(at, (rows["key"][at].as_py(), rows["id"][at].as_py())) for at in places]
        return due_of(rows).copy(), [(at, name) for at, name in found if name in names]

    def _runs_of(self, messages: Any) -> Iterator[Run]:
        """A run of these messages. Each message that was rescheduled before has its own run, due at the new time."""
        moved = {part.name: part.moved_to_ms for part in self.index.parts() if part.name is not None}
        if not moved:
            yield self._run_of(in_order([messages])[0])
            return
        names = zip(messages.column("key").to_pylist(), messages.column("id").to_pylist(), strict=True)
        digests = [digest_of(name) for name in names]
        is_moved = np.array([digest in moved for digest in digests])
        if not is_moved.all():
            yield self._run_of(in_order([messages.filter(pa.array(~is_moved))])[0])
        again, order = in_order([messages.filter(pa.array(is_moved))])
        names_again = np.array(digests, np.uint64)[is_moved][order].tolist()
        for whole in self._run_of(again).parts:
            due_ms = due_of(self._chunks.get(whole.chunk))
            for at in range(whole.rows):
                name = names_again.pop(0)
                yield Run([replace(_part_of(whole, due_ms, at, at + 1), moved_to_ms=moved[name], name=name)])

    def _run_of(self, rows: Any) -> Run:
        parts = []
        for chunk in cut(rows):
            due_ms = due_of(chunk)
            whole = Part(self._chunks.put(chunk), 0, chunk.num_rows, int(due_ms[0]), int(due_ms[-1]), size=chunk.nbytes)
            parts.append(whole)
        return Run(parts)

    def _merge(self) -> None:
        """Merge runs of about a size where there are many of them; not all shards in the same micro-batch."""
        alike: dict[Any, list[Run]] = {}
        for run in self.index.runs:
            if run.moved_to_ms is None and not any(part.is_again for part in run.parts):
                alike.setdefault((run.given_to, run.rows.bit_length() // 3), []).append(run)
        for runs in alike.values():
            runs.sort(key=lambda run: len(run.parts))  # those of large messages are left as they are
            sizes = accumulate(len(run.parts) for run in runs)
            runs = [run for run, size in zip(runs, sizes, strict=True) if size <= _MERGED_PARTS]
            if len(runs) >= _RUNS + self._number % _RUNS:
                rows, _ = in_order([self._rows_of(part) for run in runs for part in run.parts])
                merged = {id(run) for run in runs}
                self.index.runs = [run for run in self.index.runs if id(run) not in merged]
                self.index.runs.append(replace(self._run_of(rows), given_to=runs[0].given_to))

    # --- What goes ------------------------------------------------------------

    def give(self, near_ms: int) -> Iterator[Any]:
        """Give the taker the controls that it does not know, then the messages that are due until `near_ms`, in order.
        If more are due soon after than can be given in time, some of these are given too. Yields batches of `HANDED`
        for one hand-off; none if no deliverer answers.
        """
        index = self.index
        near_before_ms = self._now_ms + index.lead_ms
        if self._has_taker and index.taker != NOBODY:  # in steps, so that it is seldom written
            index.lead_ms = -(-(near_ms - self._now_ms) // _LEAD_STEP_MS) * _LEAD_STEP_MS
        if self._is_again:
            near_ms = max(near_ms, near_before_ms, self._now_ms + _LONGEST_LEAD_MS if self._is_lost else 0)
        if self._has_taker:
            yield from self._give_all(near_ms)
            if index.has_given:
                index.seen = self._seen
        elif self._is_again:
            for _ in self._give_all(near_ms):
                pass
        if self._is_lost:
            self._leave_lost(near_ms)

    def _give_all(self, near_ms: int) -> Iterator[Any]:
        index = self.index
        yield from controls.give(
            index, self._chunks, self._now_ms, near_ms, no_new_rules=self._gives_again_only, most_bytes=VISIT_BYTES
        )
        # Apart, so new messages do not wait behind repeated ones.
        yield from self._give_moved_again()
        found, count = self._nearest(self._again(), near_ms)
        while count:
            yield from self._give_rows(found, count)
            # A micro-batch that is done again gives all that may have been given, and what is new besides.
            found, count = self._nearest(self._again(), near_ms) if self._is_again else ([], 0)
        if not self._gives_again_only:
            others = [run for run in index.runs if run.given_to != index.taker or index.taker == NOBODY]
            # Not before the rest of the repeated ones, because both may be of one key.
            until_ms = min((run.first_ms for run in self._again()), default=None)
            yield from self._give_rows(*self._nearest(others, near_ms, until_ms))

    def _again(self) -> Sequence[Run]:
        """What the taker was given before, and may not have."""
        return [run for run in self.index.runs if run.given_to == self.index.taker != NOBODY]

    def _give_moved_again(self) -> Iterator[Any]:
        """At once, whenever they are due now: the taker may have delivered them before they were moved, and says so."""
        moved = [run for run in self._again() if run.moved_to_ms is not None][:VISIT_ROWS]
        yield from self._give_rows([(run, 0, self._rows_of(run.parts[0])) for run in moved], len(moved))

    def _nearest(
        self, runs: Sequence[Run], near_ms: int, until_ms: int | None = None
    ) -> tuple[list[tuple[Run, int, Any]], int]:
        """Parts, by their runs and places there, with their rows; and the number of first rows to give now. No row that
        is due after `until_ms` is among them.
        """
        ahead = min(VISIT_ROWS, _rows_ahead(runs, near_ms))
        heads = [(run.first_ms, number, 0) for number, run in enumerate(runs)]
        heapq.heapify(heads)
        found: list[tuple[Run, int, Any]] = []
        due: list[Any] = []
        longer: list[Any] = []
        size = 0
        # Parts in the order of their first row, until enough rows come before all that is not read.
        while heads and heads[0][0] <= near_ms + _AHEAD_MS:
            first_ms, number, place = heads[0]
            # Parts of one row came in order, so all but the last are before.
            before = len(due) - len(longer) + sum(int(np.searchsorted(it, first_ms)) for it in longer)
            enough = VISIT_ROWS if first_ms <= near_ms else ahead
            if before >= enough or (before and size >= VISIT_BYTES):
                break
            if sum(map(len, due)) >= _MOST_ROWS or size >= _MOST_BYTES:
                break
            heapq.heappop(heads)
            part = runs[number].parts[place]
            rows = self._rows_of(part)
            found.append((runs[number], place, rows))
            due.append(_now_due(part, rows))
            longer += due[-1:] if part.rows > 1 else []
            size += rows.nbytes
            if place + 1 < len(runs[number].parts):
                heapq.heappush(heads, (runs[number].parts[place + 1].first_ms, number, place + 1))
        count = min(VISIT_ROWS, max(ahead, sum(int(np.searchsorted(it, near_ms, "right")) for it in due)))
        if heads:  # unless thousands are due in the same millisecond
            count = min(count, sum(int(np.searchsorted(it, heads[0][0])) for it in due) or count)
        if until_ms is not None:
            count = min(count, sum(int(np.searchsorted(it, until_ms, "right")) for it in due))
        return found, count

    def _give_rows(self, found: Sequence[tuple[Run, int, Any]], count: int) -> Iterator[Any]:
        """The first rows of these parts, in order; they are given from then on."""
        if not count:
            return
        batches = [rows for _, _, rows in found]
        due_ms = np.concatenate([_now_due(run.parts[place], rows) for run, place, rows in found])
        rows, order = in_order(batches, due_ms)
        from_part = np.repeat(np.arange(len(batches)), [batch.num_rows for batch in batches])[order[:count]]
        taken = np.bincount(from_part, minlength=len(batches)).tolist()
        for (run, place, batch), rows_taken in zip(found, taken, strict=True):
            self._give_first(run, place, due_of(batch), rows_taken)
        parts = [run.parts[place] for run, place, _ in found]
        is_again = np.array([part.is_again for part in parts])[from_part]
        moved_to_ms = [parts[at].moved_to_ms for at in from_part]
        for run, _, _ in found:
            run.parts = [part for part in run.parts if part.rows]
        self.index.runs = [run for run in self.index.runs if run.parts]
        yield from cut(replaced(rows.slice(0, count), moved_to_ms=moved_to_ms, again=is_again))

    def _give_first(self, run: Run, place: int, due_ms: Any, rows: int) -> None:
        """The first rows of a part are given."""
        if not rows:
            return
        part = replace(
            run.parts[place], is_again=run.parts[place].is_again or run.given_to not in (NOBODY, self.index.taker)
        )
        run.parts[place] = _part_of(part, due_ms, rows, part.rows)
        self.index.given.append(_part_of(part, due_ms, 0, rows))

    def tidy(self) -> None:
        """Forget chunks of which nothing is needed any more."""
        self._chunks.keep_only(self.index.chunks())

    def _rows_of(self, part: Part) -> Any:
        if part.moved_to_ms is None:
            return self._chunks.get(part.chunk).slice(part.start, part.rows)
        return self._chunks.glance(part.chunk).take(pa.array([part.start]))  # not all of its chunk stays in memory


def _in_turn(rows: Any) -> Iterator[Any]:
    """These rows in pieces: within one no message comes after a reschedule of its name, which is not about it."""
    has_time, has_payload = (pc.is_valid(rows.column(name)) for name in ("due_ms", "payload"))
    is_message = pc.and_(has_time, has_payload).to_numpy(zero_copy_only=False)
    moves = rows.filter(pc.and_not(has_time, has_payload))
    names = {*zip(moves.column("key").to_pylist(), moves.column("id").to_pylist(), strict=True)}
    is_one = pc.is_in(rows.column("id"), moves.column("id")).to_numpy(zero_copy_only=False) if names else []
    start, moved = 0, set[Any]()
    for at in np.flatnonzero(is_one).tolist():
        name = rows["key"][at].as_py(), rows["id"][at].as_py()
        if name not in names:
            continue
        if is_message[at] and name in moved:
            yield rows.slice(start, at - start)
            start, moved = at, set()
        elif not is_message[at]:
            moved.add(name)
    yield rows.slice(start)


def _can_join(before: Part, part: Part) -> bool:
    is_moved = before.moved_to_ms is not None or part.moved_to_ms is not None
    ends = before.chunk, before.stop, before.is_again
    return ends == (part.chunk, part.start, part.is_again) and not is_moved


def _cut(
    part: Part, found: tuple[Any, Sequence[tuple[int, Any]]], to_ms: Mapping[Any, int], settled_ms: int | None = None
) -> Iterator[tuple[Part, Any]]:
    """A part in pieces: each row that is moved is one, with its name."""
    due_ms, named = found
    due_ms, start = due_ms[part.start : part.stop], 0
    first, stop = (bisect_left(named, place, key=itemgetter(0)) for place in (part.start, part.stop))
    for place, name in named[first:stop]:
        at = place - part.start
        if settled_ms is None or due_ms[at] > settled_ms:
            if start < at:
                yield _part_of(part, due_ms, start, at), None
            yield replace(_part_of(part, due_ms, at, at + 1), moved_to_ms=to_ms[name], name=digest_of(name)), name
            start = at + 1
    if start < part.rows:
        yield (part if start == 0 else _part_of(part, due_ms, start, part.rows)), None


def _now_due(part: Part, rows: Any) -> Any:
    """When the rows of a part are due now."""
    return due_of(rows) if part.moved_to_ms is None else np.array([part.moved_to_ms])


def _part_of(part: Part, due_ms: Any, start: int, stop: int) -> Part:
    """Some rows of a part whose rows have these due times; maybe none."""
    first_ms, last_ms = (int(due_ms[start]), int(due_ms[stop - 1])) if start < stop else (0, 0)
    return replace(part, start=part.start + start, stop=part.start + stop, first_ms=first_ms, last_ms=last_ms)


def _rows_ahead(runs: Sequence[Run], near_ms: int) -> int:
    """How many rows, of those due soon after `near_ms`, must be given by now because one visit can't give them all."""
    lasts = ((part.last_due_ms, part.rows) for run in runs for part in run.parts)
    soon = ((last_ms, rows) for last_ms, rows in lasts if last_ms <= near_ms + _AHEAD_MS)
    rows = most = 0
    for last_ms, count in sorted(soon):
        rows += count
        most = max(most, rows - VISIT_ROWS - max(0, last_ms - near_ms) * _PACE_ROWS // 1000)
    return most
