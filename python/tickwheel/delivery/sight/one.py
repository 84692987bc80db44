"""Shows a message by its name: its content and its state."""

import base64
from typing import Any, Final

import msgspec

from tickwheel._native import StoreSnapshot, rfc_3339
from tickwheel.delivery.model.entries import Outcome
from tickwheel.delivery.sight.messages import NEVER_MS, OUTCOMES, Seen, State, due_of, rule_of, time_of

_SEARCHED: Final = 300_000  # rows of the ledger from the due time on: some 30 ms
_STATES: Final = {**{outcome: state for state, outcome in OUTCOMES.items()}, Outcome.WITHDRAWN: State.CANCELLED}


class Details(Seen, frozen=True, kw_only=True):
    """A message with its content, as long as the store has it: the payload, as JSON or as bytes in base64; `expires`
    and `traceparent`, if it has them. `seq`: its number. `key_paused_since`: only of a waiting or recurring message, if
    its key is paused. `next_id`: only of a recurring message; the id of its open occurrence.
    """

    seq: int
    next_id: str | None = None
    key_paused_since: str | None = None
    payload: msgspec.Raw | None = None
    payload_base64: str | None = None
    expires: str | None = None
    traceparent: str | None = None


def show_message(db: StoreSnapshot, id_: str, key: str | None) -> Details | None:
    """The newest message with this name; `None`: it has not come, or is forgotten. Errors: `StoreFailed`.

    The time and the lateness of an outcome come from a part of the ledger: for a delivered message, the 300,000 rows
    from its due time on; for other outcomes, the last 300,000 rows. If the outcome is not there, they are missing.
    """
    seq = db.find(id_, key)
    if seq is None:
        return None
    [(due_ms, outcome, attempts, next_ms, error, held, redelivered, *said)] = db.rows(
        "SELECT m.due_ms, m.outcome, a.attempts, a.next_ms, a.error, w.seq, w.redelivered, CAST(b.payload AS BLOB), "
        "typeof(b.payload) = 'text', b.expires_ms, b.traceparent FROM messages m LEFT JOIN attempts a ON a.seq = m.seq "
        "LEFT JOIN waiting w ON w.due_ms = m.due_ms AND w.seq = m.seq LEFT JOIN bodies b ON b.seq = m.seq "
        "WHERE m.seq = :seq",
        seq=seq,
    )
    content = _content(*said)
    is_near = bool(db.rows("SELECT 1 FROM near_messages WHERE due_ms = :due_ms AND seq = :seq", due_ms=due_ms, seq=seq))
    if held is not None and due_ms == NEVER_MS:
        return _recurring(db, seq, id_, key, content)
    if held is not None or is_near:
        return Details(
            id_,
            key,
            State.WAITING,
            rfc_3339(due_ms),
            attempts or 0,
            error,
            time_of(next_ms),
            bool(redelivered),
            seq=seq,
            key_paused_since=_paused_since(db, key),
            **content,
        )
    state = _STATES[Outcome(outcome or Outcome.DELIVERED)]
    part = "n >= :first ORDER BY n" if state is State.DELIVERED else "true ORDER BY n DESC"
    found = db.rows(
        "SELECT at_ms, lateness_us, attempts, redelivered FROM "
        f"(SELECT * FROM ledger WHERE {part} LIMIT :most) WHERE seq = :seq LIMIT 1",
        first=_row_at(db, due_ms),
        most=_SEARCHED,
        seq=seq,
    )
    if not found:
        return Details(id_, key, state, due_of(due_ms), seq=seq, **content)
    [(at_ms, late_us, attempts, redelivered)] = found
    reason = db.rows("SELECT reason FROM dead_letters WHERE source = 'delivery' AND line = :seq", seq=seq)
    return Details(
        id_,
        key,
        state,
        due_of(due_ms),
        attempts,
        reason[0][0] if reason and state in (State.DEAD, State.EXPIRED) else None,
        redelivered=bool(redelivered),
        ended=rfc_3339(at_ms),
        lateness_ms=None if late_us is None else late_us / 1_000,
        seq=seq,
        **content,
    )


def _recurring(db: StoreSnapshot, seq: int, id_: str, key: str | None, content: dict[str, Any]) -> Details:
    [(rule, due_ms, next_id)] = db.rows(
        "SELECT b.recurrence, m.due_ms, m.id FROM bodies b JOIN occurrences o ON o.of_seq = b.seq "
        "JOIN messages m ON m.seq = o.seq WHERE b.seq = :seq",
        seq=seq,
    )
    return Details(
        id_,
        key,
        State.RECURRING,
        rfc_3339(due_ms),
        rule=rule_of(rule),
        seq=seq,
        next_id=next_id,
        key_paused_since=_paused_since(db, key),
        **content,
    )


def _content(
    payload: bytes | None, is_json: bool | None, expires_ms: int | None, traceparent: str | None
) -> dict[str, Any]:
    return {
        "payload": msgspec.Raw(payload) if payload is not None and is_json else None,
        "payload_base64": None if payload is None or is_json else base64.b64encode(payload).decode(),
        "expires": time_of(expires_ms),
        "traceparent": traceparent,
    }


def _paused_since(db: StoreSnapshot, key: str | None) -> str | None:
    if key is None:
        return None
    found = db.rows("SELECT since_ms FROM paused_keys WHERE lane = :lane", lane=db.lane_of(key))
    return rfc_3339(found[0][0]) if found else None


def _row_at(db: StoreSnapshot, at_ms: int) -> int:
    """The number of the first row written at that time or later, as far as the times in the ledger ascend."""
    [(low, high)] = db.rows("SELECT ifnull(min(n), 0), ifnull(max(n), 0) FROM ledger")
    while low < high:
        middle = (low + high) // 2
        [(row_ms,)] = db.rows("SELECT at_ms FROM ledger WHERE n >= :n ORDER BY n LIMIT 1", n=middle)
        low, high = (middle + 1, high) if row_ms < at_ms else (low, middle)
    return int(low)
