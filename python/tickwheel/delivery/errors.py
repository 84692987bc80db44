"""What can go wrong with a delivery, by who has to act: the record's author, the caller, or the operator.

Every message says what was given, what is allowed, and what to do. `BadRecord` ends nothing, the others end the run.
"""

import sqlite3
from pathlib import Path
from typing import Self

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


class StoreFailed(DeliveryFailed):
    """The store can't be read or written. What was accepted before is still in it, what was answered since is not."""

    @classmethod
    def because(cls, path: Path, error: sqlite3.Error) -> Self:
        """With SQLite's own words, and what to do."""
        return cls(f"the store {path} can't be used: {error}; {_advice(error)}")


def _advice(error: sqlite3.Error) -> str:
    match getattr(error, "sqlite_errorname", "").split("_")[:2]:
        case ["SQLITE", "FULL"]:
            return "make room on the disk and run again: nothing that was accepted is lost"
        case ["SQLITE", "READONLY" | "CANTOPEN" | "PERM"]:
            return "it must be writable, and so must its folder"
        case ["SQLITE", "NOTADB" | "CORRUPT"]:
            return "it is not a store, or damaged: name another file, or bring it back from a copy"
        case _:
            return "nothing that was accepted before is lost"
