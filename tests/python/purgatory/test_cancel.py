"""P4: what a cancel returned, only the caller may complete; it may be watched again."""

import random
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from purgatory.operations import EMPTY, HOUR, Op, Stranger, counts, together
from tickwheel import DelayedOperationPurgatory, SystemTimer, TimerFull, TimerTask
from tickwheel.testing import ManualTimer
from timer.watching import until

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def timer() -> ManualTimer:
    return ManualTimer()


@pytest.fixture
def purgatory(timer: ManualTimer) -> DelayedOperationPurgatory:
    return DelayedOperationPurgatory("cancel", timer)


def test_cancel_is_true_once_and_off_everything__P4(timer: ManualTimer, purgatory: DelayedOperationPurgatory) -> None:
    operation = Op(10)
    assert operation.cancel() is False, "it never waited"
    purgatory.try_complete_else_watch(operation, ["a", "b"])
    assert (operation.cancel(), operation.cancel()) == (True, False)
    assert (counts(purgatory), len(timer), purgatory.cancel_for_key("a")) == (EMPTY, 0, [])
    operation.is_ready = True
    timer.advance(100)
    assert (purgatory.check_and_complete("a"), operation.log, operation.is_completed) == (0, [], False)
    assert (operation.force_complete(), operation.log, operation.cancel()) == (True, ["complete"], False)
    assert purgatory.stats()["cancelled"] == 1
    assert purgatory.stats()["completed"] == 0, "it was not completed in here"


def test_an_operation_says_that_it_was_cancelled_until_it_is_watched_again__P4_T22(
    timer: ManualTimer, purgatory: DelayedOperationPurgatory
) -> None:
    operation, other = Op(10), Op(20)
    for take_out in (operation.cancel, lambda: purgatory.cancel_for_key("a")):
        purgatory.try_complete_else_watch(operation, ["a"])
        purgatory.try_complete_else_watch(other, ["b"])
        assert (operation.cancelled(), operation.is_pending) == (False, True)
        take_out()
        assert (operation.cancelled(), operation.is_pending) == (True, False)
        assert (other.cancelled(), other.cancel()) == (False, True)


@pytest.mark.parametrize("end", ["an event", "the deadline", "a shutdown", "its deadline alone is cancelled"])
def test_an_operation_that_ends_in_another_way_was_not_cancelled__P4_T22(
    end: str, timer: ManualTimer, purgatory: DelayedOperationPurgatory
) -> None:
    operation = Op(10)
    purgatory.try_complete_else_watch(operation, ["a"])
    if end == "an event":
        operation.force_complete()
    elif end == "the deadline":
        timer.advance(10)
    elif end == "a shutdown":
        assert purgatory.shutdown() == [operation]
    else:
        assert timer.cancel_many([operation]) == 1
    assert (operation.cancelled(), operation.is_pending) == (False, False)


@pytest.mark.parametrize(
    "cancel",
    [
        pytest.param(lambda timer, operation: operation.cancel(), id="cancel"),
        pytest.param(lambda timer, operation: timer.cancel_many([operation]), id="cancel_many"),
        pytest.param(lambda timer, operation: TimerTask.cancel(operation), id="as a task"),
    ],
)
def test_one_that_is_on_a_timer_alone_is_cancelled_as_a_task_is__P4_T22(
    cancel: Callable[[ManualTimer, Op], object], timer: ManualTimer, purgatory: DelayedOperationPurgatory
) -> None:
    operation = Op(10)
    timer.add(operation)
    assert cancel(timer, operation)
    assert (operation.cancelled(), operation.is_pending) == (True, False)
    operation.is_ready = True
    assert purgatory.try_complete_else_watch(operation, ["a"]) is True
    assert (operation.is_completed, operation.cancelled()) == (True, False)


def test_a_watch_that_is_refused_leaves_it_cancelled__P4_T22() -> None:
    full, operation = DelayedOperationPurgatory("full", ManualTimer(max_pending=1)), Op(10)
    full.try_complete_else_watch(operation, ["a"])
    assert operation.cancel() is True
    full.try_complete_else_watch(Op(10), ["a"])
    with pytest.raises(TimerFull):
        full.try_complete_else_watch(operation, ["a"])
    assert operation.cancelled()


