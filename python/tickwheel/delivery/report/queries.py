"""Reads the figures of the page from one read-only snapshot of a store.

Each answer is bounded: counts, a limited number of rows, and texts truncated. Names are as in the store; the page
escapes them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tickwheel._native import StoreSnapshot
from tickwheel.delivery.report.forecast import Forecast, steps_ahead
from tickwheel.delivery.report.lateness import Lateness, read_lateness
from tickwheel.delivery.sight.messages import LOOKED_AT
from tickwheel.pages.text import shown_text

NEXT: Final = 20
LETTERS: Final = 50
KEYS: Final = 15
ATTEMPTS: Final = 10
"""This many and more attempts are one row."""

_SHOWN_LONG: Final = 400  # characters of a reason, or of a record


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of the messages in the store: `accepted = delivered + cancelled + undeliverable + waiting`.

    A message is forgotten some days after its outcome (`--keep-ids`). `dead_letters`: how many are kept. `since_ms` is
    the time of the oldest known outcome.
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
        counts = db.counts(now_ms, ATTEMPTS)
        tried = [Tried(*it) for it in counts.pop("tried")]
        late, next_ones = read_lateness(db), _next(db)
        return Figures(now_ms, Counts(**counts), late, _forecast(db, now_ms), next_ones, _letters(db), _keys(db), tried)


def _forecast(db: StoreSnapshot, now_ms: int) -> Forecast | None:
    """The messages due from now on; if all are overdue, as after an outage or in a replay, those."""
    ahead = db.ahead(now_ms)
    if ahead is None:
        return None
    from_ms, last_ms = ahead["from_ms"], ahead["last_ms"]
    step, end_ms = steps_ahead(from_ms, ahead["most_ms"], last_ms)
    due = dict(db.due_by_step(from_ms, end_ms, step))
    return Forecast(step, due, ahead["messages"] - sum(due.values()), last_ms, ahead["is_past"])


def _next(db: StoreSnapshot) -> Sequence[Next]:
    found, _ = db.waiting((None, None, None, None, None, None, NEXT), LOOKED_AT, None)
    shown = ((shown_text(it["id"]), it["key"], it["due_ms"]) for it in found)
    return [Next(id_, None if key is None else shown_text(key), due_ms) for id_, key, due_ms in shown]


def _letters(db: StoreSnapshot) -> Sequence[Letter]:
    return [
        Letter(at_ms, shown_text(source), line, *(shown_text(text, _SHOWN_LONG) for text in (reason, allowed, record)))
        for _, at_ms, source, line, reason, allowed, record, *_ in db.letters(
            2**62, None, None, LETTERS, 4 * (_SHOWN_LONG + 1)
        )
    ]


def _keys(db: StoreSnapshot) -> Sequence[Key]:
    return [Key(shown_text(key), messages, waiting) for key, messages, waiting in db.busy_keys(KEYS)]
