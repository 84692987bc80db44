"""T13: a bad time or callback is refused with what was given, what is allowed and what to do; nothing wraps."""

from array import array
from decimal import Decimal
from typing import Any

import pytest

from tickwheel import SystemTimer, TaskBatch, Timer, TimerTask
from tickwheel.testing import ManualTimer
from timer.watching import refused

TOO_FAR = "must be below 2^52 ms (142,000 years), got {}: leave the task out to wait for ever"
NOT_A_TIME = "must be an int, a finite float or a timedelta, got {}: pass milliseconds, as in 20 or 0.5"
LIMIT = 2**52
HUGE = 10**5000
"""More digits than Python turns into text."""


DELAYS: list[tuple[Any, type[Exception], str]] = [
    *(
        (float(text), ValueError, f"must be finite, got {text}: leave the task out to wait for ever")
        for text in ("nan", "inf", "-inf")
    ),
    *((value, ValueError, TOO_FAR.format(int(value))) for value in (LIMIT, float(LIMIT), LIMIT + 1, 2**63, 10**30)),
    (1e20, ValueError, TOO_FAR.format(10**20)),
    (True, TypeError, NOT_A_TIME.format("bool True")),
    ("5", TypeError, NOT_A_TIME.format("str '5'")),
    (b"5", TypeError, NOT_A_TIME.format("bytes b'5'")),
    (None, TypeError, NOT_A_TIME.format("NoneType None")),
    (5j, TypeError, NOT_A_TIME.format("complex 5j")),
    (Decimal(5), TypeError, NOT_A_TIME.format("Decimal Decimal('5')")),
    ([5], TypeError, NOT_A_TIME.format("list [5]")),
    ("5" * 200, TypeError, NOT_A_TIME.format("str '" + "5" * 59 + "...")),
]


@pytest.mark.parametrize(("value", "error", "message"), DELAYS)
def test_a_bad_time_is_refused_and_nothing_is_added__T13(value: Any, error: type[Exception], message: str) -> None:
    timer = ManualTimer()
    refused(error, f"delay_ms {message}", lambda: TimerTask(value, print))
    refused(error, f"delay_ms {message}", lambda: timer.after(value, print))
    refused(error, f"due_ms {message}", lambda: timer.at(value, print))
    message = message.replace("leave the task out to wait for ever", "pass a finite number of milliseconds")
    refused(error, f"ms {message}", lambda: timer.advance(value))
    refused(error, f"now_ms {message}", lambda: timer.advance_to(value))
    assert (len(timer), timer.now_ms()) == (0, 0)


def test_an_int_too_long_to_print_is_refused_by_its_name__T13() -> None:
    timer = ManualTimer()
    with pytest.raises(ValueError, match=r"^delay_ms must be below 2\^52 ms"):
        timer.after(HUGE, print)
    with pytest.raises(ValueError, match=r"^due_ms must be below 2\^52 ms"):
        timer.at(HUGE, print)


@pytest.mark.parametrize("digits", [0, 1, 20, 30, 5000])
def test_a_delay_of_nothing_or_less_is_due_now__T13(digits: int) -> None:
    is_due_now(-(10**digits))


@pytest.mark.parametrize("delay_ms", [0, -0.5, -(2**52), -(2**63), -(2**63) - 1, -1e300])
def test_a_delay_of_nothing_or_less_at_a_border_is_due_now__T13(delay_ms: float) -> None:
    is_due_now(delay_ms)


def is_due_now(delay_ms: float) -> None:
    timer, ran = ManualTimer(start_ms=77), []
    task = timer.after(delay_ms, ran.append, 1)
    timer.add(TimerTask(delay_ms, ran.append, 2))
    assert timer.pending()[0] == (77, task)
    assert (timer.advance(0), ran) == (2, [1, 2])


def test_an_instant_at_the_limit_is_refused_although_the_delay_is_not__T13() -> None:
    timer = ManualTimer(start_ms=LIMIT - 10)
    message = (
        f"a task must be due before {LIMIT} ms (2^52) on the timer's clock, got {LIMIT} ms: leave the task out to wait "
        "for ever"
    )
    refused(ValueError, message, lambda: timer.after(10, print))
    refused(ValueError, message, lambda: timer.add(TimerTask(9.9999, print)))
    timer.after(9.75, print)
    assert len(timer) == 1


def test_the_clock_stays_below_the_limit__T13() -> None:
    timer = ManualTimer(start_ms=LIMIT - 10)
    refused(ValueError, f"a clock must stay below 2^52 ms, got {LIMIT} ms: start it lower", lambda: timer.advance(10))
    timer.advance(9.75)
    assert timer.now_ms() == LIMIT - 1


