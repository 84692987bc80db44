"""Finished payloads, old names and old cancels are removed; everything still needed stays (rules D5, D7, D8)."""

from collections.abc import Callable
from typing import Any

import pytest

from delivery.store.making import accept as accept_in
from tickwheel.delivery.store import Done, Incoming, Outcome, Store, housekeeping, ids
from tickwheel.delivery.store.housekeeping import Housekeeping

Shelf = Any  # of conftest.py
Make = Callable[..., Incoming]

HOUR_S = 3600


class Clock:
    """Monotonic seconds, for when it is time to prune again."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "MERGE_AT", 1)
    monkeypatch.setattr(housekeeping, "_OLD", 5)
    monkeypatch.setattr(housekeeping, "_BODIES", 4)


class Keeper:
    """Housekeeping with an hour between two calls of `tidy`, so that each call may prune."""

    def __init__(self, store: Store, keep_ids_ms: int) -> None:
        self.store = store
        self._clock = Clock()
        self._housekeeping = Housekeeping(store, keep_ids_ms, self._clock)

    def tidy(self, now_ms: int) -> None:
        self._clock.now_s += HOUR_S
        more = True
        while more:
            with self.store.transaction():
                more = self._housekeeping.step(now_ms, is_idle=True)
        for _ in range(70):  # every shard gets merged
            with self.store.transaction():
                self._housekeeping.step(now_ms, is_idle=True)
        self._clock.now_s += HOUR_S
        more = True
        while more:
            with self.store.transaction():
                more = self._housekeeping.step(now_ms, is_idle=True)


def accept(store: Store, items: list[Incoming], now_ms: int = 0) -> list[bool]:
    with store.transaction():
        answers = [is_new for _, is_new in accept_in(store, items, now_ms)]
        store.ids.merge_some()
    return answers


def finish(store: Store, items: list[Incoming], at_ms: int, outcome: Outcome = Outcome.DELIVERED) -> None:
    with store.transaction():
        known = [store.find(item.message.key, item.message.id) for item in items]
        store.finish([Done(one.seq, one.due_ms, outcome, at_ms) for one in known if one])


def count(store: Store, table: str) -> int:
    [(rows,)] = store.db.execute(f"SELECT count(*) FROM {table}")
    return int(rows)


def several(incoming: Make, name: str, number: int) -> list[Incoming]:
    return [incoming(f"{name} {one}", 5 + one) for one in range(number)]


@pytest.mark.parametrize("outcome", list(Outcome))
def test_a_message_is_forgotten_once_its_outcome_is_old_and_accepted_anew__D5(
    store: Store, incoming: Make, outcome: Outcome
) -> None:
    keeper = Keeper(store, keep_ids_ms=1000)
    old, young, waits = several(incoming, "old", 30), several(incoming, "young", 7), several(incoming, "waits", 5)
    accept(store, old + waits)
    finish(store, old, 100, outcome)
    accept(store, young)
    finish(store, young, 200, outcome)
    keeper.tidy(1_101)
    assert accept(store, young + waits) == [False] * 12
    assert accept(store, old) == [True] * 30
    assert store.waiting == 35


def test_exactly_as_old_as_ids_are_kept_is_not_old_yet__D5(store: Store, incoming: Make) -> None:
    keeper = Keeper(store, keep_ids_ms=1000)
    old = several(incoming, "old", 12)
    accept(store, old + several(incoming, "waits", 12))
    finish(store, old, 100)
    keeper.tidy(1_100)
    assert accept(store, old) == [False] * 12
    keeper.tidy(1_101)
    assert accept(store, old) == [True] * 12


def test_with_few_messages_they_are_forgotten_in_time_too__D5(
    store: Store, incoming: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ids, "MERGE_AT", 1_000)
    few = several(incoming, "old", 2)  # too few to be merged
    accept(store, few)
    finish(store, few, 100)
    Keeper(store, keep_ids_ms=1000).tidy(50_000)
    assert accept(store, few) == [True, True]


def test_a_wall_clock_that_was_stepped_back_forgets_nothing_too_early__D5(store: Store, incoming: Make) -> None:
    keeper = Keeper(store, keep_ids_ms=1000)
    early, late = several(incoming, "early", 10), several(incoming, "late", 10)
    accept(store, early + late)
    finish(store, early, 9_000)
    finish(store, late, 500)  # the clock went back in between
    keeper.tidy(1_501)
    assert accept(store, early) == [False] * 10
    keeper.tidy(10_001)
    assert accept(store, early + late) == [True] * 20


def test_a_number_is_never_given_twice_though_everything_was_forgotten__D5(shelf: Shelf, incoming: Make) -> None:
    store = shelf.open()
    last = 0
    for round_ in range(4):
        every = several(incoming, "m", 9)
        assert accept(store, every) == [True] * 9
        with store.transaction():
            seqs = [known.seq for known, _ in accept_in(store, every)]
        assert min(seqs) > last
        last = max(seqs)
        finish(store, every, 100)
        Keeper(store, keep_ids_ms=0).tidy(200)
        accept(store, [])
        if round_ % 2:
            store = shelf.crash()
        assert store.last_seq == last


def test_payloads_go_with_their_outcome_and_only_theirs__D8(store: Store, incoming: Make) -> None:
    keeper = Keeper(store, keep_ids_ms=86_400_000)
    done, waits = several(incoming, "done", 30), several(incoming, "waits", 6)
    accept(store, done[:15] + waits + done[15:])
    finish(store, done, 100)
    keeper.tidy(200)
    assert count(store, "bodies") == 6
    with store.transaction():
        assert len(store.messages(range(100))) == 6


def test_payloads_go_too_after_everything_was_forgotten__D8(shelf: Shelf, incoming: Make) -> None:
    store = shelf.open()
    for round_ in range(6):
        every = several(incoming, f"round {round_}", 12 - round_)
        accept(store, every)
        finish(store, every, 100)
        keeper = Keeper(store, keep_ids_ms=0)
        keeper.tidy(200)
        assert count(store, "bodies") == 0, round_
        store = shelf.crash()


def test_the_ledger_numbers_on_after_everything_was_forgotten__D11(store: Store, incoming: Make) -> None:
    last = 0
    for round_ in range(3):
        every = several(incoming, f"round {round_}", 9)
        accept(store, every)
        finish(store, every, 100)
        [(first,), *_] = store.db.execute("SELECT n FROM ledger WHERE seq = ?", (store.last_seq - 8,)).fetchall()
        assert first > last, "a count that starts at a row of the ledger would miss these"
        [(last,)] = store.db.execute("SELECT max(n) FROM ledger")
        Keeper(store, keep_ids_ms=0).tidy(200)


def test_names_that_were_forgotten_leave_nothing_behind__D8(store: Store, incoming: Make) -> None:
    for round_ in range(5):
        every = several(incoming, f"round {round_}", 20)
        accept(store, every)
        finish(store, every, 100)
        Keeper(store, keep_ids_ms=0).tidy(200)
    assert count(store, "messages") <= 8
    assert count(store, "ids") <= 8
    assert count(store, "ledger") <= 9


def test_a_remembered_cancel_is_forgotten_in_time_and_not_before__D7(shelf: Shelf, incoming: Make) -> None:
    store = shelf.open()
    keeper = Keeper(store, keep_ids_ms=1000)
    with store.transaction():
        for number in range(3):
            store.remember_cancel(None, f"old {number}", 100)
            store.remember_cancel(None, f"young {number}", 200)
            store.remember_cancel(None, f"young {number}", 200)
    assert store.remembered_cancels == 6
    keeper.tidy(1_101)
    assert store.remembered_cancels == 3
    store = shelf.crash()
    assert store.remembered_cancels == 3
    with store.transaction():
        answers = accept_in(store, [incoming("old 1"), incoming("young 1"), incoming("young 1", key="k")], 300)
    assert [known.outcome for known, _ in answers] == [None, Outcome.CANCELLED, None]
    assert store.remembered_cancels == 2


def test_a_crash_while_forgetting_leaves_all_or_nothing_of_a_step__D5(shelf: Shelf, incoming: Make) -> None:
    store = shelf.open()
    every = several(incoming, "m", 23)
    accept(store, every)
    finish(store, every, 100)
    for _ in range(60):
        keeper = Housekeeping(store, 0, Clock())
        with store.transaction():
            keeper.step(200, is_idle=True)
        store.db.execute("BEGIN IMMEDIATE")
        keeper.step(200, is_idle=True)
        store = shelf.crash()
        messages, ledger = count(store, "messages"), count(store, "ledger")
        assert abs(messages - ledger) <= 1
        assert store.last_seq == 23


def test_what_is_forgotten_while_it_is_busy_leaves_no_payload__D8(store: Store, incoming: Make) -> None:
    old, young = several(incoming, "old", 7), several(incoming, "young", 7)
    accept(store, old + young)
    for _ in range(70):
        accept(store, [])
    finish(store, old, 100)
    finish(store, young, 5_000)
    clock = Clock()
    keeper = Housekeeping(store, 1_000, clock)
    for _ in range(5):
        clock.now_s += HOUR_S
        with store.transaction():
            keeper.step(2_000, is_idle=False)
    Keeper(store, 1_000).tidy(2_000)
    assert count(store, "bodies") == 0
