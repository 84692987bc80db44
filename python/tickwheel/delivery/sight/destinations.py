"""The named destinations of a store: pages of their settings, and some of them in figures (rule D23)."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

from tickwheel._native import StoreSnapshot
from tickwheel.delivery.sight.messages import check_limit, with_times

SHOWN: Final = 20
"""How many a status has, and how many busy tenants a page."""


class DestinationSeen(msgspec.Struct, frozen=True):
    """A named destination. Times are RFC 3339 in UTC.

    `waiting`, `overdue`: its messages, counted up to 10,000. `next_try`: the first time at which a message that failed
    is tried again; a destination that is down is tried each second, one that is paused not at all. One that is paused
    does not count as down. `paused_until`: when its pause ends by itself. `paused_reason`: if it was paused because it
    failed for long. `failing_since`: if that is to happen to it, from a minute after its first failure without a
    success since. `late`: of those that were
    `delivered`, how many were sent more than a second after they were due. The fields from `down_since` on are what the
    process that delivers has seen since its start. They are `None` if only the store was asked.
    """

    name: str
    state: Literal["sending", "paused", "down"]
    waiting: int
    overdue: int
    first_due: str | None
    next_try: str | None
    rate: str | None
    concurrency: int | None
    paused_since: str | None
    paused_until: str | None
    paused_reason: str | None
    failing_since: str | None
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
    state: Literal["sending", "paused", "down"] = "sending" if told.get("down_since") is None else "down"
    if told["paused_since"] is not None:  # nothing is tried there
        state = "paused"
        told |= {"down_since": None, "down_reason": None, "next_try": None}
    return DestinationSeen(state=state, **told)


class DestinationShown(DestinationSeen, frozen=True, kw_only=True):
    """A named destination with its settings, but no secrets: `secrets_set` is when they were set."""

    settings: Mapping[str, Any]


class DestinationPage(msgspec.Struct, frozen=True):
    """Destinations, and the cursor of the next page; `None` after the last."""

    destinations: Sequence[DestinationShown]
    next: str | None


Figures: TypeAlias = Callable[[Sequence[str] | None], Destinations]
"""Asks the engine that delivers for the destinations with these names, or for the first ones."""


def list_destinations(
    db: StoreSnapshot, figures: Figures | None, *, limit: int = 100, cursor: str | None = None
) -> DestinationPage:
    """A page of named destinations, without those that are removed meanwhile. Errors: `WrongUsage`, `StoreFailed`."""
    check_limit(limit)
    found = db.destinations(cursor or "", limit + 1)
    settings = dict(found[:limit])
    told = figures_of(db, figures, [*settings]).first
    shown = [
        DestinationShown(**msgspec.structs.asdict(it), settings=msgspec.json.decode(settings[it.name])) for it in told
    ]
    return DestinationPage(shown, found[limit][0] if len(found) > limit else None)


def show_destination(db: StoreSnapshot, figures: Figures | None, name: str) -> DestinationShown | None:
    """The destination with this name. Errors: `StoreFailed`."""
    found = list_destinations(db, figures, limit=1, cursor=name).destinations
    return found[0] if found and found[0].name == name else None


def figures_of(db: StoreSnapshot, figures: Figures | None, names: Sequence[str] | None) -> Destinations:
    """By the engine, or without one by the store."""
    if figures is not None:
        return figures(names)
    return destinations_of(db.destination_figures(names, SHOWN, time.time_ns() // 1_000_000))
