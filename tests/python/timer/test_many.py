"""T18: many deadlines at once, one Python call per group that expires together, and what their handle can do."""

import os
import sys
import threading
import weakref
from array import array
from collections.abc import Callable
from typing import Any

import pytest

from tickwheel import SystemTimer, TaskBatch, TimerTask
from tickwheel.testing import ManualTimer
from timer.watching import Hold, places, until, wait


class Calls:
    """A callback for a batch: the indices of each call."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []

    def __call__(self, indices: memoryview) -> None:
        self.groups.append(indices.tolist())


def delays(*delays_ms: int) -> array:
    return array("q", delays_ms)


def test_one_call_per_group_in_order_of_expiry_and_of_add__T18() -> None:
    timer, calls, at = ManualTimer(), Calls(), []
    timer.add_many(delays(30, 10, 30, 20, 10, 10), lambda indices: (calls(indices), at.append(timer.now_ms())))
    assert timer.advance(100) == 6
    assert calls.groups == [[1, 4, 5], [3], [0, 2]]
    assert at == [10, 20, 30]


def test_the_only_group_of_a_batch_is_called_too__T18() -> None:
    timer, calls = ManualTimer(), Calls()
    timer.add_many(delays(5), calls)
    assert (timer.advance(5), calls.groups) == (1, [[0]])


def test_the_callback_gets_a_memoryview_of_int64__T18() -> None:
    timer, seen = ManualTimer(), []
    timer.add_many(delays(5, 5, 6), seen.append)
    timer.advance(5)
    assert type(seen[0]) is memoryview
    assert (seen[0].format, seen[0].itemsize, seen[0].shape, seen[0].tolist()) == ("q", 8, (2,), [0, 1])


def test_an_expiring_group_is_what_tick_precision_releases_together__T18() -> None:
    timer, calls = ManualTimer(tick_ms=20, precision="tick"), Calls()
    timer.add_many(delays(27, 25, 26, 45), calls)
    timer.advance(20)
    assert calls.groups == [[1, 2, 0]]


def test_another_task_due_in_between_splits_the_group__T18() -> None:
    timer, order = ManualTimer(tick_ms=20, precision="tick"), []
    timer.add_many(delays(25, 27, 25, 28, 50), lambda indices: order.append(indices.tolist()))
    timer.after(26, order.append, "task")
    timer.advance(20)
    assert order == [[0, 2], "task", [1, 3]]


def test_another_batch_in_between_splits_the_group__T18() -> None:
    timer, order = ManualTimer(tick_ms=20, precision="tick"), []
    timer.add_many(delays(25, 27, 50), lambda indices: order.append(("a", indices.tolist())))
    timer.add_many(delays(26, 28, 50), lambda indices: order.append(("b", indices.tolist())))
    timer.advance(20)
    assert order == [("a", [0]), ("b", [0]), ("a", [1]), ("b", [1])]


def test_a_task_in_between_that_was_cancelled_does_not_split_it__T18() -> None:
    timer, order = ManualTimer(tick_ms=20, precision="tick"), []
    timer.add_many(delays(25, 27, 50), lambda indices: order.append(indices.tolist()))
    between = timer.after(26, order.append, "task")
    timer.after(24, between.cancel)
    timer.advance(20)
    assert order == [[0, 1]]


def test_a_batch_takes_its_place_in_the_order_of_adds__T6() -> None:
    timer, order = ManualTimer(), []
    timer.after(5, order.append, "before")
    timer.add_many(delays(5, 5, 9), lambda indices: order.append(indices.tolist()))
    timer.after(5, order.append, "after")
    timer.advance(5)
    assert order == ["before", [0, 1], "after"]


def test_a_delay_of_nothing_or_less_is_due_now__T13() -> None:
    timer, calls = ManualTimer(start_ms=5), Calls()
    timer.add_many(delays(0, -1, -(2**63), 7), calls)
    timer.advance(0)
    assert calls.groups == [[0, 1, 2]]


def test_cancel_takes_one_out__T18() -> None:
    timer, calls = ManualTimer(), Calls()
    batch = timer.add_many(delays(5, 5, 700, 900), calls)
    assert (batch.cancel(1), batch.cancel(1), batch.cancel(2)) == (True, False, True)
    assert (len(batch), len(timer)) == (2, 2)
    timer.advance(5)
    assert (calls.groups, batch.cancel(0), len(batch), len(timer)) == ([[0]], False, 1, 1)


@pytest.mark.parametrize(
    "indices",
    [[0, 2, 2], (2, 0), range(0, 3, 2), iter([0, 2]), {0, 2}, delays(0, 2), memoryview(delays(0, 1, 2, 1))[::2]],
)
def test_cancel_many_takes_ints_and_buffers__T18(indices: Any) -> None:
    timer, calls = ManualTimer(), Calls()
    batch = timer.add_many(delays(5, 5, 5, 9), calls)
    assert (batch.cancel_many(indices), len(batch)) == (2, 2)
    timer.advance(5)
    assert calls.groups == [[1]]


def test_cancel_all_leaves_nothing__T18() -> None:
    timer, calls = ManualTimer(), Calls()
    batch = timer.add_many(delays(*range(1, 3001)), calls)
    timer.advance(2)
    assert (batch.cancel_all(), batch.cancel_all()) == (2998, 0)
    assert (len(batch), len(timer), timer.advance(10_000), calls.groups) == (0, 0, 0, [[0], [1]])


@pytest.mark.parametrize("index", [4, -1, -4, 10**6, 2**62, 10**30, -(10**30)])
def test_an_index_outside_the_batch_is_an_index_error__T18(index: int) -> None:
    timer = ManualTimer()
    batch = timer.add_many(delays(5, 5, 5, 9), print)
    for cancel in (batch.cancel, lambda index: batch.cancel_many([0, index])):
        with pytest.raises(IndexError, match=rf"^the batch has timers 0 to 3, got {index}"):
            cancel(index)
    assert len(batch) == len(timer) == 4, "all or nothing"


@pytest.mark.parametrize("index", ["0", 0.0, None])
def test_an_index_that_is_no_int_is_a_type_error__T18(index: Any) -> None:
    timer = ManualTimer()
    batch = timer.add_many(delays(5), print)
    for cancel in (batch.cancel, lambda index: batch.cancel_many([index])):
        with pytest.raises(TypeError, match=r"^an index of a batch must be an int, got .*: pass its position"):
            cancel(index)
    assert len(timer) == 1


def test_an_index_of_an_empty_batch_is_an_index_error__T18() -> None:
    timer = ManualTimer()
    batch = timer.add_many(memoryview(delays(1))[:0], print)
    with pytest.raises(IndexError):
        batch.cancel(0)


def test_len_is_how_many_are_still_to_run__T18() -> None:
    timer = ManualTimer()
    batch = timer.add_many(delays(1, 2, 2, 3), len)
    lengths = [len(batch)]
    for _ in range(3):
        timer.advance(1)
        lengths.append(len(batch))
    assert lengths == [4, 3, 1, 0]
    assert repr(batch) == "<TaskBatch 0 of 4 to run>"


def test_a_batch_entry_appears_as_batch_and_index__T18() -> None:
    timer = ManualTimer()
    batch = timer.add_many(delays(30, 5), print)
    assert timer.pending() == [(5, (batch, 1)), (30, (batch, 0))]
    assert places(timer) == {(batch, 1): (1, 5), (batch, 0): (2, 1)}
    assert timer.shutdown() == timer.unfinished == [(batch, 1), (batch, 0)]


def test_a_listed_timer_of_a_batch_is_cancelled_by_its_batch__T18() -> None:
    timer, came = ManualTimer(), list[int]()
    batch = timer.add_many(delays(30, 5, 7), lambda indices: came.extend(indices))
    assert [task for _, task in timer.pending()] == [(batch, 1), (batch, 2), (batch, 0)]
    assert (batch.due_ms(1), batch.cancel(1), batch.cancel(1), batch.due_ms(1)) == (5, True, False, None)
    timer.advance(7)
    assert (came, batch.cancel(2)) == ([2], False)
    assert [batch.cancel(index) for batch, index in timer.shutdown()] == [False], "it is off the timer"
    with pytest.raises(IndexError):
        batch.due_ms(3)


@pytest.mark.parametrize("look", [lambda timer: timer.pending(), lambda timer: timer.shutdown()])
def test_a_list_of_tasks_is_made_without_running_python_code__T11_T18(look: Callable[[ManualTimer], object]) -> None:
    """A signal's handler runs where Python code runs. If it raised in a shutdown, the list would be lost."""
    timer, called = ManualTimer(), list[str]()
    timer.add_many(delays(*range(1, 100)), print)
    timer.pending()  # what is imported at the first use
    sys.setprofile(lambda frame, event, _: called.append(frame.f_code.co_name) if event == "call" else None)
    try:
        look(timer)
    finally:
        sys.setprofile(None)
    assert set(called) <= {"<lambda>"}
    assert called.count("<lambda>") == 1, "the test's own"


