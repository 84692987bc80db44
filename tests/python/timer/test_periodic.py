"""Periodic tasks (T20)."""

import asyncio
import gc
import itertools
import os
import queue
import random
import sys
import threading
import time
import weakref
from array import array
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import pytest

from tickwheel import PeriodicTask, SystemTimer, TimerClosed, TimerForked, TimerFull, TimerTask
from tickwheel.testing import ManualTimer
from timer.watching import until

pytestmark = pytest.mark.timeout(30)


def test_calls_come_at_every_instant_and_nothing_drifts__T20():
    timer, rng = ManualTimer(start_ms=1_000), random.Random(7)
    came = defaultdict(list)
    periods_ms = [rng.randrange(10, 10_000) + rng.choice([0, 0.5, 0.001]) for _ in range(1_000)]
    for number, period_ms in enumerate(periods_ms):
        timer.every(period_ms, lambda number=number: came[number].append(timer.now_us()))
    timer.advance(60_000)
    for number, period_ms in enumerate(periods_ms):
        period_us = round(period_ms * 1000)
        assert came[number] == [1_000_000 + n * period_us for n in range(1, 60_000_000 // period_us + 1)]
    assert len(timer) == 1_000


def test_a_call_by_hand_changes_nothing_of_the_series__T20():
    timer, came = ManualTimer(), []
    task = timer.every(10, lambda: came.append(timer.now_ms()) or "came")
    timer.advance(15)
    assert task.run() == "came"
    assert task.due_ms == 20
    timer.advance(20)
    assert came == [10, 15, 20, 30]
    task.cancel()
    assert task.run() is None
    assert came == [10, 15, 20, 30]


def test_arguments_a_start_and_a_jitter__T20():
    timer, came = ManualTimer(start_ms=1_000), []
    timer.every(100, lambda *args: came.append((timer.now_ms(), *args)), 1, "two", start_ms=1_050)
    timer.every(1_000, lambda: came.append((timer.now_ms(), "past")), start_ms=120)
    timer.advance(250)
    assert came == [(1_050, 1, "two"), (1_120, "past"), (1_150, 1, "two"), (1_250, 1, "two")]
    late_us = []
    start_us = timer.now_us()
    timer.every(10, lambda: late_us.append((timer.now_us() - start_us) % 10_000), jitter_ms=4)
    timer.advance(10_000)
    assert len(late_us) in (999, 1_000)
    assert min(late_us) < 1_000
    assert 3_000 < max(late_us) <= 4_000


@pytest.mark.parametrize("missed", ["skip", "last", "all"])
def test_calls_that_were_missed_are_left_out_or_made_up_for__T20(missed):
    """The first call takes until two more instants have passed."""
    calls = queue.SimpleQueue()

    def ring():
        began_us = timer.now_us()
        while timer.now_us() < 170_000:
            threading.Event().wait(0.002)
        calls.put((began_us, timer.now_us()))

    with SystemTimer("slow", start_ms=0) as timer:
        task = timer.every(50, ring, start_ms=50, missed=missed)
        found = [calls.get(timeout=10) for _ in range(5)]
        task.cancel()
    ended_us = found[0][1]
    to_come_us = -(-ended_us // 50_000) * 50_000
    began_us = [began_us for began_us, _ in found]
    if missed == "all":
        assert all(at >= 50_000 * (n + 1) for n, at in enumerate(began_us)), "each for its instant"
    else:
        assert began_us[{"skip": 1, "last": 2}[missed]] >= to_come_us


def test_a_cancel_ends_it_also_from_its_own_call_and_says_so_once__T9_T20():
    timer, came = ManualTimer(), []

    def ring():
        came.append(timer.now_ms())
        if len(came) == 3:
            answers.append(task.cancel())

    answers = []
    task = timer.every(10, ring)
    assert isinstance(task, PeriodicTask)
    assert isinstance(task, TimerTask)
    assert "pending" in repr(task)
    timer.advance(1_000)
    assert came == [10, 20, 30]
    assert answers == [True]
    assert task.cancel() is False
    assert len(timer) == 0
    other = timer.every(10, ring)
    assert other.cancel() is True
    assert other.cancel() is False
    timer.advance(1_000)
    assert len(came) == 3


def test_a_call_that_fails_costs_itself_alone__T10_T20():
    failed = []
    timer = ManualTimer(on_error=lambda task, error: failed.append((task, type(error))))
    task = timer.every(10, divmod, 1, 0)
    timer.advance(35)
    assert failed == [(task, ZeroDivisionError)] * 3
    assert len(timer) == 1


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"period_ms": 0}, ValueError, "period_ms must be more than 0, got 0: give milliseconds, as 250"),
        ({"period_ms": -1}, ValueError, "more than 0"),
        ({"period_ms": float("nan")}, ValueError, "period_ms must be finite"),
        ({"period_ms": "1"}, TypeError, "period_ms must be"),
        ({"period_ms": 2**52}, ValueError, "below 2\\^52"),
        ({"period_ms": 10, "jitter_ms": 10}, ValueError, "the jitter must be shorter than the period"),
        ({"period_ms": 10, "jitter_ms": -1}, ValueError, "jitter_ms must be 0 or more, got -1"),
        ({"period_ms": 10, "missed": "no"}, ValueError, "missed must be 'skip', 'all' or 'last', got str 'no'"),
        ({"period_ms": 10, "callback": 3}, TypeError, "callback must be callable"),
    ],
)
def test_bad_input_is_refused__T13_T20(given, error, text):
    timer = ManualTimer()
    with pytest.raises(error, match=text):
        timer.every(**{"callback": print, **given})
    assert len(timer) == 0


