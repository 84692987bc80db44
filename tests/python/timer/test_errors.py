"""T10: a callback that fails stops nothing, loses nothing, and somebody is told."""

import sys
import threading
import traceback
from array import array
from typing import Any

import pytest

from tickwheel import SystemTimer, TimerTask
from tickwheel.testing import ManualTimer
from timer.watching import wait

Told = list[tuple[Any, BaseException]]


def fail(error: BaseException) -> None:
    raise error


@pytest.fixture
def unraisable(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, BaseException | None]]:
    """What reaches `sys.unraisablehook`, as (object, exception)."""
    told: list[tuple[Any, BaseException | None]] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: told.append((args.object, args.exc_value)))
    return told


def test_what_a_callback_raises_goes_to_on_error_with_its_task__T10() -> None:
    told: Told = []
    timer = ManualTimer(on_error=lambda task, error: told.append((task, error)))
    error = ZeroDivisionError("by nought")
    task = timer.after(5, fail, error)
    timer.advance(5)
    assert told == [(task, error)]
    assert told[0][1] is error


def test_the_exception_still_knows_where_it_was_raised__T10() -> None:
    told: Told = []
    timer = ManualTimer(on_error=lambda task, error: told.append((task, error)))
    timer.after(5, fail, ValueError())
    timer.advance(5)
    assert [frame.name for frame in traceback.extract_tb(told[0][1].__traceback__)] == ["fail"]


def test_a_failure_loses_no_other_task__T10() -> None:
    told: Told = []
    ran: list[int] = []
    timer = ManualTimer(on_error=lambda task, error: told.append((task, error)))
    for number in range(10):
        timer.after(5, fail if number % 2 else ran.append, ValueError() if number % 2 else number)
    assert timer.advance(5) == 10
    assert (ran, len(told), len(timer)) == ([0, 2, 4, 6, 8], 5, 0)


def test_a_subclass_and_a_batch_are_told_of_as_what_was_added__T10() -> None:
    class Failing(TimerTask):
        def run(self) -> None:
            raise KeyError(self.name)

    told: Told = []
    timer = ManualTimer(on_error=lambda task, error: told.append((task, error)))
    task = Failing(5, name="x")
    timer.add(task)
    batch = timer.add_many(array("q", [6, 6]), lambda indices: fail(ValueError(indices.tolist())))
    timer.advance(6)
    assert [(task, type(error), error.args) for task, error in told] == [
        (task, KeyError, ("x",)),
        (batch, ValueError, ([0, 1],)),
    ]


def test_by_default_sys_unraisablehook_is_told__T10(unraisable: list[tuple[Any, BaseException | None]]) -> None:
    timer = ManualTimer()
    error = ValueError()
    task = timer.after(5, fail, error)
    timer.advance(5)
    assert unraisable == [(task, error)]


def test_by_default_sys_unraisablehook_is_told_from_the_timers_thread__T10(
    unraisable: list[tuple[Any, BaseException | None]],
) -> None:
    error, after = ValueError(), threading.Event()
    with SystemTimer("unraisable") as timer:
        task = timer.after(0, fail, error)
        timer.after(1, after.set)
        wait(after)
    assert unraisable == [(task, error)]


def test_a_failing_on_error_is_told_to_sys_unraisablehook__T10(
    unraisable: list[tuple[Any, BaseException | None]],
) -> None:
    def on_error(task: object, error: BaseException) -> None:
        raise OSError("the log is full")

    ran: list[int] = []
    timer = ManualTimer(on_error=on_error)
    timer.after(5, fail, ValueError())
    timer.after(5, ran.append, 1)
    assert timer.advance(5) == 2
    assert ran == [1]
    assert [(where, type(error), str(error)) for where, error in unraisable] == [(on_error, OSError, "the log is full")]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), GeneratorExit(), Exception(), BaseException()])
def test_nothing_that_is_raised_ends_the_timers_own_thread__T10(error: BaseException) -> None:
    told: Told = []
    threads: list[str] = []
    after = threading.Event()
    with SystemTimer("survivor", on_error=lambda task, error: told.append((task, error))) as timer:
        task = timer.after(0, fail, error)
        timer.after(0, lambda: threads.append(threading.current_thread().name))
        timer.after(1, after.set)
        wait(after)
    assert told == [(task, error)]
    assert threads == ["executor-survivor"]


def test_an_on_error_that_is_interrupted_does_not_end_the_timers_thread__T10(
    unraisable: list[tuple[Any, BaseException | None]],
) -> None:
    after = threading.Event()
    interrupt = KeyboardInterrupt()
    with SystemTimer("survivor", on_error=lambda *_: fail(interrupt)) as timer:
        timer.after(0, fail, ValueError())
        timer.after(1, after.set)
        wait(after)
    assert [error for _, error in unraisable] == [interrupt]


def test_a_task_that_failed_has_run__T10() -> None:
    timer = ManualTimer(on_error=lambda *_: None)
    task = TimerTask(5, fail, ValueError())
    timer.add(task)
    timer.advance(5)
    assert task.cancel() is False
    timer.add(task)
    assert (timer.advance(5), timer.stats()["expired"]) == (1, 2)


def test_on_error_may_add_the_task_again__T10() -> None:
    timer = ManualTimer(on_error=lambda task, _: timer.add(task))
    attempts: list[int] = []

    def flaky() -> None:
        attempts.append(timer.now_ms())
        if len(attempts) < 3:
            raise ConnectionError

    timer.add(TimerTask(10, flaky))
    timer.advance(1000)
    assert attempts == [10, 20, 30]
