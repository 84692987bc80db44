"""An event that an exception of a signal's handler may interrupt anywhere, and that a handler may set."""

import queue
from contextlib import suppress


class Event:
    """As `threading.Event`, but without a lock that is taken by Python code.

    An exception may leave such a lock taken. A handler that interrupts its owner waits for ever.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._came: queue.SimpleQueue[None] = queue.SimpleQueue()  # `put` may interrupt `put` and `get`

    def is_set(self) -> bool:
        """Whether it is set."""
        return self._is_set

    def set(self) -> None:
        """Wake all that wait."""
        self._is_set = True
        self._came.put(None)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it is set, at most `timeout_s` seconds. Whether it is set."""
        if not self._is_set:
            with suppress(queue.Empty):
                self._came.get(timeout=timeout_s and max(timeout_s, 0))
            if self._is_set:
                self._came.put(None)  # for the next that waits
        return self._is_set

    def clear(self) -> None:
        """As if it had never been set. No thread may wait."""
        with suppress(queue.Empty):
            while True:
                self._came.get_nowait()
        self._is_set = False
