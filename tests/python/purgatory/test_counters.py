"""P8: counters of size, delayed, completions, expirations, watched keys, and time spent waiting."""

import pytest

from purgatory.operations import EMPTY, Op, counts
from tickwheel import DelayedOperationPurgatory
from tickwheel.testing import ManualTimer


def test_each_end_is_counted_once_and_the_time_it_waited__P8() -> None:
    timer = ManualTimer(start_ms=7_000)
    purgatory = DelayedOperationPurgatory("counters", timer)
    completed, expires, cancelled, at_once = Op(100), Op(40), Op(100), Op(ready=True)
    for operation in (completed, expires, cancelled, at_once):
        purgatory.try_complete_else_watch(operation, ["a", "b"])
    assert purgatory.stats() == {
        "waiting": 3,
        "delayed": 3,
        "watched": 6,
        "keys": 2,
        "completed": 1,
        "expired": 0,
        "cancelled": 0,
        "waited_ms": 0.0,
    }
    timer.advance(10.5)
    completed.force_complete()
    assert purgatory.stats()["waited_ms"] == 10.5
    timer.advance(20)
    cancelled.cancel()
    assert purgatory.stats()["waited_ms"] == 10.5, "only of those that completed or expired"
    timer.advance(100)
    stats = purgatory.stats()
    assert (stats["completed"], stats["expired"], stats["cancelled"]) == (2, 1, 1)
    assert stats["waited_ms"] == 50.5
    assert counts(purgatory) == EMPTY


def test_equal_keys_count_once__P4() -> None:
    purgatory = DelayedOperationPurgatory("counters", ManualTimer())
    purgatory.try_complete_else_watch(Op(), ["a", "a", "b", "a"])
    assert counts(purgatory) == (1, 1, 2, 2)


def test_one_that_completes_during_the_second_try_is_off_everything__P5() -> None:
    class Second(Op):
        def try_complete(self) -> bool:
            self.is_ready = self.tries == 1
            done = super().try_complete()
            seen.append((done, counts(purgatory)))
            return done

    seen: list[tuple[bool, tuple[int, int, int, int]]] = []
    purgatory = DelayedOperationPurgatory("counters", ManualTimer())
    assert purgatory.try_complete_else_watch(Second(), ["a", "b", "c"]) is True
    assert seen == [(False, (1, 0, 0, 0)), (True, EMPTY)]


@pytest.mark.parametrize("timer_enabled", [True, False])
def test_num_delayed_counts_only_what_is_on_the_timer__P4(timer_enabled: bool) -> None:
    timer = ManualTimer()
    purgatory = DelayedOperationPurgatory("counters", timer, timer_enabled)
    for number in range(5):
        purgatory.try_complete_else_watch(Op(10), [number])
    assert purgatory.num_delayed == len(timer) == (5 if timer_enabled else 0)
    timer.advance(100)
    assert len(purgatory) == (0 if timer_enabled else 5)
