"""The errors of delivery, by where the correction belongs: in the record, in the call, or in the operation.

Every message says what was given, what is allowed, and what to do. A `BadRecord` does not end the run; the others do.
"""

import re

from tickwheel import TickwheelError

_TOO_LARGE = re.compile(r"the (payload|record) has [\d,]+ bytes")


def quoted(value: object) -> str:
    """A value in an error message: at most 200 characters, and no error for too large a number."""
    try:
        return f"{value!r:.200}"
    except ValueError:
        return "too large"


class BadRecord(TickwheelError, ValueError):
    """One record breaks the schema: it becomes a dead letter with `reason` and `allowed`, and the rest goes on (D2)."""

    def __init__(self, reason: str, allowed: str) -> None:
        super().__init__(f"{reason} (allowed: {allowed})")
        self.reason = reason
        self.allowed = allowed

    @property
    def is_too_large(self) -> bool:
        """Whether the size of the record or of its payload is what is wrong."""
        return _TOO_LARGE.match(self.reason) is not None


class WrongUsage(TickwheelError, ValueError):
    """The command can't be run with these arguments; nothing was read or delivered. Exit code 2 (D2)."""


class DeliveryFailed(TickwheelError):
    """Reading or sending failed in the middle of a run, so not everything was delivered. Exit code 3."""


class Unavailable(TickwheelError):
    """The receiver of this message cannot be reached, and the message has not arrived (D6). Sinks and functions raise
    it.

    The attempt does not count. The key waits, for `retry_after_s`, an hour at most, or by back-off if that is not a
    number above 0. Messages of other keys go on.
    """

    def __init__(self, reason: str, retry_after_s: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s


class Unanswered(TickwheelError):
    """There was no answer about a message, and it may have arrived: a time-out, an overloaded receiver (D6). Sinks
    and functions raise it.

    The attempt does not count, and the next one is marked `redelivered`. The key waits as after `Unavailable`.
    """

    def __init__(self, reason: str, retry_after_s: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s


class Final(TickwheelError):
    """The receiver will never take this message, so it becomes a dead letter without another attempt (D6). Sinks and
    functions raise it. If a sink raises it over several messages, these are refused, and come again in smaller sends.
    """


class StoreFailed(DeliveryFailed):
    """The store can't be read or written. It still has everything that was accepted before."""


class StoreUnavailable(StoreFailed):
    """The store can't be written now: another program holds a lock on it, or its disk is full (D6). The queue tries it
    again and again, and goes on by itself. Make the call again: what was accepted of it counts once. When a queue is
    opened: another process has the store, for longer than `wait_s`.
    """
