"""P7: keys are any hashable value; whatever their `__eq__` and `__hash__` do, the purgatory stays sound."""

import gc
import math
import sys
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from purgatory.operations import EMPTY, Op, counts, together
from tickwheel import DelayedOperationPurgatory
from tickwheel.testing import ManualTimer

pytestmark = pytest.mark.timeout(40)


class Key:
    """Equal by number, all with one hash; calls something wherever Python asks."""

    def __init__(self, number: int, hash_: int = 7) -> None:
        self.number = number
        self.hash_ = hash_
        self.in_eq: Callable[[], object] | None = None
        self.in_hash: Callable[[], object] | None = None

    def __hash__(self) -> int:
        if self.in_hash:
            self.in_hash()
        return self.hash_

    def __eq__(self, other: object) -> bool:
        for key in (self, other):
            if isinstance(key, Key) and key.in_eq:
                key.in_eq()
        return isinstance(other, Key) and self.number == other.number


@pytest.fixture
def purgatory() -> DelayedOperationPurgatory:
    return DelayedOperationPurgatory("keys", ManualTimer())


def test_any_hashable_value_is_a_key__P7(purgatory: DelayedOperationPurgatory) -> None:
    keys: list[Any] = [0, "", b"", (), None, ..., frozenset(), "text", ("a", 1), -1, -2, 2**100, 1.5, Op, len, object()]
    for key in keys:
        purgatory.try_complete_else_watch(Op(), [key])
    assert counts(purgatory) == (len(keys),) * 4
    for key in keys:
        (operation,) = purgatory.cancel_for_key(key)
        assert not operation.is_completed
    assert counts(purgatory) == EMPTY


def test_what_is_equal_is_one_key_and_what_is_not_is_two__P7(purgatory: DelayedOperationPurgatory) -> None:
    operation = Op()
    purgatory.try_complete_else_watch(operation, [1, True, 1.0, "1", (1,), (1.0,)])
    assert counts(purgatory) == (1, 1, 3, 3)
    assert purgatory.cancel_for_key((True,)) == [operation]
    other = Op()
    purgatory.try_complete_else_watch(other, ["".join(["a", "b"]), 10**30])
    other.is_ready = True
    assert purgatory.check_and_complete(10**29 * 10) == 1


def test_nan_is_found_by_the_very_object_as_in_a_dict__P7(purgatory: DelayedOperationPurgatory) -> None:
    nan = math.nan
    operation = Op()
    purgatory.try_complete_else_watch(operation, [nan])
    operation.is_ready = True
    assert purgatory.check_and_complete(float("nan")) == 0
    assert purgatory.check_and_complete(nan) == 1


def test_many_keys_with_one_hash_are_told_apart__P7(purgatory: DelayedOperationPurgatory) -> None:
    operations = [Op() for _ in range(60)]
    for number, operation in enumerate(operations):
        purgatory.try_complete_else_watch(operation, [Key(number), Key((number + 1) % 60)])
    assert counts(purgatory) == (60, 60, 120, 60)
    assert purgatory.check_and_complete(Key(60)) == 0
    for operation in operations:
        operation.is_ready = True
    for number in range(0, 60, 2):
        assert purgatory.check_and_complete(Key(number)) == 2
    assert counts(purgatory) == EMPTY


def watch_all(keys: list[Any], each: int) -> DelayedOperationPurgatory:
    """Operations under `each` keys."""
    purgatory = DelayedOperationPurgatory("keys", ManualTimer())
    for start in range(0, len(keys), each):
        purgatory.try_complete_else_watch(Op(), keys[start : start + each])
    return purgatory


@pytest.mark.timeout(30)  # a fraction of a second; if all were compared with all, hours
@pytest.mark.parametrize("factor", [1, 2**20, 2**32, 2**44])
def test_a_look_up_does_not_depend_on_which_numbers_the_keys_are__P7(factor: int) -> None:
    """Python's hash of an int is the int: multiples of 2**32 differ in none of their lower bits."""
    keys = [number * factor for number in range(100_000)]
    purgatory = watch_all(keys, 100)
    assert sum(purgatory.check_and_complete(key) for key in keys) == 0
    assert purgatory.watched == len(keys)


