"""P3, P6: a check inside a `try_complete` is made when the outermost try is over. So tries grow with a polynomial."""

import threading

import pytest

from purgatory.operations import EMPTY, Acts, Op, counts, together
from tickwheel import DelayedOperationPurgatory
from tickwheel.testing import ManualTimer

pytestmark = pytest.mark.timeout(40)


@pytest.fixture
def purgatory() -> DelayedOperationPurgatory:
    return DelayedOperationPurgatory("inside", ManualTimer())


class TooMany(Exception):
    """There would be no end to it."""


def mutual(purgatory: DelayedOperationPurgatory, count: int, limit: int) -> list[Acts]:
    """Operations under a key each, which check each other's keys whenever they are tried."""
    operations = [Acts() for _ in range(count)]
    tries = [0]

    def check_others(own: int) -> None:
        tries[0] += 1
        if tries[0] > limit:
            raise TooMany
        for other in range(count):
            if other != own:
                purgatory.check_and_complete(other)

    for number, operation in enumerate(operations):
        purgatory.try_complete_else_watch(operation, [number])
        operation.tries = 0
    for number, operation in enumerate(operations):
        operation.in_try = lambda number=number: check_others(number)
    return operations


@pytest.mark.parametrize("count", [2, 6, 12])
def test_n_operations_that_check_each_others_keys_are_tried_n_cubed_times_at_most__P6(count: int) -> None:
    told: list[object] = []
    purgatory = DelayedOperationPurgatory("mutual", ManualTimer(on_error=lambda *error: told.append(error)))
    operations = mutual(purgatory, count, 10 * count**3)
    assert purgatory.check_and_complete(0) == 0
    assert sum(operation.tries for operation in operations) <= count**3
    assert told == []


@pytest.mark.parametrize("order", [1, -1])
def test_a_chain_of_twelve_that_complete_one_another_completes_whole__P6(order: int) -> None:
    """Each makes true what the next one waits for, and checks all keys, in either order."""
    count = 12
    purgatory = DelayedOperationPurgatory("chain", ManualTimer())
    operations = [Acts() for _ in range(count)]

    def pass_on(number: int) -> None:
        if operations[number].is_ready and number + 1 < count:
            operations[number + 1].is_ready = True
        for other in range(count)[::order]:
            purgatory.check_and_complete(other)

    for number, operation in enumerate(operations):
        purgatory.try_complete_else_watch(operation, [number])
        operation.tries = 0
    for number, operation in enumerate(operations):
        operation.in_try = lambda number=number: pass_on(number)
    operations[0].is_ready = True
    purgatory.check_and_complete(0)
    assert [operation.log for operation in operations] == [["complete"]] * count
    assert sum(operation.tries for operation in operations) <= count**3
    assert counts(purgatory) == EMPTY


def test_a_chain_whose_links_do_not_complete_reaches_its_end__P6(purgatory: DelayedOperationPurgatory) -> None:
    """Each passes an event on, under keys of their own; only the last one completes by it."""
    count = 40
    events = [False] * (count + 1)
    operations = [Acts() for _ in range(count)]

    def pass_on(number: int) -> None:
        if events[number] and not events[number + 1]:
            events[number + 1] = True
            operations[number].is_ready = number == count - 1
            purgatory.check_and_complete(number + 1)

    for number, operation in enumerate(operations):
        purgatory.try_complete_else_watch(operation, [number])
        operation.in_try = lambda number=number: pass_on(number)
    events[0] = True
    purgatory.check_and_complete(0)
    assert events == [True] * (count + 1)
    assert operations[-1].log == ["complete"]


def test_a_chain_of_thousands_needs_no_deeper_stack__P6(purgatory: DelayedOperationPurgatory) -> None:
    count = 3000
    operations = [Acts() for _ in range(count)]

    def pass_on(number: int) -> None:
        if operations[number].is_ready and number + 1 < count:
            operations[number + 1].is_ready = True
            purgatory.check_and_complete(number + 1)

    for number, operation in enumerate(operations):
        purgatory.try_complete_else_watch(operation, [number])
        operation.in_try = lambda number=number: pass_on(number)
    operations[0].is_ready = True
    assert purgatory.check_and_complete(0) == 1
    assert all(operation.is_completed for operation in operations)
    assert counts(purgatory) == EMPTY


