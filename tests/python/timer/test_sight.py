"""T14: what a timer shows of itself: its length, its snapshot, what is to come, and its counters."""

import threading
from array import array

import pytest

from tickwheel import SystemTimer, TimerTask
from tickwheel.testing import ManualTimer
from timer.watching import Hold, until, wait


def test_len_counts_what_is_not_yet_released__T14() -> None:
    timer = ManualTimer()
    assert len(timer) == 0
    for delay_ms in (0, 5, 5, 700):
        timer.after(delay_ms, print).cancel() if delay_ms == 700 else timer.after(delay_ms, int)
    assert len(timer) == 3
    timer.advance(0)
    assert len(timer) == 2
    timer.advance(5)
    assert len(timer) == 0


def test_what_waits_for_the_executor_is_not_counted_by_len_but_by_depth__T14() -> None:
    hold = Hold()
    with SystemTimer("depth") as timer:
        timer.after(0, hold)
        wait(hold.running)
        timer.after(0, int)
        timer.after(0, int)
        until(lambda: timer.stats()["executor_depth"] == 2)
        stats = timer.stats()
        assert (len(timer), stats["pending"], stats["running"], stats["expired"]) == (0, 0, 1, 1)
        assert timer.pending() == []
        hold.let_go.set()
        until(lambda: timer.stats()["expired"] == 3)


def test_an_empty_timer_is_true__T14() -> None:
    assert bool(ManualTimer()) is True


def test_a_snapshot_is_plain_data_of_this_shape__T14() -> None:
    timer = ManualTimer(tick_ms=10, wheel_size=2, start_ms=100)
    timer.add(TimerTask(5, print, name="front"))
    timer.add(TimerTask(15, print, name="level 1"))
    timer.add(TimerTask(25.5, print, name="level 2"))
    assert timer.snapshot() == {
        "levels": [
            {
                "level": 1,
                "tick_ms": 10,
                "interval_ms": 20,
                "start_ms": 100,
                "current_time_ms": 100,
                "covers_ms": [100, 120],
                "buckets": [{"expiration_ms": -1, "tasks": []}, {"expiration_ms": 110, "tasks": ["level 1"]}],
            },
            {
                "level": 2,
                "tick_ms": 20,
                "interval_ms": 40,
                "start_ms": 100,
                "current_time_ms": 100,
                "covers_ms": [100, 140],
                "buckets": [{"expiration_ms": 120, "tasks": ["level 2"]}, {"expiration_ms": -1, "tasks": []}],
            },
        ],
        "queue": [
            {"expiration_ms": 110, "level": 1, "bucket": 1},
            {"expiration_ms": 120, "level": 2, "bucket": 0},
        ],
        "size": 3,
        "front": [{"due_ms": 105.0, "task": "front"}],
    }


def test_a_snapshot_shows_the_front_in_order_and_without_what_was_cancelled__T14() -> None:
    timer = ManualTimer(tick_ms=10)
    tasks = [TimerTask(delay_ms, print, name=str(delay_ms)) for delay_ms in (7, 3, 5, 3.5)]
    for task in tasks:
        timer.add(task)
    tasks[2].cancel()
    front = timer.snapshot()["front"]
    assert [(item["due_ms"], item["task"]) for item in front] == [(3, "3"), (3.5, "3.5"), (7, "7")]
    assert timer.snapshot()["size"] == 3


def test_a_snapshot_names_a_task_by_what_it_runs_if_it_has_no_name__T14() -> None:
    class Nameless(TimerTask):
        def run(self) -> None: ...

    timer = ManualTimer(wheel_size=50)
    timer.after(5, print)
    timer.add(Nameless(6))
    batch = timer.add_many(array("q", [7]), print)
    tasks = [task for bucket in timer.snapshot()["levels"][0]["buckets"] for task in bucket["tasks"]]
    assert tasks == ["print", Nameless.__qualname__, (batch, 0)]


def test_pending_lists_what_is_to_come_in_order__T14() -> None:
    timer = ManualTimer(start_ms=1000)
    late, first, second = timer.after(9000, print), timer.after(2.5, print), timer.after(2.5, print)
    now = timer.after(0, print)
    batch = timer.add_many(array("q", [3, 1]), print)
    timer.after(5, print).cancel()
    assert timer.pending() == [
        (1000, now),
        (1001, (batch, 1)),
        (1002.5, first),
        (1002.5, second),
        (1003, (batch, 0)),
        (10_000, late),
    ]
    assert {type(due_ms) for due_ms, _ in timer.pending()} == {float}


