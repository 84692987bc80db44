"""An event that an exception of a signal's handler may interrupt anywhere, and that a handler may set."""

import threading
from contextlib import suppress


class Event:
    """As `threading.Event`, but without a lock that is taken by Python code.

    An exception may leave such a lock taken. A handler that interrupts its owner waits for ever.
    """

    def __init__(self) -> None:
        self._is_set = False
        # Taken until the event is set. Not a `SimpleQueue`: before Python 3.13 its `get` waits for ever if a handler
        # takes longer than what is left of the timeout.
        self._gate = threading.Lock()
        self._gate.acquire()

    def is_set(self) -> bool:
        """Whether it is set."""
        return self._is_set

    def set(self) -> None:
        """Wake all that wait."""
        self._is_set = True
        self._open()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it is set, at most `timeout_s` seconds. Whether it is set."""
        if not self._is_set:
            try:
                self._gate.acquire(timeout=-1 if timeout_s is None else max(timeout_s, 0))
            finally:
                if self._is_set:
                    self._open()  # for the next that waits
        return self._is_set

    def clear(self) -> None:
        """As if it had never been set. No thread may wait."""
        self._gate.acquire(blocking=False)
        self._is_set = False

    def _open(self) -> None:
        with suppress(RuntimeError):  # it is open
            self._gate.release()
