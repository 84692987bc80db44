"""Pages of messages: waiting messages in order of delivery; ended messages, the last one first; recurring messages."""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from tickwheel._native import MAX_DUE_MS, StoreSnapshot, rfc_3339
from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.delivery.model.entries import Outcome

MOST: Final = 1_000
"""The most entries of a page."""

LOOKED_AT: Final = 100_000
"""How many messages one call looks at, where a filter leaves most of them out: some 20 ms."""

NEVER_MS: Final = MAX_DUE_MS + 1
"""The due time of a recurring message itself; its occurrences have other ones."""

_FIRST, _LAST = -(2**62), 2**62
_NUMBER: Final = re.compile(r"\d{1,18}", re.ASCII)


class State(StrEnum):
    """The state of a message, according to the file. A message that is being sent right now counts as waiting."""

    WAITING = "waiting"
    RECURRING = "recurring"
    DELIVERED = "delivered"
    CANCELLED = "cancelled"
    DEAD = "dead"
    EXPIRED = "expired"


OUTCOMES: Final = {
    State.DELIVERED: Outcome.DELIVERED,
    State.CANCELLED: Outcome.CANCELLED,
    State.DEAD: Outcome.DEAD,
    State.EXPIRED: Outcome.EXPIRED,
}


class Rule(msgspec.Struct, frozen=True, omit_defaults=True):
    """When a recurring message comes: each `every` milliseconds, or as a `cron` pattern says in the time zone `tz`.

    `missed`: what happens to times that pass before the occurrence before has its outcome.
    """

    missed: str
    every: int | None = None
    cron: str | None = None
    tz: str | None = None

    def __str__(self) -> str:
        rule = f"every {self.every:,} ms" if self.every is not None else f"{self.cron} in {self.tz}"
        return f"{rule}, missed: {self.missed}"


class Seen(msgspec.Struct, frozen=True):
    """A message. Times are RFC 3339 in UTC.

    `attempts`: how often it was tried. `last_error`: of a dead or expired message, and of a message that waits until
    `next_try`. `redelivered`: it may have arrived before. `ended`: the time of its outcome. `lateness_ms`: only of a
    delivered message. `rule`: only of a recurring message; its `due` is the due time of the open occurrence, or null
    once the rule has ended.
    """

    id: str
    key: str | None
    state: State
    due: str | None
    attempts: int = 0
    last_error: str | None = None
    next_try: str | None = None
    redelivered: bool = False
    ended: str | None = None
    lateness_ms: float | None = None
    rule: Rule | None = None


class Page(msgspec.Struct, frozen=True):
    """Messages, and the cursor of the next page; `None` after the last."""

    messages: Sequence[Seen]
    next: str | None


class Filter(msgspec.Struct, frozen=True):
    """Which messages are wanted: of a key, due from and before a time."""

    key: str | None = None
    due_from_ms: int | None = None
    due_before_ms: int | None = None


def list_messages(
    db: StoreSnapshot, state: State, which: Filter, *, limit: int = 100, cursor: str | None = None
) -> Page:
    """A page of the messages in a state. `cursor`: the `next` of the page before.

    Errors: `WrongUsage`, `StoreFailed`.
    """
    check_limit(limit)
    if state is State.WAITING:
        return _waiting(db, which, limit, cursor)
    if state is State.RECURRING:
        return _recurring(db, which, limit, cursor)
    return _ended(db, state, which, limit, cursor)


_Position: TypeAlias = tuple[int, int]


