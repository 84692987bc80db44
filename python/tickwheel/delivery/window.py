"""What is in memory of all that waits (rules D4, D8): the messages that are due next, within bounds, in order per key.

The store holds everything; the window holds what comes before its `cursor`, a position `(due_ms, seq)` in the order of
delivery, and of each key only the first few. Nothing here has a lock, a clock or a thread: the dispatcher's lock guards
it, and the writer moves it along.

- All that waits at or before the cursor is in memory; except that of a lane with a `more_from`, all from there on is in
  the store alone. So the first of a lane is in memory whenever any of it is, and a lane is never out of order.
- Bounds: messages and bytes in all, and per lane. Reading ahead stops at four fifths of them; the rest is for messages
  that come later and are due before the cursor, and for lanes that ran empty.
- Where there is no room for such a message in its lane, the lane's last one goes back to the store (`more_from`); where
  there is none at all, the latest tenth goes back, and the cursor with it. Reading ahead finds them again.

Example: at most two per lane, cursor (50, 9). Key k has (10, 1) and (20, 2) in memory and (30, 3) in the store, so its
`more_from` is (30, 3). A new message (15, 10) of k comes in between, (20, 2) goes back, `more_from` is (20, 2).
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

import msgspec

from tickwheel import TimerTask
from tickwheel.delivery.message import Message
from tickwheel.delivery.store import Outcome, Position, Waiting

_LAST_SEQ: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may be in memory; of a lane too, which has at least one message whatever its size."""

    messages: int = 60_000
    size: int = 64 << 20
    lane_messages: int = 128
    lane_size: int = 4 << 20


class State(Enum):
    """Of a message in memory. Only a `HELD` or `WAITING` one can be taken back."""

    HELD = auto()  # until it is committed
    WAITING = auto()  # on the timer, or for its lane
    READY = auto()  # for a sender
    SENDING = auto()
    RETRYING = auto()
    OVER = auto()  # has its outcome, or went back to the store


class Entry(msgspec.Struct, eq=False, gc=False):
    """A message in memory. `task` is its place on the timer, while it has one.

    The garbage collector does not look at it, as it would at every message in turn: whoever ends it cuts its ties.
    """

    seq: int
    due_ms: int
    lane: "Lane | None"
    size: int
    redelivered: bool
    message: Message | None = None
    attempt: int = 0
    outcome: Outcome | None = None
    state: State = State.HELD
    task: TimerTask | None = None

    @property
    def position(self) -> Position:
        """Where it stands in the order of delivery."""
        return self.due_ms, self.seq


class Lane:
    """The messages of one key, at most one of them `flying`: being sent, or waiting to be tried again."""

    __slots__ = ("_heap", "count", "due_until_ms", "flying", "is_offered", "more_from", "number", "size")

    def __init__(self, number: int) -> None:
        self.number = number
        self.flying: Entry | None = None
        self.more_from: Position | None = None
        self.due_until_ms = -1
        self.is_offered = False
        self.count = 0
        self.size = 0
        self._heap: list[tuple[int, int, Entry]] = []

    def push(self, entry: Entry) -> None:
        """One more that waits."""
        heapq.heappush(self._heap, (entry.due_ms, entry.seq, entry))
        self.count += 1
        self.size += entry.size

    def first(self) -> Entry | None:
        """The next to be sent."""
        while self._heap and self._heap[0][2].state is State.OVER:
            heapq.heappop(self._heap)
        return self._heap[0][2] if self._heap else None

    def pop(self) -> Entry:
        """Take the first one out, which there is."""
        while (entry := heapq.heappop(self._heap)[2]).state is State.OVER:
            pass
        self.leaves(entry)
        return entry

    def last(self) -> Entry | None:
        """The one to be sent last. O(its messages)."""
        live = (item for item in self._heap if item[2].state is not State.OVER)
        return max(live, default=(0, 0, None))[2]

    def remove(self, entry: Entry) -> None:
        """Out of the heap at once, as it may come back. O(its messages)."""
        self._heap = [item for item in self._heap if item[2] is not entry]
        heapq.heapify(self._heap)
        self.leaves(entry)

    def leaves(self, entry: Entry) -> None:
        """It waits here no more; what is `OVER` drops out of the heap later."""
        self.count -= 1
        self.size -= entry.size


