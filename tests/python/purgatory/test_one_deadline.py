"""P4, P5: an operation has one deadline. While it waits, that is its purgatory's, however it came onto a timer."""

import contextlib
from collections.abc import Callable

import pytest

from purgatory.operations import EMPTY, HOUR, Acts, Op, counts, together
from tickwheel import DelayedOperationPurgatory, TimerClosed
from tickwheel.testing import ManualTimer

pytestmark = pytest.mark.timeout(40)


def added_in_its_try(timer: ManualTimer, delay_ms: float = 100) -> Acts:
    operation = Acts(delay_ms)
    operation.in_try = lambda: timer.add(operation)
    return operation


@pytest.mark.parametrize("by", ["the try", "another thread"])
def test_an_operation_that_is_added_to_the_timer_while_it_is_watched_counts_once__P4(by: str) -> None:
    timer = ManualTimer()
    purgatory = DelayedOperationPurgatory("once", timer)
    operation = added_in_its_try(timer)
    if by == "another thread":
        operation.in_try = lambda: together(lambda: timer.add(operation))
    purgatory.try_complete_else_watch(operation, ["key"])
    assert counts(purgatory) == (1, 1, 1, 1)
    operation.in_try = None
    operation.is_ready = True
    assert purgatory.check_and_complete("key") == 1
    assert (counts(purgatory), len(timer)) == (EMPTY, 0)


@pytest.mark.parametrize("by", ["cancel", "cancel_for_key", "shutdown", "completion"])
@pytest.mark.parametrize("added", ["before it is watched", "in its try"])
@pytest.mark.parametrize("timer_enabled", [True, False])
def test_what_leaves_the_purgatory_is_on_no_timer__P4_P5(by: str, added: str, timer_enabled: bool) -> None:
    timer = ManualTimer()
    purgatory = DelayedOperationPurgatory("leaves", timer, timer_enabled=timer_enabled)
    operation = added_in_its_try(timer)
    if added == "before it is watched":
        timer.add(operation)
        operation.in_try = None
    purgatory.try_complete_else_watch(operation, ["key"])
    assert (counts(purgatory), len(timer)) == ((1, 1, 1, 1), 1)
    leave: dict[str, Callable[[], object]] = {
        "cancel": operation.cancel,
        "cancel_for_key": lambda: purgatory.cancel_for_key("key"),
        "shutdown": purgatory.shutdown,
        "completion": operation.force_complete,
    }
    assert leave[by]()
    assert (counts(purgatory), len(timer)) == (EMPTY, 0)
    operation.in_try = None
    there = DelayedOperationPurgatory("there", timer, timer_enabled=False)
    there.try_complete_else_watch(operation, ["again"])
    timer.advance(1000)
    assert operation.is_expired is False, "the old deadline ended a later wait"


def test_where_no_deadline_is_set_one_that_it_has_already_still_ends_the_wait__P4() -> None:
    timer = ManualTimer()
    purgatory = DelayedOperationPurgatory("has one", timer, timer_enabled=False)
    operation = Op(10)
    timer.add(operation)
    purgatory.try_complete_else_watch(operation, ["key"])
    timer.advance(10)
    assert (operation.log, counts(purgatory), len(timer)) == (["complete", "expire"], EMPTY, 0)


def test_one_that_is_on_the_timer_already_gets_the_deadline_of_its_wait__P2() -> None:
    timer = ManualTimer()
    purgatory = DelayedOperationPurgatory("moves", timer)
    operation = Op(100)
    timer.add(operation)
    timer.advance(60)
    purgatory.try_complete_else_watch(operation, ["key"])
    timer.advance(99)
    assert (operation.log, counts(purgatory), len(timer)) == ([], (1, 1, 1, 1), 1)
    timer.advance(1)
    assert (operation.log, counts(purgatory), len(timer)) == (["complete", "expire"], EMPTY, 0)


@pytest.mark.parametrize("added", ["before it is watched", "in its try"])
def test_after_a_watching_call_that_failed_it_is_on_no_timer__P8(added: str) -> None:
    timer = ManualTimer()
    purgatory = DelayedOperationPurgatory("fails", timer)
    operation = Acts(100)

    def fail() -> None:
        if added == "in its try":
            timer.add(operation)
        raise ZeroDivisionError

    if added == "before it is watched":
        timer.add(operation)
    operation.in_try = fail
    with pytest.raises(ZeroDivisionError):
        purgatory.try_complete_else_watch(operation, ["key"])
    assert (counts(purgatory), len(timer)) == (EMPTY, 0)
    timer.advance(1000)
    assert operation.log == []


def refused(why: str) -> tuple[DelayedOperationPurgatory, ManualTimer, Acts]:
    """An operation that is on a timer, and was refused by a purgatory; and that timer."""
    timer, other = ManualTimer("timer"), ManualTimer("other")
    purgatory = DelayedOperationPurgatory("refuses", timer)
    operation = Acts(2.0**52 - 10 if why == "too late" else 100)
    own = other if why == "another timer" else timer
    match why:
        case "closed":
            own.add(operation)
            purgatory.shutdown()
            expected: tuple[type[Exception], str] = (TimerClosed, "refuses")
        case "another timer":
            own.add(operation)
            expected = (ValueError, "pending on timer 'other'")
        case "too late":
            own.add(operation)
            timer.advance(100)
            expected = (ValueError, "2\\^52")
    before = purgatory.stats() | {"waited_ms": 0.0}
    with pytest.raises(expected[0], match=expected[1]):
        purgatory.try_complete_else_watch(operation, ["key", "another"])
    assert purgatory.stats() | {"waited_ms": 0.0} == before
    return purgatory, own, operation


