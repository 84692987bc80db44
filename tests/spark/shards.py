"""A shard of the hold on plain memory, visited by hand."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tickwheel.delivery.read.hand_off_rows import PARTITIONS
from tickwheel.spark.orders import Orders, Taker
from tickwheel.spark.packing import pack, unpack
from tickwheel.spark.shard import Shard
from tickwheel.spark.shard_index import Index

from .rows import batch_of

LEAD_MS = 20_000
A, B = "a:1", "b:1"
NUMBER = 5


class Chunks(dict[int, bytes]):
    """Chunks in memory. `get` of one that is gone is an error."""

    def get(self, number: int) -> bytes:  # type: ignore[override]
        return self[number]

    def put(self, number: int, chunk: bytes) -> None:
        assert number not in self
        self[number] = chunk

    def remove(self, number: int) -> None:
        del self[number]


def orders(
    *takers: Taker,
    to: str = A,
    failed: Sequence[int] = (),
    is_again: bool | None = None,
    lost: Sequence[str] = (),
) -> Orders:
    is_again = bool(failed) if is_again is None else is_again
    return Orders(takers, [to] * PARTITIONS, frozenset(failed), is_again, frozenset(lost))


def taker(
    address: str = A,
    store: str = "first",
    mark_ms: int = 0,
    openings: Sequence[tuple[str, int]] = (("the first", 0),),
    commits: int = 0,
) -> Taker:
    return Taker(address, f"{address} {store}", [mark_ms] * PARTITIONS, openings, commits)


@dataclass
class Kept:
    """The state of one shard, as a checkpoint keeps it."""

    index: bytes | None = None
    chunks: Chunks = field(default_factory=Chunks)
    lead_ms: int = LEAD_MS

    def visit(self, now_ms: int, found: Orders | None, *rows: tuple[Any, ...]) -> tuple[str | None, list[Any]]:
        """Like one micro-batch: to whom it gives, and what."""
        shard = Shard(NUMBER, Index.decode(self.index), self.chunks, now_ms)
        to = shard.settle(found, now_ms + self.lead_ms) if found else ""
        shard.keep([pack(batch_of(rows))] if rows else [])
        given = [it for batch in shard.give(now_ms + self.lead_ms) for it in unpack(pack(batch)).to_pylist()]
        assert to is not None or not given
        if found is None:
            shard.settle_all()
        shard.tidy()
        self.index = shard.index.encode()
        assert self.chunks.keys() == shard.index.chunks()
        return to.address if to else None, given

    def ids(self, now_ms: int, found: Orders | None, *rows: tuple[Any, ...]) -> list[str]:
        return [it["id"] for it in self.visit(now_ms, found, *rows)[1]]
