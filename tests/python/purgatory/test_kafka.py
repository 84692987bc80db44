"""What Kafka's own tests of its purgatory assert (`DelayedOperationTest`)."""

import threading
import time

import pytest

from purgatory.operations import EMPTY, Op, counts, together
from tickwheel import DelayedOperationPurgatory
from tickwheel.testing import ManualTimer
from timer.watching import until


@pytest.fixture
def timer() -> ManualTimer:
    return ManualTimer()


@pytest.fixture
def purgatory(timer: ManualTimer) -> DelayedOperationPurgatory:
    return DelayedOperationPurgatory("kafka", timer)


def test_requests_are_satisfied_by_their_key_and_only_once__P2_P3(purgatory: DelayedOperationPurgatory) -> None:
    first, second = Op(), Op()
    assert purgatory.check_and_complete("test1") == 0, "nothing waits yet"
    assert purgatory.try_complete_else_watch(first, ["test1"]) is False
    assert purgatory.check_and_complete("test1") == 0, "it is not ready"
    assert purgatory.try_complete_else_watch(second, ["test2"]) is False
    assert purgatory.check_and_complete("test2") == 0
    assert not first.is_completed
    first.is_ready = True
    assert purgatory.check_and_complete("test1") == 1
    assert purgatory.check_and_complete("test1") == 0, "it was complete already"
    second.is_ready = True
    assert purgatory.check_and_complete("test2") == 1
    assert purgatory.check_and_complete("test2") == 0
    assert first.log == second.log == ["complete"]
    assert counts(purgatory) == EMPTY


def test_a_request_expires_after_its_time_and_not_before_and_another_stays__P1() -> None:
    """On a real clock."""
    with DelayedOperationPurgatory("kafka") as purgatory:
        start = time.monotonic()
        short, long = Op(20), Op(200_000)
        assert not purgatory.try_complete_else_watch(short, ["test1"])
        assert not purgatory.try_complete_else_watch(long, ["test2"])
        until(lambda: "expire" in short.log)
        assert time.monotonic() - start >= 0.020
        assert short.log == ["complete", "expire"]
        assert short.is_completed
        assert not long.is_completed
        assert counts(purgatory) == (1, 1, 1, 1)
        assert purgatory.shutdown() == [long]


def test_completing_elsewhere_lowers_delayed_and_watched_at_once__P4_P5(purgatory: DelayedOperationPurgatory) -> None:
    operations = [Op(100_000) for _ in range(3)]
    for number, operation in enumerate(operations, 1):
        assert not purgatory.try_complete_else_watch(operation, [f"test{key}" for key in range(1, number + 1)])
    assert (purgatory.num_delayed, purgatory.watched) == (3, 6)
    assert operations[1].force_complete()
    assert (purgatory.num_delayed, purgatory.watched) == (2, 4)
    assert operations[2].force_complete()
    assert (purgatory.num_delayed, purgatory.watched) == (1, 1)
    assert operations[0].force_complete()
    assert counts(purgatory) == EMPTY
    assert purgatory.check_and_complete("test1") == 0


def test_cancel_for_key_returns_the_operations_of_that_key_and_no_other__P4(
    timer: ManualTimer, purgatory: DelayedOperationPurgatory
) -> None:
    both, one, other = Op(), Op(), Op()
    purgatory.try_complete_else_watch(both, ["key", "elsewhere"])
    purgatory.try_complete_else_watch(other, ["elsewhere"])
    purgatory.try_complete_else_watch(one, ["key"])
    assert purgatory.cancel_for_key("key") == [both, one]
    assert (purgatory.watched, purgatory.num_delayed, len(timer)) == (1, 1, 1)
    assert not any(operation.is_completed for operation in (both, one, other))
    assert purgatory.cancel_for_key("key") == []
    timer.advance(10**9)
    assert (both.log, one.log, other.log) == ([], [], ["complete", "expire"])


