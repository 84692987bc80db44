"""What is in memory of all that waits (rules D4, D8): the messages that are due next, within bounds, in order per key.

The store holds everything; the window holds what comes before its `cursor`, a position `(due_ms, seq)` in the order of
delivery, and of each key only the first few. Nothing here has a lock, a clock or a thread: the dispatcher's lock guards
it, and the writer moves it along.

- All that waits at or before the cursor is in memory; except that of a lane with a `more_from`, all from there on is in
  the store alone. What waits in memory is at or before the cursor. So a lane is never out of order.
- Bounds: messages and bytes in all, and per lane. Reading ahead stops at four fifths of them; the rest is for messages
  that come later and are due before the cursor, and for lanes that ran empty.
- Where there is no room for such a message in its lane, the lane's last ones go back to the store (`more_from`); where
  there is none at all, the latest tenth goes back, and the cursor with it. Reading ahead finds them again.

Example: at most two per lane, cursor (50, 9). Key k has (10, 1) and (20, 2) in memory and (30, 3) in the store, so its
`more_from` is (30, 3). A new message (15, 10) of k comes in between, (20, 2) goes back, `more_from` is (20, 2).
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tickwheel.delivery.lanes import HELD, OVER, WAITING, Entry, Lane
from tickwheel.delivery.store import Position, Waiting

__all__ = ["Bounds", "Entry", "Lane", "Window"]

_LAST_SEQ: Final = (1 << 63) - 1
_MOVABLE: Final = (HELD, WAITING)


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may be in memory; of a lane too, which has at least one message whatever its size."""

    messages: int = 60_000
    size: int = 64 << 20
    lane_messages: int = 128
    lane_size: int = 4 << 20


