"""What can go wrong with a delivery, by who has to act: the record's author, the caller, or the operator.

Every message says what was given, what is allowed, and what to do. `BadRecord` ends nothing, the other two end the run.
"""

from tickwheel import TickwheelError


class BadRecord(TickwheelError):
    """One record breaks the schema: it goes to the dead letters with `reason` and `allowed`, the rest goes on (D2)."""

    def __init__(self, reason: str, allowed: str) -> None:
        super().__init__(f"{reason} (allowed: {allowed})")
        self.reason = reason
        self.allowed = allowed


class WrongUsage(TickwheelError):
    """The command as given can't be run; nothing was read or delivered. Exit code 2 (D2)."""


class DeliveryFailed(TickwheelError):
    """Reading or sending failed in the middle of a run, so that not everything was delivered. Exit code 3."""
