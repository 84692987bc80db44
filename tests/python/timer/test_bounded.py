"""T16 and T17: a quiet spell costs nothing, and `max_pending` bounds what a timer holds."""

import threading
from array import array

import pytest

from tickwheel import SystemTimer, TickwheelError, TimerFull, TimerTask
from tickwheel.testing import ManualTimer
from timer.watching import Hold, armed, places, until, wait

FULL = (
    r"^timer 'small' is full: the timer holds max_pending=2 tasks already: "
    r"wait until some have run, cancel some, or raise max_pending$"
)


@pytest.mark.parametrize("pause_ms", [0, 19, 20, 1_000, 123_456_789, 10**15])
def test_after_any_pause_a_5_ms_task_enters_at_level_1__T16(pause_ms: int) -> None:
    timer = ManualTimer()
    timer.after(1, int)
    timer.advance(1 + pause_ms)
    timer.add(TimerTask(5, print, name="x"))
    assert places(timer) == {"x": (1, (6 + pause_ms) % 20)}
    timer.run_next()
    assert timer.now_ms() == 6 + pause_ms


def test_a_pause_between_adds_counts_too_while_something_far_is_armed__T16() -> None:
    timer = ManualTimer()
    timer.after(100_000, print)
    assert armed(timer) == [(96_000, 4, 12)]
    timer.advance_to(50_003)
    timer.add(TimerTask(5, print, name="x"))
    assert places(timer)["x"] == (1, 50_008 % 20)


def test_the_levels_stop_one_tick_before_the_earliest_armed_bucket__T16() -> None:
    """Only a reaper that is late lets the clock pass an armed bucket; the clock is then ahead of the levels."""
    ran: list[str] = []
    done = threading.Event()
    with SystemTimer("late", reaper=False, start_ms=0) as timer:
        timer.after(35, ran.append, "A")
        first = armed(timer)[0][0]
        until(lambda: timer.now_ms() >= first + 60)
        timer.after(0, ran.append, "B")
        level = timer.snapshot()["levels"][0]
        assert level["current_time_ms"] == first - 1
        timer.after(1, done.set)
        last_ms = timer.now_ms() + 2
        until(lambda: timer.now_ms() >= last_ms)
        while timer.advance_clock(0):
            pass
        wait(done)
    assert ran == ["A", "B"]


def test_an_armed_bucket_never_falls_out_of_range__T16() -> None:
    timer, ran = ManualTimer(), []
    for due_ms in (401, 410, 8_001, 8_399):
        timer.at(due_ms, ran.append, due_ms)
    for now_ms in (399, 400, 7_999, 8_000, 8_398):
        timer.advance_to(now_ms)
        timer.after(0.5, ran.append, now_ms + 0.5)
    timer.advance(1000)
    assert ran == [399.5, 400.5, 401, 410, 7999.5, 8000.5, 8001, 8398.5, 8399]


def test_the_add_that_would_pass_max_pending_gets_timer_full__T17() -> None:
    timer, ran = ManualTimer("small", max_pending=2), []
    timer.after(5, ran.append, 1)
    timer.after(9, ran.append, 2)
    task = TimerTask(7, ran.append, 3)
    for refused in (lambda: timer.add(task), lambda: timer.after(0, print), lambda: timer.at(0, print)):
        with pytest.raises(TimerFull, match=FULL):
            refused()
    assert (len(timer), task.cancel()) == (2, False)
    timer.advance(5)
    timer.add(task)
    timer.advance(100)
    assert ran == [1, 2, 3]


def test_timer_full_is_a_tickwheel_error_and_a_runtime_error__T17() -> None:
    assert TimerFull.__mro__[1:3] == (TickwheelError, RuntimeError)


def test_a_cancel_makes_room__T17() -> None:
    timer = ManualTimer("small", max_pending=2)
    task, _ = timer.after(5, print), timer.after(5, print)
    task.cancel()
    timer.after(5, print)
    with pytest.raises(TimerFull):
        timer.after(5, print)


def test_a_move_is_never_refused__T17() -> None:
    timer, ran = ManualTimer("small", max_pending=2), []
    tasks = [TimerTask(delay_ms, ran.append, delay_ms) for delay_ms in (5, 8)]
    for task in tasks:
        timer.add(task)
    timer.advance(4)
    timer.add(tasks[0])
    assert timer.pending() == [(8, tasks[1]), (9, tasks[0])]
    timer.advance(5)
    assert ran == [8, 5]


def test_a_callback_has_its_own_place_back__T17() -> None:
    told: list[BaseException] = []
    timer = ManualTimer("small", max_pending=1, on_error=lambda _, error: told.append(error))
    task = TimerTask(5, lambda: timer.add(task) if timer.now_ms() < 20 else None)
    timer.add(task)
    assert (timer.advance(100), told) == (4, [])


def test_what_waits_for_the_executor_counts__T17() -> None:
    hold, done = Hold(), threading.Event()
    with SystemTimer("small", max_pending=2) as timer:
        timer.after(0, hold)
        wait(hold.running)  # what runs counts no more
        waiting = TimerTask(0, int)
        timer.add(waiting)
        timer.after(0, done.set)
        until(lambda: timer.stats()["executor_depth"] == 2)
        assert len(timer) == 0
        with pytest.raises(TimerFull, match=FULL):
            timer.after(5, print)
        timer.add(waiting)  # a move, though it was released
        assert waiting.cancel() is True
        timer.after(3_600_000, print)
        with pytest.raises(TimerFull, match=FULL):
            timer.after(5, print)
        hold.let_go.set()
        wait(done)


@pytest.mark.parametrize("count", [3, 2500])
def test_a_batch_that_would_pass_it_is_refused_whole__T17(count: int) -> None:
    timer = ManualTimer("small", max_pending=2)
    with pytest.raises(TimerFull, match=FULL):
        timer.add_many(array("q", [5] * count), print)
    assert (len(timer), timer.stats()["added"]) == (0, 0)
    batch = timer.add_many(array("q", [5, 5]), print)
    with pytest.raises(TimerFull):
        timer.after(5, print)
    batch.cancel(1)
    timer.after(5, print)


def test_a_batch_of_thousands_may_fill_it_to_the_brim__T17() -> None:
    timer = ManualTimer(max_pending=2500)
    assert len(timer.add_many(array("q", [5] * 2500), print)) == 2500
    with pytest.raises(TimerFull):
        timer.add_many(array("q", [5]), print)


def test_an_empty_batch_is_never_refused__T17() -> None:
    timer = ManualTimer("small", max_pending=1)
    timer.after(5, print)
    assert len(timer.add_many(array("q"), print)) == 0
