"""Keys in doubt: which keys fail, since when, why, and when they are tried again (rules D6, D14)."""

from collections.abc import Sequence
from typing import Final

import msgspec

from tickwheel._native import StoreSnapshot, rfc_3339

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


def in_doubt_of(db: StoreSnapshot) -> InDoubt:
    """The keys in doubt of a store. Errors: `StoreFailed`. Some ten milliseconds for 50,000 messages that fail."""
    keys, is_complete = db.longest_in_doubt(_LONGEST)
    longest = [
        KeyInDoubt(key, id_, rfc_3339(since_ms), fails, error, rfc_3339(next_ms), is_paused)
        for key, id_, since_ms, fails, error, next_ms, is_paused in keys
    ]
    return InDoubt(longest, is_complete)
