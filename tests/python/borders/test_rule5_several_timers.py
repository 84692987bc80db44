"""Border rule 5 with several timers: a handle belongs to one timer, and an equal one of another means another entry."""

from collections.abc import Callable

import pytest

from tickwheel import TimerTask
from tickwheel.testing import ManualTimer


class AddsElsewhere:
    """A callback whose destructor adds a task to another timer."""

    def __init__(self, add: Callable[[], None]) -> None:
        self.add = add

    def __call__(self) -> None: ...

    def __del__(self) -> None:
        self.add()


@pytest.fixture
def timers() -> tuple[ManualTimer, ManualTimer]:
    return ManualTimer("first"), ManualTimer("second")


def occupied(timer: ManualTimer, slots: int) -> None:
    for _ in range(slots):
        timer.after(1_000, print)


def check_that_it_runs_on(timer: ManualTimer, task: TimerTask, ran: list[int]) -> None:
    assert (task.is_pending, task.cancelled(), task.timer) == (True, False, timer)
    timer.advance(5)
    assert ran == [1]
    timer.add(task)
    assert task.cancel()


@pytest.mark.parametrize("slots", range(4))
def test_a_task_that_a_destructor_adds_elsewhere_during_a_cancel_of_many_stays_there__rule5_T7_T9(
    timers: tuple[ManualTimer, ManualTimer], slots: int
) -> None:
    (first, second), ran = timers, list[int]()
    occupied(second, slots)
    task = TimerTask(5, ran.append, 1)
    goes_first = first.after(10, AddsElsewhere(lambda: second.add(task)))
    first.add(task)
    assert first.cancel_many([goes_first, task]) == 2
    check_that_it_runs_on(second, task, ran)


@pytest.mark.parametrize("slots", range(4))
def test_a_task_that_is_added_elsewhere_during_a_shutdown_stays_there__rule5_T7_T11(
    timers: tuple[ManualTimer, ManualTimer], slots: int
) -> None:
    (first, second), ran = timers, list[int]()
    occupied(second, slots)
    task, goes_first = TimerTask(5, ran.append, 1), TimerTask(1, print)
    first.add(goes_first)
    first.add(task)
    goes_first._watch(lambda _has_run: second.add(task))
    assert first.shutdown() == [goes_first, task]
    check_that_it_runs_on(second, task, ran)
