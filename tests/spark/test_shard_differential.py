"""Seeded runs of a shard with the engine behind it, beside an engine that gets the same without a hold (S2 to S4).

In each step both get the same rows at the same time. The hold's hand-off fails in several ways meanwhile, until all is
given. Then time goes on for both. What arrives must be the same.
"""

import copy
import os
import random
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tickwheel.delivery.model.entries import Reschedule
from tickwheel.delivery.model.message import Cancel, Message
from tickwheel.delivery.read.hand_off_rows import PARTITIONS
from tickwheel.spark.orders import Taker

from .behind import Deliverer
from .rows import batch_of, row
from .shards import NUMBER, A, B, Kept, orders

KEY = "k"
STEPS = 8
FAULTS = ("down", "cut", "again", "again, cut", "again, down")


class Store:
    """A deliverer's store, at an address. A copy has the number of the store that was copied."""

    def __init__(self, number: int, deliverer: Deliverer) -> None:
        self.number, self.deliverer = number, deliverer
        self.openings: list[tuple[str, int]] = [("first", 0)]
        self.commits = 0
        self.is_new = True

    def take(self, given: list[Any]) -> None:
        self.commits += bool(given)
        self.deliverer.take(given)

    def taker(self, address: str) -> Taker:
        marks = [self.deliverer.mark_ms()] * PARTITIONS
        return Taker(address, str(self.number), marks, self.openings, self.commits)


