"""Brings what is due within the horizon from the store into the window (rules D3, D8), and remembers how far that went.

Called by the writer inside its transaction, so it sees what has just been accepted. Rows are read without their
payloads first; the window chooses, and only what it chose is read whole.

Before anything can be sent the store knows that it may be: `handed_until` is a due time that nothing in memory is
after. After a crash, what is due until then and still waits may have been sent (D5).
"""

from collections.abc import Iterable, Mapping
from typing import Final

from tickwheel.delivery.clock import DueClock
from tickwheel.delivery.dispatcher import Dispatcher
from tickwheel.delivery.store import Incoming, Store, Waiting
from tickwheel.delivery.window import Entry

_ROWS: Final = 1_000
_SCAN: Final = 5_000
_MARK_AHEAD_MS: Final = 1_000  # so that the mark is not written with every message


class Loader:
    """Idle until `start`."""

    def __init__(self, store: Store, dispatcher: Dispatcher, horizon_ms: float) -> None:
        self._store = store
        self._dispatcher = dispatcher
        self._window = dispatcher.window
        self._horizon_ms = horizon_ms
        self._clock: DueClock | None = None
        self._handed_until_ms = -1
        self.is_behind = False

    @property
    def has_started(self) -> bool:
        """Whether there is a horizon."""
        return self._clock is not None

    def start(self, clock: DueClock) -> None:
        """From now on there is a horizon."""
        self._clock = clock
        with self._dispatcher.lock:
            self._window.cursor = (-1, 0)
        self.is_behind = True

    def stop(self) -> None:
        """Load nothing more."""
        self._clock = None
        self.is_behind = False

    def admit(self, fresh: Mapping[int, Incoming]) -> list[Entry]:
        """These were just accepted, by number: those that belong there come into memory."""
        admitted = []
        evicted: list[Entry] = []
        admit = self._window.admit
        with self._dispatcher.lock:
            cursor = self._window.cursor
            for seq, item in fresh.items() if cursor is not None else ():
                message = item.message
                entry = admit(Waiting(message.due_ms, seq, item.lane, item.size, redelivered=False), evicted)
                if entry is not None:
                    entry.message = message
                    admitted.append(entry)
            for entry in evicted:
                self._dispatcher.discard(entry)
        self._hand(admitted)
        return admitted

    def load(self) -> list[Entry]:
        """What comes next, at most some thousand; `is_behind` tells whether there may be more."""
        if self._clock is None:
            return []
        with self._dispatcher.lock:
            self._window.was_full = False
        entries = self._refill()
        ahead, may_be_more = self._read_ahead(self._clock)
        entries += ahead
        with self._dispatcher.lock:
            self.is_behind = not self._window.was_full and (may_be_more or bool(self._window.needy))
        messages = self._store.messages([entry.seq for entry in entries])
        for entry in entries:
            entry.message = messages[entry.seq]
        self._hand(entries)
        return entries

    def _refill(self) -> list[Entry]:
        with self._dispatcher.lock:
            wanted, through = self._window.refill_from(), self._window.cursor
        if wanted is None or through is None:
            return []
        numbers, start = wanted
        rows, end = self._store.plan_lanes(numbers, start, through, _SCAN)
        with self._dispatcher.lock:
            return self._window.refill(numbers, rows, end)

    def _read_ahead(self, clock: DueClock) -> tuple[list[Entry], bool]:
        """The next ones, and whether there may be more."""
        with self._dispatcher.lock:
            cursor = self._window.cursor
            self._window.was_full = self._window.was_full or not self._window.has_room()
        until_ms = clock.due_within(self._horizon_ms)
        if cursor is None or self._window.was_full or cursor[0] > until_ms:
            return [], False
        rows = self._store.plan(cursor, until_ms, _ROWS)
        is_all = len(rows) < _ROWS
        with self._dispatcher.lock:
            return self._window.read_ahead(rows, until_ms, is_all=is_all), not is_all

    def _hand(self, entries: Iterable[Entry]) -> None:
        last_ms = max((entry.due_ms for entry in entries), default=-1)
        if last_ms > self._handed_until_ms:
            self._handed_until_ms = last_ms + _MARK_AHEAD_MS
            self._store.hand(self._handed_until_ms)