@pytest.mark.timeout(30)
def test_the_keys_of_one_operation_are_not_compared_all_with_all__P7() -> None:
    purgatory = watch_all(list(range(100_000)), 100_000)
    assert (purgatory.watched, len(purgatory)) == (100_000, 1)


def test_many_keys_with_one_hash_cost_what_they_cost_a_dict__P7() -> None:
    """All are compared with all, which cannot be helped, but once each."""
    compared = 0

    class Counted(Key):
        __hash__ = Key.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return super().__eq__(other)

    keys = [Counted(number) for number in range(100)]
    purgatory = watch_all(keys, 10)
    assert compared <= 100 * 99 // 2
    compared = 0
    assert sum(purgatory.check_and_complete(Counted(number)) for number in range(100)) == 0
    assert compared <= 100 * 100


@pytest.mark.parametrize("where", ["in_eq", "in_hash"])
def test_a_key_may_call_back_into_the_purgatory__P7(purgatory: DelayedOperationPurgatory, where: str) -> None:
    """Watch, check and cancel under the very key that is being looked up, and others."""
    depth = 0
    calls: list[int] = []

    def call_back() -> None:
        nonlocal depth
        if depth >= 2:
            return
        depth += 1
        calls.append(depth)
        inner, other = Op(), Op()
        assert purgatory.try_complete_else_watch(inner, [Key(1), Key(2)]) is False
        assert purgatory.try_complete_else_watch(other, [Key(10 + depth)]) is False
        assert purgatory.check_and_complete(Key(2)) == 0
        purgatory.check_and_complete(Key(1))
        assert purgatory.cancel_for_key(Key(10 + depth)) == [other]
        assert inner.cancel() is True
        depth -= 1

    stored, asked = Key(1), Key(1)
    for key in (stored, asked):
        setattr(key, where, call_back)
    operation = Op()
    purgatory.try_complete_else_watch(operation, [stored, Key(3)])
    operation.is_ready = True
    purgatory.check_and_complete(asked)
    assert (operation.log, depth) == (["complete"], 0)
    assert len(calls) >= 2
    assert counts(purgatory) == EMPTY


@pytest.mark.parametrize("end", ["complete", "cancel"])
def test_a_key_that_ends_its_own_operation_while_it_is_looked_up__P7(
    purgatory: DelayedOperationPurgatory, end: str
) -> None:
    """The key goes in the middle of the comparison that finds it."""
    operation, later = Op(), Op()
    stored = Key(1)
    purgatory.try_complete_else_watch(operation, [stored])
    stored.in_eq = operation.force_complete if end == "complete" else operation.cancel
    assert purgatory.check_and_complete(Key(1)) == 0
    assert counts(purgatory) == EMPTY
    purgatory.try_complete_else_watch(operation, [stored]) if end == "cancel" else None
    purgatory.try_complete_else_watch(later, [Key(1)])
    later.is_ready = True
    assert purgatory.check_and_complete(Key(1)) == 1


@pytest.mark.parametrize("where", ["in_eq", "in_hash"])
@pytest.mark.parametrize("call", ["watch", "check", "cancel"])
def test_what_a_key_raises_reaches_the_caller_and_nothing_has_changed__P7(
    purgatory: DelayedOperationPurgatory, where: str, call: str
) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    waiting, operation = Op(), Op()
    purgatory.try_complete_else_watch(waiting, [Key(1)])
    bad = Key(1)
    setattr(bad, where, fail)
    calls: dict[str, Callable[[], object]] = {
        "watch": lambda: purgatory.try_complete_else_watch(operation, [Key(8), Key(9), bad]),
        "check": lambda: purgatory.check_and_complete(bad),
        "cancel": lambda: purgatory.cancel_for_key(bad),
    }
    with pytest.raises(ZeroDivisionError):
        calls[call]()
    assert (counts(purgatory), operation.tries) == ((1, 1, 1, 1), 0)
    waiting.is_ready = True
    assert purgatory.check_and_complete(Key(1)) == 1