class Window:
    """Empty until `cursor` is set. `is_global`: everything is one lane (`--order global`)."""

    def __init__(self, bounds: Bounds = Bounds(), *, is_global: bool = False) -> None:
        self.bounds = bounds
        self.cursor: Position | None = None
        self.size = 0
        self.needy: set[int] = set()  # lanes that may run empty though the store has more of them
        self.was_full = False  # something was not read for want of room
        self._is_global = is_global
        self._entries: dict[int, Entry] = {}
        self._lanes: dict[int | None, Lane] = {}  # of no key there is none

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(list(self._entries.values()))

    def get(self, seq: int) -> Entry | None:
        """The message, if it is in memory."""
        return self._entries.get(seq)

    def lanes(self) -> Iterable[Lane]:
        """Those of which anything is in memory."""
        return self._lanes.values()

    def has_room(self, share: float = 0.8, size: int = 0) -> bool:
        """Whether less than this share of the bounds is taken, with so many bytes more."""
        return not self._entries or (
            len(self._entries) < share * self.bounds.messages and self.size + size <= share * self.bounds.size
        )

    def admit(self, row: Waiting, gone: list[Entry]) -> Entry | None:
        """A message that was just accepted: its entry, if it comes into memory. What made room is added to `gone`."""
        position = row.due_ms, row.seq
        if self.cursor is None or position > self.cursor:
            return None
        lane = self._lanes.get(self._number(row))
        if lane is not None and (lane.count or lane.more_from):
            if lane.more_from is not None and position >= lane.more_from:
                return None
            if not self._fits(lane, row):
                gone += self._make_room_in(lane, row)
                if not self._fits(lane, row):
                    self._leave(lane, position)
                    return None
        if not self.has_room(1, row.size):
            gone += self._make_room(row)
            if not self.has_room(1, row.size):
                self._set_back(position)
                return None
        return self._add(row)

    def read_ahead(self, rows: Sequence[Waiting], until_ms: int, *, is_all: bool) -> list[Entry]:
        """Take in from the store what comes next after the cursor; `is_all`: there is no more until then."""
        chosen: list[Entry] = []
        for row in rows:
            if not self.has_room(size=row.size):
                self.was_full = True
                return chosen
            self.cursor = row.position
            if row.seq in self._entries:
                continue
            lane = self._lanes.get(self._number(row))
            if lane is not None and (lane.more_from is not None or not self._fits(lane, row)):
                if lane.more_from is None:
                    self._leave(lane, row.position)
                continue
            chosen.append(self._add(row))
        if is_all:
            self.cursor = until_ms, _LAST_SEQ
        return chosen

    def refill_from(self) -> tuple[list[int], Position] | None:
        """The lanes to refill, and from where; `None` if there are none, or there is no room."""
        lanes = [lane for number in self.needy if (lane := self._lanes.get(number)) and lane.more_from]
        self.needy = {lane.number for lane in lanes}
        if not lanes or not self.has_room(1):
            self.was_full = self.was_full or bool(lanes)
            return None
        lanes = heapq.nsmallest(200, lanes, key=lambda lane: lane.more_from or (0, 0))
        return [lane.number for lane in lanes], min(lane.more_from or (0, 0) for lane in lanes)

    def refill(self, numbers: Iterable[int], rows: Iterable[Waiting], end: Position) -> list[Entry]:
        """Take in these rows of these lanes, which are all until `end`."""
        assert self.cursor is not None
        lanes = [self._lanes[number] for number in numbers]
        open_ = {lane.number: lane for lane in lanes if lane.more_from is not None and lane.more_from <= end}
        chosen = []
        for row in rows:
            lane = open_.get(row.lane or 0)
            if lane is None or lane.more_from is None or row.position < lane.more_from or row.seq in self._entries:
                continue
            has_room = self.has_room(1, row.size)
            if has_room and self._fits(lane, row):
                chosen.append(self._add(row))
            else:
                self.was_full = self.was_full or not has_room
                lane.more_from = row.position
                del open_[lane.number]
        for lane in open_.values():
            lane.more_from = (end[0], end[1] + 1) if end < self.cursor else None
        for lane in lanes:
            self._look_after(lane)
            self.tidy(lane)
        return chosen

    def take(self, lane: Lane) -> Entry | None:
        """Its first message flies, if it can."""
        entry = lane.fly()
        if entry is None:
            self.tidy(lane)
        elif lane.more_from is not None:
            self._look_after(lane)
        return entry

    def put_back(self, entry: Entry) -> None:
        """It does not fly after all, as it would be early; without a place any more, it goes back to the store."""
        lane = entry.lane
        if lane is not None:
            lane.flying = None
        is_after_cursor = self.cursor is None or entry.position > self.cursor
        if is_after_cursor or (lane is not None and lane.more_from is not None and entry.position >= lane.more_from):
            entry.state = OVER
            self.forget([entry.seq])
        elif lane is not None:
            lane.push(entry)

    def land(self, entry: Entry) -> None:
        """It has its outcome, and the next one of its lane may fly. Stays known until `forget`."""
        entry.state = OVER
        entry.message = None
        lane = entry.lane
        if lane is not None:
            if lane.flying is entry:
                lane.flying = None
            else:
                lane.remove(entry)
                self._look_after(lane)

    def forget(self, seqs: Iterable[int]) -> None:
        """Their outcome is committed."""
        for seq in seqs:
            entry = self._entries.pop(seq, None)
            if entry is not None:
                self.size -= entry.size
                if entry.lane is not None and not entry.lane.count:
                    self.tidy(entry.lane)

    def tidy(self, lane: Lane) -> None:
        """Let go of a lane of which nothing is left."""
        if lane.is_empty and self._lanes.get(lane.number) is lane:
            del self._lanes[lane.number]

    def _number(self, row: Waiting) -> int | None:
        return 0 if self._is_global else row.lane

    def _fits(self, lane: Lane, row: Waiting) -> bool:
        if self._is_global or not lane.count:
            return True
        return lane.count < self.bounds.lane_messages and lane.size + row.size <= self.bounds.lane_size

    def _add(self, row: Waiting) -> Entry:
        number = self._number(row)
        lane = self._lanes.get(number)
        if lane is None and number is not None:
            lane = self._lanes[number] = Lane(number)
        entry = self._entries[row.seq] = Entry(row.seq, row.due_ms, lane, row.size, row.redelivered)
        self.size += entry.size
        if lane is not None:
            lane.push(entry)
        return entry

    def _make_room_in(self, lane: Lane, row: Waiting) -> list[Entry]:
        """Send the lane's last ones back to the store, as many as it takes, if they come after this."""
        gone = []
        while not self._fits(lane, row) and (last := lane.last()) is not None and last.position > row.position:
            self._leave(lane, last.position)
            self._send_back(last)
            gone.append(last)
        return gone

    def _make_room(self, row: Waiting) -> list[Entry]:
        """Send the latest tenth back to the store, more if it takes more, if they come after this; the cursor too."""
        later = (entry for entry in self._entries.values() if entry.position > row.position)
        movable = (it for it in later if it.state in _MOVABLE and (it.lane is None or it.lane.flying is not it))
        latest_first = sorted(movable, key=lambda entry: entry.position, reverse=True)
        gone: list[Entry] = []
        for entry in latest_first:
            if len(gone) * 10 >= self.bounds.messages and self.has_room(1, row.size):
                break
            self._send_back(entry)
            gone.append(entry)
        if gone:
            self._set_back(gone[-1].position)
        return gone

    def _set_back(self, position: Position) -> None:
        """The cursor goes back to before this; nothing that waits in memory is from there on."""
        self.cursor = position[0], position[1] - 1
        self.was_full = True
        for lane in list(self._lanes.values()):
            if lane.more_from is not None and lane.more_from > self.cursor:
                lane.more_from = None  # it will be read ahead again
                self._look_after(lane)
                self.tidy(lane)

    def _send_back(self, entry: Entry) -> None:
        entry.state = OVER
        entry.message = None
        del self._entries[entry.seq]
        self.size -= entry.size
        if entry.lane is not None:
            entry.lane.remove(entry)
            entry.lane.compact()  # it may come back, and must not be there twice
            self.tidy(entry.lane)

    def _leave(self, lane: Lane, position: Position) -> None:
        lane.more_from = position
        self._look_after(lane)

    def _look_after(self, lane: Lane) -> None:
        if lane.more_from is not None and lane.count <= self.bounds.lane_messages // 2:
            self.needy.add(lane.number)
        else:
            self.needy.discard(lane.number)
