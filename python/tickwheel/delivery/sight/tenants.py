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
    tried again. `out`: in calls that have not returned. `first_due`: RFC 3339 in UTC. Since the start of the process:
    `delivered`, and how many of these were sent more than a second after they were due (`late`); `lateness_ms`, the
    mean; `failed_attempts`. Only the first 10,000 tenants with an answer are counted so.
    """

    name: str
    paused: bool
    settings: Mapping[str, Any]
    waiting: int | None = None
    overdue: int | None = None
    failing: int | None = None
    out: int | None = None
    first_due: str | None = None
    delivered: int | None = None
    late: int | None = None
    lateness_ms: float | None = None
    failed_attempts: int | None = None


class TenantPage(msgspec.Struct, frozen=True):
    """Tenants that were set or paused, by name, and the cursor of the next page; `None` after the last.

    `busiest`: twenty of all tenants, those with the most messages that are due first, then those that most was
    delivered for; empty if only the store was asked.
    """

    tenants: Sequence[TenantSeen]
    busiest: Sequence[TenantSeen]
    next: str | None


TenantFigures: TypeAlias = Callable[[int, Sequence[str]], tuple[Sequence[Mapping[str, Any]], Mapping[str, Any]]]
"""Asks the engine that delivers: `DeliveryEngine.tenant_figures`."""


def list_tenants(db: StoreSnapshot, figures: TenantFigures | None, limit: int, cursor: str | None) -> TenantPage:
    """A page of tenants. Errors: `WrongUsage`, `StoreFailed`."""
    check_limit(limit)
    found = db.tenants(cursor or "", limit + 1)
    names = [name for name, _ in found[:limit]]
    told = {} if figures is None else {it["name"]: with_times(it) for it in figures(limit + SHOWN, names)[0]}
    counts = ("waiting", "overdue", "failing", "out", "delivered", "late", "failed_attempts")
    none = {} if figures is None else dict.fromkeys(counts, 0)
    for it in told.values():
        late_us = it.pop("lateness_us")
        it["lateness_ms"] = late_us / it["delivered"] / 1_000 if it["delivered"] else None

    def seen(name: str, text: str) -> TenantSeen:
        settings = msgspec.json.decode(text)
        own = {"name": name, "paused": settings.pop("paused", False), "settings": settings}
        return TenantSeen(**none | told.get(name, {}) | own)

    busy = ("overdue", "waiting", "delivered")
    first = sorted(told, key=lambda name: [-told[name][figure] for figure in busy])[:SHOWN]
    busiest = [seen(name, dict(db.tenants(name, 1)).get(name, "{}")) for name in first]
    return TenantPage([seen(*it) for it in found[:limit]], busiest, found[limit][0] if len(found) > limit else None)
