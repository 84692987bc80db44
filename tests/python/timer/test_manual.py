"""T15: a clock that moves only when told, callbacks in the calling thread while it stands at their release."""

import threading
from collections.abc import Callable

import pytest

from tickwheel import TimerClosed, TimerTask
from tickwheel.testing import ManualTimer
from timer.watching import stops


def now_us(timer: ManualTimer) -> int:
    """The clock to the microsecond: when a task that is due now is due."""
    probe = timer.after(0, print)
    due_ms = next(due_ms for due_ms, task in timer.pending() if task is probe)
    probe.cancel()
    return round(due_ms * 1000)


def test_advance_says_how_many_ran_and_moves_the_clock__T15() -> None:
    timer = ManualTimer(start_ms=10)
    for delay_ms in (1, 2, 2, 9):
        timer.after(delay_ms, int)
    assert (timer.advance(0), timer.now_ms()) == (0, 10)
    assert (timer.advance(2), timer.now_ms()) == (3, 12)
    assert (timer.advance_to(20), timer.now_ms()) == (1, 20)
    assert (timer.advance(1000), timer.now_ms()) == (0, 1020)
    assert timer.advance_to(1020) == 0


def test_the_clock_moves_only_when_told__T15() -> None:
    timer = ManualTimer()
    timer.after(5, print)
    assert {timer.now_ms() for _ in range(1000)} == {0}


def test_the_clock_stands_at_the_moment_of_release__T15() -> None:
    timer, at = ManualTimer(tick_ms=10), []
    for delay_ms in (777.25, 0, 3.5, 25, 400):
        timer.after(delay_ms, lambda: at.append(now_us(timer)))
    timer.advance(1000)
    assert at == [0, 3500, 25_000, 400_000, 777_250]
    assert now_us(timer) == 1_000_000


def test_callbacks_run_in_the_calling_thread_and_there_is_no_other__T15() -> None:
    timer, ran = ManualTimer(), []
    before = {*threading.enumerate()}
    timer.after(5, lambda: ran.append((threading.get_ident(), {*threading.enumerate()} - before)))
    timer.advance(5)
    assert ran == [(threading.get_ident(), set())]


def test_run_next_goes_to_the_next_instant__T15() -> None:
    timer, ran = ManualTimer(), []
    timer.after(3.25, ran.append, "a")
    timer.after(3.75, ran.append, "b")
    seen = []
    while timer.run_next():
        seen.append((now_us(timer), list(ran)))
    assert seen[-2:] == [(3250, ["a"]), (3750, ["a", "b"])]
    assert timer.run_next() is False
    assert now_us(timer) == 3750


def test_run_next_stops_at_a_cascade__T15() -> None:
    timer, ran = ManualTimer(), []
    timer.after(450, ran.append, 1)
    assert timer.run_next() is True
    assert (timer.now_ms(), ran) == (400, [])
    assert stops(timer) == [440, 450]
    assert ran == [1]


def test_run_next_runs_what_is_due_now_without_moving_the_clock__T15() -> None:
    timer, ran = ManualTimer(start_ms=5), []
    timer.after(0, ran.append, 1)
    assert timer.run_next() is True
    assert (timer.now_ms(), ran) == (5, [1])


def test_run_next_of_nothing_is_false__T15() -> None:
    timer = ManualTimer(start_ms=5)
    assert timer.run_next() is False
    assert timer.now_ms() == 5


ADVANCES: dict[str, Callable[[ManualTimer], object]] = {
    "advance": lambda timer: timer.advance(1),
    "advance_to": lambda timer: timer.advance_to(1000),
    "run_next": lambda timer: timer.run_next(),
}


@pytest.mark.parametrize("nested", ADVANCES.values(), ids=ADVANCES)
@pytest.mark.parametrize("outer", [lambda timer: timer.advance(5), lambda timer: timer.run_next()])
def test_a_nested_advance_is_refused__T15(
    nested: Callable[[ManualTimer], object], outer: Callable[[ManualTimer], object]
) -> None:
    told: list[BaseException] = []
    timer = ManualTimer("clock", on_error=lambda _, error: told.append(error))
    timer.after(5, nested, timer)
    outer(timer)
    assert [type(error) for error in told] == [RuntimeError]
    assert str(told[0]) == "timer 'clock' is advancing already: a callback can't move the clock that it runs on"
    assert timer.now_ms() == 5
    assert timer.advance(1) == 0  # and the next one is not nested


@pytest.mark.parametrize("advance", ADVANCES.values(), ids=ADVANCES)
def test_an_advance_beside_an_advance_in_another_thread_is_refused__T15(
    advance: Callable[[ManualTimer], object],
) -> None:
    told: list[str] = []
    timer = ManualTimer("clock")

    def in_another_thread() -> None:
        with pytest.raises(RuntimeError) as caught:
            advance(timer)
        told.append(str(caught.value))

    def callback() -> None:
        thread = threading.Thread(target=in_another_thread)
        thread.start()
        thread.join()

    timer.after(5, callback)
    timer.advance(5)
    why = "another call is moving its clock; use one thread at a time"
    assert told == [f"timer 'clock' is advancing already: {why}"]


