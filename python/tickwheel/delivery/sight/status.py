"""The state of a store in figures, and its keys in doubt: which keys fail, since when, and why (rules D6, D14)."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from tickwheel._native import StoreSnapshot, rfc_3339, store_owner
from tickwheel.delivery.sight.destinations import Destinations, Figures, figures_of
from tickwheel.delivery.sight.messages import with_times

_AHEAD_S: Final = {"1 min": 60, "1 h": 3_600, "1 day": 86_400}
_LONGEST: Final = 10


class KeyInDoubt(msgspec.Struct, frozen=True):
    """A key without success, with the message that is tried; `key` is `None` if this message has none.

    `since`: time in which the destination was down, or no process ran, is left out. `fails`: sends of this message that
    failed, and one on its way that a crash would count. `next_try`: it may be past while the message waits for a place.
    `is_paused`: the key waits for its resume. Names are cut after 200 characters.
    """

    key: str | None
    id: str
    since: str
    fails: int
    last_error: str | None
    next_try: str
    is_paused: bool


class InDoubt(msgspec.Struct, frozen=True):
    """The ten keys whose message has been without success for longest, as the store has them.

    `is_complete`: if more than 50,000 messages fail, the ten are looked for among those that were accepted first.
    `keys`: how many keys had a last send that was not accepted, or was slow. It and the spare places are `None` if only
    the store was asked: the process that delivers knows them.
    """

    longest: Sequence[KeyInDoubt]
    is_complete: bool
    keys: int | None = None
    spare_places: int | None = None
    spare_places_taken: int | None = None


class PauseEnd(msgspec.Struct, frozen=True):
    """A pause that ends by itself at `until`. `name`: its first 200 characters; empty for a pause of all."""

    kind: Literal["all", "key", "destination", "tenant"]
    name: str
    until: str


class Replication(msgspec.Struct, frozen=True):
    """Which process owns a replicated store (D21), by the last take-over, whose number is `epoch`.

    The others are `None` if only the store was asked. `role` of the process that was asked: `owner`, `quiet owner`
    (PostgreSQL has confirmed nothing for 2 s, so it sends nothing), or `standby`. `lag_rows`, `lag_bytes`, `lag_s`:
    groups that PostgreSQL has not confirmed to the owner, or that a standby has not run; their bytes, and for how long
    there have been such groups. `last_base`: when the last copy of the whole store was made. `trouble`: why PostgreSQL
    did not answer the last question.
    """

    epoch: int
    owner: str | None
    role: str | None = None
    lag_rows: int | None = None
    lag_bytes: int | None = None
    lag_s: float | None = None
    last_base: str | None = None
    trouble: str | None = None

    @classmethod
    def of(cls, found: Mapping[str, Any] | None) -> "Replication | None":
        """From the figures of the engine, or of the store."""
        return None if found is None else cls(**with_times(found))


class StoreStatus(msgspec.Struct, frozen=True):
    """A store in figures, at the time `at`. Sizes are bytes.

    `in_use`: whether a process works with it now, for delivery or upkeep; `process`: its number. Both are `None` if the
    system does not tell. `recurring`: messages that come again and again; their occurrences count as any message.
    `delivered`, `cancelled`, `dead`, `expired`: messages that are not forgotten yet (`--keep-ids`). A requeued message
    counts in none of them until it has its new outcome. `dead_letters`: how many the store has kept. `due_within`:
    waiting messages by how soon they are due, the overdue ones too. `paused_keys`: how many keys are paused;
    `paused_key_names`: the first twenty of them, by their time. `paused_until`: when the pause of all ends by itself;
    `pause_ends`: the twenty pauses of any kind that do so first. `down_since`, `down_reason`: of the destination, if it
    is down. `waiting_for_events`: waiting messages that an event would let go; `remembered_events`: events that let go
    what comes later. `in_doubt`: the keys that fail for longest, and why. `destinations`: those that messages name.
    `replication`: `None` if the store is not replicated.
    """

    at: str
    in_use: bool | None
    process: int | None
    waiting: int
    recurring: int
    overdue: int
    retrying: int
    may_have_arrived: int
    delivered: int
    cancelled: int
    dead: int
    expired: int
    dead_letters: int
    first_due: str | None
    due_within: Mapping[str, int]
    last_outcome: str | None
    last_commit: str | None
    paused_since: str | None
    paused_until: str | None
    paused_keys: int
    paused_key_names: Sequence[str]
    pause_ends: Sequence[PauseEnd]
    down_since: str | None
    down_reason: str | None
    waiting_for_events: int
    remembered_events: int
    in_doubt: InDoubt
    destinations: Destinations
    file_size: int
    log_size: int
    replication: Replication | None


def status_of(db: StoreSnapshot, store: Path, now_ms: int | None = None, figures: Figures | None = None) -> StoreStatus:
    """The figures of a store at `now_ms`. Errors: `StoreFailed`. O(messages): about a second for ten million, and
    two where dead letters were requeued.
    """
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    found = db.status([now_ms + ahead_s * 1_000 for ahead_s in (0, *_AHEAD_S.values())])
    overdue, *due = found.pop("due_before")
    found["pause_ends"] = [PauseEnd(kind, name, rfc_3339(until_ms)) for kind, name, until_ms in found["pause_ends"]]
    size, log_size = sizes_of(store)
    replication = Replication.of(found.pop("replication"))
    is_used, process = store_owner(store) or (None, None)
    return StoreStatus(
        at=rfc_3339(now_ms),
        in_use=is_used,
        process=process,
        overdue=overdue,
        due_within=dict(zip(_AHEAD_S, due, strict=True)),
        in_doubt=in_doubt_of(db),
        destinations=figures_of(db, figures, None),
        file_size=size,
        log_size=log_size,
        replication=replication,
        **with_times(found),
    )


def in_doubt_of(db: StoreSnapshot, most: int = _LONGEST) -> InDoubt:
    """The keys in doubt of a store, the `most` that fail for longest. Errors: `StoreFailed`. Some ten milliseconds for
    50,000 messages that fail.
    """
    keys, is_complete = db.longest_in_doubt(most)
    return InDoubt([KeyInDoubt(**with_times(it)) for it in keys], is_complete)


def count_paused_keys(db: StoreSnapshot) -> int:
    """How many keys are paused: at most 10,000. Errors: `StoreFailed`."""
    return db.paused_keys()


def sizes_of(store: Path) -> tuple[int, int]:
    """Bytes of the file, and of the write-ahead log beside it; 0 if a file is missing."""
    return _size(store), _size(Path(f"{store}-wal"))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
