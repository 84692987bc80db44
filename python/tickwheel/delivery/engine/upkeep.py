"""The upkeep of a store's file by an operator (rule D20): check it, compact it, back it up, restore it.

`tickwheel store` runs these functions. They do not wait until another process stops delivering. `check_store` and
`backup_store` also work while a process delivers, and inside that process.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from tickwheel import _native


@dataclass(frozen=True, slots=True)
class CheckedStore:
    """The result of a check, with one line for each of the `problems`. `messages`: all known messages; `waiting`: the
    messages without an outcome; both are 0 if the tables can't be read, and then `problems` says why.
    """

    messages: int
    waiting: int
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CompactedStore:
    """The size of a store with its log, in bytes."""

    before: int
    after: int


def check_store(store: str | os.PathLike[str]) -> CheckedStore:
    """Check whether a store is whole: by SQLite's own check, and by comparing its tables with each other.

    The store may be in use, and is not changed. Takes a second for 200,000 messages. Errors: `WrongUsage` if it is no
    store of this format; `StoreFailed` if it can't be read.
    """
    return _checked(_native.check_store(store))


def compact_store(store: str | os.PathLike[str]) -> CompactedStore:
    """Give every free page back to the disk; a crash in the middle leaves the store as it was.

    Needs as much room again until it is done, also in the folder for temporary files (`TMPDIR`). Errors: `WrongUsage`
    if it is no store of this format, or in use; `StoreFailed`.
    """
    return CompactedStore(*_native.compact_store(store))


def backup_store(store: str | os.PathLike[str], to: str | os.PathLike[str]) -> CheckedStore:
    """Copy a store, as it is at one moment, to the file `to`, which appears only when it is complete and on disk.

    The store may be in use, and is not changed. The copy is checked. It delivers nothing before it is restored. Errors:
    `WrongUsage` if `store` is no store of this format, `to` exists, or its folder does not; `StoreFailed`.
    """
    return _checked(_native.backup_store(store, to))


def restore_store(backup: str | os.PathLike[str], store: str | os.PathLike[str], *, force: bool = False) -> Path | None:
    """Make a store of a backup, or of any copy of a store. It gives new messages numbers that no store has ever given.

    Messages due by now may have been delivered since the backup. They are delivered again, marked as `redelivered`,
    unless the destination knows them. `force`: restore also if `store` exists; the old store stays as `STORE.replaced`,
    and its path is returned. `force` also accepts a backup in which the check finds problems. Errors: `WrongUsage`,
    also if `store` is in use; `StoreFailed`. After an error `store` is as it was.
    """
    return _native.restore_store(backup, store, force)


def restore_replicated(address: str, store: str | os.PathLike[str]) -> None:
    """Make the new file `store` of a replicated store (D21), with all that was answered. It is replicated still.

    Errors: `WrongUsage`, also if `store` exists; `StoreFailed` if the PostgreSQL has no such store, or does not answer.
    """
    _native.restore_replicated(address, store)


def leave_replication(store: str | os.PathLike[str], address: str) -> None:
    """End the replication of a store: the file has all of it, and is alone. No process takes it over any more.

    Waits some seconds for an owner that was killed. Errors: `WrongUsage`, also if a process owns it; `StoreFailed`.
    """
    _native.leave_replication(store, address)


def _checked(found: tuple[int, int, list[str]]) -> CheckedStore:
    messages, waiting, problems = found
    return CheckedStore(messages, waiting, tuple(problems))
