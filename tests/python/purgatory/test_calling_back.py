"""P6: the three methods may call back into the purgatory, on any key, from any thread. None of this deadlocks."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from purgatory.operations import EMPTY, Op, Stranger, counts, together
from tickwheel import DelayedOperation, DelayedOperationPurgatory
from tickwheel.testing import ManualTimer

pytestmark = pytest.mark.timeout(40)


class Calls(Op):
    """Calls something from inside its methods."""

    in_try: Callable[[], object] | None = None
    in_complete: Callable[[], object] | None = None
    in_expiration: Callable[[], object] | None = None

    def try_complete(self) -> bool:
        if self.in_try:
            self.in_try()
        return super().try_complete()

    def on_complete(self) -> None:
        super().on_complete()
        if self.in_complete:
            self.in_complete()

    def on_expiration(self) -> None:
        super().on_expiration()
        if self.in_expiration:
            self.in_expiration()


@pytest.fixture
def purgatory() -> DelayedOperationPurgatory:
    return DelayedOperationPurgatory("back", ManualTimer())


def test_a_try_complete_that_checks_its_own_key_ends__P6(purgatory: DelayedOperationPurgatory) -> None:
    operation = Calls(lock=threading.RLock())
    operation.in_try = lambda: purgatory.check_and_complete("own")
    purgatory.try_complete_else_watch(operation, ["own"])
    assert operation.tries == 2
    operation.is_ready = True
    assert purgatory.check_and_complete("own") == 1
    assert (operation.tries, operation.log, counts(purgatory)) == (3, ["complete"], EMPTY)


def test_many_threads_check_an_operation_that_checks_its_own_key__P6(purgatory: DelayedOperationPurgatory) -> None:
    operations = [Calls() for _ in range(3)]
    for number, operation in enumerate(operations):
        operation.in_try = lambda: purgatory.check_and_complete("own")
        purgatory.try_complete_else_watch(operation, ["own", number])

    def use() -> None:
        for turn in range(3):
            for _ in range(10):
                purgatory.check_and_complete(turn)
            operations[turn].is_ready = True
            purgatory.check_and_complete("own")

    together(*[use] * 4)
    assert all(operation.log == ["complete"] for operation in operations)
    assert counts(purgatory) == EMPTY


def test_seven_operations_that_check_their_common_key_end_soon__P6(purgatory: DelayedOperationPurgatory) -> None:
    """Each inner check may try the others, but not in every order there is: that would be 7! tries, or 20!."""
    operations = [Calls() for _ in range(7)]
    for operation in operations:
        purgatory.try_complete_else_watch(operation, ["own"])
        operation.tries = 0
        operation.in_try = lambda: purgatory.check_and_complete("own")
    purgatory.check_and_complete("own")
    assert sum(operation.tries for operation in operations) < 7 * 7 * 7


def test_a_chain_of_events_made_inside_tries_of_one_key_reaches_its_end__P6(
    purgatory: DelayedOperationPurgatory,
) -> None:
    """Each makes the event for the one that came before it, and checks their common key; only the first completes."""
    events: set[int] = {4}
    operations = [Calls() for _ in range(4)]

    def pass_on(number: int) -> None:
        if number + 1 in events and number not in events:
            events.add(number)
            operations[number].is_ready = number == 0
            purgatory.check_and_complete("own")

    events.clear()
    for number, operation in enumerate(operations):
        operation.in_try = lambda number=number: pass_on(number)
        purgatory.try_complete_else_watch(operation, ["own"])
    events.add(4)
    purgatory.check_and_complete("own")
    assert events == {0, 1, 2, 3, 4}, "no try saw an event that was made inside a try"
    assert operations[0].log == ["complete"]


def test_two_operations_that_check_each_other_end__P6(purgatory: DelayedOperationPurgatory) -> None:
    left, right = Calls(lock=threading.RLock()), Calls(lock=threading.RLock())
    left.in_try = lambda: purgatory.check_and_complete("right")
    right.in_try = lambda: purgatory.check_and_complete("left")
    purgatory.try_complete_else_watch(left, ["left"])
    purgatory.try_complete_else_watch(right, ["right"])
    together(
        *[lambda key=key: [purgatory.check_and_complete(key) for _ in range(200)] for key in ("left", "right") * 3]
    )
    left.is_ready = right.is_ready = True
    purgatory.check_and_complete("left")
    assert (left.log, right.log, counts(purgatory)) == (["complete"], ["complete"], EMPTY)


def test_the_inner_check_returns_0_and_the_outer_counts_its_own_key__P3(
    purgatory: DelayedOperationPurgatory,
) -> None:
    outer, inner = Calls(), [Op() for _ in range(3)]
    found: list[int] = []
    for operation in inner:
        purgatory.try_complete_else_watch(operation, ["inner"])
    purgatory.try_complete_else_watch(outer, ["outer"])
    for operation in [outer, *inner]:
        operation.is_ready = True
    outer.in_try = lambda: found.append(purgatory.check_and_complete("inner"))
    assert purgatory.check_and_complete("outer") == 1
    assert found == [0], "it is made when the outer try is over"
    assert [operation.log for operation in inner] == [["complete"]] * 3


def test_on_complete_may_watch_check_cancel_and_complete_others__P6(purgatory: DelayedOperationPurgatory) -> None:
    first, second, third, fourth, fifth = Calls(ready=False), Op(), Op(), Op(), Op()
    got: list[Any] = []

    def act() -> None:
        second.is_ready = True
        got.append(purgatory.check_and_complete("key"))
        got.append(purgatory.cancel_for_key("other"))
        got.append(purgatory.try_complete_else_watch(fourth, ["key"]))
        got.append(fifth.force_complete())

    first.in_complete = act
    purgatory.try_complete_else_watch(first, ["key"])
    purgatory.try_complete_else_watch(second, ["key"])
    purgatory.try_complete_else_watch(third, ["other"])
    purgatory.try_complete_else_watch(fifth, ["key"])
    first.is_ready = True
    assert purgatory.check_and_complete("key") == 1, "the second was completed by the inner call"
    assert got == [1, [third], False, True]
    assert counts(purgatory) == (1, 1, 1, 1)
    assert purgatory.cancel_for_key("key") == [fourth]


def test_on_complete_and_on_expiration_may_start_the_next_round_of_a_poll__P6() -> None:
    timer = ManualTimer()
    purgatory = DelayedOperationPurgatory("poll", timer)
    ends: list[tuple[int, list[str]]] = []

    def poll() -> None:
        operation = Calls(10)
        operation.in_expiration = lambda: (ends.append((timer.now_ms(), list(operation.log))), poll())
        purgatory.try_complete_else_watch(operation, ["topic"])

    poll()
    timer.advance(100)
    assert ends == [(at, ["complete", "expire"]) for at in range(10, 101, 10)]
    assert counts(purgatory) == (1, 1, 1, 1)


def test_a_chain_in_which_each_completion_completes_the_next__P6(purgatory: DelayedOperationPurgatory) -> None:
    operations = [Calls() for _ in range(100)]

    def complete(number: int) -> None:
        if number < 100:
            operations[number].is_ready = True
            assert purgatory.check_and_complete(number) == 1

    for number, operation in enumerate(operations):
        operation.in_complete = lambda number=number: complete(number + 1)
        purgatory.try_complete_else_watch(operation, [number])
    complete(0)
    assert all(operation.log == ["complete"] for operation in operations)
    assert counts(purgatory) == EMPTY


def test_a_try_complete_may_cancel_or_watch_its_own_operation__P2_P4(purgatory: DelayedOperationPurgatory) -> None:
    cancels, moves, twice = Calls(), Calls(), Calls()
    for operation in (cancels, moves, twice):
        purgatory.try_complete_else_watch(operation, ["key"])
    got: list[Any] = []
    cancels.in_try = lambda: got.append(cancels.cancel())

    def move() -> None:
        moves.in_try = None
        got.append((moves.cancel(), purgatory.try_complete_else_watch(moves, ["new"])))

    def watch_twice() -> None:
        with pytest.raises(ValueError, match="waits in a purgatory already"):
            purgatory.try_complete_else_watch(twice, ["new"])
        got.append("refused")

    moves.in_try, twice.in_try = move, watch_twice
    assert purgatory.check_and_complete("key") == 0
    assert got == [True, (True, False), "refused"]
    assert counts(purgatory) == (2, 2, 2, 2)
    assert purgatory.cancel_for_key("new") == [moves]
    assert purgatory.cancel_for_key("key") == [twice]


def test_what_is_watched_from_its_own_try_misses_no_event__P2() -> None:
    """The try that is under way may have looked before the event came, so it does not count as the last look."""
    purgatory = DelayedOperationPurgatory("back", ManualTimer())

    class Moves(Op):
        def try_complete(self) -> bool:
            self.tries += 1
            is_ready = self.is_ready
            if self.tries == 3:
                # Somebody else's event, on a key that is not watched yet.
                together(lambda: (setattr(self, "is_ready", True), purgatory.check_and_complete("new")))
                assert self.cancel()
                assert purgatory.try_complete_else_watch(self, ["new"]) is False
            return is_ready and self.force_complete()

    operation = Moves()
    purgatory.try_complete_else_watch(operation, ["old"])
    purgatory.check_and_complete("old")
    assert operation.log == ["complete"], "the event came before the key was watched, and no try followed"


def test_threads_that_call_back_on_each_others_keys_do_not_deadlock__P6(purgatory: DelayedOperationPurgatory) -> None:
    """Locks in either order, tries in either order, completions in either order."""
    operations = [Calls(lock=threading.RLock()) for _ in range(12)]

    def check(key: int) -> None:
        purgatory.check_and_complete(key % 12)

    for number, operation in enumerate(operations):
        operation.in_try = lambda number=number: check(number + 1 if number % 2 else number + 11)
        operation.in_complete = lambda number=number: check(number + 5)
        purgatory.try_complete_else_watch(operation, [number, "all"])

    def use(thread: int) -> None:
        for turn in range(60):
            check(thread + turn)
            if turn == 50:
                operations[thread].is_ready = operations[thread + 6].is_ready = True
            purgatory.check_and_complete("all")

    together(*[lambda thread=thread: use(thread) for thread in range(6)])
    purgatory.timer.advance(100)  # type: ignore[attr-defined]
    assert all(operation.log == ["complete"] for operation in operations)
    assert counts(purgatory) == EMPTY


def test_a_caller_may_hold_other_operations_locks__P6() -> None:
    """A thread that holds one operation's lock checks a key whose operation another one has locked."""
    timer = ManualTimer()
    purgatory = DelayedOperationPurgatory("back", timer)
    locks = [threading.RLock(), threading.RLock()]
    operations = [Op(lock=lock) for lock in locks]
    for number, operation in enumerate(operations):
        purgatory.try_complete_else_watch(operation, [number])
        operation.is_ready = True
    barrier = threading.Barrier(2)

    def use(number: int) -> None:
        with locks[number]:
            barrier.wait(20)
            assert purgatory.check_and_complete(1 - number) == 0
            barrier.wait(20)

    together(lambda: use(0), lambda: use(1))
    timer.advance(20)
    assert [operation.log for operation in operations] == [["complete"]] * 2
    with Stranger(locks[0]):
        assert purgatory.check_and_complete(0) == 0


def test_a_purgatory_may_be_used_inside_the_callbacks_of_another__P6() -> None:
    timer = ManualTimer()
    here, there = (DelayedOperationPurgatory(name, timer) for name in ("here", "there"))
    waiting: DelayedOperation = Op()
    first = Calls(10)

    def both() -> None:
        waiting.is_ready = True  # type: ignore[attr-defined]
        assert there.check_and_complete("key") == 1

    first.in_expiration = both
    here.try_complete_else_watch(first, ["key"])
    there.try_complete_else_watch(waiting, ["key"])
    timer.advance(10)
    assert (counts(here), counts(there), len(timer)) == (EMPTY, EMPTY, 0)
    assert (here.stats()["expired"], there.stats()["completed"]) == (1, 1)
