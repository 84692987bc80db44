"""Actions on many messages (D16), as the store has them."""

import msgspec

from tickwheel._native import StoreSnapshot
from tickwheel.delivery.model.entries import ActionKind
from tickwheel.delivery.sight.messages import with_times


class Action(msgspec.Struct, frozen=True):
    """An action: its messages, and how far it is. Times are RFC 3339 in UTC.

    `changed`: how many were cancelled, or are tried anew, so far; `too_late`: how many were being sent in that moment.
    `ended`: when it was through all of them; `None`: it is at work.
    """

    id: str
    kind: ActionKind
    key: str | None
    key_prefix: str | None
    due_from: str | None
    due_before: str | None
    destination: str | None
    tenant: str | None
    began: str | None
    ended: str | None
    changed: int
    too_late: int


def list_actions(db: StoreSnapshot, id_: str | None = None) -> list[Action]:
    """The last actions, the newest first; or the action with this id, if it is kept. Errors: `StoreFailed`."""
    return [Action(**with_times(it) | {"kind": ActionKind(it["kind"])}) for it in db.actions(id_)]
