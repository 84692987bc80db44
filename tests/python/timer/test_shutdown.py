"""T11: shutdown runs what is due, hands back what is not, and nothing is silently lost."""

import contextlib
import gc
import sys
import threading
import weakref
from array import array
from collections.abc import Callable

import pytest

from tickwheel import SystemTimer, TickwheelError, Timer, TimerClosed, TimerTask
from tickwheel.testing import ManualTimer
from timer.watching import LONG_S, Hold, executor_thread, native_threads, until, wait


@pytest.mark.parametrize("make", [ManualTimer, lambda: SystemTimer("s"), lambda: SystemTimer("s", reaper=False)])
def test_shutdown_returns_what_is_pending_in_order__T11(make: Callable[[], Timer]) -> None:
    timer = make()
    assert timer.unfinished == []
    delays_ms = [60_000, 10**9, 59_999.5, 60_000, 3_600_000]
    tasks = [TimerTask(delay_ms, print) for delay_ms in delays_ms]
    base_ms = timer.now_ms()
    for task, delay_ms in zip(tasks, delays_ms, strict=True):
        # At the same base, so that two are due at the very same instant.
        timer.add(task) if make is ManualTimer else timer.at(base_ms + delay_ms, print, task)
    pending = [task for _, task in timer.pending()]
    if make is ManualTimer:
        assert pending == [tasks[2], tasks[0], tasks[3], tasks[4], tasks[1]]
    assert timer.shutdown() == pending
    assert timer.unfinished == pending
    assert len(pending) == 5
    assert len(timer) == 0


def test_twice_is_fine_and_the_list_is_the_callers_own__T11() -> None:
    timer = ManualTimer()
    task = timer.after(5, print)
    timer.shutdown().clear()
    timer.unfinished.clear()
    assert timer.shutdown() == timer.unfinished == [task]


def test_a_batch_is_handed_back_as_batch_and_index__T11() -> None:
    timer = ManualTimer()
    batch = timer.add_many(array("q", [30, 10, 20]), print)
    task = timer.after(15, print)
    batch.cancel(0)
    assert timer.shutdown() == [(batch, 1), task, (batch, 2)]
    assert len(batch) == 0


def test_what_is_handed_back_is_no_longer_pending__T11() -> None:
    timer, other, ran = ManualTimer(), ManualTimer(), []
    task = TimerTask(5, ran.append, 1)
    timer.add(task)
    timer.shutdown()
    assert task.cancel() is False
    other.add(task)
    other.advance(5)
    assert ran == [1]


def test_with_shuts_down__T11() -> None:
    with ManualTimer() as timer:
        task = timer.after(5, print)
    assert timer.unfinished == [task]


def test_with_shuts_down_after_an_exception_too_and_lets_it_pass__T11() -> None:
    with pytest.raises(KeyError), SystemTimer("with") as timer:
        raise KeyError
    with pytest.raises(TimerClosed):
        timer.after(5, print)


