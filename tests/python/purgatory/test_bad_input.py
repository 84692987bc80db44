"""T13 for the purgatory: what was given, what is allowed, what to do; and nothing has changed afterwards."""

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from purgatory.operations import EMPTY, Op, counts
from tickwheel import DelayedOperation, DelayedOperationPurgatory, TimerTask
from tickwheel.testing import ManualTimer
from timer.watching import refused


class Never(DelayedOperation):
    def try_complete(self) -> bool:
        return False


class NoTry(DelayedOperation):
    pass


class Runs(Never):
    def run(self) -> None:
        pass


class NoInit(Never):
    def __init__(self) -> None:
        pass


NO_TRY = (
    "a DelayedOperation needs a try_complete() that checks whether its event has happened: subclass it, and return "
    "self.force_complete() from there"
)
RUN = "a DelayedOperation has no run() of its own, its deadline calls on_expiration(): override that"
LOCK = "lock must have acquire(blocking) and release(), got {}: pass a threading.RLock(), or leave it out"
MS = "delay_ms must be an int, a finite float or a timedelta, got {}: pass milliseconds, as in 20 or 0.5"
KEYS = "keys must be a collection of keys, got {}: for one key pass [key]"
OPERATION = "operation must be a DelayedOperation, got {}: subclass DelayedOperation"
TIMER = "timer must be a SystemTimer or a ManualTimer, got {}: leave it out for one of its own"

OPERATIONS: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: DelayedOperation(5), TypeError, NO_TRY),
    (lambda: NoTry(5), TypeError, NO_TRY),
    (lambda: Runs(5), TypeError, RUN),
    (lambda: Never("5"), TypeError, MS.format("str '5'")),  # type: ignore[arg-type]
    (lambda: Never(True), TypeError, MS.format("bool True")),
    (lambda: Never(None), TypeError, MS.format("NoneType None")),  # type: ignore[arg-type]
    (lambda: Never(5, 3), TypeError, LOCK.format("int")),  # type: ignore[arg-type]
    (lambda: Never(5, "lock"), TypeError, LOCK.format("str")),  # type: ignore[arg-type]
    (
        lambda: Never(5, name=5),  # type: ignore[arg-type]
        TypeError,
        "name must be text, got 5: snapshots show it",
    ),
    (lambda: Never(5, lock=object()), TypeError, LOCK.format("object")),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("call", "error", "message"), OPERATIONS)
def test_an_operation_that_cannot_be_made__T13(
    call: Callable[[], object], error: type[Exception], message: str
) -> None:
    refused(error, message, call)


@pytest.mark.parametrize("delay_ms", [math.nan, math.inf, -math.inf, 2**52, 1e300])
def test_a_delay_that_is_no_time__T13(delay_ms: float) -> None:
    with pytest.raises(ValueError, match=r"^delay_ms must be (finite|below 2\^52 ms .*), got .*: .+"):
        Never(delay_ms)


@pytest.mark.parametrize("delay_ms", [-(2**70), -5, 0, 0.0001, 2**52 - 1])
def test_any_other_delay_is_a_deadline__T13(delay_ms: float) -> None:
    purgatory = DelayedOperationPurgatory("input", ManualTimer())
    operation = Op(delay_ms)
    assert purgatory.try_complete_else_watch(operation, ["a"]) is False
    assert counts(purgatory) == (1, 1, 1, 1)
    purgatory.timer.advance(1)  # type: ignore[attr-defined]
    assert operation.is_completed == (delay_ms <= 1)


def test_a_deadline_past_the_end_of_time_is_refused_and_nothing_waits__T13() -> None:
    purgatory = DelayedOperationPurgatory("input", ManualTimer(start_ms=10))
    operation = Op(2**52 - 5)
    with pytest.raises(ValueError, match=r"2\^52"):
        purgatory.try_complete_else_watch(operation, ["a"])
    assert (counts(purgatory), len(purgatory.timer), operation.is_completed) == (EMPTY, 0, False)


