"""A task says what it is, and can be moved (T22)."""

import queue
import threading
from datetime import timedelta

import pytest

from tickwheel import SystemTimer, TimerClosed, TimerTask
from tickwheel.testing import ManualTimer

pytestmark = pytest.mark.timeout(30)


def test_what_it_calls_and_when_until_it_has_run__T22():
    timer, came = ManualTimer(start_ms=1_000), []
    task = timer.after(50.5, came.append, "x", name="a reminder")
    assert (task.due_ms, task.is_pending, task.cancelled()) == (1_050.5, True, False)
    assert (task.callback, task.args, task.name) == (came.append, ("x",), "a reminder")
    timer.advance(100)
    assert (task.due_ms, task.is_pending, task.cancelled()) == (None, False, False)
    assert (task.callback, task.args, task.name) == (None, (), "a reminder")
    assert came == ["x"]


def test_one_that_was_cancelled_says_so_until_it_is_added_again__T9_T22():
    timer = ManualTimer()
    task = TimerTask(10, print, 1, name="again")
    assert (task.is_pending, task.cancelled(), task.callback, task.args) == (False, False, print, (1,))
    assert task.cancel() is False
    assert task.cancelled() is False
    timer.add(task)
    assert task.cancel() is True
    assert (task.is_pending, task.cancelled()) == (False, True)
    timer.add(task)
    assert (task.is_pending, task.cancelled()) == (True, False)
    assert timer.cancel_many([task]) == 1
    assert task.cancelled() is True


def test_asyncios_name_says_the_same__T22():
    timer = ManualTimer()
    task, series = timer.after(10, print), timer.every(10, print)
    assert (task.cancelled(), series.cancelled()) == (False, False)
    task.cancel(), series.cancel()
    assert (task.cancelled(), series.cancelled()) == (True, True)


def test_a_task_is_moved_if_its_call_has_not_begun__T7_T22():
    timer, came = ManualTimer(), []
    task = timer.after(10, came.append, 1)
    assert task.reschedule(50) is True
    assert task.due_ms == 50
    timer.advance(20)
    assert task.reschedule(timedelta(milliseconds=5)) is True
    timer.advance(5)
    assert came == [1]
    assert task.reschedule(10) is False
    cancelled = timer.after(10, came.append, 2)
    cancelled.cancel()
    assert cancelled.reschedule(10) is False
    assert TimerTask(10, print).reschedule(10) is False
    timer.advance(100)
    assert came == [1]


def test_a_move_is_behind_those_that_were_added_for_the_same_time__T6_T22():
    timer, came = ManualTimer(), []
    first = timer.after(10, came.append, "first")
    timer.after(10, came.append, "second")
    first.reschedule(10)
    timer.advance(10)
    assert came == ["second", "first"]


def test_one_that_waits_for_the_executor_is_pending_and_can_be_moved__T7_T22():
    entered, may_go, came = threading.Event(), threading.Event(), queue.SimpleQueue()

    def block():
        entered.set()
        may_go.wait(20)

    with SystemTimer("busy") as timer:
        timer.after(0, block)
        assert entered.wait(10)
        task = timer.after(0, came.put, "moved")
        while len(timer):
            threading.Event().wait(0.001)
        assert task.is_pending
        assert task.due_ms <= timer.now_ms() + 1
        assert task.reschedule(3_600_000) is True
        may_go.set()
        assert task.is_pending
        assert task.cancel() is True
    assert came.empty()


def test_a_task_of_a_closed_timer_is_not_moved__T11_T22():
    timer = ManualTimer()
    task = timer.after(10, print)
    assert timer.shutdown() == [task]
    assert (task.is_pending, task.cancelled(), task.callback) == (False, False, print)
    assert task.reschedule(5) is False
    with pytest.raises(TimerClosed):
        timer.add(task)


@pytest.mark.parametrize(
    ("delay", "ms"),
    [
        (timedelta(days=1, milliseconds=1), 86_400_001),
        (timedelta(microseconds=1), 0.001),
        (timedelta(milliseconds=399, microseconds=999), 399.999),
        (timedelta(seconds=-1), 0),
        (timedelta(days=365_000), 365_000 * 86_400_000),
    ],
)
def test_a_delay_may_be_a_timedelta__T22(delay, ms):
    timer = ManualTimer()
    assert timer.after(delay, print).due_ms == ms
    task = TimerTask(delay, print)
    timer.add(task)
    assert task.due_ms == ms
    assert timer.call_later(delay, print).due_ms == ms
    timer.advance(timedelta(milliseconds=1))
    assert timer.now_us() == 1_000


def test_call_later_takes_seconds__T19_T22():
    timer, came = ManualTimer(), []
    timer.call_later(0.25, came.append, "x")
    timer.advance(249)
    assert came == []
    timer.advance(1)
    assert came == ["x"]
    for wrong in ("1", None, True):
        with pytest.raises(TypeError, match="delay must be an int, a finite float or a timedelta, got"):
            timer.call_later(wrong, print)
    for wrong in (float("nan"), float("inf"), 2**52):
        with pytest.raises(ValueError, match="delay must be"):
            timer.call_later(wrong, print)
