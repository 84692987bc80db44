"""A timer as programs write it themselves: a heap, a condition variable, and a thread that waits for the first entry.

A cancelled entry loses its callback at once but stays in the heap until it is due, as in the recipe of the
documentation of `heapq`. Every call takes the lock. Callbacks run without it.
"""

import heapq
import itertools
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, TypeAlias

Entry: TypeAlias = list[Any]
"""Due instant, number (the order of equal instants), callback or None, arguments."""


class HeapTimer:
    """Runs callbacks in a thread of its own, on the clock of `time.monotonic`."""

    def __init__(self) -> None:
        self._heap: list[Entry] = []
        self._changed = threading.Condition()
        self._numbers = itertools.count()
        threading.Thread(target=self._run, daemon=True).start()

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: object) -> Entry:
        """Run `callback(*args)` in `delay_s` seconds. Returns the entry, for `cancel`."""
        return self.call_at(time.monotonic() + delay_s, callback, *args)

    def call_at(self, due_s: float, callback: Callable[..., object], *args: object) -> Entry:
        """As `call_later`, at an instant."""
        with self._changed:
            entry = [due_s, next(self._numbers), callback, args]
            heapq.heappush(self._heap, entry)
            if self._heap[0] is entry:
                self._changed.notify()
        return entry

    def cancel(self, entry: Entry) -> bool:
        """Cancel the callback. Returns whether it will certainly not run."""
        with self._changed:
            was_pending = entry[2] is not None
            entry[2] = entry[3] = None
        return was_pending

    def _run(self) -> None:
        while True:
            callback, args = self._next_due()
            try:
                callback(*args)
            except Exception:
                traceback.print_exc()

    def _next_due(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        """Wait until an entry is due, and take it out of the heap."""
        with self._changed:
            while True:
                if not self._heap:
                    self._changed.wait()
                    continue
                entry = self._heap[0]
                due_s, _, callback, args = entry
                if callback is None:
                    heapq.heappop(self._heap)
                elif (left_s := due_s - time.monotonic()) > 0:
                    self._changed.wait(left_s)
                else:
                    heapq.heappop(self._heap)
                    entry[2] = entry[3] = None
                    return callback, args