PURGATORIES: list[tuple[Callable[[], object], type[Exception], str]] = [
    (
        lambda: DelayedOperationPurgatory(5),  # type: ignore[arg-type]
        TypeError,
        "name must be text, got int: it names the purgatory in errors, and its timer",
    ),
    (lambda: DelayedOperationPurgatory("p", 5), TypeError, TIMER.format("int")),  # type: ignore[arg-type]
    (lambda: DelayedOperationPurgatory("p", ManualTimer), TypeError, TIMER.format("type")),  # type: ignore[arg-type]
    (
        lambda: DelayedOperationPurgatory("p", ManualTimer(), on_error=print),
        ValueError,
        "on_error is for a timer of its own, and a timer was given: give on_error to that timer",
    ),
    (
        lambda: DelayedOperationPurgatory("p", on_error=5),  # type: ignore[arg-type]
        TypeError,
        "on_error must be callable, got int 5: pass a function, or a lambda",
    ),
]


@pytest.mark.parametrize(("call", "error", "message"), PURGATORIES)
def test_a_purgatory_that_cannot_be_made__T13(call: Callable[[], object], error: type[Exception], message: str) -> None:
    refused(error, message, call)


@pytest.mark.parametrize("timer_enabled", [1, None, "yes"])
def test_timer_enabled_is_a_bool__T13(timer_enabled: Any) -> None:
    """As a flag of `SystemTimer`; anything else is most likely an argument in the wrong place."""
    with pytest.raises(TypeError, match=r"^timer_enabled must be True or False, got "):
        DelayedOperationPurgatory("p", ManualTimer(), timer_enabled)


def fails() -> Any:
    yield "a"
    raise ZeroDivisionError


CALLS: list[tuple[Callable[[DelayedOperationPurgatory], object], type[Exception], str]] = [
    (lambda p: p.try_complete_else_watch(5, ["a"]), TypeError, OPERATION.format("int")),  # type: ignore[arg-type]
    (lambda p: p.try_complete_else_watch(Op, ["a"]), TypeError, OPERATION.format("type")),  # type: ignore[arg-type]
    (
        lambda p: p.try_complete_else_watch(TimerTask(5, print), ["a"]),  # type: ignore[arg-type]
        TypeError,
        OPERATION.format("TimerTask"),
    ),
    (
        lambda p: p.try_complete_else_watch(NoInit(), ["a"]),
        ValueError,
        "this task was never initialized: call super().__init__(delay_ms) in its __init__",
    ),
    (lambda p: p.try_complete_else_watch(Op(), "key"), TypeError, KEYS.format("str")),
    (lambda p: p.try_complete_else_watch(Op(), b"key"), TypeError, KEYS.format("bytes")),
    (lambda p: p.try_complete_else_watch(Op(), bytearray(b"k")), TypeError, KEYS.format("bytearray")),
    (lambda p: p.try_complete_else_watch(Op(), 5), TypeError, KEYS.format("int")),  # type: ignore[arg-type]
    (lambda p: p.try_complete_else_watch(Op(), None), TypeError, KEYS.format("NoneType")),  # type: ignore[arg-type]
    (
        lambda p: p.try_complete_else_watch(Op(), []),
        ValueError,
        "an operation needs at least one key to wait for, got none: name what completes it",
    ),
    (lambda p: p.try_complete_else_watch(Op(), ["a", []]), TypeError, "unhashable type: 'list'"),  # type: ignore[list-item]
    (lambda p: p.try_complete_else_watch(Op(), fails()), ZeroDivisionError, ""),
    (lambda p: p.check_and_complete([]), TypeError, "unhashable type: 'list'"),  # type: ignore[arg-type]
    (lambda p: p.cancel_for_key({}), TypeError, "unhashable type: 'dict'"),  # type: ignore[arg-type]
    (
        lambda p: p.shutdown("5"),  # type: ignore[arg-type]
        TypeError,
        "timeout_ms must be an int, a finite float or a timedelta, got str '5': pass milliseconds, as in 20 or 0.5",
    ),
    (
        lambda p: p.shutdown(math.inf),
        ValueError,
        "timeout_ms must be finite, got inf: pass a finite number of milliseconds",
    ),
]


@pytest.mark.parametrize(("call", "error", "message"), CALLS)
def test_a_call_that_cannot_be_made_changes_nothing__T13(
    call: Callable[[DelayedOperationPurgatory], object], error: type[Exception], message: str
) -> None:
    timer = ManualTimer()
    purgatory = DelayedOperationPurgatory("input", timer)
    waiting = Op()
    purgatory.try_complete_else_watch(waiting, ["a"])
    before = purgatory.stats()
    refused(error, message, lambda: call(purgatory))
    assert (purgatory.stats(), len(timer), waiting.tries) == (before, 1, 2)
    waiting.is_ready = True
    assert purgatory.check_and_complete("a") == 1