def test_a_key_whose_hash_changes_is_lost_to_checks_but_leaves_nothing_behind__P3_P7(
    purgatory: DelayedOperationPurgatory,
) -> None:
    key, operation = Key(1), Op()
    purgatory.try_complete_else_watch(operation, [key])
    key.hash_ = 8
    assert purgatory.check_and_complete(key) == 0
    assert operation.force_complete()
    assert counts(purgatory) == EMPTY


def test_a_key_whose_eq_says_something_odd__P7(purgatory: DelayedOperationPurgatory) -> None:
    class Odd:
        def __init__(self, answer: object) -> None:
            self.answer = answer

        def __hash__(self) -> int:
            return 7

        def __eq__(self, other: object) -> Any:
            return self.answer

    class NoBool:
        def __bool__(self) -> bool:
            raise OverflowError

    operation = Op()
    purgatory.try_complete_else_watch(operation, [Odd([])])
    for answer in (NotImplemented, "", 0, None):
        assert purgatory.check_and_complete(Odd(answer)) == 0
    operation.cancel()
    purgatory.try_complete_else_watch(operation, [Odd("yes")])
    operation.is_ready = True
    assert purgatory.check_and_complete(Odd(None)) == 1
    purgatory.try_complete_else_watch(Op(), [Odd(NoBool())])
    with pytest.raises(OverflowError):
        purgatory.check_and_complete(Odd(True))
    assert counts(purgatory) == (1, 1, 1, 1)


def test_a_key_that_asks_for_itself_without_end_is_a_recursion_error__P7(purgatory: DelayedOperationPurgatory) -> None:
    stored = Key(1)
    purgatory.try_complete_else_watch(Op(), [stored])
    stored.in_eq = lambda: purgatory.check_and_complete(Key(1))
    with pytest.raises(RecursionError):
        purgatory.check_and_complete(Key(1))
    stored.in_eq = None
    assert counts(purgatory) == (1, 1, 1, 1)


def test_keys_are_let_go_with_their_last_operation__P3_P7(purgatory: DelayedOperationPurgatory) -> None:
    stored, equal, asked = Key(1), Key(1), Key(1)
    before = [sys.getrefcount(key) for key in (stored, equal, asked)]
    first, second = Op(), Op()
    purgatory.try_complete_else_watch(first, [stored])
    purgatory.try_complete_else_watch(second, [equal])
    purgatory.check_and_complete(asked)
    assert first.cancel()
    assert purgatory.cancel_for_key(asked) == [second]
    assert [sys.getrefcount(key) for key in (stored, equal, asked)] == before
    watch_stored = weakref.ref(stored)
    del stored
    gc.collect()
    assert watch_stored() is None


def test_from_many_threads_keys_that_switch_threads_and_call_back_lose_no_event__P6_P7(
    purgatory: DelayedOperationPurgatory,
) -> None:
    def switch() -> None:
        time.sleep(0)

    def make(number: int) -> Key:
        key = Key(number % 5, hash_=number % 2)
        key.in_eq = key.in_hash = switch
        return key

    done: list[Op] = []

    def use(thread: int) -> None:
        for turn in range(40):
            operation = Op()
            purgatory.try_complete_else_watch(operation, [make(turn), make(turn + thread)])
            operation.is_ready = True
            purgatory.check_and_complete(make(turn))
            done.append(operation)

    together(*[lambda thread=thread: use(thread) for thread in range(6)])
    assert len(done) == 240
    assert all(operation.log == ["complete"] for operation in done), "an event was lost"
    assert counts(purgatory) == EMPTY
