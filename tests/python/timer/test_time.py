"""T1 and T5: a task never runs early, runs exactly at its instant, or with `precision="tick"` up to one tick early."""

import math
import random
import threading
import time
from fractions import Fraction

import pytest

from tickwheel import SystemTimer
from tickwheel.testing import ManualTimer
from timer.watching import until, wait


@pytest.mark.parametrize("tick_ms", [1, 7, 1000])
@pytest.mark.parametrize("delay_ms", [0.5, 1, 6.25, 7, 19.875, 20, 399.5, 400, 8_000, 123_456.75])
def test_exact_is_exact_to_the_microsecond_whatever_the_tick__T5(tick_ms: int, delay_ms: float) -> None:
    timer, ran = ManualTimer(tick_ms=tick_ms, start_ms=123), []
    timer.after(delay_ms, ran.append, 1)
    timer.advance(delay_ms - 0.125)
    assert ran == []
    timer.advance_to(123 + delay_ms)
    assert ran == [1]


def test_the_microsecond_before_the_instant_is_too_early__T5() -> None:
    timer, ran = ManualTimer(), []
    timer.after(0.5, ran.append, 1)
    assert (timer.advance(0.499), ran) == (0, [])
    assert (timer.advance_to(0.5), ran) == (1, [1])


@pytest.mark.parametrize(
    ("delay_ms", "due_ms"),
    [(0.0001, 0.001), (0.0009, 0.001), (1.0001, 1.001), (2.5, 2.5), (3, 3), (1e-300, 0.001), (0, 0), (-0.0, 0)],
)
def test_a_delay_is_rounded_up_to_the_microsecond__T1(delay_ms: float, due_ms: float) -> None:
    timer = ManualTimer()
    timer.after(delay_ms, print)
    assert [due for due, _ in timer.pending()] == [due_ms]


@pytest.mark.parametrize("ms", [1.1, 1.102, 399.999, 1_000_000.003, 1_700_000_000_000.123])
def test_a_float_that_means_a_whole_microsecond_is_that_microsecond__T1(ms: float) -> None:
    """Else `advance_to(399.999)` runs what is due at 400, and `at` of what `pending` lists is a microsecond later."""
    timer = ManualTimer()
    timer.at(ms, print)
    assert timer.pending()[0][0] == ms


@pytest.mark.parametrize("whole_ms", [0, 100, 1_000_000, 2**31, 2**40])
def test_every_float_that_is_written_as_whole_microseconds_is_that_microsecond__T1(whole_ms: int) -> None:
    """2.744 was 2,745 us, as were 395 more of the first 99,999."""
    timer = ManualTimer()
    given = [(whole_ms * 1000 + us) / 1000 for us in range(1, 100_000)]
    for ms in given:
        timer.at(ms, print)
    assert [due_ms for due_ms, _ in timer.pending()] == given


@pytest.mark.parametrize("whole_ms", [0, 100, 1_000_000])
def test_a_float_just_above_a_whole_microsecond_is_rounded_up__T5(whole_ms: int) -> None:
    timer = ManualTimer()
    written = [(whole_ms * 1000 + us) / 1000 for us in range(10_000)]
    for ms in written:
        timer.at(math.nextafter(ms, math.inf), print)
    assert [due_ms for due_ms, _ in timer.pending()] == [*written[1:], whole_ms + 10]


@pytest.mark.parametrize("whole_ms", [0, 100, 1_000_000])
def test_a_float_just_below_a_whole_microsecond_is_that_microsecond__T1(whole_ms: int) -> None:
    timer = ManualTimer()
    written = [(whole_ms * 1000 + us) / 1000 for us in range(1, 10_000)]
    for ms in written:
        timer.at(math.nextafter(ms, 0), print)
    assert [due_ms for due_ms, _ in timer.pending()] == written


def test_a_delay_counts_from_the_microsecond_that_the_clock_stands_at__T1() -> None:
    timer = ManualTimer(start_ms=10)
    timer.advance(1.5)
    timer.after(2.25, print)
    assert timer.pending()[0][0] == 13.75


def test_now_ms_rounds_down__T1() -> None:
    timer = ManualTimer(start_ms=7)
    timer.advance(1.75)
    assert timer.now_ms() == 8
    assert type(timer.now_ms()) is int


def test_the_wheel_sorts_by_the_instant_rounded_down_to_a_millisecond__T1() -> None:
    timer = ManualTimer()
    timer.after(2.75, print)
    assert [item["expiration_ms"] for item in timer.snapshot()["queue"]] == [2]


@pytest.mark.parametrize("due_ms", [4, 4.0, 9.75, 5000])
def test_at_is_an_instant_of_the_timers_own_clock__T1(due_ms: float) -> None:
    timer, ran = ManualTimer(start_ms=3), []
    timer.at(due_ms, ran.append, 1)
    assert timer.pending()[0][0] == due_ms
    timer.advance_to(due_ms - 0.25)
    assert ran == []
    timer.advance_to(due_ms)
    assert ran == [1]


