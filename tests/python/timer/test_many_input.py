"""T18: what `add_many` reads: any buffer or Arrow array of int64, all of it or nothing."""

import re
from array import array
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tickwheel.testing import ManualTimer

PLAIN = [30, 5, 400]


def due(delays_ms: Any) -> list[tuple[float, int]]:
    """What a timer makes of an array: (due instant, index)."""
    timer = ManualTimer()
    timer.add_many(delays_ms, print)
    return [(due_ms, index) for due_ms, (_, index) in timer.pending()]


@pytest.mark.parametrize(
    "delays_ms",
    [
        array("q", PLAIN),
        array("l", PLAIN),
        memoryview(array("q", PLAIN)),
        memoryview(array("q", [0, *PLAIN, 0]))[1:4],
        memoryview(array("q", [30, 0, 5, 0, 400]))[::2],
        memoryview(array("q", PLAIN[::-1]))[::-1],
        memoryview(array("q", PLAIN).tobytes()).cast("q"),
        np.array(PLAIN, "int64"),
        np.array([[30, 0], [5, 0], [400, 0]], "int64")[:, 0],
        pa.array(PLAIN, "int64"),
        pa.array([1, 2, *PLAIN, 3], "int64").slice(2, 3),
        pa.array([None, *PLAIN, None], "int64").slice(1, 3),
        pa.array([None] * 9 + PLAIN, "int64").slice(9),
        *(memoryview(bytes(skew) + array("q", PLAIN).tobytes())[skew:].cast("q") for skew in range(9)),
        np.frombuffer(b"x" + np.array([30, 0, 5, 0, 400]).tobytes(), "int64", offset=1)[::2],
    ],
    ids=lambda value: type(value).__name__,
)
def test_any_buffer_or_arrow_array_of_int64_is_read__T18(delays_ms: Any) -> None:
    assert due(delays_ms) == [(5, 1), (30, 0), (400, 2)]


@pytest.mark.parametrize("empty", [array("q"), np.array([], "int64"), pa.array([], "int64"), memoryview(b"").cast("q")])
def test_an_empty_one_is_an_empty_batch__T18(empty: Any) -> None:
    timer = ManualTimer()
    assert (len(timer.add_many(empty, print)), len(timer)) == (0, 0)


def test_big_endian_numbers_are_read_as_such_or_refused__T18() -> None:
    """Never as other numbers: 2^48 ms, nine thousand years, would be 256 ms."""
    try:
        found = due(np.array([2**48], ">i8"))
    except TypeError:
        return
    assert found == [(2**48, 0)]


def test_the_values_are_copied__T18() -> None:
    timer, delays_ms = ManualTimer(), array("q", [5])
    timer.add_many(delays_ms, print)
    delays_ms[0] = 700
    delays_ms.append(1)  # an array with an open buffer would refuse
    assert [due_ms for due_ms, _ in timer.pending()] == [5]


@pytest.mark.parametrize(
    "delays_ms",
    [
        [5],
        (5,),
        5,
        None,
        "5",
        b"12345678",
        bytearray(8),
        array("i", [5]),
        array("Q", [5]),
        array("d", [5.0]),
        np.array([5], "int32"),
        np.array([5], "uint64"),
        np.array([5], "timedelta64[ms]"),
        np.array([5], object),
    ],
    ids=lambda value: type(value).__name__,
)
def test_anything_else_is_refused_with_what_is_allowed__T18(delays_ms: Any) -> None:
    start = f"delays_ms must be a buffer or an Arrow array of int64, got {type(delays_ms).__name__} "
    end = ": use array.array('q', ...), numpy.asarray(..., 'int64') or pyarrow.array(..., 'int64')"
    with pytest.raises(TypeError, match=f"(?s)^{re.escape(start)}.*{re.escape(end)}$"):
        ManualTimer().add_many(delays_ms, print)


@pytest.mark.parametrize(
    ("delays_ms", "given"),
    [
        (pa.array([5], "int32"), "i"),
        (pa.array([5], "uint64"), "L"),
        (pa.array([5.0], "float64"), "g"),
        (pa.array([5], "timestamp[ms]"), "tsm:"),
        (pa.array([5], "duration[ms]"), "tDm"),
        (pa.array(["5"]), "u"),
        (pa.array([None], pa.null()), "n"),
        (pa.array([5], "int64").dictionary_encode(), "i"),
    ],
    ids=lambda value: str(getattr(value, "type", value)),
)
def test_an_arrow_array_of_another_type_is_refused__T18(delays_ms: pa.Array, given: str) -> None:
    text = re.escape(f"delays_ms must be an Arrow array of int64, got format '{given}': cast it first")
    with pytest.raises(TypeError, match=f"^{text}$"):
        ManualTimer().add_many(delays_ms, print)


