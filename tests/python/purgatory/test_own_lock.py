"""P6: the operation's own lock: no thread waits for it, and no event is lost while another thread holds it."""

import threading
import time
from typing import Any

import pytest

from purgatory.operations import EMPTY, Op, Stranger, counts
from tickwheel import DelayedOperationPurgatory, SystemTimer, TimerClosed, TimerFull
from tickwheel.testing import ManualTimer
from timer.watching import until


class Owned(Op):
    """Checks that its lock is held where it should be: the lock is an `RLock`."""

    def __init__(self, lock: Any) -> None:
        super().__init__(lock=lock)
        self.held: list[bool] = []
        self.own_lock = lock

    def try_complete(self) -> bool:
        self.held.append(self.own_lock._is_owned())
        return super().try_complete()

    def on_complete(self) -> None:
        assert not self.own_lock._is_owned()
        super().on_complete()


def test_it_is_held_around_try_complete_and_not_around_on_complete__P6() -> None:
    purgatory = DelayedOperationPurgatory("locks", ManualTimer())
    operation = Owned(threading.RLock())
    purgatory.try_complete_else_watch(operation, ["a"])
    operation.is_ready = True
    assert purgatory.check_and_complete("a") == 1
    assert (operation.held, operation.log) == ([True] * 3, ["complete"])


def test_a_caller_who_holds_it_may_check__P6() -> None:
    purgatory = DelayedOperationPurgatory("locks", ManualTimer())
    lock = threading.RLock()
    operation = Op(lock=lock)
    with lock:
        purgatory.try_complete_else_watch(operation, ["a"])
        assert operation.tries == 2
        operation.is_ready = True
        assert purgatory.check_and_complete("a") == 1
        assert lock._is_owned()  # type: ignore[attr-defined]
    assert lock.acquire(blocking=False)


def test_operations_that_share_a_lock_are_all_tried__P6() -> None:
    purgatory = DelayedOperationPurgatory("locks", ManualTimer())
    lock = threading.RLock()
    operations = [Owned(lock) for _ in range(10)]
    for operation in operations:
        purgatory.try_complete_else_watch(operation, ["a"])
        operation.is_ready = True
    with lock:
        for operation in operations:
            operation.on_complete = lambda: None  # type: ignore[method-assign]
        assert purgatory.check_and_complete("a") == 10


def test_a_check_does_not_wait_for_a_stranger_and_needs_no_further_event__P6() -> None:
    timer = ManualTimer()
    purgatory = DelayedOperationPurgatory("locks", timer)
    lock = threading.RLock()
    operation = Op(lock=lock)
    purgatory.try_complete_else_watch(operation, ["a"])
    tries = operation.tries
    operation.is_ready = True
    with Stranger(lock):
        start = time.monotonic()
        assert purgatory.check_and_complete("a") == 0
        assert 20 < timer.advance(500) < 60, "after 1, 2, 4, 8 and then every 16 ms"
        assert time.monotonic() - start < 5
        assert (operation.tries, operation.is_completed) == (tries, False)
        assert (len(purgatory), purgatory.num_delayed, len(timer)) == (1, 1, 2)
    timer.advance(16)
    assert (operation.tries, operation.log) == (tries + 1, ["complete"])
    assert (counts(purgatory), len(timer)) == (EMPTY, 0)


def test_many_checks_that_meet_a_stranger_leave_one_check_for_later__P6() -> None:
    timer = ManualTimer()
    purgatory = DelayedOperationPurgatory("locks", timer)
    lock = threading.Lock()
    operation = Op(lock=lock)
    purgatory.try_complete_else_watch(operation, ["a"])
    with Stranger(lock):
        for _ in range(100):
            purgatory.check_and_complete("a")
        assert len(timer) == 2
        timer.advance(1)
        for _ in range(100):
            purgatory.check_and_complete("a")
        assert len(timer) == 2
    timer.advance(50)
    assert (operation.tries, len(timer)) == (3, 1), "tried once more, and then no more"


