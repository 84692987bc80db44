"""P6: tries that request checks for ever end after n fruitless rounds; the timer tries a locked operation again."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from purgatory.operations import EMPTY, Acts, Op, Stranger, counts
from tickwheel import DelayedOperationPurgatory, SystemTimer, TimerRejected
from tickwheel.testing import ManualTimer
from timer.watching import until

pytestmark = pytest.mark.timeout(40)


@pytest.mark.parametrize("needed", [1, 2, 10, 1000])
def test_what_tries_request_after_n_fruitless_rounds_is_dropped_and_the_next_check_finds_it__P6(needed: int) -> None:
    """The second one counts its tries; the first one is ready when so many were counted."""
    told: list[object] = []
    timer = ManualTimer(on_error=lambda *error: told.append(error))
    purgatory = DelayedOperationPurgatory("counting", timer)
    operations = [Acts(), Acts()]
    for own, operation in enumerate(operations):
        purgatory.try_complete_else_watch(operation, [own])
        operation.tries = 0

    def act(own: int) -> None:
        operations[0].is_ready = operations[1].tries >= needed
        if not operations[0].is_ready:
            purgatory.check_and_complete(1 - own)

    for own, operation in enumerate(operations):
        operation.in_try = lambda own=own: act(own)
    for _ in range(needed + 1):
        before = sum(operation.tries for operation in operations)
        purgatory.check_and_complete(1)
        assert sum(operation.tries for operation in operations) - before <= 2**3
        assert len(timer) == purgatory.num_delayed, "their deadlines, and nothing else"
        if operations[0].is_completed or purgatory.check_and_complete(0):
            break
    assert operations[0].log == ["complete"]
    operations[1].force_complete()
    assert (counts(purgatory), len(timer), told) == (EMPTY, 0, [])


def test_a_try_for_later_cannot_be_reached__P6() -> None:
    timer = ManualTimer()
    purgatory = DelayedOperationPurgatory("later", timer)
    lock = threading.RLock()
    operation = Op(lock=lock)
    purgatory.try_complete_else_watch(operation, ["locked"])
    operation.is_ready = True
    with Stranger(lock):
        assert purgatory.check_and_complete("locked") == 0
    assert len(timer) == 2, "the deadline, and the try"
    assert [task for _, task in timer.pending()] == [operation]
    assert timer.pending(before_ms=500) == []
    timer.after(0.5, print)
    other = Op(2)
    timer.add(other)
    assert [task for _, task in timer.pending(before_ms=5)][-1] is other, "a limit counts what is listed"
    assert len(timer.pending(limit=2, before_ms=5)) == 2
    assert timer.cancel_many([operation, other]) == 2
    timer.add(operation)
    timer.advance(1)
    assert operation.log == ["complete"], "the event was lost"


def test_an_executor_that_refuses_a_try_is_reported_with_its_operation__P6_P8() -> None:
    """And not with a task of the library's own. What `on_error` keeps holds up no later check."""
    pool = ThreadPoolExecutor(1)
    told: list[tuple[object, BaseException]] = []
    with SystemTimer("refused", executor=pool, on_error=lambda *error: told.append(error)) as timer:
        pool.shutdown()
        purgatory = DelayedOperationPurgatory("refused", timer)
        lock = threading.RLock()
        locked = Op(lock=lock)
        purgatory.try_complete_else_watch(locked, ["locked"])
        with Stranger(lock):
            for times in (1, 2):
                purgatory.check_and_complete("locked")
                until(lambda times=times: len(told) == times)
        assert [(found, type(error)) for found, error in told] == [(locked, TimerRejected)] * 2
        assert not locked.is_completed
