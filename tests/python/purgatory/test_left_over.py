"""P6: what the rounds of a check leave over is made by the timer: no event is lost, and endless tries cost little."""

import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from purgatory.operations import EMPTY, HOUR, Acts, Op, Stranger, counts
from tickwheel import DelayedOperationPurgatory, SystemTimer, TimerClosed, TimerRejected
from tickwheel.testing import ManualTimer
from timer.watching import until

pytestmark = pytest.mark.timeout(40)


class Counting:
    """Operations under a key each. One that is tried counts, and checks all other keys; the first one is ready when so
    many were counted."""

    def __init__(self, number: int, needed: float, timer: Any = None) -> None:
        self.told: list[tuple[Any, BaseException]] = []
        self.timer = timer or ManualTimer(on_error=lambda *error: self.told.append(error))
        self.purgatory = DelayedOperationPurgatory("counting", self.timer)
        self.operations = [Acts(1000 * HOUR) for _ in range(number)]
        self.counted = 0
        for own, operation in enumerate(self.operations):
            self.purgatory.try_complete_else_watch(operation, [own])
            operation.tries = 0

        def act(own: int) -> None:
            if own > 0:
                self.counted += 1
            elif self.counted >= needed:
                self.operations[0].is_ready = True
                return
            for other in range(number):
                if other != own:
                    self.purgatory.check_and_complete(other)

        for own, operation in enumerate(self.operations):
            operation.in_try = lambda own=own: act(own)

    @property
    def tries(self) -> int:
        return sum(operation.tries for operation in self.operations)


@pytest.mark.parametrize(("number", "needed"), [(2, 1), (2, 2), (2, 10), (2, 1000), (12, 1000), (12, 5000)])
def test_however_many_rounds_an_event_needs_it_is_not_lost__P6(number: int, needed: int) -> None:
    counting = Counting(number, needed)
    counting.purgatory.check_and_complete(1)
    assert counting.tries <= number**3
    while not counting.operations[0].is_completed:
        before = counting.tries
        assert counting.timer.run_next(), f"the event was lost, {counting.counted} of {needed} were counted"
        assert counting.tries - before <= number, "more than one round"
    assert counting.operations[0].log == ["complete"]
    for operation in counting.operations:
        operation.force_complete()
    counting.timer.advance(1000)
    assert (counts(counting.purgatory), len(counting.timer), counting.told) == (EMPTY, 0, [])


def test_tries_that_ask_for_ever_are_made_less_and_less_often__P6() -> None:
    counting = Counting(12, float("inf"))
    counting.purgatory.check_and_complete(1)
    first = counting.tries
    assert counting.timer.advance(1023) == 10, "after 1, 2, 4 and so on to 512 ms"
    assert counting.timer.advance(60_000) == 60, "each second"
    assert counting.tries - first <= 70 * 12


def test_when_something_was_completed_it_begins_again_at_a_millisecond__P6() -> None:
    counting = Counting(3, float("inf"))
    counting.purgatory.check_and_complete(1)
    counting.timer.advance(10_000)
    counting.operations[2].is_ready = True
    while not counting.operations[2].is_completed:
        assert counting.timer.run_next()
    assert counting.timer.advance(15) == 4, "after 1, 2, 4 and 8 ms"


def test_checks_that_come_meanwhile_are_left_to_one_entry_of_the_timer__P6() -> None:
    counting = Counting(4, float("inf"))
    for _ in range(100):
        counting.purgatory.check_and_complete(1)
    assert len(counting.timer) == 4 + 1


def test_what_is_left_over_in_another_purgatory_is_made_by_its_timer__P6() -> None:
    first, second = Counting(1, 5), Counting(1, float("inf"))
    first.operations[0].in_try = lambda: (second.purgatory.check_and_complete(0), None)[1]

    def act() -> None:
        first.counted += 1
        first.operations[0].is_ready = first.counted >= 5
        first.purgatory.check_and_complete(0)

    second.operations[0].in_try = act
    second.purgatory.check_and_complete(0)
    for _ in range(30):
        first.timer.advance(100)
        second.timer.advance(100)
    assert first.operations[0].log == ["complete"]