class Window:
    """Empty until `cursor` is set. `is_global`: everything is one lane (`--order global`)."""

    def __init__(self, bounds: Bounds = Bounds(), *, is_global: bool = False) -> None:
        self.bounds = bounds
        self.cursor: Position | None = None
        self.size = 0
        self.needy: set[int] = set()  # lanes that may run empty though the store has more of them
        self._is_global = is_global
        self._entries: dict[int, Entry] = {}
        self._lanes: dict[int, Lane] = {}

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

    def has_room(self, share: float = 0.8) -> bool:
        """Whether less than this share of the bounds is taken."""
        return len(self._entries) < share * self.bounds.messages and self.size < share * self.bounds.size

    def admit(self, row: Waiting) -> tuple[Entry | None, list[Entry]]:
        """A message that was just accepted; returns its entry, if it comes into memory, and those that made room."""
        position = row.position
        if self.cursor is None or position > self.cursor:
            return None, []
        lane = self._lane(row)
        if lane is not None and lane.more_from is not None and position >= lane.more_from:
            return None, []
        if lane is not None and self._is_full(lane):
            last = lane.last()
            assert last is not None
            if position > last.position:
                self._leave(lane, position)
                return None, []
            self._leave(lane, last.position)
            self._send_back(last)
            return self._add(row), [last]
        gone = [] if self.has_room(1) else self._make_room(position)
        if not gone and not self.has_room(1):
            self.cursor = _before(position)  # all that is in memory comes before it
            return None, []
        return self._add(row), gone

    def read_ahead(self, rows: Sequence[Waiting], until_ms: int, *, is_all: bool) -> list[Entry]:
        """Take in from the store what comes next after the cursor; `is_all`: there is no more until then."""
        chosen: list[Entry] = []
        for row in rows:
            if not self.has_room():
                return chosen
            self.cursor = row.position
            if row.seq in self._entries:
                continue
            lane = self._lane(row)
            if lane is not None and (lane.more_from is not None or self._is_full(lane)):
                if lane.more_from is None:
                    self._leave(lane, row.position)
                continue
            chosen.append(self._add(row))
        if is_all:
            self.cursor = until_ms, _LAST_SEQ
        return chosen

    def refill_from(self) -> tuple[list[int], Position] | None:
        """The lanes to refill, and from where; `None` if there are none."""
        lanes = [lane for number in self.needy if (lane := self._lanes.get(number)) and lane.more_from]
        self.needy = {lane.number for lane in lanes}
        if not lanes or not self.has_room(1):
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
            if self._is_full(lane) or not self.has_room(1):
                lane.more_from = row.position
                del open_[lane.number]
            else:
                chosen.append(self._add(row))
        for lane in open_.values():
            lane.more_from = (end[0], end[1] + 1) if end < self.cursor else None
        for lane in lanes:
            self._look_after(lane)
        return chosen

    def take(self, lane: Lane) -> Entry:
        """Its first message flies."""
        lane.flying = entry = lane.pop()
        if lane.more_from is not None:
            self._look_after(lane)
        return entry

    def put_back(self, entry: Entry) -> None:
        """It does not fly after all, as it would be early."""
        if entry.lane is not None:
            entry.lane.flying = None
            entry.lane.push(entry)

    def land(self, entry: Entry) -> None:
        """It has its outcome, and the next one of its lane may fly. Stays known until `forget`."""
        entry.state = State.OVER
        lane = entry.lane
        if lane is not None:
            if lane.flying is entry:
                lane.flying = None
            else:
                lane.leaves(entry)
                if lane.more_from is not None:
                    self._look_after(lane)

    def forget(self, seq: int) -> None:
        """Its outcome is committed."""
        entry = self._entries.pop(seq, None)
        if entry is not None:
            self.size -= entry.size
            self._tidy(entry.lane)

    def _lane(self, row: Waiting) -> Lane | None:
        number = self._number(row)
        return None if number is None else self._lanes.get(number)

    def _number(self, row: Waiting) -> int | None:
        return 0 if self._is_global else row.lane

    def _is_full(self, lane: Lane) -> bool:
        if self._is_global:
            return False
        return lane.count >= self.bounds.lane_messages or (lane.count > 0 and lane.size >= self.bounds.lane_size)

    def _add(self, row: Waiting) -> Entry:
        number, lane = self._number(row), self._lane(row)
        if number is not None and lane is None:
            lane = self._lanes[number] = Lane(number)
        entry = self._entries[row.seq] = Entry(row.seq, row.due_ms, lane, row.size, row.redelivered)
        self.size += entry.size
        if lane is not None:
            lane.push(entry)
        return entry

    def _make_room(self, position: Position) -> list[Entry]:
        """Send a tenth of the messages back to the store, the latest, if they come after this; the cursor with them."""
        movable = (
            e for e in self._entries.values() if e.state in (State.HELD, State.WAITING) and e.position > position
        )
        gone = heapq.nlargest(max(1, len(self._entries) // 10), movable, key=lambda entry: entry.position)
        for entry in gone:
            self._send_back(entry)
        if gone:
            self.cursor = _before(gone[-1].position)
            for lane in self._lanes.values():
                if lane.more_from is not None and lane.more_from > self.cursor:
                    lane.more_from = None  # it will be read ahead again
                    self._look_after(lane)
        return gone

    def _send_back(self, entry: Entry) -> None:
        entry.state = State.OVER
        if entry.lane is not None:
            entry.lane.remove(entry)
        del self._entries[entry.seq]
        self.size -= entry.size
        self._tidy(entry.lane)

    def _leave(self, lane: Lane, position: Position) -> None:
        lane.more_from = position
        self._look_after(lane)

    def _look_after(self, lane: Lane) -> None:
        if lane.more_from is not None and lane.count <= self.bounds.lane_messages // 2 and not self._is_full(lane):
            self.needy.add(lane.number)
        else:
            self.needy.discard(lane.number)

    def _tidy(self, lane: Lane | None) -> None:
        if lane is not None and not (lane.count or lane.flying or lane.more_from or lane.is_offered):
            self._lanes.pop(lane.number, None)


def _before(position: Position) -> Position:
    return position[0], position[1] - 1