def test_before_ms_is_on_the_timers_clock_and_excludes_itself__T14() -> None:
    timer = ManualTimer(start_ms=1000)
    tasks = [timer.after(delay_ms, print) for delay_ms in (1, 2, 3)]
    assert timer.pending(before_ms=1002) == [(1001, tasks[0])]
    assert timer.pending(before_ms=1002.5) == [(1001, tasks[0]), (1002, tasks[1])]
    assert timer.pending(before_ms=3) == timer.pending(before_ms=-5) == []


def test_before_ms_excludes_itself_to_the_microsecond__T14() -> None:
    timer = ManualTimer()
    for us in range(1, 3000, 7):
        timer.after(us / 1000, print)
    listed = [due_ms for due_ms, _ in timer.pending()]
    assert [[due for due, _ in timer.pending(before_ms=before)][-1:] for before in listed[1:]] == [
        [due_ms] for due_ms in listed[:-1]
    ]


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 4, 2**70])
def test_a_limit_takes_the_earliest__T14(limit: int) -> None:
    timer = ManualTimer()
    tasks = [timer.after(delay_ms, print) for delay_ms in (500, 5, 50)]
    wanted = [(5, tasks[1]), (50, tasks[2]), (500, tasks[0])]
    if limit == 2**70:
        with pytest.raises(ValueError, match=r"^limit must be from 0 to"):
            timer.pending(limit=limit)
    else:
        assert timer.pending(limit=limit) == wanted[:limit]
        assert timer.pending(limit=limit, before_ms=50) == wanted[: min(limit, 1)]


def test_pending_of_thousands_is_in_order_too__T14() -> None:
    timer = ManualTimer()
    timer.add_many(array("q", [(number * 7919) % 5000 for number in range(5000)]), print)
    listed = [(due_ms, index) for due_ms, (_, index) in timer.pending()]
    assert listed == sorted(listed)
    assert len(listed) == 5000


def test_stats_count_what_happened__T14() -> None:
    timer = ManualTimer()
    task = TimerTask(450, int)
    timer.add(task)
    timer.add(task)
    timer.after(5, int)
    timer.after(5, int).cancel()
    timer.add_many(array("q", [6, 6]), len).cancel(0)
    timer.advance(10)
    stats = timer.stats()
    del stats["wake_ups"]
    assert stats == {
        "added": 5,
        "moved": 1,
        "cancelled": 2,
        "expired": 2,
        "cascaded": [2, 0, 0],
        "pending": 1,
        "executor_depth": 0,
        "running": 0,
        "lateness_us": [(0, 2)],
    }
    timer.advance(440)
    assert timer.stats()["cascaded"] == [3, 1, 1]


def test_running_counts_the_callback_that_asks__T14() -> None:
    timer, running = ManualTimer(), []
    timer.after(5, lambda: running.append(timer.stats()["running"]))
    timer.advance(5)
    assert running == [1]


def test_the_lateness_histogram_says_how_late_calls_were__T14() -> None:
    hold, done = Hold(), threading.Event()
    with SystemTimer("late") as timer:
        timer.after(0, hold)
        wait(hold.running)
        due_ms = timer.now_ms() + 1
        timer.at(due_ms, done.set)
        until(lambda: timer.now_ms() >= due_ms + 40)
        hold.let_go.set()
        wait(done)
        histogram = timer.stats()["lateness_us"]
    assert sum(count for _, count in histogram) == 2
    assert histogram == sorted(histogram)
    assert histogram[-1][0] >= 40_000
    assert histogram[-1][1] == 1


def test_a_reaper_counts_its_wake_ups__T14() -> None:
    """One that is due before the reaper sleeps costs no wake-up: on a busy machine it takes more than one task."""
    fired = []
    with SystemTimer("wakes") as timer:

        def wakes_it() -> bool:
            done = threading.Event()
            timer.after(5, done.set)
            wait(done)
            fired.append(done)
            return timer.stats()["wake_ups"] > 0

        until(wakes_it)
        assert timer.stats()["wake_ups"] <= 3 * len(fired)