class Pair(NamedTuple):
    topic: str
    part: int


def test_a_named_tuple_is_one_key_and_a_tuple_is_a_collection__P2() -> None:
    purgatory = DelayedOperationPurgatory("input", ManualTimer())
    refused(TypeError, KEYS.format("Pair"), lambda: purgatory.try_complete_else_watch(Op(), Pair("a", 1)))
    operation = Op()
    purgatory.try_complete_else_watch(operation, [Pair("a", 1)])
    assert purgatory.cancel_for_key(("a", 1)) == [operation]
    purgatory.try_complete_else_watch(operation, ("a", 1))
    assert counts(purgatory) == (1, 1, 2, 2)


def test_a_list_that_changes_while_its_keys_are_read_and_one_with_an_iterator_of_its_own__P2_P7() -> None:
    class Shrinks:
        def __hash__(self) -> int:
            keys.clear()
            return 1

    class Reversed(list[str]):
        def __iter__(self) -> Any:
            return iter(["mine"])

    purgatory = DelayedOperationPurgatory("input", ManualTimer())
    keys: list[Any] = [Shrinks(), "b", "c"]
    operation, other = Op(), Op()
    purgatory.try_complete_else_watch(operation, keys)
    assert counts(purgatory) == (1, 1, 1, 1)
    operation.cancel()
    purgatory.try_complete_else_watch(other, Reversed(["a", "b"]))
    assert purgatory.cancel_for_key("mine") == [other], "a list's own __iter__ is not asked"


def test_any_iterable_of_keys_will_do__P2() -> None:
    purgatory = DelayedOperationPurgatory("input", ManualTimer())
    for keys in (["a"], ("a",), {"a"}, {"a": 1}, iter("a"), (key for key in "a"), ["a", "a", "a"]):
        operation = Op()
        purgatory.try_complete_else_watch(operation, keys)
        assert counts(purgatory) == (1, 1, 1, 1)
        assert purgatory.cancel_for_key("a") == [operation]


def test_neither_is_pickled_or_copied__T12() -> None:
    purgatory = DelayedOperationPurgatory("input", ManualTimer())
    operation = Op()
    for thing, name in ((purgatory, "DelayedOperationPurgatory"), (operation, "DelayedOperation")):
        for call in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match=f"^cannot pickle a {name}: .* make one where it is used$"):
                call(thing)


def test_an_operation_that_waits_is_not_initialized_again__T13() -> None:
    purgatory = DelayedOperationPurgatory("input", ManualTimer())
    operation = Op(50)
    purgatory.try_complete_else_watch(operation, ["a"])
    with pytest.raises(ValueError, match="cancel it before it is initialized again"):
        DelayedOperation.__init__(operation, 1)
    assert operation.delay_ms == 50
    operation.cancel()
    DelayedOperation.__init__(operation, 1)
    assert operation.delay_ms == 1


def test_what_is_read_only_stays_so__T13() -> None:
    purgatory, operation = DelayedOperationPurgatory("input", ManualTimer()), Never(5)
    for thing, name in (
        (purgatory, "name"),
        (purgatory, "timer"),
        (purgatory, "watched"),
        (purgatory, "num_delayed"),
        (purgatory, "unfinished"),
        (operation, "is_completed"),
        (operation, "delay_ms"),
    ):
        with pytest.raises(AttributeError):
            setattr(thing, name, 1)


def test_they_say_what_they_are__T14() -> None:
    purgatory = DelayedOperationPurgatory("calls", ManualTimer())
    operation = Never(5)
    assert (repr(purgatory), repr(operation)) == ("<DelayedOperationPurgatory 'calls' 0 waiting>", "<Never>")
    purgatory.try_complete_else_watch(operation, ["a"])
    assert (repr(purgatory), repr(operation)) == ("<DelayedOperationPurgatory 'calls' 1 waiting>", "<Never waiting>")
    operation.force_complete()
    assert repr(operation) == "<Never completed>"
    named = Never(5, name="poll 7")
    purgatory.try_complete_else_watch(named, ["a"])
    assert (named.name, operation.name, repr(named)) == ("poll 7", None, "<Never 'poll 7' waiting>")
    purgatory.timer.advance(5)  # type: ignore[attr-defined]
    assert repr(named) == "<Never 'poll 7' expired>"
    assert bool(purgatory)
    assert purgatory
    assert len(purgatory) == 0