def test_a_stranger_during_both_tries_of_a_watching_call_loses_no_event__P2_P6() -> None:
    timer = ManualTimer()
    purgatory = DelayedOperationPurgatory("locks", timer)
    lock = threading.RLock()
    operation = Op(lock=lock, ready=True)
    with Stranger(lock):
        assert purgatory.try_complete_else_watch(operation, ["a"]) is False
        assert operation.tries == 0
        assert counts(purgatory) == (1, 1, 1, 1)
    timer.advance(16)
    assert (operation.log, counts(purgatory), len(timer)) == (["complete"], EMPTY, 0)


@pytest.mark.parametrize("timer_enabled", [True, False])
def test_on_a_real_timer_it_completes_soon_after_the_stranger_lets_go__P6(timer_enabled: bool) -> None:
    with DelayedOperationPurgatory("locks", timer_enabled=timer_enabled) as purgatory:
        lock = threading.RLock()
        operation = Op(lock=lock)
        purgatory.try_complete_else_watch(operation, ["a"])
        operation.is_ready = True
        with Stranger(lock):
            assert purgatory.check_and_complete("a") == 0
            assert not operation.is_completed
        until(lambda: operation.log == ["complete"])
        assert operation.tries == 3


def test_a_plain_lock_that_the_caller_holds_himself_does_not_deadlock__P6() -> None:
    timer = ManualTimer()
    purgatory = DelayedOperationPurgatory("locks", timer)
    lock = threading.Lock()
    operation = Op(lock=lock)
    with lock:
        purgatory.try_complete_else_watch(operation, ["a"])
        operation.is_ready = True
        assert purgatory.check_and_complete("a") == 0
    assert timer.advance(1) == 1
    assert operation.log == ["complete"]


def test_no_bound_of_the_timer_stops_the_check_for_later__P6() -> None:
    timer = ManualTimer(max_pending=1)
    purgatory = DelayedOperationPurgatory("locks", timer)
    lock = threading.RLock()
    operation = Op(lock=lock)
    purgatory.try_complete_else_watch(operation, ["a"])
    with pytest.raises(TimerFull):
        timer.after(1, print)
    operation.is_ready = True
    with Stranger(lock):
        assert purgatory.check_and_complete("a") == 0
        timer.advance(100)
    timer.advance(16)
    assert (operation.log, len(timer)) == (["complete"], 0)


def test_where_the_timer_was_shut_down_on_error_is_told_and_the_next_check_completes_it__P6_P8() -> None:
    told: list[tuple[Any, BaseException]] = []
    timer = ManualTimer(on_error=lambda *error: told.append(error))
    purgatory = DelayedOperationPurgatory("locks", timer)
    lock = threading.RLock()
    operation = Op(lock=lock)
    purgatory.try_complete_else_watch(operation, ["a"])
    timer.shutdown()
    operation.is_ready = True
    with Stranger(lock):
        for _ in range(2):
            assert purgatory.check_and_complete("a") == 0
    assert [(found, type(error)) for found, error in told] == [(operation, TimerClosed)] * 2
    assert purgatory.check_and_complete("a") == 1


def test_where_the_check_for_later_was_lost_with_the_timer_the_next_is_not__P6_P8() -> None:
    """A check that was put off went with the timer. The operation must not believe for ever that it is on its way."""
    told: list[tuple[Any, BaseException]] = []
    timer = ManualTimer(on_error=lambda *error: told.append(error))
    purgatory = DelayedOperationPurgatory("locks", timer)
    lock = threading.RLock()
    operation = Op(lock=lock)
    purgatory.try_complete_else_watch(operation, ["a"])
    operation.is_ready = True
    with Stranger(lock):
        assert purgatory.check_and_complete("a") == 0
        assert timer.shutdown() == [operation]
        del told[:]
        assert purgatory.check_and_complete("a") == 0
    assert [(found, type(error)) for found, error in told] == [(operation, TimerClosed)]
    assert purgatory.check_and_complete("a") == 1