def _waiting(db: StoreSnapshot, which: Filter, limit: int, cursor: str | None) -> Page:
    due_ms, seq = numbers_of(cursor, 2) if cursor else (_FIRST, 0)
    if which.due_from_ms is not None and which.due_from_ms > due_ms:
        due_ms, seq = which.due_from_ms, 0
    before_ms = NEVER_MS if which.due_before_ms is None else which.due_before_ms
    part = {"due_ms": due_ms, "seq": seq, "before_ms": before_ms}
    some = "WHERE (due_ms, seq) > (:due_ms, :seq) AND due_ms < :before_ms ORDER BY due_ms, seq LIMIT :most"
    reached: _Position | None = None
    if which.key is None:
        rows = db.rows(f"SELECT due_ms, seq FROM waiting {some}", most=limit + 1, **part)
        rows += db.rows(f"SELECT due_ms, seq FROM near_messages {some}", most=limit + 1, **part)
    else:
        # Two keys may share a lane, so the keys are compared too.
        rows = db.rows(
            f"SELECT due_ms, seq FROM (SELECT due_ms, seq, lane FROM waiting {some}) AS some "
            "WHERE lane = :lane AND EXISTS (SELECT 1 FROM messages m WHERE m.seq = some.seq AND m.key = :key) "
            "ORDER BY due_ms, seq LIMIT :limit",
            most=LOOKED_AT,
            lane=StoreSnapshot.lane_of(which.key),
            key=which.key,
            limit=limit + 1,
            **part,
        )
        if len(rows) <= limit:
            last = db.rows(f"SELECT due_ms, seq FROM waiting {some} OFFSET :last", most=1, last=LOOKED_AT - 1, **part)
            reached = last[0] if last else None
        rows += db.rows(
            f"SELECT due_ms, seq FROM (SELECT due_ms, seq FROM near_messages {some}) AS some "
            "WHERE EXISTS (SELECT 1 FROM messages m WHERE m.seq = some.seq AND m.key = :key)",
            most=-1,
            key=which.key,
            **part,
        )
    positions = sorted(row for row in rows if reached is None or row <= reached)
    if len(positions) > limit:
        reached = positions[limit - 1]
    return Page(_waiting_ones(db, positions[:limit]), reached and f"{reached[0]}.{reached[1]}")


def _waiting_ones(db: StoreSnapshot, positions: Sequence[_Position]) -> Sequence[Seen]:
    rows = db.rows(
        "SELECT m.due_ms, m.id, m.key, attempts, next_ms, error, redelivered "
        "FROM json_each(:seqs) AS wanted JOIN messages m ON m.seq = wanted.value LEFT JOIN attempts a ON a.seq = m.seq "
        "LEFT JOIN waiting w ON w.due_ms = m.due_ms AND w.seq = m.seq ORDER BY m.due_ms, m.seq",
        seqs=msgspec.json.encode([seq for _, seq in positions]).decode(),
    )
    return [
        Seen(id_, key, State.WAITING, rfc_3339(due_ms), attempts or 0, error, time_of(next_ms), bool(redelivered))
        for due_ms, id_, key, attempts, next_ms, error, redelivered in rows
    ]


def _recurring(db: StoreSnapshot, which: Filter, limit: int, cursor: str | None) -> Page:
    """In the order of their acceptance."""
    [after_seq] = numbers_of(cursor, 1) if cursor else [0]
    rows = db.rows(
        "SELECT some.seq, m.id, m.key, next.due_ms, b.recurrence "
        "FROM (SELECT seq FROM waiting WHERE due_ms = :never_ms AND seq > :after_seq ORDER BY seq LIMIT :most) AS some "
        "JOIN messages m ON m.seq = some.seq JOIN bodies b ON b.seq = some.seq "
        "JOIN occurrences o ON o.of_seq = some.seq JOIN messages next ON next.seq = o.seq "
        "WHERE (:key IS NULL OR m.key = :key) AND next.due_ms >= :from_ms AND next.due_ms < :before_ms "
        "ORDER BY some.seq LIMIT :limit",
        never_ms=NEVER_MS,
        after_seq=after_seq,
        most=LOOKED_AT,
        key=which.key,
        from_ms=_FIRST if which.due_from_ms is None else which.due_from_ms,
        before_ms=_LAST if which.due_before_ms is None else which.due_before_ms,
        limit=limit + 1,
    )
    found = [
        Seen(id_, key, State.RECURRING, rfc_3339(due_ms), rule=rule_of(rule))
        for _, id_, key, due_ms, rule in rows[:limit]
    ]
    if len(rows) > limit:
        return Page(found, str(rows[limit - 1][0]))
    text = "SELECT seq FROM waiting WHERE due_ms = :never_ms AND seq > :after_seq ORDER BY seq LIMIT 1 OFFSET :last"
    reached = db.rows(text, never_ms=NEVER_MS, after_seq=after_seq, last=LOOKED_AT - 1)
    return Page(found, str(reached[0][0]) if reached else None)