def test_one_that_waits_again_by_the_time_of_its_cancel_is_not_cancelled__P4_T22() -> None:
    """A key that goes puts it back."""
    purgatory, operation = DelayedOperationPurgatory("without deadlines", ManualTimer(), timer_enabled=False), Op(10)

    class Key:
        def __del__(self) -> None:
            purgatory.try_complete_else_watch(operation, ["again"])

    purgatory.try_complete_else_watch(operation, [Key()])
    assert operation.cancel() is True
    assert (len(purgatory), operation.cancelled()) == (1, False)


def test_it_may_be_watched_again_with_a_new_deadline_here_and_elsewhere__P4(
    timer: ManualTimer, purgatory: DelayedOperationPurgatory
) -> None:
    there = DelayedOperationPurgatory("there", ManualTimer())
    operation = Op(10)
    for _ in range(5):
        purgatory.try_complete_else_watch(operation, ["a"])
        timer.advance(9)
        assert purgatory.cancel_for_key("a") == [operation]
        there.try_complete_else_watch(operation, ["a", "b"])
        assert (counts(there), counts(purgatory)) == ((1, 1, 2, 2), EMPTY)
        assert operation.cancel() is True
    assert (len(timer), len(there.timer)) == (0, 0)
    purgatory.try_complete_else_watch(operation, ["c"])
    assert purgatory.check_and_complete("a") == 0
    timer.advance(9)
    assert operation.log == []
    timer.advance(1)
    assert (operation.log, counts(purgatory), counts(there)) == (["complete", "expire"], EMPTY, EMPTY)


def test_what_is_being_tried_when_it_is_cancelled_is_not_completed__P4(purgatory: DelayedOperationPurgatory) -> None:
    """The cancel falls between the look and `force_complete`."""

    class Stopped(Op):
        def try_complete(self) -> bool:
            self.tries += 1
            if self.tries < 3:
                return False
            looked.set()
            assert go_on.wait(20)
            answers.append(self.force_complete())
            return answers[-1]

    looked, go_on = threading.Event(), threading.Event()
    answers: list[bool] = []
    found: list[int] = []
    operation = Stopped()
    purgatory.try_complete_else_watch(operation, ["a"])
    thread = threading.Thread(target=lambda: found.append(purgatory.check_and_complete("a")))
    thread.start()
    assert looked.wait(20)
    assert purgatory.cancel_for_key("a") == [operation]
    go_on.set()
    thread.join(20)
    assert (answers, found, operation.log, operation.is_completed) == ([False], [0], [], False)
    assert operation.force_complete() is True


def test_what_is_complete_but_still_in_on_complete_is_not_returned__P4(purgatory: DelayedOperationPurgatory) -> None:
    class Stopped(Op):
        def on_complete(self) -> None:
            entered.set()
            assert go_on.wait(20)

    entered, go_on = threading.Event(), threading.Event()
    operation, other = Stopped(), Op()
    for each in (operation, other):
        purgatory.try_complete_else_watch(each, ["a"])
    thread = threading.Thread(target=operation.force_complete)
    thread.start()
    assert entered.wait(20)
    assert counts(purgatory) == (1, 1, 1, 1), "it is off every key before on_complete"
    assert purgatory.cancel_for_key("a") == [other]
    assert operation.cancel() is False
    go_on.set()
    thread.join(20)


def test_a_cancel_needs_not_the_operations_lock__P4(purgatory: DelayedOperationPurgatory) -> None:
    lock = threading.Lock()
    operation = Op(lock=lock)
    purgatory.try_complete_else_watch(operation, ["a"])
    with Stranger(lock):
        assert purgatory.cancel_for_key("a") == [operation]
    assert counts(purgatory) == EMPTY


