"""The state of a store in figures."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from tickwheel._native import StoreSnapshot, rfc_3339, store_owner
from tickwheel.delivery.model.entries import Outcome
from tickwheel.delivery.sight.messages import NEVER_MS

_PAUSED_SHOWN = 20
_FIRST_PAUSED = "SELECT substr(key, 1, 200) FROM paused_keys ORDER BY since_ms, lane LIMIT :most"
_AHEAD_S = {"1 min": 60, "1 h": 3_600, "1 day": 86_400}


# A requeue takes the letter away, and the message goes on under another number: its name came again.
_REQUEUED = f"""
    WITH gone AS MATERIALIZED (
        SELECT l.outcome, m.seq, m.name FROM ledger l JOIN messages m ON m.seq = l.seq
        WHERE l.outcome IN ({int(Outcome.DEAD)}, {int(Outcome.EXPIRED)})
            AND NOT EXISTS (SELECT 1 FROM dead_letters d WHERE d.source = 'delivery' AND d.line = l.seq)
    )
    SELECT gone.outcome, count(DISTINCT gone.seq)
    FROM messages m CROSS JOIN gone ON gone.name = m.name AND gone.seq < m.seq
    WHERE m.seq > (SELECT min(seq) FROM gone) GROUP BY 1
"""


class StoreStatus(msgspec.Struct, frozen=True):
    """A store in figures, at the time `at`. Sizes are bytes.

    `in_use`: whether a process works with it now, for delivery or upkeep; `process`: its number. Both are `None` if the
    system does not tell. `recurring`: messages that come again and again; their occurrences count as any message.
    `delivered`, `cancelled`, `dead`, `expired`: messages that are not forgotten yet (`--keep-ids`). A requeued message
    counts in none of them until it has its new outcome. `dead_letters`: how many the store has kept. `due_within`:
    waiting messages by how soon they are due, the overdue ones too. `paused_keys`: how many keys are paused;
    `paused_key_names`: the first twenty of them, by their time. `down_since`, `down_reason`: of the destination, if it
    is down.
    """

    at: str
    in_use: bool | None
    process: int | None
    waiting: int
    recurring: int
    overdue: int
    retrying: int
    may_have_arrived: int
    delivered: int
    cancelled: int
    dead: int
    expired: int
    dead_letters: int
    first_due: str | None
    due_within: Mapping[str, int]
    last_outcome: str | None
    last_commit: str | None
    paused_since: str | None
    paused_keys: int
    paused_key_names: Sequence[str]
    down_since: str | None
    down_reason: str | None
    file_size: int
    log_size: int


def status_of(db: StoreSnapshot, store: Path, now_ms: int | None = None) -> StoreStatus:
    """The figures of a store at `now_ms`. Errors: `StoreFailed`. O(messages): about a second for ten million, and
    two where dead letters were requeued.
    """
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    [(waiting, again, first_ms)] = db.rows("SELECT count(*), total(redelivered), min(due_ms) FROM open_messages")
    due = {
        name: _count(
            db, "SELECT count(*) FROM open_messages WHERE due_ms < :until_ms", until_ms=now_ms + ahead_s * 1_000
        )
        for name, ahead_s in {"now": 0, **_AHEAD_S}.items()
    }
    ended = Counter(dict(db.rows("SELECT outcome, count(*) FROM ledger GROUP BY 1")))
    if ended[Outcome.DEAD] or ended[Outcome.EXPIRED]:
        ended.subtract(dict(db.rows(_REQUEUED)))
    last = db.rows("SELECT at_ms FROM ledger ORDER BY n DESC LIMIT 1")
    noted = dict(
        db.rows(
            "SELECT name, value FROM meta WHERE name IN ('committed_ms', 'down_since_ms', 'down_reason', 'paused_ms')"
        )
    )
    size, log_size = sizes_of(store)
    is_used, process = store_owner(store) or (None, None)
    return StoreStatus(
        at=rfc_3339(now_ms),
        in_use=is_used,
        process=process,
        waiting=waiting,
        recurring=_count(db, "SELECT count(*) FROM waiting WHERE due_ms = :never_ms", never_ms=NEVER_MS),
        overdue=due.pop("now"),
        retrying=_count(db, "SELECT count(*) FROM attempts"),
        may_have_arrived=int(again),
        delivered=ended[Outcome.DELIVERED],
        cancelled=ended[Outcome.CANCELLED] + ended[Outcome.WITHDRAWN],
        dead=ended[Outcome.DEAD],
        expired=ended[Outcome.EXPIRED],
        dead_letters=_count(db, "SELECT count(*) FROM dead_letters"),
        first_due=None if first_ms is None else rfc_3339(first_ms),
        due_within=due,
        last_outcome=rfc_3339(last[0][0]) if last else None,
        last_commit=_time(noted.get("committed_ms")),
        paused_since=_time(noted.get("paused_ms")),
        paused_keys=count_paused_keys(db),
        paused_key_names=[key for (key,) in db.rows(_FIRST_PAUSED, most=_PAUSED_SHOWN)],
        down_since=_time(noted.get("down_since_ms")),
        down_reason=noted.get("down_reason"),
        file_size=size,
        log_size=log_size,
    )


def count_paused_keys(db: StoreSnapshot) -> int:
    """How many keys are paused: at most 10,000. Errors: `StoreFailed`."""
    return _count(db, "SELECT count(*) FROM paused_keys")


def sizes_of(store: Path) -> tuple[int, int]:
    """Bytes of the file, and of the write-ahead log beside it; 0 if a file is missing."""
    return _size(store), _size(Path(f"{store}-wal"))


def _count(db: StoreSnapshot, query: str, **values: int) -> int:
    [(count,)] = db.rows(query, **values)
    return int(count)


def _time(epoch_ms: int | None) -> str | None:
    return None if epoch_ms is None else rfc_3339(epoch_ms)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