def test_a_full_timer_takes_no_new_one_and_keeps_the_others_going__T17_T20():
    timer, came = ManualTimer(max_pending=1), []
    timer.every(10, came.append, 1)
    with pytest.raises(TimerFull):
        timer.every(10, came.append, 2)
    timer.advance(100)
    assert came == [1] * 10


def test_it_runs_on_the_timers_thread_and_a_shutdown_returns_it__T11_T20():
    rang = queue.SimpleQueue()
    timer = SystemTimer("periodic")
    task = timer.every(1, lambda: rang.put(threading.current_thread().name))
    assert [rang.get(timeout=10) for _ in range(5)] == ["executor-periodic"] * 5
    task.cancel()
    rare = timer.every(3_600_000, print)
    assert timer.shutdown() == [rare]
    assert rare.cancel() is False, "it was taken off already"
    with pytest.raises(TimerClosed):
        timer.every(1, print)


def test_calls_do_not_overlap_in_a_pool_of_threads__T8_T20():
    inside, most, calls = 0, 0, queue.SimpleQueue()
    lock = threading.Lock()

    def ring():
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        threading.Event().wait(0.005)
        with lock:
            inside -= 1
        calls.put(None)

    with ThreadPoolExecutor(4) as pool, SystemTimer("pooled", executor=pool) as timer:
        task = timer.every(1, ring, missed="all")
        for _ in range(10):
            calls.get(timeout=10)
        task.cancel()
    assert most == 1


def test_on_a_loop_it_runs_in_the_loops_thread__T8_T20():
    async def main():
        rang, name = asyncio.Queue(), threading.current_thread().name
        with SystemTimer("on a loop", executor=asyncio.get_running_loop()) as timer:
            task = timer.every(1, lambda: rang.put_nowait(threading.current_thread().name))
            assert [await rang.get() for _ in range(3)] == [name] * 3
            task.cancel()

    asyncio.run(main())


def test_one_that_nobody_holds_goes_on_and_ends_with_its_timer__T11_T20():
    rang = queue.SimpleQueue()
    timer = SystemTimer("left alone")
    timer.every(1, rang.put, None)
    gc.collect()
    for _ in range(3):
        rang.get(timeout=10)
    left = weakref.ref(timer)
    del timer
    gc.collect()
    assert left() is None
    came = 0
    try:
        while True:
            rang.get(timeout=0.5)
            came += 1
            assert came < 400, "it goes on for ever"
    except queue.Empty:
        pass


def test_a_child_process_does_not_touch_it__T12_T20():
    with SystemTimer("parent's") as timer:
        task = timer.every(1_000, print)
        if (child := os.fork()) == 0:
            code = 1
            try:
                task.cancel()
            except TimerForked:
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        task.cancel()


