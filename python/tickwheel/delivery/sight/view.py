"""`StoreView`: everything that can be seen of a store, each call at a moment of its own."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from tickwheel._native import StoreSnapshot
from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.delivery.model.bulk import Time, checked_text, range_of
from tickwheel.delivery.sight.actions import Action, list_actions
from tickwheel.delivery.sight.destinations import (
    DestinationPage,
    DestinationShown,
    Figures,
    list_destinations,
    show_destination,
)
from tickwheel.delivery.sight.letters import LetterPage, list_letters
from tickwheel.delivery.sight.messages import Details, Filter, Page, State, list_messages, show_message
from tickwheel.delivery.sight.status import StoreStatus, status_of
from tickwheel.delivery.sight.tenants import TenantFigures, TenantPage, TenantSeen, list_tenants


class NoStore(WrongUsage):
    """There is no store to look at. A server then answers 503 and not 400, because the request itself was right."""


class StoreView:
    """Looks at a store, a file of `--store`, which may be in use, also in this process. Changes nothing.

    A call opens the file for about a millisecond, and sees only committed changes. Errors of every call: `WrongUsage`
    if there is no store, `StoreFailed`.

    >>> import tempfile
    >>> from tickwheel.delivery import DeliveryQueue
    >>> with tempfile.TemporaryDirectory() as folder, DeliveryQueue(f"{folder}/r.db", to=print) as queue:
    ...     queue.put_many([("tea", 4_000_000_000_000, "ready"), ("cake", 4_000_000_000_500, "done", "oven")])
    ...     page = StoreView(f"{folder}/r.db").list(limit=1)
    ...     rest = StoreView(f"{folder}/r.db").list(cursor=page.next)
    [<Answer.ACCEPTED: 'accepted'>, <Answer.ACCEPTED: 'accepted'>]
    >>> [(it.id, it.key, it.due) for it in (*page.messages, *rest.messages)], rest.next
    ([('tea', None, '2096-10-02T07:06:40.000Z'), ('cake', 'oven', '2096-10-02T07:06:40.500Z')], None)
    """

    def __init__(
        self, store: str | Path, *, figures: Figures | None = None, tenants: TenantFigures | None = None
    ) -> None:
        """`figures`, `tenants`: ask the engine that delivers for its destinations, and for its tenants, of which it
        knows more than the store.
        """
        self._store = Path(store)
        self._figures = figures
        self._of_tenants = tenants

    def list(
        self,
        state: Literal["waiting", "recurring", "delivered", "cancelled", "dead", "expired", "remembered"] = "waiting",
        *,
        key: str | None = None,
        destination: str | None = None,
        tenant: str | None = None,
        until: str | None = None,
        due_from: Time | None = None,
        due_before: Time | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page:
        """A page of messages. Waiting messages come in order of delivery, recurring messages in order of acceptance,
        all others by their end, the last one first. `remembered`: events that let go messages that come later, the one
        whose time ends first at the beginning; their `due` is that end.

        `due_from`, `due_before`: RFC 3339 text, a `datetime` with a zone, or epoch milliseconds. `limit`: up to 1,000.
        `cursor`: the `next` of the page before, with the same filters. A page ends early after 4 MiB of names. With a
        filter it may be short or empty, although it is not the last: one call looks at 100,000 messages. `destination`,
        `tenant`: not for delivered and cancelled messages, of which they are not known. `until`: those that an event of
        this name would let go; only for waiting messages, and for remembered events of this name. Errors: also
        `BadRecord` for a time.
        """
        if state not in list(State):
            raise WrongUsage(f"state is {state!r:.100}: ask for {', '.join(State)}")
        part = range_of(due_from, due_before)
        texts = {"key": key, "destination": destination, "tenant": tenant, "until": until}
        checked = {name: checked_text(text, name) for name, text in texts.items() if text is not None}
        which = Filter(**checked, due_from_ms=part[0], due_before_ms=part[1], limit=limit)
        with _opened(self._store) as db:
            return list_messages(db, State(state), which, cursor)

    def show(self, id: str, key: str | None = None) -> Details | None:  # noqa: A002, as in a message
        """The newest message with this name and its payload; `None`: it has not come, or is forgotten."""
        name = checked_text(id, "id"), None if key is None else checked_text(key, "key")
        with _opened(self._store) as db:
            return show_message(db, *name)

    def dead(
        self,
        *,
        destination: str | None = None,
        tenant: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> LetterPage:
        """A page of the dead letters that the store has kept, the last one first; of messages that named these."""
        to = None if destination is None else checked_text(destination, "destination")
        of = None if tenant is None else checked_text(tenant, "tenant")
        with _opened(self._store) as db:
            return list_letters(db, destination=to, tenant=of, limit=limit, cursor=cursor)

    # `list` is a method here, and no type any more.
    def actions(self, id: str | None = None) -> Sequence[Action]:  # noqa: A002
        """The last actions on many messages, the newest first; or the one with this id, if it is kept."""
        name = None if id is None else checked_text(id, "id")
        with _opened(self._store) as db:
            return list_actions(db, name)

    def destinations(self, *, limit: int = 100, cursor: str | None = None) -> DestinationPage:
        """A page of the named destinations, in the order of their names, with what waits and without their secrets."""
        with _opened(self._store) as db:
            return list_destinations(db, self._figures, limit=limit, cursor=cursor)

    def destination(self, name: str) -> DestinationShown | None:
        """The same for one; `None`: there is none."""
        with _opened(self._store) as db:
            return show_destination(db, self._figures, name)

    def tenants(self, *, limit: int = 100, cursor: str | None = None) -> TenantPage:
        """A page of the tenants that were set or paused, in the order of their names; and the busiest of all."""
        with _opened(self._store) as db:
            return list_tenants(db, self._of_tenants, limit, cursor)

    def tenant(self, name: str) -> TenantSeen | None:
        """One of them; `None`: it was not set or paused."""
        found = self.tenants(limit=1, cursor=name).tenants
        return found[0] if found and found[0].name == name else None

    def status(self) -> StoreStatus:
        """The store in figures. O(messages): about a second for ten million, two where dead letters were requeued."""
        with _opened(self._store) as db:
            return status_of(db, self._store, figures=self._figures)


def _opened(store: Path) -> StoreSnapshot:
    """Errors: `NoStore`, `StoreFailed`."""
    try:
        return StoreSnapshot(store)
    except WrongUsage as error:
        raise NoStore(str(error)) from error
