"""Seeded runs of a shard against a plain model of deliverers: what dies, fails and is done again (rules S3 to S5)."""

import copy
import os
import random
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from tickwheel.delivery.model.entries import Reschedule
from tickwheel.delivery.model.message import Cancel
from tickwheel.delivery.read.hand_off_rows import PARTITIONS
from tickwheel.spark.orders import Taker
from tickwheel.spark.shard_index import Index

from .rows import NOW_MS, message, recurring, row
from .shards import LEAD_MS, NUMBER, A, B, Kept, before, orders


@dataclass
class Beat:
    """A recurring message at a store: when its next occurrence is due; what was due before may be a repeat."""

    every: int
    next_ms: int
    sent_ms: int = 0


@dataclass(eq=False)
class Store:
    """A deliverer's store: what it took, with when it is due, and at first was, and what it has delivered. A copy of
    it has the same number.
    """

    address: str
    number: int
    open: dict[str, tuple[int, int]] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)
    beats: dict[str, Beat] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)
    openings: list[tuple[str, int]] = field(default_factory=lambda: [("first", 0)])
    commits: int = 0

    def open_again(self, name: str) -> None:
        self.openings = [*self.openings, (name, self.commits)][-16:]

    def end_one(self, rng: random.Random) -> None:
        """A recurring message is cancelled by another door than the hold's, before its next occurrence."""
        if self.beats:
            id_ = rng.choice([*self.beats])
            self.ended[id_] = self.beats.pop(id_).next_ms
            self.commits += 1

    def take(self, rows: list[Any]) -> None:
        self.commits += bool(rows)
        for it in rows:
            id_, due_ms = it["id"], it["due_ms"]
            if it["payload"] is None and due_ms is None:
                self.open.pop(id_, None)
                self.beats.pop(id_, None)
                self.known.add(id_)
            elif it["payload"] is None:
                if id_ in self.open:
                    self.open[id_] = due_ms, self.open[id_][1]
            elif id_ not in self.known:
                self.known.add(id_)
                if it["recurrence"] is None:
                    self.open[id_] = it["moved_to_ms"] or due_ms, due_ms
                    continue
                rule, (settled_ms, sent_ms) = msgspec.json.decode(it["recurrence"]), before(it) or (None, 0)
                first_ms = max(rule["from"], (settled_ms or 0) + 1)
                next_ms = rule["from"] - (rule["from"] - first_ms) // rule["every"] * rule["every"]
                self.beats[id_] = Beat(rule["every"], next_ms, sent_ms)

    def deliver(self, now_ms: int, rng: random.Random) -> list[tuple[str, bool]]:
        """Some of what is due, in order, or all, and whether it is marked as a repeat."""
        due = sorted((due_ms, id_) for id_, (due_ms, _) in self.open.items() if due_ms <= now_ms)
        gone = [id_ for _, id_ in due[: rng.choice([len(due), len(due), len(due) // 2])]]
        for id_ in gone:
            del self.open[id_]
        found = [(id_, False) for id_ in gone]
        for id_, beat in self.beats.items():
            while beat.next_ms <= now_ms and rng.random() < 0.9:
                found.append((f"{id_}@{beat.next_ms}", beat.next_ms <= beat.sent_ms))
                beat.next_ms += beat.every
        self.commits += bool(found)
        return found

    def taker(self, now_ms: int) -> Taker:
        first = (min(times) for times in self.open.values())
        mark_ms = min([now_ms, *first, *(beat.next_ms for beat in self.beats.values())]) - 1
        return Taker(
            self.address,
            str(self.number),
            [mark_ms] * PARTITIONS,
            recurring={NUMBER: [(None, it) for it in self.beats]},
            openings=self.openings,
            commits=self.commits,
        )


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
        self.has_beats = seed % 2 == 0
        self.due: dict[str, int] = {}
        self.first: dict[str, Any] = {}
        self.twice: set[str] = set()
        self.cancelled: set[str] = set()
        self.beats: dict[str, int] = {}
        self.ended: dict[str, int] = {}
        self.told_ended: set[str] = set()
        self.delivered: dict[str, list[Store]] = {}
        self.copies: list[Store] = []

    def go_back(self, name: str) -> None:
        """A store becomes an older copy of itself, and may do some work before it is asked."""
        store = self.copies.pop(self.rng.randrange(len(self.copies)))
        if Index.decode(self.kept.index).taker.partition("~")[0] != str(store.number):
            return  # what an earlier taker delivers again is not the shard's
        store.open_again(name)
        store.commits += self.rng.choice([0, 0, 1, 1_000])
        store.ended |= self.stores[store.address].ended
        store.beats = {id_: beat for id_, beat in store.beats.items() if id_ not in store.ended}
        self.stores[store.address] = store

    def new_store(self, address: str) -> Store:
        self.made += 1
        return Store(address, self.made)

    def run(self, steps: int) -> None:
        for step in range(steps):
            self.step(step)
        self.down.clear()
        ended = [row(Cancel(id_, None)) for id_ in self.beats]
        until_ms = self.now_ms
        for _ in range(300):
            self.now_ms += 5_000
            self.batch([])
            self.deliver()
        beaten = {
            f"{id_}@{at}"
            for id_, every in self.beats.items()
            for at in range(NOW_MS, min(until_ms, self.ended.get(id_, until_ms)), every)
        }
        assert self.delivered.keys() >= (self.due.keys() - self.cancelled) | beaten
        assert not self.delivered.keys() & self.cancelled
        assert {it for it in self.delivered if "@" not in it} <= self.due.keys()
        self.batch(ended)
        for _ in range(300):
            self.now_ms += 5_000
            self.batch([])
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
        elif event < 0.1:
            store = rng.choice([*self.stores.values()])
            store.end_one(rng)
            self.ended = store.ended | self.ended
        elif event < 0.12:
            self.copies.append(copy.deepcopy(rng.choice([*self.stores.values()])))
        elif event < 0.14:
            rng.choice([*self.stores.values()]).open_again(str(step))
        elif event < 0.17 and self.copies and not self.failed:  # else nothing tells whether it took what was sent last
            self.go_back(str(step))
        rows = self.rows(step)
        kept, told_ended = copy.deepcopy(self.kept), {*self.told_ended}
        self.batch(rows)
        if rng.random() < 0.1:  # the driver is killed before the commit: it has the same rows and time again
            self.kept, self.told_ended, self.failed, self.is_again = kept, told_ended, True, True
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
        held = [id_ for id_, due_ms in self.due.items() if due_ms > self.now_ms + 3 * LEAD_MS + 5_000]
        if held and rng.random() < 0.1:
            id_ = rng.choice(held)
            self.due[id_] = self.now_ms + rng.choice([25_000, 60_000, 200_000]) + rng.randrange(9_000)
            rows.append(row(Reschedule(id_, None, self.due[id_])))
        if held and rng.random() < 0.1:  # the same once more, also if it was rescheduled
            self.twice.add(rng.choice(held))
            rows += [self.first[id_] for id_ in held if id_ in self.twice and rng.random() < 0.5]
        if self.has_beats and rng.random() < 0.03:
            id_ = f"beat {step}"
            self.beats[id_] = rng.choice([700, 5_000, 60_000])
            rows.append(recurring(id_, every=self.beats[id_]))
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
        if not self.failed:
            self.told_ended |= store.ended.keys()
        self.failed = False
        assert to not in self.down
        plain = [
            it["due_ms"] for it in given if it["payload"] is not None and it["recurrence"] is it["moved_to_ms"] is None
        ]
        assert sum(after < before for before, after in pairwise(plain)) <= 1, "what is given again, and what is new"
        for other in self.stores.values():
            if other is not store:
                assert not other.open, "one deliverer has a shard's messages at a time"
                assert not other.beats
        assert not self.told_ended & {it["id"] for it in given if it["recurrence"]}, "what has ended does not come back"
        for it in given:
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
            for id_, is_marked in store.deliver(self.now_ms, self.rng):
                before = self.delivered.setdefault(id_, [])
                others = [it for it in before if it.number != store.number]  # an older copy does not know it
                assert "@" not in id_ or is_marked or not others, "an occurrence that may have been sent is marked"
                assert store not in before, "each once, but where a store was lost"
                assert "@" in id_ or self.now_ms >= self.due[id_], "nothing is early"
                before.append(store)


SEEDS = int(os.environ.get("TICKWHEEL_SEEDS", "100"))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_is_lost_and_repeats_are_marked_whatever_fails__S3_S4_S5(seed: int) -> None:
    Play(seed).run(120)
