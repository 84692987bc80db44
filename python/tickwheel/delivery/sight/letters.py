"""Pages of dead letters, the last one first."""

from collections.abc import Sequence

import msgspec

from tickwheel._native import StoreSnapshot, rfc_3339
from tickwheel.delivery.sight.messages import check_limit, numbers_of

_FIRST_BYTES = 1_000


class LetterSeen(msgspec.Struct, frozen=True):
    """A dead letter: its number, the time, and what a line of `--dead-letters` says.

    `record` holds the first 1,000 bytes of the record. `destination`, `tenant`: those that the message named.
    """

    n: int
    at: str
    source: str
    line: int
    reason: str
    allowed: str
    record: str
    destination: str | None
    tenant: str | None


class LetterPage(msgspec.Struct, frozen=True):
    """Dead letters, and the cursor of the next page; `None` after the last."""

    letters: Sequence[LetterSeen]
    next: str | None


def list_letters(
    db: StoreSnapshot,
    *,
    destination: str | None = None,
    tenant: str | None = None,
    limit: int = 100,
    cursor: str | None = None,
) -> LetterPage:
    """A page of the dead letters that the store has kept: the last 100,000; of messages that named these.

    Errors: `WrongUsage`, `StoreFailed`.
    """
    check_limit(limit)
    [before_n] = numbers_of(cursor, 1) if cursor else [2**62]
    rows = db.letters(before_n, destination, tenant, limit + 1, _FIRST_BYTES)
    found = [
        LetterSeen(n, rfc_3339(at_ms), source, line, reason, allowed, record.decode("utf-8", "replace"), *named)
        for n, at_ms, source, line, reason, allowed, record, *named in rows[:limit]
    ]
    return LetterPage(found, str(found[-1].n) if len(rows) > limit else None)
