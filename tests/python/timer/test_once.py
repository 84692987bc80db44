"""T7 and T9: a task runs exactly once per add, and `cancel` is `True` exactly when it will not run."""

import gc
import threading
import weakref
from collections.abc import Iterator

import pytest

from tickwheel import SystemTimer, TimerTask
from tickwheel.testing import ManualTimer
from timer.watching import Hold, armed, until, wait


@pytest.fixture
def no_collector() -> Iterator[None]:
    """What dies in here dies because its last reference went."""
    gc.disable()
    yield
    gc.enable()


def test_an_add_is_one_run__T7() -> None:
    timer, ran = ManualTimer(), []
    task = TimerTask(5, ran.append, 1)
    timer.add(task)
    assert (timer.advance(1000), ran) == (1, [1])
    timer.add(task)
    assert (timer.advance(1000), ran) == (1, [1, 1])


def test_add_on_a_pending_task_moves_it__T7() -> None:
    timer, at = ManualTimer(), []
    task = TimerTask(30, lambda: at.append(timer.now_ms()))
    timer.add(task)
    timer.advance(20)
    timer.add(task)
    assert (len(timer), timer.pending()) == (1, [(50, task)])
    timer.advance(100)
    assert at == [50]
    stats = timer.stats()
    assert (stats["added"], stats["moved"], stats["expired"]) == (1, 1, 1)


def test_a_task_may_schedule_itself_from_its_own_callback__T7() -> None:
    timer, at = ManualTimer(), []

    def again() -> None:
        at.append(timer.now_ms())
        if len(at) < 4:
            timer.add(task)

    task = TimerTask(25, again)
    timer.add(task)
    timer.advance(1000)
    assert (at, len(timer)) == ([25, 50, 75, 100], 0)


def test_add_on_a_running_task_schedules_it_again__T7() -> None:
    hold = Hold()
    with SystemTimer("again") as timer:
        task = TimerTask(0, hold)
        timer.add(task)
        wait(hold.running)
        timer.add(task)
        until(lambda: timer.stats()["executor_depth"] == 1)
        hold.let_go.set()
        until(lambda: timer.stats()["expired"] == 2)
        assert timer.stats()["added"] == 2


def test_a_task_that_was_released_but_has_not_started_is_moved__T7() -> None:
    hold, ran = Hold(), []
    with SystemTimer("released") as timer:
        timer.after(0, hold)
        wait(hold.running)
        task = TimerTask(5, ran.append, 1)
        timer.add(task)
        until(lambda: timer.stats()["executor_depth"] == 1)
        timer.add(task)
        assert (len(timer), timer.stats()["executor_depth"]) == (1, 0)
        until(lambda: timer.stats()["executor_depth"] == 1)
        hold.let_go.set()
        until(lambda: ran != [])
    assert ran == [1]


def test_a_task_pending_on_one_timer_cannot_be_added_to_another__T7() -> None:
    here, there, ran = ManualTimer("here"), ManualTimer("there"), []
    task = TimerTask(5, ran.append, 1)
    here.add(task)
    with pytest.raises(ValueError, match=r"pending on timer 'here': cancel it there before adding it to timer 'there'"):
        there.add(task)
    assert (len(here), len(there)) == (1, 0)
    here.advance(5)
    there.add(task)
    there.advance(5)
    assert ran == [1, 1]


def test_a_cancelled_task_may_go_to_another_timer__T7() -> None:
    here, there, ran = ManualTimer(), ManualTimer(), []
    task = TimerTask(5, ran.append, 1)
    here.add(task)
    task.cancel()
    there.add(task)
    assert (here.advance(9), there.advance(9), ran) == (0, 1, [1])


def test_cancel_is_exact__T9() -> None:
    timer, ran, while_running = ManualTimer(), [], []
    never_added = TimerTask(5, ran.append, "never added")
    assert never_added.cancel() is False

    task = TimerTask(5, ran.append, "cancelled")
    timer.add(task)
    assert task.cancel() is True
    assert task.cancel() is False

    timer.add(task)
    timer.add(task)
    assert task.cancel() is True

    running = TimerTask(5, lambda: while_running.append(running.cancel()))
    timer.add(running)
    timer.advance(5)
    assert while_running == [False]
    assert running.cancel() is False

    timer.advance(1000)
    assert ran == []
    assert timer.stats()["cancelled"] == 2