def test_what_waits_on_the_executors_queue_can_still_be_cancelled__P4_T9() -> None:
    hold, held = threading.Event(), threading.Event()
    with SystemTimer("queue") as timer:
        purgatory = DelayedOperationPurgatory("queue", timer)
        timer.after(0, lambda: (held.set(), hold.wait(20)))
        assert held.wait(20)
        operations = [Op(0) for _ in range(4)]
        for operation in operations:
            purgatory.try_complete_else_watch(operation, ["a"])
        until(lambda: timer.stats()["executor_depth"] == 4)
        assert counts(purgatory) == (4, 4, 4, 1)
        assert operations[0].cancel() is True
        assert operations[1].force_complete() is True
        operations[2].is_ready = True
        assert purgatory.check_and_complete("a") == 1
        assert purgatory.cancel_for_key("a") == [operations[3]]
        assert counts(purgatory) == EMPTY
        hold.set()
    assert [operation.log for operation in operations] == [[], ["complete"], ["complete"], []]


@pytest.fixture
def many_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class Counting(Op):
    """Counts what it is told, and sees that nothing is told after it was handed out."""

    handed_out = False
    late = False

    def on_complete(self) -> None:
        self.late |= self.handed_out
        super().on_complete()


@pytest.mark.usefixtures("many_switches")
def test_cancels_checks_and_deadlines_at_once_give_each_operation_one_end__P1_P4() -> None:
    with SystemTimer("storm") as timer:
        purgatory = DelayedOperationPurgatory("storm", timer)
        taken: list[Counting] = []
        everything: list[Counting] = []
        halt = threading.Event()

        def take(operations: list[Counting]) -> None:
            for operation in operations:
                operation.handed_out = True
            taken.extend(operations)

        def add() -> None:
            rng = random.Random(1)
            while len(everything) < 3000 or len(taken) <= 50:  # on a busy machine the others come late
                operation = Counting(rng.random() * 3)
                everything.append(operation)
                purgatory.try_complete_else_watch(operation, {rng.randrange(10) for _ in range(3)})

        def cancel(seed: int) -> None:
            rng = random.Random(seed)
            while not halt.is_set():
                take(purgatory.cancel_for_key(rng.randrange(10)))
                if everything:
                    operation = rng.choice(everything[-30:])
                    if operation.cancel():
                        take([operation])

        def check(seed: int) -> None:
            rng = random.Random(seed)
            while not halt.is_set():
                for operation in everything[-20:]:
                    operation.is_ready = True
                purgatory.check_and_complete(rng.randrange(10))

        def both() -> None:
            together(add, add)
            halt.set()

        together(both, lambda: cancel(2), lambda: check(3), lambda: check(4), limit_s=50)
        until(lambda: len(purgatory) == 0 and timer.stats()["running"] == 0)
        assert len(set(map(id, taken))) == len(taken) > 50
        for operation in everything:
            if operation.handed_out:
                assert (operation.log, operation.is_completed, operation.late) == ([], False, False)
            else:
                assert operation.log in (["complete"], ["complete", "expire"])
        assert (counts(purgatory), len(timer)) == (EMPTY, 0)
        stats = purgatory.stats()
        expired = sum("expire" in operation.log for operation in everything)
        assert (stats["cancelled"], stats["expired"]) == (len(taken), expired)
        assert stats["completed"] == len(everything) - expired - len(taken)


@pytest.mark.usefixtures("many_switches")
def test_cancel_and_watch_again_against_checks_from_other_threads__P4_P5(purgatory: DelayedOperationPurgatory) -> None:
    """Whatever meets whatever, it ends off every list, and completed once at most."""
    operations = [Op(HOUR) for _ in range(8)]
    refused = 0

    def move(seed: int) -> None:
        nonlocal refused
        rng = random.Random(seed)
        for _ in range(300):
            operation = rng.choice(operations)
            operation.cancel()
            try:
                purgatory.try_complete_else_watch(operation, {rng.randrange(6) for _ in range(3)})
            except ValueError:
                refused += 1

    def check(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(600):
            assert purgatory.check_and_complete(rng.randrange(6)) == 0
            assert purgatory.watched >= 0

    together(*[lambda seed=seed: move(seed) for seed in range(3)], lambda: check(7), lambda: check(8))
    waiting = len(purgatory)
    assert len(purgatory.shutdown()) == waiting <= 8
    assert (counts(purgatory), len(purgatory.timer)) == (EMPTY, 0)
    for operation in operations:
        assert operation.force_complete() is True
        assert operation.log == ["complete"]
