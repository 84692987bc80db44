"""Actions on many messages (D16), as the store has them."""

from typing import Final

import msgspec

from tickwheel._native import StoreSnapshot, rfc_3339
from tickwheel.delivery.model.entries import ActionKind

_COLUMNS: Final = "id, kind, key, key_prefix, due_from_ms, due_before_ms, began_ms, ended_ms, changed, too_late"


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
    began: str | None
    ended: str | None
    changed: int
    too_late: int


def list_actions(db: StoreSnapshot, id_: str | None = None) -> list[Action]:
    """The last actions, the newest first; or the action with this id, if it is kept. Errors: `StoreFailed`."""
    rows = db.rows(
        f"SELECT {_COLUMNS} FROM actions WHERE :id IS NULL OR id = :id ORDER BY n DESC LIMIT 1000",
        id=id_,
    )
    return [
        Action(id_, ActionKind(kind), key, prefix, _time(due_from), _time(before), _time(began), _time(ended), *counts)
        for id_, kind, key, prefix, due_from, before, began, ended, *counts in rows
    ]


def _time(ms: int | None) -> str | None:
    return None if ms is None else rfc_3339(ms)
