"""Reads the figures of the page from one read-only snapshot of a store.

Each answer is bounded: counts, a limited number of rows, texts truncated in SQL. Names are as in the store; the page
escapes them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tickwheel._native import StoreSnapshot
from tickwheel.delivery.model.entries import Outcome
from tickwheel.delivery.report.forecast import Forecast, steps_ahead
from tickwheel.delivery.report.lateness import Lateness, read_lateness
from tickwheel.pages.text import SHOWN, shown_text

NEXT: Final = 20
LETTERS: Final = 50
KEYS: Final = 15
ATTEMPTS: Final = 10
"""This many and more attempts are one row."""

_SHOWN_LONG: Final = 400  # characters of a reason, or of a record

_CANCELLED = (Outcome.CANCELLED, Outcome.WITHDRAWN)


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of the messages in the store: `accepted = delivered + cancelled + undeliverable + waiting`.

    A message is forgotten some days after its outcome (`--keep-ids`), a dead letter never: `dead_letters` counts all
    since the store was made. `since_ms` is the time of the oldest known outcome.
    """

    accepted: int
    delivered: int
    cancelled: int
    undeliverable: int
    dead_letters: int
    waiting: int
    overdue: int
    redelivered: int
    may_have_arrived: int
    since_ms: int | None


@dataclass(frozen=True, slots=True)
class Next:
    """A waiting message."""

    id: str
    key: str | None
    due_ms: int


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter, shortened."""

    at_ms: int
    source: str
    line: int
    reason: str
    allowed: str
    record: str


@dataclass(frozen=True, slots=True)
class Key:
    """A key, the number of its messages, and how many of them wait."""

    key: str
    messages: int
    waiting: int


@dataclass(frozen=True, slots=True)
class Tried:
    """The messages with this number of attempts (`ATTEMPTS`: or more), by outcome."""

    attempts: int
    delivered: int
    given_up: int


@dataclass(frozen=True, slots=True)
class Figures:
    """Everything that the page shows, at the time `now_ms`."""

    now_ms: int
    counts: Counts
    lateness: Lateness | None
    forecast: Forecast | None
    next: Sequence[Next]
    letters: Sequence[Letter]
    keys: Sequence[Key]
    tried: Sequence[Tried]


def look(store: Path, now_ms: int) -> Figures:
    """Read the store, which may be in use. Errors: `WrongUsage`, `StoreFailed`."""
    with StoreSnapshot(store) as db:
        counts, tried = _outcomes(db, now_ms)
        forecast = _forecast(db, now_ms, counts)
        return Figures(now_ms, counts, read_lateness(db), forecast, _next(db), _letters(db), _keys(db), tried)


def _outcomes(db: StoreSnapshot, now_ms: int) -> tuple[Counts, Sequence[Tried]]:
    usual = f"outcome = {int(Outcome.DELIVERED)} AND attempts = 1 AND NOT redelivered"  # most are, and need no sorting
    what = "outcome, min(attempts, :most), redelivered, count(*), min(at_ms)"
    rows = db.rows(
        f"SELECT {what} FROM ledger WHERE NOT ({usual}) GROUP BY 1, 2, 3 "
        f"UNION ALL SELECT {what} FROM ledger WHERE {usual} HAVING count(*) > 0",
        most=ATTEMPTS,
    )
    rows = [row for row in rows if row[0] != Outcome.MOVED]  # it goes on under another number
    by_outcome = {outcome: sum(row[3] for row in rows if row[0] == outcome) for outcome in Outcome}
    [(waiting, overdue, again)] = db.rows(
        "SELECT count(*), total(due_ms < :now_ms), total(redelivered) FROM open_messages", now_ms=now_ms
    )
    [(letters,)] = db.rows("SELECT max(n) FROM dead_letters")
    counts = Counts(
        accepted=sum(by_outcome.values()) + waiting,
        delivered=by_outcome[Outcome.DELIVERED],
        cancelled=by_outcome[Outcome.CANCELLED] + by_outcome[Outcome.WITHDRAWN],
        undeliverable=by_outcome[Outcome.DEAD] + by_outcome[Outcome.EXPIRED],
        dead_letters=letters or 0,
        waiting=waiting,
        overdue=int(overdue),
        redelivered=sum(row[3] for row in rows if row[2] and row[0] == Outcome.DELIVERED),
        may_have_arrived=int(again),
        since_ms=min((row[4] for row in rows), default=None),
    )
    tried = {row[1]: [0, 0] for row in sorted(rows) if row[1] and row[0] not in _CANCELLED}
    for outcome, attempts, _, messages, _ in rows:
        if attempts in tried and outcome not in _CANCELLED:
            tried[attempts][outcome in (Outcome.DEAD, Outcome.EXPIRED)] += messages
    return counts, [Tried(attempts, *both) for attempts, both in sorted(tried.items())]


def _forecast(db: StoreSnapshot, now_ms: int, counts: Counts) -> Forecast | None:
    """The messages due from now on; if all are overdue, as after an outage or in a replay, those."""
    if not counts.waiting:
        return None
    [(first_ms, last_ms)] = db.rows("SELECT min(due_ms), max(due_ms) FROM open_messages")
    is_past = counts.overdue == counts.waiting
    from_ms, waiting = (first_ms, counts.waiting) if is_past else (now_ms, counts.waiting - counts.overdue)
    [(most_ms,)] = db.rows(
        "SELECT due_ms FROM open_messages WHERE due_ms >= :from_ms ORDER BY due_ms LIMIT 1 OFFSET :place",
        from_ms=from_ms,
        place=min(max(1, int(0.9 * (waiting - 1))), waiting - 1),
    )
    step, end_ms = steps_ahead(from_ms, most_ms, last_ms)
    due = db.rows(
        "SELECT due_ms / :step, count(*) FROM open_messages WHERE due_ms >= :from_ms AND due_ms < :end_ms GROUP BY 1",
        step=step,
        from_ms=from_ms,
        end_ms=end_ms,
    )
    found = {bucket * step: messages for bucket, messages in due}
    return Forecast(step, found, waiting - sum(found.values()), last_ms, is_past)


def _next(db: StoreSnapshot) -> Sequence[Next]:
    rows = db.rows(
        f"SELECT {_cut('id')}, {_cut('key')}, first.due_ms FROM "
        "(SELECT due_ms, seq FROM open_messages ORDER BY due_ms, seq LIMIT :most) AS first JOIN messages USING (seq) "
        "ORDER BY first.due_ms, seq",
        most=NEXT,
    )
    return [Next(shown_text(id_), None if key is None else shown_text(key), due_ms) for id_, key, due_ms in rows]


def _letters(db: StoreSnapshot) -> Sequence[Letter]:
    columns = ", ".join(_cut(name, _SHOWN_LONG) for name in ("reason", "allowed", "record"))
    rows = db.rows(
        f"SELECT at_ms, {_cut('source')}, line, {columns} FROM dead_letters ORDER BY n DESC LIMIT :most", most=LETTERS
    )
    return [
        Letter(at_ms, shown_text(source), line, *(shown_text(text, _SHOWN_LONG) for text in rest))
        for at_ms, source, line, *rest in rows
    ]


def _keys(db: StoreSnapshot) -> Sequence[Key]:
    rows = db.rows(
        "WITH most AS (SELECT key, count(*) AS messages FROM messages "
        f"WHERE key IS NOT NULL AND outcome IS NOT {int(Outcome.MOVED)} GROUP BY key "
        "ORDER BY 2 DESC, 1 LIMIT :most), "
        "open AS (SELECT key, count(*) AS waiting FROM open_messages JOIN messages USING (seq) "
        "WHERE key IN (SELECT key FROM most) GROUP BY key) "
        "SELECT CAST(key AS BLOB), messages, ifnull(waiting, 0) FROM most LEFT JOIN open USING (key) "
        "ORDER BY 2 DESC, key",
        most=KEYS,
    )
    return [Key(shown_text(key), messages, waiting) for key, messages, waiting in rows]


def _cut(column: str, shown: int = SHOWN) -> str:
    """SQL for the first bytes of a text, enough for `shown` characters and a sign that there is more."""
    return f"substr(CAST({column} AS BLOB), 1, {4 * (shown + 1)})"
