"""Reads ledgers (rule S6): each is a store's SQLite file. A task reads one slice of it.

A store may be in use. The figures show its state when `look` read it, however long the reading takes: outcomes up to
the last one at that time. A message that has ended since still counts as waiting. Each slice is read in a short
transaction of its own, because the deliverer can't reset its write-ahead log while a transaction is open. A message
that the deliverer forgets meanwhile (`--keep-ids` days after its outcome) is missed. A ledger's last row is missed as
well, once its message is forgotten.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from tickwheel._native import StoreSnapshot
from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.delivery.model.entries import Outcome

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

_BEFORE_ALL: Final = (-(2**63), 0)
_AFTER_ALL: Final = (2**63 - 1, 2**63 - 1)


@dataclass(frozen=True, slots=True)
class Slice:
    """What one task reads of the ledger of this number: outcomes, or open messages.

    `ended`: outcomes after this row and up to the other. `open`: messages after this due time and number and up to the
    other, with the last row and the last message at the time of `look`.
    """

    ledger: int
    path: Path
    ended: tuple[int, int] = (0, 0)
    open: tuple[tuple[int, int], tuple[int, int], tuple[int, int]] | None = None


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
            store_id = db.extent()["store_id"]
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
        found = db.open_slice(*part.open) if part.open else db.ended_slice(*part.ended)
    for start in range(0, len(found), _BATCH):
        yield [
            (part.ledger, seq, key, id_, due_ms, _ENDED[outcome], at_ms, late_us, attempts, redelivered)
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


def _look(number: int, path: Path, slice_rows: int) -> Ledger:
    with StoreSnapshot(path) as db:
        it = db.extent()
        last_n, until, file = it["last_n"], (it["last_n"], it["last_seq"]), path.resolve()
        slices = [
            Slice(number, file, ended=(after, min(after + slice_rows, last_n)))
            for after in range(it["first_n"] - 1, last_n, slice_rows)
        ]
        start = _BEFORE_ALL
        while through := db.open_after(start, slice_rows):
            slices.append(Slice(number, file, open=(start, through, until)))
            start = through
        slices.append(Slice(number, file, open=(start, _AFTER_ALL, until)))
        return Ledger(path, it["store_id"], it["dead_letters"], it["conflicts"], slices)