class Play:
    """`loses`: stores are lost. `goes_back`: stores become older copies, and the list of deliverers changes."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.loses, self.goes_back = seed % 3 > 0, seed % 3 > 1
        self.folder = folder
        self.folders = count()
        self.from_ms = self.now_ms = time.time_ns() // 1_000_000 + 3_600_000  # later than the engine's own clock
        self.numbers = count(1)
        self.alone = self.deliverer()
        self.stores = {address: Store(next(self.numbers), self.deliverer()) for address in (A, B)}
        self.gone: list[Store] = []
        self.copies: list[tuple[str, Store]] = []
        self.kept = Kept()
        self.to = A
        self.lost_ms = 0
        self.lines = count(1)
        self.open: dict[str, tuple[int, Any]] = {}
        """By the id of a message, when it is due, and its row."""
        self.log: list[str] = []
        self.loses_now = False
        self.twice: set[str] = set()
        """Messages that came again: a store does not know that a store before it had them."""
        self.fault: str | None = None
        self.failed = False

    def deliverer(self) -> Deliverer:
        (folder := self.folder / str(next(self.folders))).mkdir()
        return Deliverer(folder, self.now_ms, self.from_ms)

    def close(self) -> None:
        for each in [self.alone, *(it.deliverer for it in self.every_store())]:
            each.close()

    def every_store(self) -> Iterator[Store]:
        yield from self.gone
        yield from self.stores.values()
        yield from (store for _, store in self.copies)

    # --- What is given ----------------------------------------------------------

    def rows(self, step: int) -> list[Any]:
        rng = self.rng
        found = [self.message(f"m{step}.{n}") for n in range(rng.randrange(3))]
        for _ in range(rng.randrange(5)):
            found += self.about_message()
        return found

    def message(self, id_: str) -> Any:
        due_ms = self.now_ms + self.rng.choice([-3_000, 2_000, 15_000, 30_000, 60_000]) + self.rng.randrange(999)
        made = row(Message(id_, KEY, due_ms, b"1", tenant=tenant_of(id_)), next(self.lines))
        self.open[id_] = due_ms, made
        return made

    def about_message(self) -> list[Any]:
        rng = self.rng
        held = [id_ for id_, (due_ms, _) in self.open.items() if due_ms > self.now_ms]
        if not held or (not self.loses and rng.random() < 0.1):
            id_ = f"early {next(self.lines)}"
            # A reschedule that comes before its message has no effect, but where both are given again.
            is_cancel = self.fault or rng.random() < 0.5
            before = row(Cancel(id_, KEY) if is_cancel else Reschedule(id_, KEY, self.now_ms + 9_000))
            return [before, self.message(id_)]
        id_ = rng.choice(held)
        match rng.randrange(4):
            case 0:
                return [row(Cancel(id_, KEY))]
            case 1:
                self.twice.add(id_)
                return [self.open[id_][1]]  # the same again
            case _:
                due_ms = self.now_ms + rng.choice([500, 9_000, 25_000, 70_000]) + rng.randrange(999)
                self.open[id_] = due_ms, self.open[id_][1]
                return [row(Reschedule(id_, KEY, due_ms))]

    # --- What happens -----------------------------------------------------------

    def step(self, step: int) -> None:
        self.advance(self.rng.choice([1_000, 5_000, 20_000]))
        self.fault = self.rng.choice([None, None, *FAULTS])
        self.loses_now = self.loses and self.rng.random() < 0.4
        given = self.rows(step)
        self.alone.take(batch_of(given).to_pylist())
        self.hand_off(given, self.fault)

    def advance(self, ms: int) -> None:
        self.now_ms += ms
        for each in [self.alone, *(it.deliverer for it in self.stores.values())]:
            each.advance(ms)

    def hand_off(self, given: list[Any], fault: str | None) -> None:
        rng = self.rng
        if self.goes_back and rng.random() < 0.3:
            self.to = rng.choice([A, B])
        self.lose_some()
        self.log.append(f"{(self.now_ms - self.from_ms) / 1000} {fault} {[it[:3] for it in given]}")
        if fault is None:
            self.visit(given)
        elif fault == "down":
            self.visit(given, is_down=True)
        elif fault == "cut":
            self.visit(given, is_cut=True)
        else:
            before = copy.deepcopy(self.kept)
            self.visit(given, is_cut=rng.random() < 0.5)
            self.kept = before
            self.lose_some()
            self.visit(given, is_down="down" in fault, is_cut="cut" in fault, is_failed=True, is_again=True)
        self.lose_some()
        for _ in range(60):
            if self.is_quiet():
                return
        pytest.fail("it gives again and again")

    def is_quiet(self) -> bool:
        """Whether nothing is given in two visits: in the first it may be that the shard changes its taker."""
        return not any(self.visit([]) for _ in range(2))

    def visit(
        self,
        given: list[Any],
        *,
        is_down: bool = False,
        is_cut: bool = False,
        is_failed: bool = False,
        is_again: bool = False,
    ) -> bool:
        takers = [] if is_down else [store.taker(address) for address, store in self.stores.items()]
        failed = [NUMBER] if self.failed or is_failed else []
        found = orders(*takers, to=self.to, failed=failed, is_again=is_again)
        to, rows = self.kept.visit(self.now_ms, found, *given)
        if to is None:
            self.failed |= is_failed
            return bool(given)
        self.failed = is_cut and bool(rows)
        self.stores[to].take(rows[: self.rng.randrange(len(rows) + 1)] if is_cut else rows)
        return bool(rows)

    def lose_some(self) -> None:
        rng = self.rng
        if self.loses_now and rng.random() < 0.2:
            address = rng.choice([A, A, B])
            self.gone.append(self.stores[address])
            self.stores[address] = Store(next(self.numbers), self.deliverer())
            self.lost_ms = self.now_ms
            self.log.append(f"lost {address}")
        elif self.goes_back and rng.random() < 0.15:
            address = rng.choice([A, B])
            store = self.stores[address]
            copied = Store(store.number, store.deliverer.copy(self.folder / str(next(self.folders))))
            copied.openings, copied.commits = [*store.openings], store.commits
            self.copies.append((address, copied))
            self.log.append(f"copied {address}")
        elif self.loses_now and self.goes_back and self.copies and not self.failed and rng.random() < 0.4:
            address, back = self.copies.pop(rng.randrange(len(self.copies)))
            if back.number != self.stores[address].number:
                self.gone.append(back)
                return
            self.gone.append(self.stores[address])
            self.stores[address] = back
            back.openings.append((f"back {len(self.log)}", back.commits))
            back.deliverer.advance_to(self.now_ms)
            self.lost_ms = self.now_ms
            self.log.append(f"back {address}")

    def run(self) -> None:
        for step in range(STEPS):
            self.step(step)
        self.end()

    def end(self) -> None:
        """All messages are due."""
        self.advance(1_000)
        for ms in (20_000, 100_000):
            assert self.is_quiet() or self.is_quiet() or self.is_quiet()
            self.advance(ms)
        assert self.is_quiet() or self.is_quiet()

    # --- What arrived -----------------------------------------------------------

    def compare(self) -> None:
        alone = self.alone.came
        held = [(store, *it) for store in self.every_store() for it in store.deliverer.came]
        story = "\n".join(["", *self.log, f"alone {alone}", f"held {[(it[0].number, *it[1:]) for it in held]}"])
        assert len({id_ for id_, *_ in alone}) == len(alone)
        for each in [self.alone, *(store.deliverer for store in self.every_store())]:
            assert all(tenant == tenant_of(id_) for id_, tenant in each.tenants), story
        if not self.lost_ms:
            assert {it[1:3] for it in held} == {it[:2] for it in alone}, story
        lost = {id_ for id_, *_ in alone} - {id_ for _, id_, _, _ in held}
        assert not lost, f"lost {lost}{story}"
        by: dict[str, list[Store]] = {}
        for store, id_, _, is_marked in held:
            others = [it for it in by.setdefault(id_, []) if it.number != store.number or it is store]
            assert is_marked or not others or id_ in self.twice, f"{id_} came again without a mark{story}"
            by[id_].append(store)


def tenant_of(id_: str) -> str | None:
    """A third of the messages has none."""
    return [None, "t", "u"][sum(id_.encode()) % 3]


SEEDS = int(os.environ.get("TICKWHEEL_SEEDS", "20"))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_arrives_is_what_arrives_without_a_hold_whatever_fails__S2_S3_S4_D7_D16(tmp_path: Path, seed: int) -> None:
    play = Play(tmp_path, seed)
    try:
        play.run()
        play.compare()
    finally:
        play.close()