@pytest.mark.parametrize("delay_ms", [0, 1, 25, 500, 10**9])
def test_a_cancelled_task_never_runs_wherever_it_stood__T9(delay_ms: int) -> None:
    timer, ran = ManualTimer(tick_ms=2), []
    task = timer.after(delay_ms, ran.append, 1)
    other = timer.after(delay_ms, ran.append, 2)
    assert task.cancel() is True
    assert (len(timer), timer.pending()) == (1, [(delay_ms, other)])
    timer.advance(delay_ms)
    assert ran == [2]


def test_a_callback_may_cancel_what_is_due_with_it__T9() -> None:
    timer, ran = ManualTimer(), []
    timer.after(5, lambda: ran.append(second.cancel()))
    second = timer.after(5, ran.append, "second")
    timer.after(5, ran.append, "third")
    assert (timer.advance(5), ran) == (2, [True, "third"])


def test_a_task_that_waits_on_the_executors_queue_can_be_cancelled__T9() -> None:
    hold, ran, done = Hold(), [], threading.Event()
    with SystemTimer("queue") as timer:
        held = timer.after(0, hold)
        wait(hold.running)
        waiting = timer.after(1, ran.append, "cancelled")
        timer.after(2, done.set)
        until(lambda: timer.stats()["executor_depth"] == 2)
        assert held.cancel() is False
        assert waiting.cancel() is True
        assert waiting.cancel() is False
        assert timer.stats()["executor_depth"] == 1
        hold.let_go.set()
        wait(done)
    assert ran == []


def test_cancel_lets_go_of_the_task_at_once__T9(no_collector: None) -> None:
    timer = ManualTimer()
    for delay_ms in (0, 1, 300, 10**9):
        task = TimerTask(delay_ms, print)
        watch = weakref.ref(task)
        timer.add(task)
        timer.add(task)  # a move leaves nothing behind either
        task.cancel()
        del task
        assert watch() is None, delay_ms


def test_a_pending_task_lives_because_its_timer_does__T9(no_collector: None) -> None:
    timer = ManualTimer()
    watch = weakref.ref(timer.after(300, print))
    assert watch() is not None
    timer.advance(300)
    assert watch() is None


def test_cancel_lets_go_of_a_task_on_the_executors_queue_at_once__T9(no_collector: None) -> None:
    hold = Hold()
    with SystemTimer("queue") as timer:
        timer.after(0, hold)
        wait(hold.running)
        task = TimerTask(0, print)
        timer.add(task)
        watch = weakref.ref(task)
        until(lambda: timer.stats()["executor_depth"] == 1)
        assert task.cancel()
        del task
        assert watch() is None
        hold.let_go.set()


def test_an_emptied_bucket_stays_armed_until_it_comes_to_the_head__T9() -> None:
    timer = ManualTimer()
    timer.after(350, print).cancel()
    assert (len(timer), armed(timer)) == (0, [(340, 2, 17)])
    assert timer.run_next() is False
    assert (timer.now_ms(), armed(timer)) == (0, [])
    assert timer.snapshot()["levels"][1]["buckets"][17] == {"expiration_ms": -1, "tasks": []}


def test_an_emptied_bucket_costs_no_wake_up__T9() -> None:
    timer, ran = ManualTimer(), []
    timer.after(5, print).cancel()
    timer.after(10, ran.append, 1)
    assert timer.run_next()
    assert (timer.now_ms(), ran) == (10, [1])


def test_an_emptied_bucket_that_is_still_armed_takes_new_entries__T9() -> None:
    timer, ran = ManualTimer(), []
    timer.after(350, print).cancel()
    timer.after(345, ran.append, 1)
    assert armed(timer) == [(340, 2, 17)]
    timer.advance(345)
    assert ran == [1]


def test_cancel_races_with_expiry_and_is_still_exact__T9() -> None:
    ran: list[int] = []
    with SystemTimer("race") as timer:
        tasks = [timer.after(number % 20 / 4, ran.append, number) for number in range(4000)]
        kept = {number for number, task in enumerate(tasks) if not task.cancel()}
        last = threading.Event()
        timer.after(10, last.set)
        wait(last)
    assert sorted(ran) == sorted(kept)
