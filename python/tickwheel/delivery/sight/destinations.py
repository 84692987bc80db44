"""The named destinations of a store: pages of their settings, and some of them in figures (rule D23)."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from tickwheel._native import StoreSnapshot
from tickwheel.delivery.sight.messages import check_limit, with_times

SHOWN: Final = 20
"""How many a status has."""


class DestinationSeen(msgspec.Struct, frozen=True):
    """A named destination. Times are RFC 3339 in UTC.

    `waiting`, `overdue`: its messages, counted up to 10,000. `next_try`: the first time at which a message that failed
    is tried again; a destination that is down is tried each second. One that is paused does not count as down. `late`:
    of those that were `delivered`, how many were sent more than a second after they were due. The fields from
    `down_since` on are what the process that delivers has seen since its start. They are `None` if only the store was
    asked.
    """

    name: str
    state: Literal["sending", "paused", "down"]
    waiting: int
    overdue: int
    first_due: str | None
    next_try: str | None
    rate: str | None
    concurrency: int | None
    down_since: str | None = None
    down_reason: str | None = None
    delivered: int | None = None
    late: int | None = None
    failed_attempts: int | None = None
    last_error: str | None = None
    last_error_at: str | None = None


class Destinations(msgspec.Struct, frozen=True):
    """How many named destinations there are; and twenty of them: those that are down, then those whose messages are
    overdue for longest, then the others by name. `down` is `None` if only the store was asked.
    """

    count: int
    paused: int
    down: int | None
    first: Sequence[DestinationSeen]


def destinations_of(found: tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]) -> Destinations:
    """What an engine or a store tells."""
    counts, each = found
    return Destinations(counts["all"], counts["paused"], counts["down"], [_seen(it) for it in each])


def _seen(found: Mapping[str, Any]) -> DestinationSeen:
    told = with_times(found)
    is_paused = told.pop("is_paused")
    state: Literal["sending", "paused", "down"]
    state = "paused" if is_paused else "down" if told.get("down_since") is not None else "sending"
    return DestinationSeen(state=state, **told)


class DestinationPage(msgspec.Struct, frozen=True):
    """Destinations, and the cursor of the next page; `None` after the last. A destination has its `name`, and its
    settings but no secrets: `secrets_set` is when they were set.
    """

    destinations: Sequence[Mapping[str, Any]]
    next: str | None


def list_destinations(db: StoreSnapshot, *, limit: int = 100, cursor: str | None = None) -> DestinationPage:
    """A page of named destinations. Errors: `WrongUsage`, `StoreFailed`."""
    check_limit(limit)
    found = db.destinations(cursor or "", limit + 1)
    return DestinationPage([_shown(*it) for it in found[:limit]], found[limit][0] if len(found) > limit else None)


def show_destination(db: StoreSnapshot, name: str) -> Mapping[str, Any] | None:
    """The destination with this name. Errors: `StoreFailed`."""
    return next((_shown(*it) for it in db.destinations(name, 1) if it[0] == name), None)


def _shown(name: str, settings: str) -> dict[str, Any]:
    return {"name": name, **msgspec.json.decode(settings)}
