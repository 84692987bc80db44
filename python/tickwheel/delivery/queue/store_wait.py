"""The wait of a queue for a store that another process has (D9): a warning after 1 s, an error after `wait_s`."""

import math
import time
from typing import Final

from tickwheel.delivery.base.errors import StoreUnavailable, WrongUsage
from tickwheel.delivery.observe.log import log_text, logger

_WARN_AFTER_S: Final = 1.0
_REMEDY: Final = "one process at a time has a store: of several workers let one open it, or run tickwheel serve for all"


class StoreWait:
    """`wait_s`: the longest wait, in seconds; `None`: for ever. Errors: `WrongUsage`."""

    def __init__(self, wait_s: float | None) -> None:
        is_number = isinstance(wait_s, int | float) and not isinstance(wait_s, bool)
        if wait_s is not None and not (is_number and 0 <= wait_s < math.inf):
            raise WrongUsage(f"wait_s is {wait_s!r:.200}: give seconds from 0, or None to wait for ever")
        self._wait_s = wait_s
        self._began_s: float | None = None
        self._owner, self._remedy = "", _REMEDY
        self._warns = True

    def say(self, text: str) -> None:
        """The text tells which process has the store."""
        self._began_s, self._owner = self._began_s or time.monotonic(), text.partition(": waiting")[0]
        log_text(text)

    def stand_by(self, text: str) -> None:
        """As `say`, of the process that owns the replicated store."""
        self._remedy = "a standby takes over when the owner is gone"
        self.say(text)

    def check(self) -> None:
        """Called again and again in the wait. Errors: `StoreUnavailable` once it is over."""
        if self._began_s is None:
            return
        waited_s = time.monotonic() - self._began_s
        if self._wait_s is not None and waited_s >= self._wait_s:
            raise StoreUnavailable(f"{self._owner}, and wait_s={self._wait_s} is over: {self._remedy}")
        if self._warns and waited_s >= _WARN_AFTER_S:
            self._warns = False
            logger.warning("%s, and this one waits: %s; wait_s= limits the wait", self._owner, self._remedy)
