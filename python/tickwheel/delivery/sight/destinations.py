"""Pages of named destinations, in the order of their names (D23)."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tickwheel._native import StoreSnapshot
from tickwheel.delivery.sight.messages import check_limit


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