@pytest.mark.parametrize(
    "delays_ms",
    [
        pa.array([5, None], "int64"),
        pa.array([None], "int64"),
        pa.array([1] * 9 + [None], "int64"),
        pa.array([5, 6, None, 7], "int64").slice(1, 2),
    ],
)
def test_nulls_are_a_value_error__T18(delays_ms: pa.Array) -> None:
    timer = ManualTimer()
    with pytest.raises(ValueError, match=r"^delays_ms must have no nulls: drop or fill them first$"):
        timer.add_many(delays_ms, print)
    assert len(timer) == 0


class Unreadable:
    """Raises where it is to be shown in an error message."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __repr__(self) -> str:
        raise self.error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_an_exit_is_not_lost_while_an_error_message_is_made__T13(error: BaseException) -> None:
    timer = ManualTimer()
    calls: list[Callable[[], object]] = [
        lambda: timer.add_many(Unreadable(error), print),  # type: ignore[arg-type]
        lambda: timer.after(Unreadable(error), print),  # type: ignore[arg-type]
        lambda: timer.after(5, Unreadable(error)),  # type: ignore[arg-type]
    ]
    for call in calls:
        with pytest.raises(type(error)) as caught:
            call()
        assert caught.value is error


def test_what_cannot_be_shown_is_refused_by_its_type__T13() -> None:
    with pytest.raises(TypeError, match=r"^delays_ms must be a buffer or .*, got Unreadable \?: use array.array"):
        ManualTimer().add_many(Unreadable(ValueError()), print)  # type: ignore[arg-type]


def test_why_a_buffer_was_not_given_is_told__T13() -> None:
    with pytest.raises(TypeError, match=r"\(cannot include dtype 'm' in a buffer\)") as caught:
        ManualTimer().add_many(np.array([5], "timedelta64[ms]"), print)
    assert isinstance(caught.value.__cause__, ValueError)
    released = memoryview(array("q", PLAIN))
    released.release()
    with pytest.raises(TypeError, match=r"\(operation forbidden on released memoryview object\)"):
        ManualTimer().add_many(released, print)


class Interrupted:
    def __getattr__(self, name: str) -> object:
        raise KeyboardInterrupt


def test_what_an_array_of_indices_raises_is_told__T18() -> None:
    """Only what is no array is gone through by its iterator."""
    timer = ManualTimer()
    batch = timer.add_many(array("q", [5, 5, 5]), print)
    with pytest.raises(ValueError, match=r"^indices must have no nulls"):
        batch.cancel_many(pa.array([1, None], "int64"))
    with pytest.raises(TypeError, match=r"^indices must be an Arrow array of int64, got format 'i': cast it first$"):
        batch.cancel_many(pa.array([1], "int32"))
    with pytest.raises(ValueError, match=r"^indices must have one dimension, got 2"):
        batch.cancel_many(np.array([[0, 1]], "int64"))
    with pytest.raises(TypeError, match=r"^indices must be a buffer or .*got array array\('i', \[1\]\) \(format 'i'\)"):
        batch.cancel_many(array("i", [1]))
    with pytest.raises(KeyboardInterrupt):
        batch.cancel_many(Interrupted())  # type: ignore[arg-type]
    assert len(batch) == 3
    assert batch.cancel_many(pa.chunked_array([[0], [2]], "int64")) == 2
    assert batch.cancel_many(iter([0, 1])) == 1


def test_two_dimensions_are_refused__T18() -> None:
    with pytest.raises(ValueError, match=r"^delays_ms must have one dimension, got 2: flatten it first$"):
        ManualTimer().add_many(np.zeros((2, 2), "int64"), print)


def test_a_delay_past_the_limit_is_named_by_its_index_and_nothing_is_added__T18() -> None:
    timer = ManualTimer()
    delays_ms = array("q", [5] * 3000)
    delays_ms[2500] = 2**52
    text = r"^delays_ms\[2500\] must be below 2\^52 ms \(142,000 years\), got 4503599627370496: leave the task out"
    with pytest.raises(ValueError, match=text):
        timer.add_many(delays_ms, print)
    assert (len(timer), timer.stats()["added"]) == (0, 0)


def test_an_instant_past_the_limit_is_refused_and_nothing_is_added__T18() -> None:
    timer = ManualTimer(start_ms=10)
    with pytest.raises(ValueError, match=r"^a task must be due before 4503599627370496 ms"):
        timer.add_many(array("q", [5, 2**52 - 10, 6]), print)
    assert (len(timer), timer.stats()["added"]) == (0, 0)


def test_the_callback_must_be_callable__T13() -> None:
    timer = ManualTimer()
    with pytest.raises(TypeError, match=r"^callback must be callable, got int 3: pass a function, or a lambda$"):
        timer.add_many(array("q", [5]), 3)  # type: ignore[arg-type]
    assert len(timer) == 0