def test_an_advance_inside_a_try_leaves_the_checks_to_the_outermost_call__P6() -> None:
    counting = Counting(2, 2)
    counting.purgatory.check_and_complete(1)
    outer = Acts()
    counting.purgatory.try_complete_else_watch(outer, ["outer"])
    found: list[object] = []
    outer.in_try = lambda: found.append((counting.timer.advance(1), counting.operations[0].is_completed))
    counting.purgatory.check_and_complete("outer")
    assert (found, counting.operations[0].log) == ([(1, False)], ["complete"])


def test_a_timer_that_was_shut_down_is_reported_and_the_next_check_completes_it__P6_P8() -> None:
    counting = Counting(2, 2)
    counting.timer.shutdown()
    counting.purgatory.check_and_complete(1)
    assert [(operation, type(error)) for operation, error in counting.told] == [(counting.operations[0], TimerClosed)]
    assert (counting.counted, counting.operations[0].is_completed) == (2, False)
    assert counting.purgatory.check_and_complete(0) == 1


def test_what_was_left_over_and_lost_with_its_timer_holds_up_nothing__P6() -> None:
    counting = Counting(2, float("inf"))
    counting.purgatory.check_and_complete(1)
    assert counting.timer.shutdown() == counting.operations, "their deadlines"
    counting.purgatory.check_and_complete(1)
    assert [type(error) for _, error in counting.told] == [TimerClosed]


@pytest.mark.parametrize("end", ["dropped", "cancelled"])
def test_when_all_have_gone_the_timer_has_nothing_more_to_do__P5(end: str) -> None:
    timer = ManualTimer()
    purgatory = DelayedOperationPurgatory("gone", timer, timer_enabled=False)
    there = weakref.ref(purgatory)
    operations = [Acts(), Acts()]
    for own, operation in enumerate(operations):
        purgatory.try_complete_else_watch(operation, [own])

        def act(own: int = own) -> None:
            found = there()
            if found is not None:
                found.check_and_complete(1 - own)

        operation.in_try = act
    purgatory.check_and_complete(0)
    assert len(timer) == 1
    if end == "cancelled":
        assert all(operation.cancel() for operation in operations)
    del purgatory
    if end == "dropped":
        assert there() is None
    timer.advance(10_000)
    assert len(timer) == 0


def test_a_check_for_later_cannot_be_reached__P6() -> None:
    counting = Counting(2, 2)
    counting.purgatory.check_and_complete(1)
    assert len(counting.timer) == 3
    listed = [task for _, task in counting.timer.pending()]
    assert listed == counting.operations
    assert [task for _, task in counting.timer.pending(limit=1)] == counting.operations[:1]
    assert counting.timer.pending(before_ms=500) == []
    counting.timer.after(0.5, print)
    assert len(counting.timer.pending(limit=2)) == 2
    other = Op(2)
    counting.timer.add(other)
    assert [task for _, task in counting.timer.pending(before_ms=5)][-1] is other, "a limit counts what is listed"
    assert len(counting.timer.pending(limit=2, before_ms=5)) == 2
    assert counting.timer.cancel_many(listed) == 2
    for operation in counting.operations:
        counting.timer.add(operation)
    counting.timer.advance(1)
    assert counting.operations[0].log == ["complete"], "the event was lost"


def test_an_executor_that_refuses_a_check_is_reported_with_its_operation__P6_P8() -> None:
    """And not with a task of the library's own. What `on_error` keeps holds up no later check."""
    pool = ThreadPoolExecutor(1)
    told: list[tuple[Any, BaseException]] = []
    with SystemTimer("refused", executor=pool, on_error=lambda *error: told.append(error)) as timer:
        pool.shutdown()
        counting = Counting(2, 2, timer)
        counting.purgatory.check_and_complete(1)
        until(lambda: len(told) == 1)
        assert [(found, type(error)) for found, error in told] == [(counting.operations[0], TimerRejected)]
        assert counting.purgatory.check_and_complete(0) == 1

        lock = threading.RLock()
        locked = Op(lock=lock)
        counting.purgatory.try_complete_else_watch(locked, ["locked"])
        with Stranger(lock):
            for times in (2, 3):
                counting.purgatory.check_and_complete("locked")
                until(lambda times=times: len(told) == times)
        assert [(found, type(error)) for found, error in told[1:]] == [(locked, TimerRejected)] * 2
        assert not locked.is_completed
