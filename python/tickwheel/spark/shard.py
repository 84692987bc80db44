"""One visit to a shard: what one micro-batch does to the rows that the hold keeps (rules S2, S4, S5).

    rows of a micro-batch --keep--> WAITS --give--> GIVEN --settle--> TAKEN --mark--> gone
                                      ^               |                 |
                                      |             UNSURE              |   the taker may not have it: given again
                                      +---------------+-----------------+   the taker is lost: marked as a repeat

- A **message** waits in a run (`runs.py`) until it is near. A reschedule changes its place there (`moves.py`).
- Everything else is given at once, from a log (`controls.py`).
- A given row is **taken** when its deliverer has it on its disk. It stays until the deliverer's mark has passed it.

A shard gives to one deliverer, its **taker**. It changes only when the taker before has settled all, or is lost. The
state has a new taker before the taker gets a row, because a repeated micro-batch must give to the same taker.
"""

from collections.abc import Iterator, Sequence
from enum import Enum, auto
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from tickwheel.spark import controls
from tickwheel.spark.moves import as_moved, in_turn, move
from tickwheel.spark.orders import Orders, Seen, Taker
from tickwheel.spark.packing import digest_of, in_order, names_of, unpack
from tickwheel.spark.runs import give_nearest, merge, rows_of, run_of
from tickwheel.spark.shard_index import NOBODY, Chunks, ChunkState, Index, Part, Run

_LEAD_STEP_MS: Final = 10_000
_LONGEST_LEAD_MS: Final = 3_600_000
"""Of a run before, whose lead is not known, and whose deliverer is lost."""
_AT_ONCE_MS: Final = 1 << 62
_TAKEN_PARTS: Final = 100


class _Gives(Enum):
    """What a visit gives."""

    NOTHING = auto()
    """There is no deliverer to give to."""
    AGAIN = auto()
    """Only what the taker may have: the shard is about to move."""
    ALL = auto()


