"""Messages in memory, and the lanes in which those of one key wait for each other (rule D4).

Nothing here has a lock: `Window` owns them, and the dispatcher's lock guards all of it. A lane is a heap by position;
an entry that leaves it from the middle stays there, without its message, until it comes up or such are the most.
"""

import heapq
from enum import Enum, auto

import msgspec

from tickwheel.delivery.message import Message
from tickwheel.delivery.store import Outcome, Position


class State(Enum):
    """Of a message in memory. Only a `HELD` or `WAITING` one can be taken back."""

    HELD = auto()  # until it is committed
    WAITING = auto()  # on the timer, or for its lane
    READY = auto()  # for a sender
    SENDING = auto()
    RETRYING = auto()
    OVER = auto()  # has its outcome, or went back to the store


HELD, WAITING, READY, SENDING, RETRYING, OVER = State  # CPython 3.11 takes 0.3 µs to find one by its class


class Entry(msgspec.Struct, eq=False, gc=False):
    """A message in memory.

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
    state: State = HELD

    @property
    def position(self) -> Position:
        """Where it stands in the order of delivery."""
        return self.due_ms, self.seq


class Lane:
    """The messages of one key, at most one of them `flying`: being sent, or waiting to be tried again.

    `count` and `size` are of those that wait. From `more_from` on, all others are in the store alone. `is_offered`: a
    sender has been told of it. What is due until `due_until_ms` has been released by the timer.
    """

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

    @property
    def is_empty(self) -> bool:
        """Whether nobody needs it any more."""
        return not (self.count or self.flying or self.more_from or self.is_offered)

    def push(self, entry: Entry) -> None:
        """One more that waits."""
        heapq.heappush(self._heap, (entry.due_ms, entry.seq, entry))
        self.count += 1
        self.size += entry.size

    def first(self) -> Entry | None:
        """The next to be sent."""
        heap = self._heap
        while heap:
            entry = heap[0][2]
            if entry.state is not OVER:
                return entry
            heapq.heappop(heap)
        return None

    def fly(self) -> Entry | None:
        """Its first message flies, if it is on the timer and no other does."""
        entry = self.first()
        if entry is None or entry.state is not WAITING or self.flying is not None:
            return None
        heapq.heappop(self._heap)
        self.count -= 1
        self.size -= entry.size
        self.flying = entry
        return entry

    def last(self) -> Entry | None:
        """The one to be sent last. O(its messages)."""
        live = (item for item in self._heap if item[2].state is not OVER)
        return max(live, default=(0, 0, None))[2]

    def remove(self, entry: Entry) -> None:
        """It is `OVER`, and waits here no more."""
        self.count -= 1
        self.size -= entry.size
        if len(self._heap) > 2 * self.count:
            self.compact()

    def compact(self) -> None:
        """Drop what is `OVER`. O(its messages)."""
        self._heap = [item for item in self._heap if item[2].state is not OVER]
        heapq.heapify(self._heap)
