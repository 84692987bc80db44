"""Pages of remembered events, in the order in which they came (rule D22)."""

from collections.abc import Sequence

import msgspec

from tickwheel._native import StoreSnapshot
from tickwheel.delivery.sight.messages import check_limit, numbers_of, with_times


class Remembered(msgspec.Struct, frozen=True):
    """An event that lets go messages of its key that come until then. Times are by the clock of the store.

    `let_go`: how many messages waited for it when it came. `data`: what their receivers get, with its payload.
    """

    key: str
    id: str
    event: str
    at: str
    until: str
    let_go: int
    data: msgspec.Raw


class RememberedPage(msgspec.Struct, frozen=True):
    """Events, and the cursor of the next page; `None` after the last."""

    events: Sequence[Remembered]
    next: str | None


def list_remembered(
    db: StoreSnapshot, *, key: str | None = None, limit: int = 100, cursor: str | None = None
) -> RememberedPage:
    """A page of remembered events, of this key or of all. Errors: `WrongUsage`, `StoreFailed`."""
    check_limit(limit)
    [after_n] = numbers_of(cursor, 1) if cursor else [0]
    rows, following = db.remembered(key, after_n, limit)
    found = [Remembered(**with_times(row) | {"data": msgspec.Raw((row["data"] or "null").encode())}) for row in rows]
    return RememberedPage(found, None if following is None else str(following))
