"""P1, P6: when `on_complete` and `on_expiration` run, in what order, and with what held."""

import threading
import weakref
from typing import Any

import pytest

from purgatory.operations import EMPTY, HOUR, Op, counts
from tickwheel import DelayedOperationPurgatory, SystemTimer
from tickwheel.testing import ManualTimer
from timer.watching import until

Log = list[tuple[str, str]]


class Named(Op):
    """Writes what happens to it into a log that all share, with the own lock's state."""

    def __init__(self, name: str, log: Log, delay_ms: float = HOUR) -> None:
        self.own_lock = threading.RLock()
        super().__init__(delay_ms, self.own_lock)
        self.title, self.shared = name, log
        self.completes: list[Named] = []
        self.checks: list[tuple[DelayedOperationPurgatory, str]] = []
        self.locks: list[Any] = [self.own_lock]

    def try_complete(self) -> bool:
        assert self.own_lock._is_owned()
        self.shared.append((self.title, "enter"))
        for operation in self.completes:
            operation.force_complete()
        for purgatory, key in self.checks:
            purgatory.check_and_complete(key)
        done = super().try_complete()
        self.shared.append((self.title, "leave"))
        return done

    def on_complete(self) -> None:
        assert not any(lock._is_owned() for lock in self.locks), "a lock is held"
        self.shared.append((self.title, "complete"))

    def on_expiration(self) -> None:
        assert not any(lock._is_owned() for lock in self.locks), "a lock is held"
        self.shared.append((self.title, "expire"))


@pytest.fixture
def log() -> Log:
    return []


@pytest.fixture
def timer() -> ManualTimer:
    return ManualTimer(on_error=lambda *error: errors.append(error))


errors: list[Any] = []


@pytest.fixture
def purgatory(timer: ManualTimer) -> Any:
    errors.clear()
    yield DelayedOperationPurgatory("endings", timer)
    assert errors == []


def test_completed_from_inside_try_complete_it_counts_at_once_and_on_complete_runs_right_after__P6(
    purgatory: DelayedOperationPurgatory, timer: ManualTimer, log: Log
) -> None:
    class Looks(Named):
        def try_complete(self) -> bool:
            if not self.is_ready:
                return False
            self.shared.append(("looks", "enter"))
            done = self.force_complete()
            seen.append((done, self.is_completed, counts(purgatory), len(timer)))
            self.shared.append(("looks", "leave"))
            return done

    seen: list[Any] = []
    operation = Looks("looks", log)
    purgatory.try_complete_else_watch(operation, ["a", "b"])
    operation.is_ready = True
    assert purgatory.check_and_complete("a") == 1
    assert seen == [(True, True, EMPTY, 0)]
    assert log == [("looks", "enter"), ("looks", "leave"), ("looks", "complete")]


def test_what_others_complete_inside_a_try_is_told_when_the_outermost_is_over__P6(
    purgatory: DelayedOperationPurgatory, log: Log
) -> None:
    """By `force_complete` and by checks, which wait for the try; no method runs while any lock of another is held."""
    outer, middle, inner, forced = (Named(name, log) for name in ("outer", "middle", "inner", "forced"))
    everyone = [outer, middle, inner, forced]
    for operation in everyone:
        purgatory.try_complete_else_watch(operation, [operation.title])
        operation.locks = [each.own_lock for each in everyone]
        operation.is_ready = True
    log.clear()
    inner.completes = [forced]
    middle.checks = [(purgatory, "inner")]
    outer.checks = [(purgatory, "middle")]
    assert purgatory.check_and_complete("outer") == 1
    steps = [(name, step) for name in ("outer", "middle", "inner") for step in ("enter", "leave", "complete")]
    assert log == [*steps, ("forced", "complete")]
    assert counts(purgatory) == EMPTY


def test_deferred_endings_run_although_the_outer_try_raises_or_does_not_complete__P6_P8(
    purgatory: DelayedOperationPurgatory, log: Log
) -> None:
    class Fails(Named):
        def try_complete(self) -> bool:
            super().try_complete()
            raise ValueError

    fails, stays, first, second = Fails("fails", log), Named("stays", log), Named("1", log), Named("2", log)
    fails.completes = [first]
    with pytest.raises(ValueError):
        purgatory.try_complete_else_watch(fails, ["a"])
    assert log[-1] == ("1", "complete")
    stays.completes = [second]
    purgatory.try_complete_else_watch(stays, ["a"])
    assert log.count(("2", "complete")) == 1
    assert counts(purgatory) == (1, 1, 1, 1)


def test_an_ending_may_complete_and_check_more_inside_deferred_endings__P6(
    purgatory: DelayedOperationPurgatory, log: Log
) -> None:
    class More(Named):
        def on_complete(self) -> None:
            super().on_complete()
            purgatory.check_and_complete("next")

    outer, first, second, following = Named("o", log), More("1", log), More("2", log), Named("next", log)
    for operation in (first, second, following):
        purgatory.try_complete_else_watch(operation, [operation.title])
    following.is_ready = True
    outer.completes = [first, second]
    purgatory.try_complete_else_watch(outer, ["outer"])
    assert sorted(entry for entry in log if entry[1] == "complete") == [
        (name, "complete") for name in ("1", "2", "next")
    ]
    assert counts(purgatory) == (1, 1, 1, 1)


