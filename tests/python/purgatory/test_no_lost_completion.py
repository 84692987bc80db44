"""P6: what became ready before the last attempt is complete when all attempts have returned."""

import random
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from purgatory.operations import EMPTY, Op, counts, together
from tickwheel import DelayedOperationPurgatory
from tickwheel.testing import ManualTimer

THREADS = 20


@pytest.fixture(autouse=True)
def many_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


class Slow(Op):
    """Takes its time between the look and the completion, as Kafka's test does; one thread at a time is in here."""

    def __init__(self, lock: object = None) -> None:
        super().__init__(lock=lock)
        self.rng = random.Random(1)
        self.inside = 0
        self.at_once = 0

    def try_complete(self) -> bool:
        self.inside += 1
        self.at_once = max(self.at_once, self.inside)
        is_ready = self.is_ready
        if self.rng.random() < 0.3:
            time.sleep(self.rng.random() / 2000)
        self.inside -= 1
        return is_ready and self.force_complete()


@pytest.mark.parametrize("with_lock", [False, True])
def test_twenty_threads_a_hundred_operations_twenty_attempts__P6(with_lock: bool) -> None:
    """Each attempt finds the operation's key; somewhere among them it becomes ready, and one more comes after that."""
    timer = ManualTimer()
    purgatory = DelayedOperationPurgatory("attempts", timer)
    operations = [Slow(threading.RLock() if with_lock else None) for _ in range(100)]
    for number, operation in enumerate(operations):
        purgatory.try_complete_else_watch(operation, [number, "all"])
    completed: list[int] = []

    def attempt(thread: int) -> None:
        rng = random.Random(thread)
        mine = list(range(100))
        for turn in range(20):
            rng.shuffle(mine)
            for number in mine[:10]:
                # The event first, then the check: what this check misses, the thread that it met must see.
                if turn == 19 or rng.random() < 0.02:
                    operations[number].is_ready = True
                completed.append(purgatory.check_and_complete(number))

    together(*[lambda thread=thread: attempt(thread) for thread in range(THREADS)])
    timer.advance(1000)  # with locks: what met a stranger
    assert all(operation.is_completed for operation in operations if operation.is_ready)
    assert all(operation.log == ["complete"] for operation in operations if operation.is_ready)
    assert max(operation.at_once for operation in operations) == 1, "two threads were in one try_complete"
    ready = sum(operation.is_ready for operation in operations)
    assert ready > 80
    assert counts(purgatory)[0] == 100 - ready
    if not with_lock:
        assert sum(completed) == ready


def test_the_last_of_many_events_is_never_lost__P6() -> None:
    """An operation that needs them all: it is complete exactly when the last event has returned."""

    class All(Op):
        def __init__(self, needed: int) -> None:
            super().__init__()
            self.needed = needed
            self.events: list[int] = []

        def try_complete(self) -> bool:
            return len(self.events) == self.needed and self.force_complete()

    purgatory = DelayedOperationPurgatory("events", ManualTimer())
    for turn in range(150):
        operation = All(8)
        purgatory.try_complete_else_watch(operation, range(8))

        def happen(key: int, operation: All = operation) -> None:
            operation.events.append(key)
            purgatory.check_and_complete(key)

        together(*[lambda key=key, happen=happen: happen(key) for key in range(8)])
        assert operation.log == ["complete"], turn
    assert counts(purgatory) == EMPTY


def test_an_event_that_meets_a_busy_operation_returns_at_once_and_is_seen__P6() -> None:
    """Deterministic: the holder has looked already when the event comes."""

    class Stopped(Op):
        def try_complete(self) -> bool:
            self.tries += 1
            is_ready = self.is_ready
            if self.tries == 3:
                looked.set()
                assert go_on.wait(20)
            return is_ready and self.force_complete()

    looked, go_on = threading.Event(), threading.Event()
    purgatory = DelayedOperationPurgatory("busy", ManualTimer())
    operation = Stopped()
    purgatory.try_complete_else_watch(operation, ["a", "b"])
    found: list[int] = []
    holder = threading.Thread(target=lambda: found.append(purgatory.check_and_complete("a")))
    holder.start()
    assert looked.wait(20)
    operation.is_ready = True
    for _ in range(5):
        assert purgatory.check_and_complete("b") == 0, "it neither waits nor completes it"
    assert not operation.is_completed
    go_on.set()
    holder.join(20)
    assert (found, operation.tries, operation.log) == ([1], 4, ["complete"])
    assert counts(purgatory) == EMPTY


def test_a_watching_call_that_is_marked_during_its_second_try_tries_again__P2_P6() -> None:
    class Stopped(Op):
        def try_complete(self) -> bool:
            self.tries += 1
            is_ready = self.is_ready
            if self.tries == 2:
                looked.set()
                assert go_on.wait(20)
            return is_ready and self.force_complete()

    looked, go_on = threading.Event(), threading.Event()
    timer = ManualTimer()
    purgatory = DelayedOperationPurgatory("busy", timer)
    operation = Stopped()
    found: list[bool] = []
    holder = threading.Thread(target=lambda: found.append(purgatory.try_complete_else_watch(operation, ["a"])))
    holder.start()
    assert looked.wait(20)
    operation.is_ready = True
    assert purgatory.check_and_complete("a") == 0
    go_on.set()
    holder.join(20)
    assert (found, operation.tries, operation.log) == ([True], 3, ["complete"])
    assert (counts(purgatory), len(timer)) == (EMPTY, 0)


def test_watch_complete_and_check_from_many_threads_end_with_nothing_left__P5_P6() -> None:
    timer = ManualTimer()
    purgatory = DelayedOperationPurgatory("crowd", timer)
    everything: list[Op] = []

    def use(thread: int) -> None:
        rng = random.Random(thread)
        mine: list[Op] = []
        for _ in range(150):
            operation = Op()
            mine.append(operation)
            everything.append(operation)
            purgatory.try_complete_else_watch(operation, {rng.randrange(12) for _ in range(3)})
            if rng.random() < 0.5:
                rng.choice(mine).is_ready = True
            purgatory.check_and_complete(rng.randrange(12))
        for operation in mine:
            operation.is_ready = True

    together(*[lambda thread=thread: use(thread) for thread in range(6)])
    for key in range(12):
        purgatory.check_and_complete(key)
    assert all(operation.log == ["complete"] for operation in everything)
    assert (counts(purgatory), len(timer)) == (EMPTY, 0)
    assert purgatory.stats()["completed"] == len(everything) == 900