def test_a_check_for_later_is_not_listed_and_not_cancelled_with_what_is__P6() -> None:
    timer = ManualTimer()
    purgatory = DelayedOperationPurgatory("locks", timer)
    lock = threading.RLock()
    operation = Op(lock=lock)
    purgatory.try_complete_else_watch(operation, ["a"])
    operation.is_ready = True
    with Stranger(lock):
        assert purgatory.check_and_complete("a") == 0
        assert [task for _, task in timer.pending()] == [operation]
        assert [task for _, task in timer.pending(limit=1)] == [operation]
        assert timer.cancel_many([task for _, task in timer.pending()]) == 1
    timer.advance(16)
    assert operation.log == ["complete"], "the event was lost"


def test_a_cancel_overtakes_the_check_for_later__P4_P6() -> None:
    timer = ManualTimer()
    purgatory = DelayedOperationPurgatory("locks", timer)
    lock = threading.RLock()
    operation = Op(lock=lock)
    purgatory.try_complete_else_watch(operation, ["a"])
    operation.is_ready = True
    with Stranger(lock):
        purgatory.check_and_complete("a")
    assert purgatory.cancel_for_key("a") == [operation]
    tries = operation.tries
    timer.advance(1000)
    assert (operation.tries, operation.log, len(timer)) == (tries, [], 0)


@pytest.mark.parametrize("step", ["acquire", "release"])
def test_a_lock_that_raises_is_a_failed_try__P8(step: str) -> None:
    class Broken:
        def acquire(self, blocking: bool = True) -> bool:
            if step == "acquire" and self.is_broken:
                raise OSError("acquire")
            return True

        def release(self) -> None:
            if step == "release" and self.is_broken:
                raise OSError("release")

        is_broken = False

    told: list[tuple[Any, BaseException]] = []
    purgatory = DelayedOperationPurgatory("locks", ManualTimer(on_error=lambda *error: told.append(error)))
    lock = Broken()
    operation = Op(lock=lock)
    purgatory.try_complete_else_watch(operation, ["a"])
    lock.is_broken = True
    assert purgatory.check_and_complete("a") == 0
    assert [(found, str(error)) for found, error in told] == [(operation, step)]
    other = Op(lock=lock)
    with pytest.raises(OSError, match=step):
        purgatory.try_complete_else_watch(other, ["b"])
    assert counts(purgatory) == (1, 1, 1, 1)


def test_try_complete_that_raises_lets_the_lock_go__P6_P8() -> None:
    class Failing(Op):
        def try_complete(self) -> bool:
            raise ValueError

    lock = threading.Lock()
    with pytest.raises(ValueError):
        DelayedOperationPurgatory("locks", ManualTimer()).try_complete_else_watch(Failing(lock=lock), ["a"])
    assert lock.acquire(blocking=False)


def test_strangers_come_and_go_all_the_time_and_everything_completes__P6() -> None:
    with SystemTimer("locks") as timer:
        purgatory = DelayedOperationPurgatory("locks", timer)
        halt = threading.Event()
        locks = [threading.RLock() for _ in range(4)]

        def disturb(lock: Any) -> None:
            while not halt.is_set():
                with lock:
                    halt.wait(0.002)
                halt.wait(0.0005)

        threads = [threading.Thread(target=disturb, args=(lock,)) for lock in locks]
        for thread in threads:
            thread.start()
        operations = [Op(lock=locks[number % 4]) for number in range(200)]
        for number, operation in enumerate(operations):
            purgatory.try_complete_else_watch(operation, [number % 10])
            operation.is_ready = True
        for key in range(10):
            purgatory.check_and_complete(key)
        try:
            until(lambda: all(operation.log for operation in operations))
        finally:
            halt.set()
            for thread in threads:
                thread.join()
        assert all(operation.log == ["complete"] for operation in operations)
        assert counts(purgatory) == EMPTY
