"""The tenants of a store: pages of those that were set or paused, and the busiest in figures (rule D24)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from tickwheel._native import StoreSnapshot
from tickwheel.delivery.sight.destinations import SHOWN
from tickwheel.delivery.sight.messages import check_limit, with_times


class TenantSeen(msgspec.Struct, frozen=True):
    """A tenant. `settings`: but for `paused`; empty if it has those of all.

    The figures are of its messages in memory, which has what is due soon; `None` if only the store was asked.
    `waiting`: without an outcome; `overdue`, `failing`: those among them that are due, and that have failed and are
    tried again. `out`: in calls that have not returned. `first_due`: RFC 3339 in UTC.
    """

    name: str
    paused: bool
    settings: Mapping[str, Any]
    waiting: int | None = None
    overdue: int | None = None
    failing: int | None = None
    out: int | None = None
    first_due: str | None = None


class TenantPage(msgspec.Struct, frozen=True):
    """Tenants that were set or paused, by name, and the cursor of the next page; `None` after the last.

    `busiest`: twenty of all tenants, those with the most messages that are due first; empty if only the store was
    asked.
    """

    tenants: Sequence[TenantSeen]
    busiest: Sequence[TenantSeen]
    next: str | None


TenantFigures: TypeAlias = Callable[[int, Sequence[str]], tuple[Sequence[Mapping[str, Any]], tuple[int, int]]]
"""Asks the engine that delivers: `DeliveryEngine.tenant_figures`."""


def list_tenants(db: StoreSnapshot, figures: TenantFigures | None, limit: int, cursor: str | None) -> TenantPage:
    """A page of tenants. Errors: `WrongUsage`, `StoreFailed`."""
    check_limit(limit)
    found = db.tenants(cursor or "", limit + 1)
    names = [name for name, _ in found[:limit]]
    told = {} if figures is None else {it["name"]: with_times(it) for it in figures(limit + SHOWN, names)[0]}
    none = {} if figures is None else dict.fromkeys(("waiting", "overdue", "failing", "out"), 0)

    def seen(name: str, text: str) -> TenantSeen:
        settings = msgspec.json.decode(text)
        own = {"name": name, "paused": settings.pop("paused", False), "settings": settings}
        return TenantSeen(**none | told.get(name, {}) | own)

    first = sorted(told, key=lambda name: (-told[name]["overdue"], -told[name]["waiting"]))[:SHOWN]
    busiest = [seen(name, dict(db.tenants(name, 1)).get(name, "{}")) for name in first]
    return TenantPage([seen(*it) for it in found[:limit]], busiest, found[limit][0] if len(found) > limit else None)