@pytest.mark.timeout(200)
def test_many_periods_side_by_side_come_at_every_instant_and_do_not_drift__T20():
    """The long form: 10,000 periods of 10 ms to 10 s, for a minute."""
    is_long = os.environ.get("TICKWHEEL_SOAK") == "1"
    count, seconds = (10_000, 60) if is_long else (500, 2)
    source = random.Random(20)
    came: list[list[float]] = [[] for _ in range(count)]
    with SystemTimer("periods") as timer:
        start_ms = timer.now_us() / 1000 + 100
        periods = [round(source.uniform(10, 10_000 if is_long else 500), 3) for _ in range(count)]  # whole microseconds
        tasks = [
            timer.every(period, lambda seen=seen: seen.append(timer.now_us() / 1000), start_ms=start_ms, missed="all")
            for period, seen in zip(periods, came, strict=True)
        ]
        threading.Event().wait(seconds)
        assert timer.cancel_many(tasks) == count
        over_ms = timer.now_us() / 1000
    late = []
    for period, seen in zip(periods, came, strict=True):
        late_ms = [at_ms - (start_ms + n * period) for n, at_ms in enumerate(seen)]
        assert min(late_ms) >= -0.001, "early, beyond the rounding of a time to a microsecond"
        assert abs(len(seen) - (over_ms - start_ms) / period) <= 1 + max(late_ms) / period, "none is left out"
        assert min(late_ms[len(late_ms) // 2 :]) < period / 2, "it drifts"
        late += late_ms
    late.sort()
    p50, p99 = late[len(late) // 2], late[-len(late) // 100]
    print(f"{len(late)} calls of {count} periods: late p50 {p50:.3f}, p99 {p99:.3f} ms")


def test_a_cancel_that_meets_the_end_of_a_call_takes_the_task_off_and_says_so__T9_T20():
    """Between a call and the next add there is a wait for the timer's lock, in which a cancel may come."""
    is_over, tasks = threading.Event(), []
    with SystemTimer("meets") as timer:
        timer.add_many(array("q", range(1_000_000, 1_100_000)), print)

        def hold_the_lock_often():
            while not is_over.is_set():
                timer.occupancy()
                timer.pending(limit=1)

        switches_s = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        noise = threading.Thread(target=hold_the_lock_often)
        noise.start()
        try:
            for _ in range(1_000):
                begun = threading.Event()
                task = timer.every(3_600_000, begun.set, start_ms=timer.now_ms() + 8)
                assert begun.wait(20)
                assert task.cancel() is True
                assert task.cancelled()
                tasks.append(task)
        finally:
            sys.setswitchinterval(switches_s)
            is_over.set()
            noise.join()
        until(lambda: timer.stats()["running"] == 0)
        assert [(task.cancelled(), task.is_pending) for task in tasks] == [(True, False)] * 1_000


def test_an_add_inside_its_call_makes_no_second_chain_of_calls_in_a_pool__T20():
    inside, told, calls = [], [], queue.SimpleQueue()

    def beat():
        inside.append(1)
        if len(inside) > 1:
            told.append("two at once")
        if calls.empty():
            timer.add(task)
        calls.put(1)
        time.sleep(0.012)
        inside.clear()

    with ThreadPoolExecutor(4) as pool, SystemTimer("pool", executor=pool) as timer:
        task = timer.every(5, beat)
        until(lambda: calls.qsize() >= 20)
        task.cancel()
    assert told == []


# ---- gap_ms, first, times, until_ms, pause and resume ----------------------------------------------------------------


def test_a_gap_counts_from_the_end_of_a_call__T20():
    timer, came = ManualTimer(), []
    task = timer.every(None, lambda: came.append(timer.now_ms()), gap_ms=30)
    timer.advance(100)
    assert came == [30, 60, 90]
    task.cancel()
    calls = queue.SimpleQueue()

    def ring():
        began_us = system.now_us()
        threading.Event().wait(0.02)
        calls.put((began_us, system.now_us()))

    with SystemTimer("slow") as system:
        task = system.every(None, ring, gap_ms=5)
        found = [calls.get(timeout=10) for _ in range(5)]
        task.cancel()
    assert all(after[0] >= before[1] + 5_000 for before, after in itertools.pairwise(found))


def test_the_first_call_may_be_now_and_the_last_one_is_known__T20():
    timer, came = ManualTimer(start_ms=5), []
    ring = lambda: came.append(timer.now_ms())  # noqa: E731
    for options, expected in [
        ({"period_ms": 10, "first": "now", "times": 3}, [0, 10, 20]),
        ({"period_ms": None, "gap_ms": 10, "first": "now", "times": 3}, [0, 10, 20]),
        ({"period_ms": 10, "times": 1}, [10]),
    ]:
        came.clear()
        start_ms = timer.now_ms()
        task = timer.every(callback=ring, **options)
        timer.advance(100)
        assert came == [start_ms + at for at in expected], options
        assert (len(timer), task.is_pending, task.cancelled()) == (0, False, False)
        assert [task.cancel(), task.pause(), task.resume(), task.run()] == [False, False, False, None]
    came.clear()
    start_ms = timer.now_ms()
    timer.every(10, ring, until_ms=start_ms + 30)
    timer.advance(100)
    assert came == [start_ms + 10, start_ms + 20, start_ms + 30]


def test_no_call_comes_during_a_pause_and_what_was_due_is_left_out__T20():
    for options, then in [({}, [50, 60]), ({"missed": "all"}, [50, 60]), ({"gap": True}, [55, 65])]:
        timer, came = ManualTimer(), []
        period = {"period_ms": None, "gap_ms": 10} if options.pop("gap", False) else {"period_ms": 10}
        task = timer.every(callback=lambda timer=timer, came=came: came.append(timer.now_ms()), **period, **options)
        timer.advance(25)
        assert not task.is_paused
        assert [task.pause(), task.pause()] == [True, False]
        assert (task.is_paused, task.is_pending, task.cancelled(), len(timer)) == (True, False, False, 0)
        assert task.run() is None
        assert came.pop() == 25, "by hand"
        with pytest.raises(ValueError, match=r"is paused, and can't be added: call its resume"):
            timer.add(task)
        assert task.reschedule(5) is False
        timer.advance(20)
        assert came == [10, 20]
        assert [task.resume(), task.resume()] == [True, False]
        timer.advance(20)
        assert came == [10, 20, *then]
        assert task.pause()
        assert task.cancel()
        assert (task.cancelled(), task.is_paused, task.resume(), task.pause()) == (True, False, False, False)


def test_a_pause_inside_the_call_holds_after_it__T20():
    timer, came = ManualTimer(), []
    task = timer.every(10, lambda: came.append((timer.now_ms(), task.pause())))
    timer.advance(50)
    assert came == [(10, True)]
    assert task.resume()
    timer.advance(10)
    assert came == [(10, True), (50, True)]
    both = timer.every(10, lambda: came.append((both.pause(), both.resume())))
    came.clear()
    timer.advance(30)
    assert came == [(True, True)] * 3, "a pause that ended inside the call changes nothing"


def test_a_pause_past_the_end_ends_the_series_when_it_is_resumed__T11_T20():
    timer = ManualTimer()
    task = timer.every(10, int, until_ms=30)
    task.pause()
    timer.advance(50)
    assert task.resume() is False
    assert task.cancel() is False
    closed = timer.every(10, int)
    closed.pause()
    assert timer.shutdown() == []
    with pytest.raises(TimerClosed):
        closed.resume()
    assert closed.cancel() is False


def test_threads_that_pause_and_resume_leave_one_call_or_none__T20():
    running, overlaps, stop = [], [], threading.Event()

    def ring():
        running.append(1)
        if len(running) > 1:
            overlaps.append(len(running))
        running.pop()

    def toggle():
        while not stop.is_set():
            task.pause()
            task.resume()

    with SystemTimer("toggled") as timer:
        task = timer.every(0.05, ring, missed="all")
        threads = [threading.Thread(target=toggle) for _ in range(3)]
        for thread in threads:
            thread.start()
        threading.Event().wait(0.5)
        stop.set()
        for thread in threads:
            thread.join()
        task.pause()
        until(lambda: timer.stats()["running"] == 0)
        assert len(timer) == 0
        before = timer.stats()["expired"]
        assert task.resume()
        until(lambda: timer.stats()["expired"] > before + 3)
        assert task.pause()
        assert task.cancel()
    assert overlaps == []


def test_of_a_pause_the_waiters_are_told_that_no_call_comes__T20_T22():
    async def main():
        task = ManualTimer().every(10, int)
        wait = asyncio.ensure_future(task)
        await asyncio.sleep(0)
        task.pause()
        assert await wait is False

    asyncio.run(main())


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"period_ms": None}, ValueError, "needs period_ms or gap_ms, got none"),
        ({"period_ms": 1, "gap_ms": 1}, ValueError, "needs period_ms or gap_ms, got both"),
        ({"period_ms": None, "gap_ms": 0}, ValueError, "gap_ms must be more than 0, got 0: give milliseconds, as 250"),
        ({"period_ms": 1, "first": "later"}, ValueError, "first must be 'now', without start_ms, got str 'later'"),
        ({"period_ms": 1, "first": "now", "start_ms": 5}, ValueError, "first must be 'now', without start_ms"),
        ({"period_ms": 1, "times": 0}, ValueError, "times must be from 1 to"),
        ({"period_ms": 1, "times": True}, TypeError, "times must be an int"),
        ({"period_ms": 10, "until_ms": 9}, ValueError, "the first call is due at 10000 us, after the end at 9000 us"),
        ({"period_ms": 10, "until_ms": -9}, ValueError, "until_ms is an instant of the timer's clock, 0 or later"),
    ],
)
def test_a_series_that_cannot_be_is_refused__T13_T20(given, error, text):
    timer = ManualTimer()
    with pytest.raises(error, match=text):
        timer.every(callback=print, **given)
    assert len(timer) == 0