@pytest.mark.parametrize("wheel_size", [3, 20, [20, 64]])
def test_the_occupancy_counts_what_the_snapshot_lists__T14(wheel_size: int | list[int]) -> None:
    timer = ManualTimer(wheel_size=wheel_size)
    tasks = [timer.after(delay_ms * delay_ms % 100_003, int) for delay_ms in range(3_000)]
    for number, moment_ms in enumerate((0, 7, 5_000, 5_001, 90_000)):
        timer.advance_to(moment_ms)
        assert timer.cancel_many(tasks[number::11]) > 0
        for moved in tasks[number + 5 :: 13]:
            moved.reschedule(1 + moved.delay_ms * 7 % 400_009)
        counted, seen = timer.occupancy(), timer.snapshot()
        shown, levels = counted["levels"], timer.occupancy()["levels"]
        assert shown == levels[: len(shown)]
        assert not any(any(level["tasks"]) for level in levels[len(shown) :])
        assert (counted["size"], counted["front"]) == (len(timer), len(seen["front"]))
        for level, listed in zip(timer.occupancy()["levels"], seen["levels"], strict=True):
            assert level == {
                **{name: listed[name] for name in ("level", "tick_ms", "interval_ms", "current_time_ms")},
                "tasks": [len(bucket["tasks"]) for bucket in listed["buckets"]],
            }


def test_what_is_pending_all_the_while_is_listed_and_shown_moved_or_not__T14() -> None:
    timer = ManualTimer()
    tasks = [timer.after(1_000 + number, int) for number in range(60_000)]
    turns = 0
    is_over = threading.Event()

    def moves() -> None:
        nonlocal turns
        while not is_over.is_set():
            for task in tasks[turns % 7 :: 7]:
                task.reschedule(1_000 + turns * 7_919 % 1_000_000)
            turns += 1

    mover = threading.Thread(target=moves)
    mover.start()
    try:
        for _ in range(5):
            until(lambda before=turns: turns > before)
            assert {task for _, task in timer.pending()} == set(tasks)
            assert len(timer.pending(limit=100)) == 100
            assert timer.snapshot()["size"] <= len(tasks)  # of those that move some are missing
    finally:
        is_over.set()
        mover.join()
    snapshot = timer.snapshot()
    buckets = [bucket for level in snapshot["levels"] for bucket in level["buckets"]]
    assert sum(len(bucket["tasks"]) for bucket in buckets) == snapshot["size"] == len(tasks)


def test_a_task_is_listed_with_its_own_time_where_another_one_was__T14() -> None:
    """A new task gets the slot of one that was cancelled, and its object the address."""
    timer = ManualTimer()
    for number in range(200_000):
        timer.after(10_000 + number, int)
    soon = [timer.after(1_000, int) for _ in range(500)]
    is_over = threading.Event()

    def replaces() -> None:
        for turn in range(1_000_000):
            if is_over.is_set():
                return
            timer.cancel_many(soon)
            soon[:] = ()
            soon.extend(timer.after(1_000 + turn % 7_919, int) for _ in range(500))  # always the first ones

    other = threading.Thread(target=replaces)
    other.start()
    try:
        for _ in range(5):
            listed = timer.pending(limit=500)
            assert [due_ms for due_ms, _ in listed] == [task.delay_ms for _, task in listed]
            assert listed == sorted(listed, key=lambda it: it[0])
    finally:
        is_over.set()
        other.join()


def test_the_first_of_many_are_listed_in_order__T14() -> None:
    timer = ManualTimer()
    tasks = [timer.after(number * 7_919 % 10_007, int) for number in range(5_000)]
    expected = sorted((float(task.delay_ms), number, task) for number, task in enumerate(tasks))
    for limit in (0, 1, 600, 4_999, 5_000, 9_999):
        assert timer.pending(limit=limit) == [(due_ms, task) for due_ms, _, task in expected[:limit]]


def test_a_timer_says_whether_it_was_shut_down__T11() -> None:
    timer = SystemTimer("ends")
    assert not timer.is_shut_down
    timer.shutdown()
    assert timer.is_shut_down