def test_a_timer_of_a_batch_says_in_a_child_what_a_task_says__T12_T18() -> None:
    timer = ManualTimer()
    task, batch = timer.after(5, print), timer.add_many(delays(5), print)
    ((_, listed_task), (_, listed)) = timer.pending()
    if (pid := os.fork()) == 0:
        os._exit(7 if [listed_task.due_ms, batch.due_ms(0)] == [None, None] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert (listed_task, listed) == (task, (batch, 0))


def test_a_batch_lets_go_of_its_callback_when_none_is_left__T18() -> None:
    for end in ("run", "cancel"):
        timer, calls = ManualTimer(), Calls()
        batch = timer.add_many(delays(5, 9), calls)
        watch = weakref.ref(calls)
        del calls
        timer.advance(5)
        assert watch() is not None
        if end == "run":
            timer.advance(5)
        else:
            batch.cancel(1)
        assert watch() is None, end


def test_ten_thousand_in_a_group_are_one_call__T18() -> None:
    timer, calls = ManualTimer(), Calls()
    timer.add_many(delays(*[500] * 10_000, 900), calls)
    timer.advance(500)
    assert calls.groups == [list(range(10_000))]


def test_ten_thousand_in_a_group_are_one_call_on_a_real_timer_too__T18() -> None:
    calls, last = Calls(), threading.Event()
    with SystemTimer("many") as timer:
        timer.add_many(delays(*[300] * 10_000, 3_600_000), calls)
        timer.after(310, last.set)
        wait(last)
    assert [len(group) for group in calls.groups] == [10_000]
    assert calls.groups == [list(range(10_000))]


def test_what_waits_on_the_executors_queue_can_be_cancelled__T9() -> None:
    hold, calls = Hold(), Calls()
    with SystemTimer("queue") as timer:
        timer.after(0, hold)
        wait(hold.running)
        batch = timer.add_many(delays(0, 0, 0, 3_600_000), calls)
        until(lambda: timer.stats()["executor_depth"] == 3)
        assert batch.cancel(1) is True
        hold.let_go.set()
        until(lambda: calls.groups != [])
    assert [index for group in calls.groups for index in group] == [0, 2]


def test_cancel_many_of_a_timer_cancels_tasks__T18() -> None:
    timer, ran = ManualTimer(), []
    tasks = [timer.after(delay_ms, ran.append, delay_ms) for delay_ms in (1, 5, 300, 9)]
    never = TimerTask(5, print)
    timer.advance(1)
    tasks[1].cancel()
    assert timer.cancel_many([*tasks[:3], tasks[2], never]) == 1
    assert timer.cancel_many(iter(tasks)) == 1
    assert (len(timer), timer.advance(1000), ran) == (0, 0, [1])


def test_cancel_many_lets_go_of_thousands_at_once__T9() -> None:
    timer, ran = ManualTimer(), []
    tasks = [timer.after(number % 700, ran.append, number) for number in range(3000)]
    watch = weakref.ref(tasks[1234])
    assert timer.cancel_many(tasks) == 3000
    del tasks
    assert (len(timer), watch()) == (0, None)


def test_cancel_many_refuses_the_tasks_of_another_timer_and_what_is_no_task__T18() -> None:
    timer, other = ManualTimer("here"), ManualTimer("there")
    here, there = timer.after(5, print), other.after(5, print)
    with pytest.raises(ValueError, match=r"^a task is on timer 'there', not on 'here': nothing was cancelled$"):
        timer.cancel_many([here, there])
    batch: TaskBatch = timer.add_many(delays(5), print)
    with pytest.raises(TypeError, match=r"^cancel_many takes TimerTasks .*: cancel a batch by its own cancel_many$"):
        timer.cancel_many([here, batch])  # type: ignore[list-item]
    assert (len(timer), len(other)) == (2, 1)


def test_cancel_many_leaves_alone_what_a_destructor_added_again__T9_T19() -> None:
    """Only the handle that was cancelled may let go of the callback: the task may be on the timer again."""

    class Adds:
        def __call__(self) -> None:
            pass

        def __del__(self) -> None:
            for task in again:
                timer.add(task)

    timer, ran = ManualTimer(), list[str]()
    first = timer.after(5, Adds())
    again = [timer.after(5, ran.append, "one-shot"), TimerTask(5, ran.append, "task")]
    timer.add(again[1])
    assert timer.cancel_many([first, *again]) == 3
    assert len(timer) == 2
    assert timer.advance(5) == 2
    assert ran == ["one-shot", "task"]