CALLS: dict[str, Callable[[SystemTimer], object]] = {
    "add": lambda timer: timer.add(TimerTask(5, print)),
    "after": lambda timer: timer.after(5, print),
    "after, due now": lambda timer: timer.after(0, print),
    "at": lambda timer: timer.at(5, print),
    "add_many": lambda timer: timer.add_many(array("q", [5]), print),
    "advance_clock": lambda timer: timer.advance_clock(0),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_later_calls_raise_timer_closed__T11(call: Callable[[SystemTimer], object]) -> None:
    timer = SystemTimer("over", reaper=False)
    timer.shutdown()
    with pytest.raises(TimerClosed, match=r"^timer 'over' was shut down and takes no more tasks: make a new one$"):
        call(timer)
    assert len(timer) == 0
    assert timer.pending() == []


def test_timer_closed_is_a_tickwheel_error_and_a_runtime_error__T11() -> None:
    assert TimerClosed.__mro__[1:3] == (TickwheelError, RuntimeError)


def test_a_refused_task_may_be_added_elsewhere__T11() -> None:
    closed, timer, ran = ManualTimer(), ManualTimer(), []
    closed.shutdown()
    task = TimerTask(5, ran.append, 1)
    with pytest.raises(TimerClosed):
        closed.add(task)
    timer.add(task)
    timer.advance(5)
    assert ran == [1]


def test_shutdown_of_a_manual_timer_runs_what_is_due_now__T11() -> None:
    timer, ran = ManualTimer(), []
    timer.after(0, ran.append, "now")
    later = timer.after(0.25, ran.append, "later")
    assert timer.shutdown() == [later]
    assert ran == ["now"]


def test_shutdown_advances_once_more_to_now__T11() -> None:
    ran: list[str] = []
    timer = SystemTimer("once-more", reaper=False)
    began_ms = timer.now_ms()
    timer.after(25, ran.append, "due")
    later = timer.after(3_600_000, ran.append, "later")
    until(lambda: timer.now_ms() > began_ms + 26)
    assert timer.shutdown() == [later]
    assert ran == ["due"]


def test_shutdown_lets_what_is_due_finish__T11() -> None:
    hold, ran = Hold(), []
    timer = SystemTimer("finish")
    timer.after(0, hold)
    wait(hold.running)
    timer.after(0, ran.append, "queued")
    until(lambda: timer.stats()["executor_depth"] == 1)
    results: list[object] = []
    ending = threading.Thread(target=lambda: results.append(timer.shutdown()))
    ending.start()

    def is_closed() -> bool:
        with contextlib.suppress(TimerClosed):
            timer.after(3_600_000, print).cancel()
            return False
        return True

    until(is_closed)
    assert ending.is_alive()
    assert ran == []
    hold.let_go.set()
    ending.join(LONG_S)
    assert (results, ran) == ([[]], ["queued"])


def test_what_has_not_started_when_the_time_runs_out_counts_as_pending_and_never_runs__T11() -> None:
    hold, ran = Hold(), []
    timer = SystemTimer("slow")
    timer.after(0, hold)
    wait(hold.running)
    first, second = timer.after(0, ran.append, 1), timer.after(1, ran.append, 2)
    until(lambda: timer.stats()["executor_depth"] == 2)
    later = timer.after(3_600_000, ran.append, 3)
    worker = executor_thread("slow")
    assert worker is not None
    assert timer.shutdown(timeout_ms=20) == [first, second, later] == timer.unfinished
    assert first.cancel() is False
    hold.let_go.set()
    worker.join(LONG_S)
    assert not worker.is_alive()
    assert ran == []


@pytest.mark.parametrize("timeout_ms", [0, -5, 0.5])
def test_a_timeout_may_be_nothing_at_all__T11(timeout_ms: float) -> None:
    hold = Hold()
    timer = SystemTimer("impatient")
    timer.after(0, hold)
    wait(hold.running)
    task = timer.after(3_600_000, print)
    assert timer.shutdown(timeout_ms) == [task]
    hold.let_go.set()


@pytest.mark.parametrize(("timeout_ms", "error"), [("1", TypeError), (True, TypeError), (float("nan"), ValueError)])
def test_a_bad_timeout_shuts_nothing_down__T13(timeout_ms: object, error: type[Exception]) -> None:
    for timer in (ManualTimer(), SystemTimer("still-open")):
        with pytest.raises(error, match=r"^timeout_ms must be "):
            timer.shutdown(timeout_ms)  # type: ignore[arg-type]
        timer.after(1000, print)
        assert len(timer.shutdown()) == 1


def test_shutdown_joins_both_threads__T11() -> None:
    timer = SystemTimer("join")
    assert executor_thread("join") is not None
    if sys.platform == "linux":
        until(lambda: "reaper-join" in native_threads())
    timer.after(3_600_000, print)
    timer.shutdown()
    assert executor_thread("join") is None
    if sys.platform == "linux":
        assert "reaper-join" not in native_threads()


def test_a_timer_that_nobody_holds_lives_until_it_is_empty__T11() -> None:
    ran = threading.Event()
    timer = SystemTimer("orphan")
    timer.after(5, int)
    timer.after(30, ran.set)
    worker = executor_thread("orphan")
    assert worker is not None
    del timer
    wait(ran)
    worker.join(LONG_S)
    assert not worker.is_alive()


def test_a_timer_that_nobody_holds_ends_when_its_last_task_is_cancelled__T11() -> None:
    timer = SystemTimer("cancelled-orphan")
    task, batch = timer.after(3_600_000, print), timer.add_many(array("q", [10**9]), print)
    worker = executor_thread("cancelled-orphan")
    assert worker is not None
    del timer
    assert task.cancel() is True
    assert worker.is_alive()
    assert batch.cancel_all() == 1
    worker.join(LONG_S)
    assert not worker.is_alive()


def test_an_empty_timer_that_nobody_holds_ends__T11() -> None:
    timer = SystemTimer("empty-orphan")
    worker = executor_thread("empty-orphan")
    assert worker is not None
    watch = weakref.ref(timer)
    del timer
    gc.collect()
    assert watch() is None
    worker.join(LONG_S)
    assert not worker.is_alive()


def test_a_timer_without_a_reaper_that_nobody_holds_drops_what_can_never_run__T11() -> None:
    timer = SystemTimer("undriven", reaper=False)
    watch = weakref.ref(timer.after(1000, print))
    worker = executor_thread("undriven")
    assert worker is not None
    del timer
    worker.join(LONG_S)
    assert not worker.is_alive()
    assert watch() is None