@pytest.mark.parametrize("due_ms", [-(10**30), -1, 0, 99.5, 100])
def test_an_instant_in_the_past_is_due_now_and_not_before__T1(due_ms: float) -> None:
    timer, ran = ManualTimer(start_ms=100), []
    task = timer.at(due_ms, ran.append, 1)
    assert timer.pending() == [(100, task)]
    assert (timer.advance(0), ran) == (1, [1])


@pytest.mark.parametrize("tick_ms", [2, 10, 1000])
def test_tick_precision_is_early_by_less_than_one_tick_and_never_late__T5(tick_ms: int) -> None:
    released: list[tuple[int, int]] = []
    timer = ManualTimer(tick_ms=tick_ms, precision="tick", start_ms=17)
    for due_ms in range(17, 17 + 30 * tick_ms, max(1, tick_ms // 7)):
        timer.at(due_ms, lambda due_ms: released.append((due_ms, timer.now_ms())), due_ms)
    timer.advance(30 * tick_ms)
    assert len(timer) == 0
    assert {due - now for due, now in released} <= set(range(tick_ms))
    assert all(now == max(17, due // tick_ms * tick_ms) for due, now in released)


def test_with_a_tick_of_a_second_exact_and_tick_precision_differ__T5() -> None:
    at: dict[str, int] = {}
    for precision in ("exact", "tick"):
        timer = ManualTimer(tick_ms=1000, precision=precision)
        timer.after(1_999, lambda timer=timer, precision=precision: at.update({precision: timer.now_ms()}))
        timer.advance(5_000)
    assert at == {"exact": 1_999, "tick": 1_000}


@pytest.mark.parametrize("start_ms", [0, 399, 400, 8_000 - 1, 2**32 - 3, 100 * 365 * 86_400_000, 2**52 - 500])
def test_a_century_or_a_border_of_levels_behaves_like_any_other_time__T13(start_ms: int) -> None:
    timer = ManualTimer(start_ms=start_ms)
    seen: list[tuple[int, int]] = []
    for delay_ms in (0, 1, 19, 20, 21, 399, 400, 499):
        timer.after(delay_ms, lambda delay_ms: seen.append((delay_ms, timer.now_ms() - start_ms)), delay_ms)
    timer.advance(499)
    assert seen == [(delay_ms, delay_ms) for delay_ms in (0, 1, 19, 20, 21, 399, 400, 499)]


def test_the_last_millisecond_of_the_range_can_be_reached__T13() -> None:
    timer, ran = ManualTimer(start_ms=0), []
    timer.after(2**52 - 1, ran.append, "last")
    timer.after(1, ran.append, "first")
    timer.advance_to(2**52 - 2)
    assert ran == ["first"]
    timer.advance(1)
    assert (ran, timer.now_ms()) == (["first", "last"], 2**52 - 1)


def test_the_default_clock_is_the_systems_monotonic_one__T1() -> None:
    with SystemTimer("clock") as timer:
        before = time.monotonic_ns() // 1_000_000
        now = timer.now_ms()
        assert before - 1 <= now <= time.monotonic_ns() // 1_000_000 + 1


def test_a_clock_starts_at_start_ms_and_goes_on_from_there__T1() -> None:
    began = time.monotonic()
    with SystemTimer("clock", start_ms=5_000) as timer:
        assert 5_000 <= timer.now_ms() <= 5_001 + (time.monotonic() - began) * 1000
        until(lambda: timer.now_ms() >= 5_005)
        assert time.monotonic() - began >= 0.005


def test_real_timers_are_never_early__T5() -> None:
    early: list[float] = []
    left = threading.Semaphore(0)
    rng = random.Random(5)

    def check(added_ns: int, delay_ms: float) -> None:
        waited_ns = time.monotonic_ns() - added_ns
        if waited_ns < Fraction(delay_ms) * 1_000_000:
            early.append(delay_ms)
        left.release()

    with SystemTimer("never-early") as timer:
        for _ in range(300):
            delay_ms = rng.choice([rng.uniform(0, 60), rng.randrange(60)])
            timer.after(delay_ms, check, time.monotonic_ns(), delay_ms)
        assert all(left.acquire(timeout=20) for _ in range(300))
    assert early == []


def test_a_lone_timer_costs_one_wake_up__T5() -> None:
    ran = threading.Event()
    with SystemTimer("lone") as timer:
        timer.after(10.5, ran.set)
        wait(ran)
        # One more may be the add's own, which ends the reaper's endless sleep.
        assert timer.stats()["wake_ups"] <= 2