def test_a_check_inside_a_try_returns_0_and_is_made_without_the_outer_operations_lock__P3_P6(
    purgatory: DelayedOperationPurgatory,
) -> None:
    lock = threading.Lock()
    outer, inner = Acts(lock=lock), Acts()
    found: list[int] = []
    held: list[bool] = []
    for operation, key in ((outer, "outer"), (inner, "inner")):
        purgatory.try_complete_else_watch(operation, [key])
    inner.in_try = lambda: held.append(lock.locked())
    inner.is_ready = True
    outer.in_try = lambda: found.append(purgatory.check_and_complete("inner"))
    assert purgatory.check_and_complete("outer") == 0, "it counts its own key"
    assert (found, held, inner.log) == ([0], [False], ["complete"])


def test_a_force_complete_inside_a_try_counts_at_once__P6(purgatory: DelayedOperationPurgatory) -> None:
    outer, other = Acts(), Op()
    seen: list[object] = []
    purgatory.try_complete_else_watch(outer, ["outer"])
    purgatory.try_complete_else_watch(other, ["other"])
    outer.in_try = lambda: seen.append((other.force_complete(), other.is_completed, list(other.log), len(purgatory)))
    purgatory.check_and_complete("outer")
    assert seen == [(True, True, [], 1)]
    assert other.log == ["complete"]


@pytest.mark.parametrize("where", ["the first try", "the second try"])
def test_a_check_inside_a_watching_call_is_made_before_that_returns__P2_P6(where: str) -> None:
    purgatory = DelayedOperationPurgatory("watching", ManualTimer())
    first, watched = Op(), Acts()
    purgatory.try_complete_else_watch(first, ["first"])

    def act() -> None:
        if watched.tries == (0 if where == "the first try" else 1):
            first.is_ready = True
            purgatory.check_and_complete("first")

    watched.in_try = act
    purgatory.try_complete_else_watch(watched, ["watched"])
    assert first.log == ["complete"]


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_after_an_error_inside_a_try_the_checks_that_it_asked_for_are_made__P6_P8(error: type[BaseException]) -> None:
    purgatory = DelayedOperationPurgatory("fails", ManualTimer(on_error=lambda *_: None))
    fails, other, later = Acts(), Op(), Op()
    purgatory.try_complete_else_watch(other, ["other"])
    purgatory.try_complete_else_watch(later, ["later"])
    other.is_ready = later.is_ready = True

    def fail() -> None:
        purgatory.check_and_complete("other")
        raise error

    fails.in_try = fail
    with pytest.raises(error):
        purgatory.try_complete_else_watch(fails, ["fails"])
    assert other.log == ["complete"]
    assert purgatory.check_and_complete("later") == 1, "this thread is inside no try any more"


def test_threads_that_check_mutual_keys_lose_no_event__P6() -> None:
    purgatory = DelayedOperationPurgatory("threads", ManualTimer())
    operations = mutual(purgatory, 5, 10**9)

    def use(thread: int) -> None:
        for turn in range(20):
            purgatory.check_and_complete((thread + turn) % 5)
        operations[thread].is_ready = True
        purgatory.check_and_complete(thread)

    together(*[lambda thread=thread: use(thread) for thread in range(5)])
    assert all(operation.log == ["complete"] for operation in operations)
    assert counts(purgatory) == EMPTY


def test_a_check_that_is_marked_in_every_try_returns__P6(purgatory: DelayedOperationPurgatory) -> None:
    """Another thread checks the operation in every try, from start to end. The event in the last try is not lost."""
    own = threading.local()
    is_hot = True

    def check_elsewhere() -> None:
        own.tries = getattr(own, "tries", 0) + 1
        assert own.tries < 100, "held for good"
        if is_hot:
            together(lambda: purgatory.check_and_complete("hot"))

    class Looks(Acts):
        """Looks first, so only a further try sees what happens meanwhile."""

        def try_complete(self) -> bool:
            is_ready = self.is_ready
            check_elsewhere()
            return is_ready and self.force_complete()

    operation = Looks()
    is_hot = False
    purgatory.try_complete_else_watch(operation, ["hot"])
    is_hot = True
    own.tries = 0
    purgatory.check_and_complete("hot")
    assert own.tries == 9
    is_hot = False
    operation.is_ready = True
    purgatory.timer.advance(20)  # type: ignore[attr-defined]
    assert (operation.log, counts(purgatory)) == (["complete"], EMPTY)
