"""What Python's users expect of a timer: failures that are seen, an end that tells, percentiles (T8, T10, T11, T14)."""

import asyncio
import contextlib
import logging
import subprocess
import threading
from pathlib import Path
from queue import SimpleQueue

import pytest

from tickwheel import DelayedOperation, DelayedOperationPurgatory, SystemTimer
from tickwheel.histogram import Histogram
from tickwheel.testing import ManualTimer

pytestmark = pytest.mark.timeout(30)


def fail(text):
    raise AssertionError(text)


def test_a_strict_timer_gives_what_a_callback_raises_to_its_caller__T10_T15():
    timer, came = ManualTimer(strict=True), []
    timer.after(1, came.append, 1)
    timer.after(2, fail, "two")
    timer.after(2, came.append, 2)
    timer.after(3, came.append, 3)
    with pytest.raises(AssertionError, match="two"):
        timer.advance(10)
    assert (came, timer.now_ms()) == ([1], 2)
    timer.advance(10)
    assert came == [1, 2, 3], "what is left runs at the next advance"
    timer.after(1, fail, "next")
    with pytest.raises(AssertionError, match="next"):
        timer.run_next()


def test_strict_is_for_operations_and_periods_too_and_leaves_other_timers_alone__T10_P3(caplog):
    class Late(DelayedOperation):
        def try_complete(self):
            return False

        def on_complete(self):
            pass

        def on_expiration(self):
            fail("expired")

    timer = ManualTimer(strict=True)
    purgatory = DelayedOperationPurgatory("strict", timer)
    purgatory.try_complete_else_watch(Late(5), ["k"])
    timer.every(4, fail, "beat")
    inner = ManualTimer("inner")
    inner.after(1, fail, "inside")
    timer.after(1, inner.advance, 1)
    with pytest.raises(AssertionError, match="beat"):
        timer.advance(4)
    assert [record.getMessage() for record in caplog.records] == ["timer 'inner': callback fail failed"]
    with pytest.raises(AssertionError, match="expired"):
        timer.advance(1)
    with pytest.raises(AssertionError, match="beat"):
        timer.advance(4)


def test_strict_and_on_error_are_one_or_the_other__T10():
    with pytest.raises(ValueError, match="give one of both"):
        ManualTimer(strict=True, on_error=print)
    with pytest.raises(TypeError, match="strict must be"):
        ManualTimer(strict="yes")


def test_a_task_that_failed_tells_on_error_what_it_was_and_forgets_it_then__T10_T19_T22():
    told, again = [], []

    def note(task, error):
        told.append((task.callback, task.args, str(error)))
        if not again:
            again.append(task)
            timer.add(task)

    timer = ManualTimer(on_error=note)
    task = timer.after(5, fail, "x")
    timer.advance(5)
    assert told == [(fail, ("x",), "x")]
    assert task.is_pending, "it was added once more"
    timer.advance(5)
    assert len(told) == 2
    assert (task.callback, task.args, task.is_pending) == (None, (), False)


def test_a_block_that_is_left_says_what_does_not_run__T11(caplog):
    with caplog.at_level(logging.WARNING):
        with SystemTimer("left") as timer:
            timer.after(60_000, print)
            timer.after(0, print).cancel()
        assert repr(timer) == "<SystemTimer 'left' shut down, 1 unfinished>"
        with SystemTimer("empty"):
            pass
        with contextlib.suppress(KeyError), SystemTimer("failed") as failed:
            failed.after(60_000, print)
            raise KeyError
    assert [record.getMessage() for record in caplog.records] == [
        "timer 'left' was left with 1 pending: the task is in `unfinished` and will not run; "
        "shutdown(wait_pending=True) waits for it"
    ]


def test_a_shutdown_that_waits_lets_everything_run__T11():
    came, timer = [], SystemTimer("waits")
    timer.after(30, lambda: timer.after(30, came.append, "later"))
    timer.after(10, came.append, "first")
    assert timer.shutdown(wait_pending=True) == []
    assert came == ["first", "later"]
    assert timer.shutdown(wait_pending=True) == []
    manual = ManualTimer()
    manual.after(10, lambda: manual.after(10, came.append, "manual"))
    assert manual.shutdown(wait_pending=True) == []
    assert (came[-1], manual.now_ms()) == ("manual", 20)


def test_a_shutdown_that_waits_ends_when_the_last_is_cancelled_or_the_time_is_over__T11():
    timer = SystemTimer("cancelled")
    task = timer.after(3_600_000, print)
    ended = threading.Thread(target=timer.shutdown, kwargs={"wait_pending": True})
    ended.start()
    assert task.cancel()
    ended.join(20)
    assert not ended.is_alive()
    timer = SystemTimer("limited")
    beat = timer.every(3_600_000, print)
    assert timer.shutdown(50, wait_pending=True) == [beat]
    manual = ManualTimer()
    beat = manual.every(10, int)
    assert manual.shutdown(35, wait_pending=True) == [beat]
    assert manual.now_ms() == 30


def test_a_shutdown_in_a_callback_does_not_wait__T11():
    left, done = [], threading.Event()
    timer = SystemTimer("inside")

    def end():
        left.extend(timer.shutdown(wait_pending=True))
        done.set()

    task = timer.after(3_600_000, print)
    timer.after(0, end)
    assert done.wait(20)
    assert left == [task]


def test_the_lateness_answers_percentiles__T14():
    with SystemTimer("late") as timer:
        for _ in range(100):
            timer.after(0, int)
        timer.shutdown()
        lateness = timer.stats()["lateness_us"]
    assert sum(count for _, count in lateness) == 100
    assert lateness.percentile(0) == lateness[0][0]
    assert lateness.percentile(100) == lateness[-1][0]
    assert lateness.percentile(50) <= lateness.percentile(99)
    some = Histogram([(1, 1), (2, 98), (4, 1)])
    assert [some.percentile(it) for it in (0, 1, 1.5, 99, 99.5, 100)] == [1, 1, 2, 2, 4, 4]
    assert Histogram().percentile(50) is None
    with pytest.raises(ValueError, match="from 0 to 100, got 101"):
        some.percentile(101)


def test_a_loop_as_executor_is_waited_for_from_another_thread__T8_T11():
    came = []

    async def main():
        timer = SystemTimer("on a loop", executor=asyncio.get_running_loop())
        timer.after(20, came.append, "ran")
        return await asyncio.to_thread(timer.shutdown, wait_pending=True)

    assert asyncio.run(main()) == []
    assert came == ["ran"]


@pytest.mark.skipif(not Path("/proc/self/timerslack_ns").exists(), reason="no timer slack to inherit here")
def test_a_program_that_a_callback_starts_sleeps_as_any_other__T5() -> None:
    """The thread sleeps to the nanosecond, and its children would inherit that."""

    def slack_ns() -> bytes:
        return subprocess.check_output(["cat", "/proc/self/timerslack_ns"], timeout=30)

    of_callback: SimpleQueue[bytes] = SimpleQueue()
    with SystemTimer("starts programs") as timer:
        for delay_ms in (1, 20):  # at the second one it has slept
            timer.after(delay_ms, lambda: of_callback.put(slack_ns()))
        assert {of_callback.get(timeout=30), of_callback.get(timeout=30)} == {slack_ns()}
