"""Seeded runs of a shard against a plain model of deliverers: what dies, fails and is done again (rules S3 to S5)."""

import copy
import os
import random
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from tickwheel.delivery.model.entries import Reschedule
from tickwheel.delivery.model.message import Cancel
from tickwheel.delivery.read.hand_off_rows import PARTITIONS
from tickwheel.spark.orders import Taker
from tickwheel.spark.shard_index import Index

from .rows import NOW_MS, message, row
from .shards import LEAD_MS, NUMBER, A, B, Kept, orders


@dataclass(eq=False)
class Store:
    """A deliverer's store: what it took, with when it is due, and at first was, and what it has delivered. A copy of
    it has the same number.
    """

    address: str
    number: int
    open: dict[str, tuple[int, int]] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)
    openings: list[tuple[str, int]] = field(default_factory=lambda: [("first", 0)])
    commits: int = 0

    def open_again(self, name: str) -> None:
        self.openings = [*self.openings, (name, self.commits)][-16:]

    def take(self, rows: list[Any]) -> None:
        self.commits += bool(rows)
        for it in rows:
            id_, due_ms = it["id"], it["due_ms"]
            if it["payload"] is None and due_ms is None:
                self.open.pop(id_, None)
                self.known.add(id_)
            elif it["payload"] is None:
                if id_ in self.open:
                    self.open[id_] = due_ms, self.open[id_][1]
            elif id_ not in self.known:
                self.known.add(id_)
                self.open[id_] = it["moved_to_ms"] or due_ms, due_ms

    def deliver(self, now_ms: int, rng: random.Random) -> list[str]:
        """Some of what is due, in order, or all."""
        due = sorted((due_ms, id_) for id_, (due_ms, _) in self.open.items() if due_ms <= now_ms)
        gone = [id_ for _, id_ in due[: rng.choice([len(due), len(due), len(due) // 2])]]
        for id_ in gone:
            del self.open[id_]
        self.commits += bool(gone)
        return gone

    def taker(self, now_ms: int) -> Taker:
        first = (min(times) for times in self.open.values())
        mark_ms = min([now_ms, *first]) - 1
        return Taker(self.address, str(self.number), [mark_ms] * PARTITIONS, self.openings, self.commits)


class Play:
    """Micro-batches, some of which fail, are aborted, or are done again; stores that come and go."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now_ms = NOW_MS
        self.kept = Kept()
        self.made = 0
        self.stores = {address: self.new_store(address) for address in (A, B, "c:1")}
        self.down: set[str] = set()
        self.to = A
        self.failed = self.is_again = True
        self.due: dict[str, int] = {}
        self.first: dict[str, Any] = {}
        self.twice: set[str] = set()
        self.cancelled: set[str] = set()
        self.delivered: dict[str, list[Store]] = {}
        self.copies: list[Store] = []

    def go_back(self, name: str) -> None:
        """A store becomes an older copy of itself, and may do some work before it is asked."""
        store = self.copies.pop(self.rng.randrange(len(self.copies)))
        if Index.decode(self.kept.index).taker.partition("~")[0] != str(store.number):
            return  # what an earlier taker delivers again is not the shard's
        store.open_again(name)
        store.commits += self.rng.choice([0, 0, 1, 1_000])
        self.stores[store.address] = store

    def new_store(self, address: str) -> Store:
        self.made += 1
        return Store(address, self.made)

    def run(self, steps: int) -> None:
        for step in range(steps):
            self.step(step)
        self.down.clear()
        for _ in range(300):
            self.now_ms += 5_000
            self.batch([])
            self.deliver()
        assert self.delivered.keys() == self.due.keys() - self.cancelled
        assert self.kept.index is None or Index.decode(self.kept.index).waiting_rows == 0
        assert not self.kept.chunks

    def step(self, step: int) -> None:
        rng = self.rng
        self.now_ms += rng.randrange(100, 4_000)
        event = rng.random()
        if event < 0.03:
            self.to = rng.choice([*self.stores])
        elif event < 0.06:
            self.down.symmetric_difference_update([rng.choice([*self.stores])])
        elif event < 0.08:
            address = rng.choice([*self.stores])
            self.stores[address] = self.new_store(address)
        elif event < 0.12:
            self.copies.append(copy.deepcopy(rng.choice([*self.stores.values()])))
        elif event < 0.14:
            rng.choice([*self.stores.values()]).open_again(str(step))
        elif event < 0.17 and self.copies and not self.failed:  # else nothing tells whether it took what was sent last
            self.go_back(str(step))
        rows = self.rows(step)
        kept = copy.deepcopy(self.kept)
        self.batch(rows)
        if rng.random() < 0.1:  # the driver is killed before the commit: it has the same rows and time again
            self.kept, self.failed, self.is_again = kept, True, True
            if rng.random() < 0.3:
                self.kept.lead_ms = rng.choice([LEAD_MS, LEAD_MS // 2, 3 * LEAD_MS])
            if rng.random() < 0.5:
                self.to = rng.choice([*self.stores])
            if rng.random() < 0.5:
                self.deliver()
            self.batch(rows)
        self.deliver()

    def rows(self, step: int) -> list[Any]:
        rng, rows = self.rng, []
        for n in range(rng.randrange(6)):
            id_ = f"{step}.{n}"
            self.due[id_] = self.now_ms + rng.choice([-3_000, 4_000, 30_000, 90_000, 200_000]) + rng.randrange(2_000)
            self.first[id_] = row(message(id_, self.due[id_] - NOW_MS), step * 10 + n)
            rows.append(self.first[id_])
            if self.due[id_] >= self.now_ms + 30_000 and rng.random() < 0.1:
                rows.append(row(Cancel(id_, None)))
                self.cancelled.add(id_)
        far_ms = self.now_ms + 3 * LEAD_MS + 5_000
        given = {id_ for store in self.stores.values() for id_ in store.open}  # one that is down can't be told
        held = [id_ for id_, due_ms in self.due.items() if due_ms > far_ms and id_ not in given]
        if held and rng.random() < 0.1:
            id_ = rng.choice(held)
            self.due[id_] = self.now_ms + rng.choice([25_000, 60_000, 200_000]) + rng.randrange(9_000)
            rows.append(row(Reschedule(id_, None, self.due[id_])))
        if held and rng.random() < 0.1:  # the same once more, also if it was rescheduled
            self.twice.add(rng.choice(held))
            rows += [self.first[id_] for id_ in held if id_ in self.twice and rng.random() < 0.5]
        return rows

    def batch(self, rows: list[Any]) -> None:
        takers = [it.taker(self.now_ms) for it in self.stores.values() if it.address not in self.down]
        failed = [NUMBER] if self.failed else []
        found = orders(*takers, to=self.to, failed=failed, is_again=self.is_again)
        self.is_again = False
        to, given = self.kept.visit(self.now_ms, found, *rows)
        if to is None:
            assert not given
            return
        store = self.stores[to]
        self.failed = False
        assert to not in self.down
        plain = [it["due_ms"] for it in given if it["payload"] is not None and it["moved_to_ms"] is None]
        assert sum(after < before for before, after in pairwise(plain)) <= 1, "what is given again, and what is new"
        for other in self.stores.values():
            if other is not store:
                assert not other.open, "one deliverer has a shard's messages at a time"
        for it in given:
            if it["id"] in store.known:
                continue  # it drops the repeat, also as a copy of the store that delivered it
            had = [other for other in self.delivered.get(it["id"], []) if other is not store]
            # A store does not know what another one had: to it the second of two that a producer gave is another one.
            is_marked = it["again"] or it["payload"] is None or it["id"] in self.twice
            assert is_marked or not had, "what may have been delivered is marked"
        fate = self.rng.random()
        if fate < 0.1:
            self.failed = True
            given = given[: self.rng.randrange(len(given) + 1)]
        store.take(given)

    def deliver(self) -> None:
        for store in self.stores.values():
            for id_ in store.deliver(self.now_ms, self.rng):
                before = self.delivered.setdefault(id_, [])
                assert store not in before, "each once, but where a store was lost"
                assert self.now_ms >= self.due[id_], "nothing is early"
                before.append(store)


SEEDS = int(os.environ.get("TICKWHEEL_SEEDS", "100"))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_is_lost_and_repeats_are_marked_whatever_fails__S3_S4_S5(seed: int) -> None:
    Play(seed).run(120)