def _ended(db: StoreSnapshot, state: State, which: Filter, limit: int, cursor: str | None) -> Page:
    [before_n] = numbers_of(cursor, 1) if cursor else [_LAST]
    rows = db.rows(
        "SELECT n, m.seq, id, key, due_ms, at_ms, lateness_us, attempts, redelivered "
        "FROM (SELECT * FROM ledger WHERE n < :before_n ORDER BY n DESC LIMIT :most) AS l "
        "JOIN messages m ON m.seq = l.seq WHERE l.outcome IN (:outcome, :other) AND (:key IS NULL OR key = :key) "
        "AND due_ms >= :from_ms AND due_ms < :before_ms ORDER BY n DESC LIMIT :limit",
        before_n=before_n,
        most=LOOKED_AT,
        outcome=int(OUTCOMES[state]),
        other=int(Outcome.WITHDRAWN if state is State.CANCELLED else OUTCOMES[state]),
        key=which.key,
        from_ms=_FIRST if which.due_from_ms is None else which.due_from_ms,
        before_ms=_LAST if which.due_before_ms is None else which.due_before_ms,
        limit=limit + 1,
    )
    page = rows[:limit]
    reasons: Mapping[int, str] = {}
    if state in (State.DEAD, State.EXPIRED):
        reasons = _reasons(db, [row[1] for row in page])
        # A requeue takes the letter away, and the message goes on under another number.
        page = [row for row in page if row[1] in reasons or db.find(*row[2:4]) == row[1]]
    found = [
        Seen(
            id_,
            key,
            state,
            due_of(due_ms),
            attempts,
            reasons.get(seq),
            redelivered=bool(redelivered),
            ended=rfc_3339(at_ms),
            lateness_ms=None if late_us is None else late_us / 1_000,
        )
        for _, seq, id_, key, due_ms, at_ms, late_us, attempts, redelivered in page
    ]
    if len(rows) > limit:
        return Page(found, str(rows[limit - 1][0]))
    text = "SELECT n FROM ledger WHERE n < :before_n ORDER BY n DESC LIMIT 1 OFFSET :last"
    reached = db.rows(text, before_n=before_n, last=LOOKED_AT - 1)
    return Page(found, str(reached[0][0]) if reached else None)


def _reasons(db: StoreSnapshot, seqs: Sequence[int]) -> Mapping[int, str]:
    """Why these messages were given up, as far as the store has kept their dead letters."""
    wanted = "line IN (SELECT value FROM json_each(:seqs))"
    text = f"SELECT line, reason FROM dead_letters WHERE source = 'delivery' AND {wanted}"
    return dict(db.rows(text, seqs=msgspec.json.encode(seqs).decode()))


def rule_of(kept: str) -> Rule:
    """As the store keeps it."""
    return msgspec.json.decode(kept, type=Rule)


def due_of(due_ms: int) -> str | None:
    """As RFC 3339 in UTC; `None` for the recurring message itself."""
    return None if due_ms == NEVER_MS else rfc_3339(due_ms)


def time_of(epoch_ms: int | None) -> str | None:
    """As RFC 3339 in UTC, if there is one."""
    return None if epoch_ms is None else rfc_3339(epoch_ms)


def check_limit(limit: int) -> None:
    """Errors: `WrongUsage`."""
    if not isinstance(limit, int) or not 1 <= limit <= MOST:
        raise WrongUsage(f"a page can't have {limit!r:.100} entries: ask for 1 to {MOST:,}")


def numbers_of(cursor: str, count: int) -> Sequence[int]:
    """The parts of a cursor. Errors: `WrongUsage`."""
    parts = cursor.split(".")
    if len(parts) != count or not all(_NUMBER.fullmatch(part) for part in parts):
        raise WrongUsage(f"{cursor!r:.100} is no cursor: give the one of the page before, with the same filters")
    return [int(part) for part in parts]