class Shard:
    """One visit. Call, in this order: `settle`, if there are orders; `keep`; `give`; `settle_all`, if there are no
    orders; `tidy`.
    """

    def __init__(self, number: int, index: Index, state: ChunkState, now_ms: int) -> None:
        self.index = index
        self.went_back = False
        self._number = number
        self._chunks = Chunks(index, state)
        self._now_ms = now_ms
        self._mark_ms = 0
        self._seen: Seen | None = None
        self._gives = _Gives.ALL
        self._is_again = False
        self._is_lost = False
        self._next: Taker | None = None

    # --- What became of what was given ---------------------------------------

    def settle(self, orders: Orders, near_ms: int) -> Taker | None:
        """Forget messages that have their outcome, and take back messages that were not taken. Returns the deliverer to
        give to, if there is one now.

        The first try of a repeated micro-batch may have sent rows that the state does not know. So the repeated one
        gives the same rows, and more: from the same state, as early as any try did. If it can't, because the deliverer
        does not answer or is lost, the state says that they were given.
        """
        index = self.index
        assigned = orders.at(orders.assigned[self._number])
        self._is_again = orders.is_again and index.taker != NOBODY
        self._gives = _Gives.NOTHING
        if index.taker == NOBODY:
            self._change_taker(assigned)
            return None
        if orders.is_lost(index.taker, index.address):
            self._is_lost, self._next = True, assigned
            return None
        is_home = assigned is not None and assigned.store_id == index.taker
        taker = assigned if is_home else orders.with_store(index.taker)
        if taker and not taker.has_all_of(index.seen):
            # It has some of the messages, and delivers them. So it gets the others too, wherever the shard belongs.
            self.went_back = self._is_lost = True
            self._next = taker
            return None
        had_given = index.has_given
        self._note_outcomes(orders, taker)
        if taker is None:
            return None
        self._seen = taker.seen
        if had_given:
            index.seen = self._seen
        index.address = taker.address
        return self._taker_now(orders, taker, assigned, near_ms)

    def _note_outcomes(self, orders: Orders, taker: Taker | None) -> None:
        index = self.index
        if self._number in orders.failed:
            self._take_back_given()
        elif taker and taker.was_opened_since(index.seen):
            # It took them. If it is a copy from before that, it lacks them; otherwise it drops them.
            index.given = [replace(part, is_again=True) for part in index.given]
            self._take_back_given()
        elif taker:
            self._note_taken()
            self._mark_ms = taker.marks[self._number]
            self._drop_settled(self._mark_ms)
            controls.settle(index, self._chunks, self._mark_ms)

    def _taker_now(self, orders: Orders, taker: Taker, assigned: Taker | None, near_ms: int) -> Taker | None:
        """The taker, or None if the shard has moved from it; and what the visit gives.

        A shard that belongs to another deliverer gives nothing new until its taker has settled all. The messages may
        be put off for days: then the shard stays where it is, and tries later. The moment of the next try depends only
        on time, so a repeated visit does the same.
        """
        index = self.index
        is_home = assigned is not None and assigned.store_id == index.taker
        self._gives = _Gives.ALL
        if orders.is_again:
            index.moving_since_ms = 0  # the first time it may have given what a move must not
        elif is_home:
            # A row that it gives must not be given to another taker by a repeated move.
            self._gives = _Gives.AGAIN if self._is_moving(near_ms) else _Gives.ALL
            index.moving_since_ms = 0
        elif not 0 <= self._now_ms - index.moving_since_ms < 10 * self._patience_ms(near_ms):
            index.moving_since_ms = self._now_ms if assigned is not None else 0  # and the next one moves
        elif self._is_moving(near_ms):
            self._gives = _Gives.AGAIN
            if assigned and not index.is_unsettled:
                self._gives = _Gives.NOTHING
                self._change_taker(assigned)
                return None
        return taker

    def _is_moving(self, near_ms: int) -> bool:
        since_ms = self.index.moving_since_ms
        return since_ms > 0 and 0 <= self._now_ms - since_ms <= self._patience_ms(near_ms)

    def _patience_ms(self, near_ms: int) -> int:
        return 30_000 + 3 * (near_ms - self._now_ms)

    def settle_all(self) -> None:
        """The same without marks: given rows are gone."""
        self.index.taken, self.index.given = [], []
        self.index.moved = {name: ms for name, ms in self.index.moved.items() if ms > self._now_ms}
        controls.settle_all(self.index)

    def _take_back_given(self) -> None:
        """It is not known whether the taker has what was given last."""
        self.index.runs += [Run([part], is_unsure=True) for part in self.index.given]
        self.index.given = []
        controls.take_back(self.index)

    def _leave_lost(self) -> None:
        """The messages of the taker wait for another taker, marked as repeats. A store that went back is the next taker
        itself, and gets them at once: it may have some of them, so the shard must not move before they are settled.
        """
        if self._next is None:
            return
        index = self.index
        self._take_back_given()
        index.runs += [Run([part], is_unsure=True) for part in index.taken]
        index.taken = []
        for run in index.runs:
            if run.is_unsure:
                run.parts = [replace(part, is_again=True) for part in run.parts]
                run.is_unsure = self.went_back
        self._change_taker(self._next)

    def _change_taker(self, taker: Taker | None) -> None:
        if taker is None:
            return
        index = self.index
        controls.forget_taker(index)
        index.taker, index.address, index.seen, index.moving_since_ms = taker.store_id, taker.address, None, 0

    def _note_taken(self) -> None:
        index = self.index
        index.taken += index.given
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
                rows, _ = in_order([rows_of(self._chunks, part) for part in parts])
                index.taken += run_of(self._chunks, rows, is_again=is_again).parts

    def _drop_settled(self, mark_ms: int) -> None:
        index = self.index
        over = [part for part in index.taken if part.until_ms <= mark_ms]
        late = (
            rows_of(self._chunks, part) for part in over if part.last_ms > mark_ms
        )  # put off after it was delivered
        late_names = {digest_of(name) for rows in late for name in names_of(rows)}
        index.moved = {name: ms for name, ms in index.moved.items() if ms > mark_ms and name not in late_names}
        index.taken = [part for part in index.taken if part.until_ms > mark_ms]

    # --- What comes -----------------------------------------------------------

    def keep(self, pieces: Sequence[bytes]) -> None:
        """Keep the rows of a micro-batch."""
        if not pieces:
            return
        for rows in in_turn(pa.concat_batches([unpack(piece) for piece in pieces])):
            self._keep(rows)

    def _keep(self, rows: Any) -> None:
        index = self.index
        is_message = pc.and_(pc.is_valid(rows.column("due_ms")), pc.is_valid(rows.column("payload")))
        messages = rows.filter(is_message)
        if messages.num_rows:
            index.runs.append(run_of(self._chunks, in_order([as_moved(index, messages)])[0]))
            merge(index, self._chunks, self._number)
        if messages.num_rows < rows.num_rows:
            others = move(index, self._chunks, rows.filter(pc.invert(is_message)), self._mark_ms)
            until_ms = max(self._now_ms, *(part.until_ms for part in index.parts()), 0)
            controls.keep(index, self._chunks, others, until_ms)

    # --- What goes ------------------------------------------------------------

    def give(self, near_ms: int) -> Iterator[Any]:
        """Give the taker the log's rows that it does not know, then the messages that are due until `near_ms`, in
        order. Yields batches of `HANDED` for one hand-off; none if no deliverer answers.
        """
        index = self.index
        near_before_ms = self._now_ms + index.lead_ms
        has_taker = self._gives != _Gives.NOTHING
        if has_taker and index.taker != NOBODY:  # in steps, so that it is seldom written
            index.lead_ms = -(-(near_ms - self._now_ms) // _LEAD_STEP_MS) * _LEAD_STEP_MS
        if self._is_again:
            near_ms = max(near_ms, near_before_ms, self._now_ms + _LONGEST_LEAD_MS if self._is_lost else 0)
        if has_taker or self._is_again:
            for batch in self._give_all(near_ms):
                if has_taker:
                    yield batch
        if has_taker and index.has_given:
            index.seen = self._seen
        if self._is_lost:
            self._leave_lost()

    def _give_all(self, near_ms: int) -> Iterator[Any]:
        index, chunks = self.index, self._chunks
        is_moving = self._gives == _Gives.AGAIN
        yield from controls.give(index, chunks)
        # At once, whenever they are due now: the taker may have delivered them before they were put off. Apart, so new
        # messages do not wait behind them.
        while unsure := self._unsure:
            yield from give_nearest(index, chunks, unsure, _AT_ONCE_MS)
            if not self._is_again:  # which gives all that may have been given, and what is new besides
                break
        if not is_moving:
            # Not before the rest of the unsure ones, because both may be of one key.
            until_ms = min((run.first_ms for run in self._unsure), default=None)
            waiting = [run for run in index.runs if not run.is_unsure]
            yield from give_nearest(index, chunks, waiting, near_ms, until_ms)

    @property
    def _unsure(self) -> Sequence[Run]:
        return [run for run in self.index.runs if run.is_unsure]

    def tidy(self) -> None:
        """Forget chunks of which nothing is needed any more."""
        self._chunks.keep_only(self.index.chunks())