@pytest.mark.parametrize("why", ["closed", "another timer", "too late"])
def test_one_that_is_refused_keeps_the_deadline_that_it_had__T7_P2(why: str) -> None:
    purgatory, timer, operation = refused(why)
    assert (counts(purgatory), len(timer), timer.stats()["cancelled"]) == (EMPTY, 1, 0)
    assert [task for _, task in timer.pending()] == [operation]
    timer.advance_to(2.0**52 - 10 if why == "too late" else 100)
    assert (operation.log, operation.is_expired) == (["complete", "expire"], True)


def test_one_whose_purgatory_is_shut_down_in_its_first_try_keeps_its_deadline__T7() -> None:
    timer = ManualTimer()
    purgatory = DelayedOperationPurgatory("closes", timer)
    operation = Acts(100)
    timer.add(operation)
    taken: list[object] = []
    operation.in_try = lambda: taken.extend(purgatory.shutdown())
    with pytest.raises(TimerClosed):
        purgatory.try_complete_else_watch(operation, ["key"])
    assert (taken, counts(purgatory)) == ([], EMPTY), "it was on no list yet"
    assert len(timer) == 1


def test_one_that_was_refused_may_be_cancelled_and_watched_again__P4() -> None:
    purgatory, other, operation = refused("another timer")
    assert (operation.cancel(), operation.cancel(), len(other)) == (True, False, 0)
    purgatory.try_complete_else_watch(operation, ["key"])
    assert counts(purgatory) == (1, 1, 1, 1)
    assert purgatory.stats()["cancelled"] == 0
    operation.is_ready = True
    assert purgatory.check_and_complete("key") == 1


def test_without_a_deadline_of_its_own_it_may_have_one_on_another_timer__P4() -> None:
    timer, other = ManualTimer("timer"), ManualTimer("other")
    purgatory = DelayedOperationPurgatory("other", timer, timer_enabled=False)
    operation = Op(100)
    purgatory.try_complete_else_watch(operation, ["key"])
    other.add(operation)
    assert counts(purgatory) == (1, 1, 1, 1)
    assert operation.cancel() is True
    assert (counts(purgatory), len(other)) == (EMPTY, 0)


@pytest.mark.parametrize("how", ["cancel", "cancel_for_key", "failed"])
def test_one_that_was_taken_out_and_is_added_to_a_timer_by_itself_expires__P1(how: str) -> None:
    timer = ManualTimer()
    purgatory = DelayedOperationPurgatory("by itself", timer)
    operation = Acts(10)

    def fail() -> None:
        raise ZeroDivisionError

    if how == "failed":
        operation.in_try = fail
        with pytest.raises(ZeroDivisionError):
            purgatory.try_complete_else_watch(operation, ["key"])
    else:
        purgatory.try_complete_else_watch(operation, ["key"])
        assert operation.cancel() if how == "cancel" else purgatory.cancel_for_key("key") == [operation]
    timer.add(operation)
    timer.advance(10)
    assert (operation.log, operation.is_expired) == (["complete", "expire"], True)


def test_one_that_is_complete_is_put_on_no_timer__P1() -> None:
    timer = ManualTimer()
    operation = Op(10)
    operation.force_complete()
    timer.add(operation)
    assert len(timer) == 0
    timer.advance(10)
    assert (operation.log, timer.stats()["expired"]) == (["complete"], 0)


def test_a_cancel_of_one_that_is_on_a_timer_by_itself_is_true_once__P4() -> None:
    timer = ManualTimer()
    operation = Op(10)
    timer.add(operation)
    assert (operation.cancel(), operation.cancel(), len(timer)) == (True, False, 0)


def test_adds_and_cancels_from_other_threads_leave_the_counts_exact__P4_P5() -> None:
    timer = ManualTimer()
    purgatory = DelayedOperationPurgatory("storm", timer)
    operations = [Op(HOUR) for _ in range(6)]

    def act(number: int, operation: Op, key: int) -> None:
        if number == 0:
            timer.add(operation)
        elif number == 1:
            purgatory.try_complete_else_watch(operation, ["key", key])
        elif number == 2:
            operation.cancel()
        else:
            timer.cancel_many([operation])

    def use(first: int) -> None:
        for turn in range(300):
            for number in range((first * 7 + turn) % 4, 4):
                with contextlib.suppress(ValueError):  # it waits already
                    act(number, operations[(first + turn) % 6], turn % 3)

    together(*[lambda first=first: use(first) for first in range(4)])
    for operation in operations:
        timer.cancel_many([operation])
    assert (purgatory.num_delayed, len(timer)) == (0, 0)
    purgatory.shutdown()
    assert counts(purgatory) == EMPTY
    for operation in operations:
        operation.cancel()
    assert len(timer) == 0
