"""Any object as a delay or a time: each call reads it as the others do, or refuses it and changes nothing (T13, T21).

The calls of a loop are compared with asyncio's own. `delivery/fuzzing.py` says how long it runs, and how a failure is
seen again.
"""

import asyncio
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import numpy as np
from hypothesis import strategies as st

from delivery.fuzzing import fuzz, timed
from tickwheel import TimerTask, aio
from tickwheel.testing import ManualTimer, VirtualLoop

pytestmark = timed

NOW_MS = 100_000


class Own(Exception):
    """What a value raises by itself."""


def answers(found: Any) -> Callable[..., Any]:
    def method(*_: Any) -> Any:
        if found is Own:
            raise Own
        return found

    return method


@st.composite
def objects(draw: Any) -> Any:
    """Of a class with some special methods, of a number's class or of none."""
    of_number = st.integers(-(2**70), 2**70) | st.floats() | st.none() | st.just(Own) | st.just(NotImplemented)
    names = ["__index__", "__float__", "__int__", "__radd__", "__rsub__", "__lt__", "__gt__", "__le__", "__ge__"]
    methods = draw(st.dictionaries(st.sampled_from(names), of_number, max_size=4))
    base, value = draw(
        st.sampled_from([(object, ()), (int, (3,)), (float, (2.5,)), (timedelta, (0, 3)), (str, ("3",))])
    )
    if issubclass(base, (int, float)):
        methods.pop("__radd__", None)  # its number is read, and no sum that it makes up
    return type("Odd", (base,), {name: answers(found) for name, found in methods.items()})(*value)


def of_numpy(draw: Any) -> Any:
    kind = draw(
        st.sampled_from(["b1", "i1", "i8", "u8", "f2", "f4", "f8", "c8", "m8[ms]", "m8[D]", "M8[s]", "U3", "O"])
    )
    return np.frombuffer(draw(st.binary(min_size=16, max_size=16)), dtype=np.uint8)[:1].astype(kind)[0]


VALUES = st.one_of(
    st.integers(),
    st.integers(-(10**400), 10**400),
    st.integers(2**52 - 3, 2**52 + 3) | st.integers(-(2**63) - 3, -(2**63) + 3) | st.integers(2**63 - 3, 2**63 + 3),
    st.floats(),
    st.floats(0, 1e-3) | st.floats(0, 1e6) | st.floats(4e15, 5e15),
    st.decimals() | st.fractions() | st.booleans() | st.none() | st.complex_numbers(),
    st.timedeltas(),
    st.text(max_size=4) | st.binary(max_size=4) | st.lists(st.integers(), max_size=2),
    objects(),
    st.composite(of_numpy)(),
)


def outcome(call: Callable[[], Any]) -> Any:
    """The result, or the class of the error."""
    try:
        return call()
    except Exception as error:
        return type(error)


@fuzz(VALUES, examples=400)
def test_each_call_of_a_timer_reads_a_value_alike__T13(value: Any) -> None:
    calls: list[tuple[str, Callable[[ManualTimer], object]]] = [
        ("delay_ms", lambda timer: timer.after(value, print)),
        ("delay_ms", lambda timer: timer.add(TimerTask(value, print))),
        ("delay_ms", lambda timer: timer.after(timedelta(days=1), print).reschedule(value)),
        ("period_ms", lambda timer: timer.every(value, print)),
    ]
    dues = []
    for at, (name, call) in enumerate(calls):
        timer, refused = ManualTimer(start_ms=NOW_MS), list[Exception]()
        try:
            call(timer)
        except (TypeError, ValueError, Own) as error:
            refused.append(error)
        listed = [due_ms for due_ms, _ in timer.pending()]
        for error in refused:
            known = (f"{name} must be ", "the period must be ", "a task must be due before ", "__index__ returned ")
            known += ("every() needs period_ms or gap_ms",) * (name == "period_ms" and value is None)
            assert isinstance(error, Own) or str(error).startswith(known), error
            assert listed == [NOW_MS + 86_400_000] * (at == 2), "it is where it was"
        dues.append([type(error) for error in refused] or listed)
    after, *others, every = dues
    assert others == [after] * 2
    if value is None:
        assert (after, every) == ([TypeError], [ValueError])
    elif every != after:
        assert every == [ValueError]
        assert after[0] - NOW_MS < 0.001, "a period of none, or below a microsecond"
    if isinstance(value, float) and not isinstance(after[0], type):
        late_ms = after[0] - NOW_MS - max(float.__float__(value), 0)
        assert -1e-9 * after[0] <= late_ms <= 0.001 + 1e-9 * after[0]


@contextmanager
def loop_of(kind: Any) -> Iterator[asyncio.AbstractEventLoop]:
    loop = kind()
    try:
        yield loop
    finally:
        loop.close()


def is_taken(found: Any) -> bool:
    return isinstance(found, asyncio.TimerHandle) and isinstance(found.when(), (int, float, np.floating))


@fuzz(VALUES, examples=400)
def test_a_loop_takes_what_asyncio_takes__T13_T21(value: Any) -> None:
    with loop_of(asyncio.SelectorEventLoop) as theirs:
        expected = outcome(lambda: theirs.call_later(value, print))
        # Refused by rule T13 alone, or taken by it alone.
        is_bool = isinstance(value, (bool, np.bool_))
        is_nan = is_taken(expected) and math.isnan(expected.when()) and not isinstance(value, timedelta)
        is_delta = isinstance(value, timedelta)
        # A float16 can't hold the clock of a machine that runs for 18 hours.
        is_huge = expected in (OverflowError, RuntimeWarning)
        for kind in (aio.new_event_loop, VirtualLoop):
            with loop_of(kind) as ours:
                before = ours.time()
                found = outcome(lambda: ours.call_later(value, print))
                moved = outcome(lambda: ours.call_later(3600, print).reschedule(value))  # type: ignore[attr-defined]
                assert (moved is True) == is_taken(found), (moved, found)
                if is_bool or is_nan:
                    assert found in (TypeError, ValueError)
                elif is_huge:
                    assert found is OverflowError or is_taken(found)
                elif not is_delta:
                    assert is_taken(found) == is_taken(expected), (found, expected)
                if is_taken(found) and type(value) in (int, float, np.float64) and value > -1e300:
                    assert found.when() >= before + value
