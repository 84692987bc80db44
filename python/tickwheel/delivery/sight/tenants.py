"""The tenants of a store: pages of those that were set or paused, and the busiest in figures (rule D24)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from tickwheel._native import StoreSnapshot
from tickwheel.delivery.sight.messages import check_limit, with_times

SHOWN: Final = 20
"""How many of the busiest a page has."""


class TenantSeen(msgspec.Struct, frozen=True):
    """A tenant. The figures are of its messages in memory, which has what is due soon; `None` if only the store was
    asked.

    `waiting`: without an outcome; `overdue`, `failing`: those among them that are due, and that have failed and are
    tried again. `out`: in calls that have not returned. `first_due`: RFC 3339 in UTC.
    """

    name: str
    paused: bool
    waiting: int | None = None
    overdue: int | None = None
    failing: int | None = None
    out: int | None = None
    first_due: str | None = None


class TenantShown(TenantSeen, frozen=True, kw_only=True):
    """A tenant that was set or paused, with its settings, but for `paused`."""

    settings: Mapping[str, Any]


class TenantPage(msgspec.Struct, frozen=True):
    """Tenants that were set or paused, by name, and the cursor of the next page; `None` after the last.

    `busiest`: twenty of all tenants, those with the most messages that are due first; empty if only the store was
    asked.
    """

    tenants: Sequence[TenantShown]
    busiest: Sequence[TenantSeen]
    next: str | None


TenantFigures: TypeAlias = Callable[[int, Sequence[str]], tuple[Sequence[Mapping[str, Any]], tuple[int, int]]]
"""Asks the engine that delivers: `DeliveryEngine.tenant_figures`."""


def list_tenants(
    db: StoreSnapshot, figures: TenantFigures | None, *, limit: int = 100, cursor: str | None = None
) -> TenantPage:
    """A page of tenants. Errors: `WrongUsage`, `StoreFailed`."""
    check_limit(limit)
    found = db.tenants(cursor or "", limit + 1)
    settings = {name: msgspec.json.decode(text) for name, text in found[:limit]}
    told = [] if figures is None else [with_times(it) for it in figures(limit + SHOWN, [*settings])[0]]
    none: dict[str, Any] = {} if figures is None else dict.fromkeys(("waiting", "overdue", "failing", "out"), 0)
    figures_of = {it["name"]: it for it in told}
    shown = [
        TenantShown(**none | figures_of.get(name, {}) | {"name": name, "paused": it.pop("paused")}, settings=it)
        for name, it in settings.items()
    ]
    busiest = sorted(told, key=lambda it: (-it["overdue"], -it["waiting"]))[:SHOWN]
    return TenantPage(shown, [TenantSeen(**it) for it in busiest], found[limit][0] if len(found) > limit else None)


def show_tenant(db: StoreSnapshot, figures: TenantFigures | None, name: str) -> TenantShown | None:
    """The tenant with this name, if it was set or paused. Errors: `StoreFailed`."""
    found = list_tenants(db, figures, limit=1, cursor=name).tenants
    return found[0] if found and found[0].name == name else None