def test_a_callback_may_advance_another_timer__T15() -> None:
    outer, inner, ran = ManualTimer(), ManualTimer(), []
    inner.after(7, ran.append, 1)
    outer.after(5, inner.advance, 7)
    outer.advance(5)
    assert ran == [1]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("again", [lambda timer: timer.advance(0), lambda timer: timer.run_next()])
def test_an_interrupt_reaches_the_caller_and_the_rest_runs_at_the_next_advance__T15(
    error: type[BaseException], again: Callable[[ManualTimer], object]
) -> None:
    def interrupt() -> None:
        raise error

    timer, ran = ManualTimer(), []
    timer.after(5, ran.append, "before")
    timer.after(5, interrupt)
    timer.after(5, ran.append, "with it")
    timer.after(6, ran.append, "later")
    with pytest.raises(error):
        timer.advance(100)
    assert (ran, timer.now_ms(), len(timer)) == (["before"], 5, 1)
    assert timer.stats()["running"] == 0
    again(timer)
    assert (ran, timer.now_ms()) == (["before", "with it"], 5)
    assert timer.advance(1) == 1
    assert ran == ["before", "with it", "later"]


def test_what_an_interrupt_left_behind_can_be_cancelled_moved_and_handed_back__T15() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    timer, ran = ManualTimer(), []
    tasks = [TimerTask(5, interrupt if number == 0 else ran.append, *[number][: number > 0]) for number in range(4)]
    for task in tasks:
        timer.add(task)
    with pytest.raises(KeyboardInterrupt):
        timer.advance(5)
    assert tasks[1].cancel() is True
    timer.add(tasks[2])
    assert (timer.advance(0), ran) == (1, [3])
    assert timer.shutdown() == [tasks[2]]


def test_shutdown_runs_what_an_interrupt_left_behind__T11() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    timer, ran = ManualTimer(), []
    timer.after(5, interrupt)
    timer.after(5, ran.append, 1)
    later = timer.after(6, ran.append, 2)
    with pytest.raises(KeyboardInterrupt):
        timer.advance(5)
    assert (timer.shutdown(), ran) == ([later], [1])


def test_a_shutdown_that_is_interrupted_loses_nothing__T11() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    timer, ran = ManualTimer(), []
    timer.after(0, interrupt)
    tasks = [timer.after(0, ran.append, 1), timer.after(5, ran.append, 2)]
    with pytest.raises(KeyboardInterrupt):
        timer.shutdown()
    assert (ran, timer.unfinished, timer.shutdown()) == ([], tasks, tasks)


def test_callbacks_may_add_what_is_due_in_the_same_advance__T15() -> None:
    timer, at = ManualTimer(), []

    def chain(left: int) -> None:
        at.append(timer.now_ms())
        if left:
            timer.after(250, chain, left - 1)

    timer.after(250, chain, 5)
    assert timer.advance(1100) == 4
    assert at == [250, 500, 750, 1000]
    assert timer.pending()[0][0] == 1250


def test_callbacks_may_cancel_what_is_due_later_in_the_same_advance__T15() -> None:
    timer, ran = ManualTimer(), []
    later = timer.after(300, ran.append, "later")
    timer.after(100, lambda: ran.append(later.cancel()))
    assert timer.advance(1000) == 1
    assert ran == [True]


def test_a_callback_may_shut_its_timer_down__T15() -> None:
    timer, handed_back, ran = ManualTimer(), [], []
    timer.after(5, lambda: handed_back.extend(timer.shutdown()))
    with_it, later = timer.after(5, ran.append, 1), timer.after(9, ran.append, 2)
    assert timer.advance(100) == 1
    assert (handed_back, timer.unfinished, ran) == ([with_it, later], [with_it, later], [])


@pytest.mark.parametrize("ms", [-1, -0.25, -(10**30)])
def test_the_clock_never_goes_back__T15(ms: float) -> None:
    timer = ManualTimer(start_ms=50)
    with pytest.raises(ValueError, match=r"^a clock never goes back, got -[\d,]+(\.\d+)? ms: pass 0 or more$"):
        timer.advance(ms)
    with pytest.raises(
        ValueError, match=r"^a clock never goes back, got .* where it reads 50 ms: pass a later instant$"
    ):
        timer.advance_to(50 + ms)
    assert timer.now_ms() == 50


def test_tick_precision_has_the_same_steps_on_the_manual_clock__T15() -> None:
    timer, at = ManualTimer(tick_ms=10, precision="tick"), []
    for delay_ms in (5, 19, 27.5):
        timer.after(delay_ms, lambda: at.append(timer.now_ms()))
    assert stops(timer) == [0, 10, 20]
    assert at == [0, 10, 20]


def test_a_timer_that_was_shut_down_does_not_advance__T11() -> None:
    timer = ManualTimer("ended")
    timer.shutdown()
    for call in (lambda: timer.advance(1), lambda: timer.advance_to(1), timer.run_next):
        with pytest.raises(TimerClosed, match="'ended' was shut down"):
            call()