def test_force_complete_outside_a_try_tells_before_it_returns__P1(
    purgatory: DelayedOperationPurgatory, log: Log
) -> None:
    operation = Named("x", log)
    purgatory.try_complete_else_watch(operation, ["a"])
    log.clear()
    assert operation.force_complete() is True
    assert log == [("x", "complete")]


def test_at_the_deadline_on_complete_comes_first_and_once__P1(
    purgatory: DelayedOperationPurgatory, timer: ManualTimer, log: Log
) -> None:
    operations = [Named(str(number), log, 10 + number % 2) for number in range(4)]
    for operation in operations:
        purgatory.try_complete_else_watch(operation, ["a"])
    log.clear()
    timer.advance(100)
    assert log == [(name, what) for name in ("0", "2", "1", "3") for what in ("complete", "expire")]


def test_what_expires_inside_another_ones_try_is_told_after_it__P6(
    purgatory: DelayedOperationPurgatory, timer: ManualTimer, log: Log
) -> None:
    class Advances(Named):
        def try_complete(self) -> bool:
            if self.is_ready:
                self.shared.append((self.title, "enter"))
                timer.advance(50)
                self.shared.append((self.title, "leave"))
            return False

    outer, expires = Advances("outer", log), Named("inner", log, 20)
    for operation in (outer, expires):
        purgatory.try_complete_else_watch(operation, [operation.title])
    log.clear()
    outer.is_ready = True
    assert purgatory.check_and_complete("outer") == 0
    assert log == [("outer", "enter"), ("outer", "leave"), ("inner", "complete"), ("inner", "expire")]


def test_what_expires_inside_its_own_try_has_expired__P1(
    purgatory: DelayedOperationPurgatory, timer: ManualTimer
) -> None:
    """A simulated clock that is moved by the check itself."""

    class Advances(Op):
        def try_complete(self) -> bool:
            if self.is_ready:
                timer.advance(100)
            return False

    operation = Advances(50)
    told: list[Any] = []
    purgatory._watch(operation, ["a"], told.append)
    operation.is_ready = True
    assert purgatory.check_and_complete("a") == 0, "the deadline did it, not this call"
    assert purgatory.stats()["expired"] == 1
    assert (operation.log, operation.is_expired) == (["complete", "expire"], True)
    assert told == [False]


def test_endings_run_in_the_thread_that_completes__P1() -> None:
    class Where(Op):
        def on_complete(self) -> None:
            super().on_complete()
            threads.append(threading.current_thread().name)

    threads: list[str] = []
    with SystemTimer("where") as timer:
        purgatory = DelayedOperationPurgatory("where", timer)
        here, expires = Where(), Where(5)
        purgatory.try_complete_else_watch(here, ["a"])
        here.force_complete()
        purgatory.try_complete_else_watch(expires, ["a"])
        until(lambda: len(threads) == 2)
    assert threads == [threading.current_thread().name, "executor-where"]


def test_is_expired_says_how_it_ended_already_in_on_complete__P1(
    purgatory: DelayedOperationPurgatory, timer: ManualTimer
) -> None:
    class Asks(Op):
        def on_complete(self) -> None:
            asked.append((self.is_completed, self.is_expired))

    asked: list[tuple[bool, bool]] = []
    in_time, expires = Asks(10), Asks(10)
    for operation in (in_time, expires):
        purgatory.try_complete_else_watch(operation, ["a"])
        assert (operation.is_completed, operation.is_expired) == (False, False)
    in_time.force_complete()
    timer.advance(10)
    assert asked == [(True, False), (True, True)]
    assert (in_time.is_expired, expires.is_expired, expires.is_completed) == (False, True, True)
    assert (expires.force_complete(), expires.cancel()) == (False, False)


def test_who_waits_is_told_after_the_callbacks__P8(purgatory: DelayedOperationPurgatory, timer: ManualTimer) -> None:
    in_time, expires = Op(10), Op(10)
    for operation in (in_time, expires):
        purgatory._watch(operation, ["a"], lambda how, operation=operation: operation.log.append(f"told {how}"))
    in_time.force_complete()
    timer.advance(10)
    assert (in_time.log, expires.log) == (["complete", "told True"], ["complete", "expire", "told False"])


def test_who_waits_is_told_once_and_let_go__P8(purgatory: DelayedOperationPurgatory) -> None:
    class Waiter:
        def __call__(self, how: bool | None) -> None:
            told.append(how)

    told: list[bool | None] = []
    operation, waiter = Op(), Waiter()
    gone = weakref.ref(waiter)
    purgatory._watch(operation, ["a"], waiter)
    del waiter
    assert gone() is not None
    operation.force_complete()
    assert (told, gone()) == ([True], None)


def test_a_try_is_never_run_for_what_is_complete__P1(purgatory: DelayedOperationPurgatory) -> None:
    operations = [Op(), Op()]
    for operation in operations:
        purgatory.try_complete_else_watch(operation, ["a"])

    class First(Op):
        def on_complete(self) -> None:
            operations[1].force_complete()

    first = First()
    purgatory.try_complete_else_watch(first, ["b"])
    purgatory.check_and_complete("a")
    first.is_ready = True
    tries = operations[1].tries
    assert purgatory.check_and_complete("b") == 1
    assert purgatory.check_and_complete("a") == 0
    assert operations[1].tries == tries