def test_a_move_that_is_refused_leaves_the_task_where_it_was__T13() -> None:
    timer, ran = ManualTimer(start_ms=LIMIT - 100), []
    task = TimerTask(60, ran.append, 1)
    timer.add(task)
    timer.advance(50)
    with pytest.raises(ValueError, match="must be due before"):
        timer.add(task)
    assert timer.pending() == [(LIMIT - 40, task)]
    timer.advance(10)
    assert ran == [1]


@pytest.mark.parametrize("what", [3, None, "print"])
def test_something_that_cannot_be_called_is_refused__T13(what: Any) -> None:
    timer = ManualTimer()
    message = f"callback must be callable, got {type(what).__name__} {what!r}: pass a function, or a lambda"
    refused(TypeError, message, lambda: timer.after(5, what))
    refused(TypeError, message, lambda: timer.at(5, what))
    if what is not None:
        refused(TypeError, message, lambda: TimerTask(5, what))
    assert len(timer) == 0


def test_a_task_with_nothing_to_run_is_refused__T13() -> None:
    message = "a TimerTask needs something to run, got no callback: pass one, or override run() in a subclass"
    refused(TypeError, message, lambda: TimerTask(5))


def test_the_name_of_a_task_is_text__T13() -> None:
    refused(TypeError, "name must be text, got 3: snapshots show it", lambda: TimerTask(5, print, name=3))  # type: ignore[arg-type]


def test_the_name_that_is_refused_is_shown_as_python_writes_it__T13() -> None:
    class Odd:
        def __str__(self) -> str:
            raise AssertionError("not asked")

        def __repr__(self) -> str:
            return "<odd>"

    refused(TypeError, "name must be text, got <odd>: snapshots show it", lambda: TimerTask(5, print, name=Odd()))  # type: ignore[arg-type]


class AnyAttribute:
    def __getattr__(self, name: str) -> int:
        return 5

    def __repr__(self) -> str:
        return "<any>"


@pytest.mark.parametrize(
    ("value", "shown"), [(int, "type <class 'int'>"), (AnyAttribute(), "AnyAttribute <any>")], ids=["class", "mock"]
)
def test_what_only_seems_to_be_an_int_is_refused__T13(value: Any, shown: str) -> None:
    """A class has its instances' `__index__` as an attribute, and a mock has every attribute."""
    refused(TypeError, f"delay_ms {NOT_A_TIME.format(shown)}", lambda: ManualTimer().after(value, print))


def test_cancel_many_takes_a_collection__T13() -> None:
    timer = ManualTimer()
    batch = timer.add_many(array("q", [5]), print)
    message = "tasks must be a collection of TimerTasks, got NoneType None: for one task pass [task]"
    refused(TypeError, message, lambda: timer.cancel_many(None))  # type: ignore[arg-type]
    message = "indices must be a collection of ints, got int 0: for one timer pass [index]"
    refused(TypeError, message, lambda: batch.cancel_many(0))  # type: ignore[arg-type]


def test_two_timers_of_one_name_are_told_apart__T13() -> None:
    here, there = ManualTimer(), ManualTimer()
    task = there.after(5, print)
    another = "another timer that is named 'manual'"
    message = f"this task is pending on {another}: cancel it there before adding it to timer 'manual'"
    refused(ValueError, message, lambda: here.add(task))
    message = f"a task is on {another}, not on 'manual': nothing was cancelled"
    refused(ValueError, message, lambda: here.cancel_many([task]))


def test_only_a_task_can_be_added__T13() -> None:
    message = "add takes a TimerTask, got function: use after(delay_ms, callback) for a plain callable"
    refused(TypeError, message, lambda: ManualTimer().add(lambda: None))  # type: ignore[arg-type]


def test_a_subclass_that_forgot_its_base_is_told__T13() -> None:
    class Forgetful(TimerTask):
        def __init__(self) -> None:
            pass

        def run(self) -> None:
            pass

    task, timer = Forgetful(), ManualTimer()
    message = "this task was never initialized: call super().__init__(delay_ms) in its __init__"
    refused(ValueError, message, lambda: timer.add(task))
    refused(ValueError, message, lambda: task.delay_ms)
    assert (task.cancel(), task.name, repr(task)) == (False, None, "<Forgetful>")


@pytest.mark.parametrize("limit", [-1, True, 1.5, "1"])
def test_a_bad_limit_is_refused__T13(limit: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=r"^limit must be .*: leave it out for all$"):
        ManualTimer().pending(limit=limit)


@pytest.mark.parametrize("kind", [Timer, TaskBatch])
def test_what_is_not_made_by_itself_says_so__T13(kind: type) -> None:
    with pytest.raises(TypeError, match=f"^cannot create 'tickwheel.{kind.__name__}' instances$"):
        kind()


def test_advance_clock_is_for_timers_without_a_reaper__T13() -> None:
    message = "timer 'driven' has a reaper that drives its clock: make it with reaper=False to drive it yourself"
    with SystemTimer("driven") as timer:
        refused(RuntimeError, message, lambda: timer.advance_clock(0))
