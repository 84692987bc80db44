"""Which messages are known, by the number of their name: the newest in memory, all others in the table `ids`.

Numbers are random, so writing each to its place at once would touch a page for every message. So the newest wait in
memory, in shards by their first bits, and when a shard is large enough it goes to the table in one piece, which touches
a few neighbouring pages. Nothing is lost in a crash, as `messages` has them all: those after `merged_seq`, the last one
before which all are in the table, are read from there again.

Example: with a million names in the table (4,000 pages), a shard of 3,000 is spread over a sixteenth of it, 250 pages;
3,000 names in order of arrival would touch 2,100.
"""

import sqlite3
from collections.abc import Sequence
from itertools import chain
from typing import Final

from tickwheel.delivery.store import meta
from tickwheel.delivery.store.rows import execute_many, select_in

SHARD_BITS: Final = 4
MERGE_AT: Final = 3_000


class Ids:
    """Used inside the store's transactions. Memory: some 200 bytes for each of at most 48,000 names."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._newest: dict[int, int] = {}
        self._shards: list[list[tuple[int, int]]] = [[] for _ in range(1 << SHARD_BITS)]
        self._last_seq = self.merged_seq = meta.get_int(db, "merged_seq")
        newer = db.execute("SELECT name, seq FROM messages WHERE seq > ? ORDER BY seq", (self.merged_seq,)).fetchall()
        self.add([name for name, _ in newer], [seq for _, seq in newer])

    def find(self, names: Sequence[int]) -> dict[int, list[int]]:
        """The messages with these numbers, by number; more than one only where names share a number."""
        found: dict[int, list[int]] = {}
        for name, seq in select_in(self._db, "SELECT name, seq FROM ids WHERE name IN ({})", names):
            found.setdefault(name, []).append(seq)
        for name in self._newest.keys() & names:
            if self._newest[name] not in found.setdefault(name, []):
                found[name].append(self._newest[name])
        return found

    def add(self, names: Sequence[int], seqs: Sequence[int]) -> None:
        """New messages, in ascending order of `seq`."""
        newest, shards, shift = self._newest, self._shards, 64 - SHARD_BITS
        for name, seq in zip(names, seqs, strict=True):
            if newest.setdefault(name, seq) == seq:
                shards[name >> shift].append((name, seq))  # negative numbers count from the end
            else:  # two names with one number: one of them goes to the table at once
                self._db.execute("INSERT OR IGNORE INTO ids VALUES (?, ?)", (name, seq))
        self._last_seq = seqs[-1] if seqs else self._last_seq

    def merge_some(self) -> None:
        """Move a shard to the table, if it is large enough. Call it in every transaction that adds."""
        number = max(range(len(self._shards)), key=lambda number: len(self._shards[number]))
        if len(self._shards[number]) >= MERGE_AT:
            self._merge(number)

    def merge_all(self) -> None:
        """Move them all to the table. O(names in memory)."""
        for number, shard in enumerate(self._shards):
            if shard:
                self._merge(number)

    def _merge(self, number: int) -> None:
        shard = self._shards[number]
        execute_many(self._db, "INSERT OR IGNORE INTO ids VALUES {}", list(chain.from_iterable(sorted(shard))), 2)
        for name, _ in shard:
            del self._newest[name]
        self._shards[number] = []
        self.merged_seq = min((left[0][1] - 1 for left in self._shards if left), default=self._last_seq)
        meta.put(self._db, "merged_seq", self.merged_seq)