def test_cancel_for_key_of_an_unknown_key_is_empty__P4(purgatory: DelayedOperationPurgatory) -> None:
    assert purgatory.cancel_for_key("unknown") == []


def test_it_is_tried_once_before_it_is_watched_and_once_after__P2(purgatory: DelayedOperationPurgatory) -> None:
    class Seeing(Op):
        def try_complete(self) -> bool:
            seen.append((purgatory.watched, purgatory.num_delayed))
            return super().try_complete()

    seen: list[tuple[int, int]] = []
    purgatory.try_complete_else_watch(Seeing(), ["a", "b", "c"])
    assert seen == [(0, 0), (3, 0)]
    assert (purgatory.watched, purgatory.num_delayed) == (3, 1)


def test_what_is_ready_at_the_first_try_is_watched_nowhere__P2(
    timer: ManualTimer, purgatory: DelayedOperationPurgatory
) -> None:
    operation = Op(ready=True)
    assert purgatory.try_complete_else_watch(operation, ["a", "b"]) is True
    assert (operation.tries, operation.log) == (1, ["complete"])
    assert (counts(purgatory), len(timer)) == (EMPTY, 0)
    assert timer.stats()["added"] == 0
    assert purgatory.try_complete_else_watch(operation, ["a"]) is False, "this call did not complete it"
    assert (operation.tries, counts(purgatory)) == (1, EMPTY)


def test_an_event_between_the_two_tries_is_not_missed__P2(
    timer: ManualTimer, purgatory: DelayedOperationPurgatory
) -> None:
    class Late(Op):
        def try_complete(self) -> bool:
            done = super().try_complete()
            self.is_ready = True  # the event comes right after it was looked for
            return done

    operation = Late()
    assert purgatory.try_complete_else_watch(operation, ["a", "b", "c"]) is True
    assert (operation.tries, operation.log) == (2, ["complete"])
    assert (counts(purgatory), timer.stats()["added"]) == (EMPTY, 0)


@pytest.mark.parametrize("at", [1, 2])
def test_what_somebody_else_completes_meanwhile_is_not_this_calls__P2_P5(
    timer: ManualTimer, purgatory: DelayedOperationPurgatory, at: int
) -> None:
    class Overtaken(Op):
        def try_complete(self) -> bool:
            self.tries += 1
            if self.tries == at:
                other = threading.Thread(target=lambda: won.append(self.force_complete()))
                other.start()
                other.join()
            return self.force_complete() if self.tries == at else False

    won: list[bool] = []
    operation = Overtaken()
    assert purgatory.try_complete_else_watch(operation, ["a", "b"]) is False
    assert (won, operation.log, operation.tries) == ([True], ["complete"], at)
    assert (counts(purgatory), len(timer)) == (EMPTY, 0)


def test_force_complete_is_true_for_one_caller_ever__P1(purgatory: DelayedOperationPurgatory) -> None:
    operation = Op()
    purgatory.try_complete_else_watch(operation, ["a"])
    assert [operation.force_complete() for _ in range(3)] == [True, False, False]
    assert operation.log == ["complete"]
    never_watched = Op()
    assert [never_watched.force_complete() for _ in range(2)] == [True, False]
    assert never_watched.log == ["complete"]


def test_many_threads_want_to_complete_one_operation_and_one_does__P1() -> None:
    purgatory = DelayedOperationPurgatory("kafka", ManualTimer())
    for _ in range(200):
        operation = Op()
        purgatory.try_complete_else_watch(operation, ["a"])
        operation.is_ready = True
        won: list[int] = []

        def check(won: list[int] = won) -> None:
            won.append(purgatory.check_and_complete("a"))

        def force(won: list[int] = won, operation: Op = operation) -> None:
            won.append(operation.force_complete())

        together(force, check, force)
        assert sum(won) == 1
        assert operation.log == ["complete"]
    assert counts(purgatory) == EMPTY
