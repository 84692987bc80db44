"""Reads ledgers (rule S6): each is a store's SQLite file. A task reads one slice of it.

A store may be in use. The figures are of its state when `look` read it, however long the reading takes: outcomes up to
the last one at that time; a message that has ended since still counts as waiting. Each slice is read in a short
transaction of its own, because the deliverer can't reset its write-ahead log while a transaction is open. A message
that the deliverer forgets meanwhile (`--keep-ids` days after its outcome) is missed. A ledger's last row is missed as
well, once its message is forgotten.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from tickwheel._native import StoreSnapshot
from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.delivery.model.entries import OTHER_CONTENT, Outcome

SLICE: Final = 100_000
"""How many messages a task reads."""

MESSAGE: Final = (
    *("ledger", "seq", "key", "id", "due_ms", "outcome"),
    *("at_ms", "lateness_us", "attempts", "redelivered"),
)
"""What is known of a message. A waiting one has no `at_ms`, `lateness_us` and `attempts`."""

_BATCH: Final = 10_000
_WAITING: Final = "waiting"
_ENDED: Final = {
    None: _WAITING,
    int(Outcome.DELIVERED): "delivered",
    int(Outcome.CANCELLED): "cancelled",
    int(Outcome.WITHDRAWN): "cancelled",
    int(Outcome.DEAD): "undeliverable",
    int(Outcome.EXPIRED): "undeliverable",
}

_OUTCOMES: Final = """
    SELECT seq, key, id, due_ms, ledger.outcome, at_ms, lateness_us, attempts, redelivered
    FROM ledger JOIN messages USING (seq)
    WHERE n > :after AND n <= :through AND ledger.outcome <> 4 -- moved: it goes on under another number
    AND due_ms <= 253402300799999 -- past year 9999 are those that recur, whose occurrences are messages of their own
"""
_WAIT: Final = """
    SELECT seq, key, id, it.due_ms, NULL, NULL, NULL, NULL, redelivered
    FROM open_messages AS it JOIN messages USING (seq)
    WHERE (it.due_ms, seq) > (:after_ms, :after_seq) AND (it.due_ms, seq) <= (:through_ms, :through_seq)
    AND seq <= :last_seq
    UNION ALL
    SELECT seq, key, id, due_ms, NULL, NULL, NULL, NULL, redelivered FROM ledger JOIN messages USING (seq)
    WHERE n > :last_n AND (due_ms, seq) > (:after_ms, :after_seq) AND (due_ms, seq) <= (:through_ms, :through_seq)
    AND seq <= :last_seq
"""
_NEXT_WAITING: Final = """
    SELECT due_ms, seq FROM open_messages WHERE (due_ms, seq) > (:after_ms, :after_seq)
    ORDER BY due_ms, seq LIMIT 1 OFFSET :place
"""
_BEFORE_ALL: Final = (-(2**63), 0)
_AFTER_ALL: Final = (2**63 - 1, 2**63 - 1)


@dataclass(frozen=True, slots=True)
class Slice:
    """What one task reads: a statement and its values, for the ledger of this number."""

    ledger: int
    path: Path
    statement: str
    values: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Ledger:
    """The state of a store when `look` read it, and the slices of its messages.

    `dead_letters` counts all since the store was made. `conflicts` counts those among the last 10,000 whose name was
    known with other content.
    """

    path: Path
    store_id: str
    dead_letters: int
    conflicts: int
    slices: Sequence[Slice]


def check_ledgers(paths: Sequence[Path]) -> None:
    """Errors: `WrongUsage` if one is missing, is no store, or is a copy of another; `StoreFailed`."""
    if not paths:
        raise WrongUsage("no ledger is named: name the file that was given to --store")
    found: dict[str, Path] = {}
    for path in paths:
        with StoreSnapshot(path) as db:
            store_id = _store_id(db)
        if store_id in found:
            raise WrongUsage(f"{path} is the same store as {found[store_id]}, or a copy of it: name one of them")
        found[store_id] = path


def look(paths: Sequence[Path], slice_rows: int = SLICE) -> Sequence[Ledger]:
    """The state of each ledger now, cut into slices. Reads the waiting messages once. Errors: as `check_ledgers`."""
    check_ledgers(paths)
    return [_look(number, path, slice_rows) for number, path in enumerate(paths)]


def read_slice(part: Slice) -> Iterator[Sequence[tuple[Any, ...]]]:
    """Rows with the columns `MESSAGE`, some thousand at a time, all in one transaction. Errors: `StoreFailed`."""
    with StoreSnapshot(part.path) as db:
        found = db.rows(part.statement, **part.values)
    for start in range(0, len(found), _BATCH):
        yield [
            (part.ledger, seq, key, id_, due_ms, _ENDED[outcome], at_ms, late_us, attempts, bool(redelivered))
            for seq, key, id_, due_ms, outcome, at_ms, late_us, attempts, redelivered in found[start : start + _BATCH]
        ]


def of_ledgers(ledgers: Sequence[Ledger], as_of_ms: int) -> Any:
    """A row for each ledger, as an Arrow table."""
    return pa.table(
        {
            "ledger": pa.array(range(len(ledgers)), pa.int32()),
            "path": pa.array([name_of(it.path) for it in ledgers], pa.string()),
            "store_id": pa.array([it.store_id for it in ledgers], pa.string()),
            "as_of_ms": pa.array([as_of_ms] * len(ledgers), pa.int64()),
            "dead_letters": pa.array([it.dead_letters for it in ledgers], pa.int64()),
            "conflicts": pa.array([it.conflicts for it in ledgers], pa.int64()),
        }
    )


def name_of(path: Path) -> str:
    """A path as text, also if it holds bytes that are not text."""
    return os.fsencode(path).decode("utf-8", "replace")


def _store_id(db: StoreSnapshot) -> str:
    [(store_id,)] = db.rows("SELECT value FROM meta WHERE name = 'store_id'")
    return str(store_id)


def _look(number: int, path: Path, slice_rows: int) -> Ledger:
    with StoreSnapshot(path) as db:
        [(first_n, last_n)] = db.rows("SELECT ifnull(min(n), 1), ifnull(max(n), 0) FROM ledger")
        [(last_seq,)] = db.rows("SELECT ifnull(max(seq), 0) FROM messages")
        [(letters,)] = db.rows("SELECT ifnull(max(n), 0) FROM dead_letters")
        [(conflicts,)] = db.rows(
            "SELECT count(*) FROM dead_letters WHERE reason = :reason", reason=OTHER_CONTENT.reason
        )
        slices = [
            Slice(number, path.resolve(), _OUTCOMES, {"after": after, "through": min(after + slice_rows, last_n)})
            for after in range(first_n - 1, last_n, slice_rows)
        ]
        for (after_ms, after_seq), (through_ms, through_seq) in _positions(db, slice_rows):
            values = {
                "after_ms": after_ms, "after_seq": after_seq, "through_ms": through_ms, "through_seq": through_seq,
                "last_n": last_n, "last_seq": last_seq,
            }  # fmt: skip
            slices.append(Slice(number, path.resolve(), _WAIT, values))
        return Ledger(path, _store_id(db), letters, conflicts, slices)


def _positions(db: StoreSnapshot, slice_rows: int) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """The slices of the waiting messages: after the first position, up to and including the second."""
    after: tuple[int, int] = _BEFORE_ALL
    while found := db.rows(_NEXT_WAITING, after_ms=after[0], after_seq=after[1], place=slice_rows - 1):
        [through] = found
        yield after, through
        after = through
    yield after, _AFTER_ALL
