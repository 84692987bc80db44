"""Which messages are known, by the number of their name: the newest in memory, all others in the table `ids`.

Numbers are random, so writing each to its place at once would touch a page for every message. So the newest stay in
memory until there are many; then they are frozen, sorted, and merged into the table in slices, each of which touches a
few neighbouring pages. Nothing is lost in a crash, as `messages` has them all: what came after the last merge that was
finished (`merged_seq`) is read from there again.

Example: with 50,000 new names and a table of a million (4,000 pages), slices of 1,250 touch some 100 pages each, where
1,250 names in order of arrival would touch 1,100.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from tickwheel.delivery.store import meta
from tickwheel.delivery.store.rows import insert, select_in

FREEZE_AT: Final = 50_000
_SLICE: Final = 1_250


class Ids:
    """Used inside the store's transactions. Memory: some 150 bytes for each of at most `2 * FREEZE_AT` names."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._newest: dict[int, int] = {}
        self._frozen: dict[int, int] = {}
        self._slices: Iterable[tuple[int, int]] = iter(())
        self._last_seq = self._frozen_seq = self.merged_seq = meta.get_int(db, "merged_seq")
        for name, seq in db.execute("SELECT name, seq FROM messages WHERE seq > ? ORDER BY seq", (self.merged_seq,)):
            self.add(name, seq)

    def find(self, names: Sequence[int]) -> dict[int, list[int]]:
        """The messages with these numbers, by number; more than one only where names share a number."""
        found: dict[int, list[int]] = {}
        for name, seq in select_in(self._db, "SELECT name, seq FROM ids WHERE name IN ({})", names):
            found.setdefault(name, []).append(seq)
        for newer in (self._frozen, self._newest):
            for name in names:
                if (seq := newer.get(name)) is not None and seq not in found.get(name, ()):
                    found.setdefault(name, []).append(seq)
        return found

    def add(self, name: int, seq: int) -> None:
        """A new message."""
        if name in self._newest:  # two names with one number: one of them goes to the table at once
            self._db.execute("INSERT OR IGNORE INTO ids VALUES (?, ?)", (name, seq))
        else:
            self._newest[name] = seq
        self._last_seq = max(self._last_seq, seq)

    def merge_some(self) -> None:
        """A slice of what is frozen; freezes when there is enough. Call it in every transaction that adds."""
        if self._frozen:
            part = list(islice(self._slices, _SLICE))
            insert(self._db, "INSERT OR IGNORE INTO ids", part)
            if len(part) < _SLICE:
                self._frozen = {}
                self.merged_seq = self._frozen_seq
                meta.put(self._db, "merged_seq", self.merged_seq)
        elif len(self._newest) >= FREEZE_AT:
            self._frozen, self._newest = self._newest, {}
            self._frozen_seq = self._last_seq
            self._slices = iter(sorted(self._frozen.items()))
