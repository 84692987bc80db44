"""Pages of dead letters, the last one first."""

from collections.abc import Sequence

import msgspec

from tickwheel._native import StoreSnapshot, rfc_3339
from tickwheel.delivery.sight.messages import check_limit, numbers_of

_FIRST_BYTES = 1_000


class LetterSeen(msgspec.Struct, frozen=True):
    """A dead letter: its number, the time, and what a line of `--dead-letters` says.

    `record` holds the first 1,000 bytes of the record. `destination`, `tenant`: those that the message named. `cause`:
    of a message with `until_event`, `event` or `deadline`; `event`: the name, the id and the payload of that event.
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
    cause: str | None = None
    event: msgspec.Raw | None = None


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
        LetterSeen(
            n, rfc_3339(at_ms), source, line, reason, allowed, record.decode("utf-8", "replace"), to, of, *_cause(event)
        )
        for n, at_ms, source, line, reason, allowed, record, to, of, event in rows[:limit]
    ]
    return LetterPage(found, str(found[-1].n) if len(rows) > limit else None)


def _cause(event: str | None) -> tuple[str | None, msgspec.Raw | None]:
    if not event:
        return (None if event is None else "deadline"), None
    return "event", msgspec.Raw(event.encode())
