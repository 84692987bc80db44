"""What an operator does with the file of a store (rule D20): check it, compact it, back it up, restore it.

`tickwheel store` runs these. None of them waits for a process that delivers; `check_store` and `backup_store` may run
beside one, also in its process.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from tickwheel import _native
from tickwheel.delivery.base.errors import WrongUsage, shown


@dataclass(frozen=True, slots=True)
class CheckedStore:
    """What a check has found: a line for each of the `problems`. `messages`: those that are known; `waiting`: those of
    them that have no outcome.
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
    """Whether a store is whole: SQLite's own check, and what its tables say of each other.

    It may be in use, and is not changed. A second for 200,000 messages. Errors: `WrongUsage` if it is no store of this
    version; `StoreFailed` if it can't be read.
    """
    return _checked(_native.check_store(store))


def compact_store(store: str | os.PathLike[str]) -> CompactedStore:
    """Give every free page back to the disk; a crash in the middle leaves the store as it was.

    Needs as much room again until it is done, also in the folder for temporary files (`TMPDIR`). Errors: `WrongUsage`
    if it is no store of this version, or in use; `StoreFailed`.
    """
    return CompactedStore(*_native.compact_store(store))


def pause_store(store: str | os.PathLike[str], key: str | None = None) -> None:
    """Let the next deliverer of a store that is not in use send nothing (D16), or nothing of a key, until resumed.

    Errors: `WrongUsage` if it is no store of this version, or in use: then its deliverer is asked; for what is no key,
    and once 10,000 keys are paused; `StoreFailed`.
    """
    _native.pause_store(store, _checked_key(key), is_paused=True)


def resume_store(store: str | os.PathLike[str], key: str | None = None) -> None:
    """Let the next deliverer of a store send again, or what is of a key. Errors: as of `pause_store`."""
    _native.pause_store(store, _checked_key(key), is_paused=False)


def backup_store(store: str | os.PathLike[str], to: str | os.PathLike[str]) -> CheckedStore:
    """Write a copy of one moment of a store to `to`, one file, which is not there before it is complete and on disk.

    The store may be in use, and is not changed. The copy is checked. It delivers nothing before it is restored. Errors:
    `WrongUsage` if it is no store of this version, or `to` exists; `StoreFailed`.
    """
    return _checked(_native.backup_store(store, to))


def restore_store(backup: str | os.PathLike[str], store: str | os.PathLike[str], *, force: bool = False) -> Path | None:
    """Make a store of a backup, or of any copy of a store. What it accepts gets numbers that no store ever gave.

    All that is due by now may have been delivered since the backup: it is delivered again, as `redelivered`, unless
    the destination knows it. `force`: also where `store` exists, which stays as `STORE.replaced`, and that path is
    returned; and also a backup in which the check finds problems. Errors: `WrongUsage`, also if `store` is in use;
    `StoreFailed`. Then `store` is as it was.
    """
    return _native.restore_store(backup, store, force)


def _checked_key(key: str | None) -> str | None:
    """Errors: `WrongUsage` for what is no text in UTF-8."""
    try:
        return key if key is None else key.encode().decode()
    except (AttributeError, UnicodeEncodeError):
        raise WrongUsage(f"key is {shown(key)}: give text in UTF-8") from None


def _checked(found: tuple[int, int, list[str]]) -> CheckedStore:
    messages, waiting, problems = found
    return CheckedStore(messages, waiting, tuple(problems))
