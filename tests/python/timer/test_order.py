"""T6: what is pending comes out by (due instant, add number), whatever levels it came through."""

import random
import threading

import pytest

from tickwheel import SystemTimer, TimerTask
from tickwheel.testing import ManualTimer
from timer.watching import Hold, places, until, wait


def test_a_that_was_added_first_runs_before_b_that_is_due_at_the_same_instant__T6() -> None:
    ran: list[str] = []
    timer = ManualTimer()
    timer.add(TimerTask(25, ran.append, "A", name="A"))
    timer.advance_to(15)
    timer.add(TimerTask(10, ran.append, "B", name="B"))
    assert places(timer) == {"A": (2, 1), "B": (1, 5)}
    timer.advance_to(25)
    assert ran == ["A", "B"]


def test_a_later_add_that_is_due_earlier_in_the_same_tick_runs_first__T6() -> None:
    ran: list[str] = []
    timer = ManualTimer(tick_ms=10)
    timer.after(25.75, ran.append, "A")
    timer.after(25.25, ran.append, "B")
    timer.after(25.5, ran.append, "C")
    timer.advance(30)
    assert ran == ["B", "C", "A"]


def test_tick_precision_sorts_inside_the_bucket__T6() -> None:
    ran: list[str] = []
    timer = ManualTimer(tick_ms=10, precision="tick")
    for due_ms, name in [(19, "E"), (15, "C"), (11, "A"), (15, "D"), (12.5, "B")]:
        timer.at(due_ms, ran.append, name)
    timer.advance(10)
    assert "".join(ran) == "ABCDE"


def test_a_move_takes_a_new_number__T6() -> None:
    ran: list[str] = []
    timer = ManualTimer()
    first, second = TimerTask(30, ran.append, "first"), TimerTask(30, ran.append, "second")
    timer.add(first)
    timer.add(second)
    timer.add(first)
    timer.advance(30)
    assert ran == ["second", "first"]


def test_what_a_callback_adds_as_due_runs_after_what_is_due_with_it__T6() -> None:
    ran: list[str] = []
    timer = ManualTimer()

    def first() -> None:
        ran.append("first")
        timer.after(0, ran.append, "now")
        timer.after(-1000, ran.append, "past")
        timer.at(0, ran.append, "long past")

    timer.after(10, first)
    timer.after(10, ran.append, "second")
    timer.after(10, ran.append, "third")
    timer.advance(10)
    assert ran == ["first", "second", "third", "now", "past", "long past"]


@pytest.mark.parametrize("late", [0, -1000, "at"])
def test_an_add_that_is_already_due_overtakes_nothing_that_waits_to_be_flushed__T6(late: int | str) -> None:
    ran: list[str] = []
    done = threading.Event()
    with SystemTimer("late", reaper=False) as timer:
        began_ms = timer.now_ms() + 500  # all are added before: a delay would count from each add
        for delay_ms in (30, 1, 2, 25, 1):
            timer.at(began_ms + delay_ms, ran.append, str(delay_ms))
        until(lambda: timer.now_ms() >= began_ms + 40)
        if late == "at":
            timer.at(began_ms - 5, ran.append, "late")
        else:
            timer.after(late, ran.append, "late")
        timer.after(0, done.set)
        while timer.advance_clock(0):
            pass
        wait(done)
    assert ran == ["1", "1", "2", "25", "30", "late"]


@pytest.mark.parametrize("seed", range(10))
def test_any_delays_come_out_sorted_and_equal_ones_in_order_of_add__T6(seed: int) -> None:
    rng = random.Random(seed)
    timer = ManualTimer(tick_ms=rng.choice([1, 3]), wheel_size=rng.choice([2, 3, 20]), start_ms=rng.randrange(10_000))
    ran: list[tuple[float, int]] = []
    added: list[tuple[float, int]] = []
    for number in range(300):
        if rng.random() < 0.2:
            timer.advance(rng.randrange(3))
        due_ms = timer.now_ms() + 50 + rng.choice([rng.randrange(20), rng.randrange(2000), rng.randrange(80) / 4])
        added.append((due_ms, number))
        timer.at(due_ms, ran.append, (due_ms, number))
    timer.advance(10_000)
    assert ran == sorted(added)


def test_the_default_executor_runs_callbacks_in_that_order__T6() -> None:
    rng = random.Random(6)
    ran: list[tuple[float, int]] = []
    done = threading.Event()
    with SystemTimer("in-order", reaper=False) as timer:  # nothing is released before all have been added
        base_ms = timer.now_ms() + 1000  # an instant that has passed would count as now
        added = [(base_ms + rng.randrange(100) / 4, number) for number in range(1000)]
        for due_ms, number in added:
            timer.at(due_ms, ran.append, (due_ms, number))
        timer.at(base_ms + 30, done.set)
        until(lambda: (timer.advance_clock(1), done.is_set())[1])
    assert ran == sorted(added)


def test_callbacks_run_one_after_another_and_a_slow_one_never_stops_the_wheel__T8() -> None:
    hold, ran, done = Hold(), [], threading.Event()
    with SystemTimer("slow") as timer:
        timer.after(0, hold)
        wait(hold.running)
        timer.after(1, ran.append, "second")
        timer.after(2, done.set)
        until(lambda: timer.stats()["executor_depth"] == 2)  # the wheel went on
        assert ran == []
        hold.let_go.set()
        wait(done)
    assert ran == ["second"]
