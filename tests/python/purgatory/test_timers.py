"""P2, P4: its own timer or a given one; what happens to a timer under it."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from purgatory.operations import EMPTY, HOUR, Op, counts
from tickwheel import DelayedOperationPurgatory, SystemTimer, TimerClosed, TimerFull, TimerRejected, TimerTask
from tickwheel.testing import ManualTimer
from timer.watching import executor_thread, until

pytestmark = pytest.mark.timeout(40)


def test_its_own_timer_has_its_name_and_ends_with_it__P2_T11() -> None:
    with DelayedOperationPurgatory("mine") as purgatory:
        assert (purgatory.name, purgatory.timer.name) == ("mine", "mine")
        assert type(purgatory.timer) is SystemTimer
        thread = executor_thread("mine")
        assert thread is not None
        waiting, due = Op(), Op(5)
        purgatory.try_complete_else_watch(waiting, ["a", "b"])
        purgatory.try_complete_else_watch(due, ["a"])
        until(lambda: due.is_completed)
    assert not thread.is_alive()
    assert purgatory.unfinished == [waiting]
    assert (due.log, waiting.log, counts(purgatory)) == (["complete", "expire"], [], EMPTY)
    with pytest.raises(TimerClosed, match="purgatory 'mine' was shut down"):
        purgatory.try_complete_else_watch(Op(), ["a"])
    assert purgatory.check_and_complete("a") == 0
    assert purgatory.cancel_for_key("a") == []
    assert purgatory.shutdown() == [waiting]


def test_shutdown_returns_what_waits_in_order_of_arrival_and_twice_is_fine__T11() -> None:
    timer = ManualTimer()
    purgatory = DelayedOperationPurgatory("given", timer)
    operations = [Op(1000 - number) for number in range(50)]
    for number, operation in enumerate(operations):
        purgatory.try_complete_else_watch(operation, [number % 7, number % 3, "all"])
    assert purgatory.unfinished == []
    assert purgatory.shutdown() == operations
    assert purgatory.shutdown(5) == purgatory.unfinished == operations
    purgatory.unfinished.clear()
    purgatory.shutdown().clear()
    assert purgatory.unfinished == operations, "a copy"
    assert (counts(purgatory), len(timer)) == (EMPTY, 0)
    timer.advance(5000)
    assert not any(operation.is_completed for operation in operations)
    other = DelayedOperationPurgatory("other", timer)
    other.try_complete_else_watch(operations[0], ["a"])
    timer.advance(5000)
    assert operations[0].log == ["complete", "expire"], "the timer goes on, and so may what was left"


def test_a_shutdown_inside_a_shutdown_loses_nothing__T11() -> None:
    """Here a key's destructor does it; two threads at once may come to the same."""

    class Last:
        def __del__(self) -> None:
            inner.append(purgatory.shutdown())

    inner: list[list[Any]] = []
    purgatory = DelayedOperationPurgatory("given", ManualTimer())
    operations = [Op() for _ in range(4)]
    purgatory.try_complete_else_watch(operations[0], [Last()])
    for operation in operations[1:]:
        purgatory.try_complete_else_watch(operation, ["key"])
    outer = purgatory.shutdown()
    assert len(inner) == 1
    assert set(outer) | set(inner[0]) == set(operations)
    assert set(purgatory.unfinished) == set(operations), "what one of them found is in `unfinished` no more"


@pytest.mark.parametrize("where", ["complete", "expire"])
def test_shutdown_inside_a_callback_on_its_own_timers_thread_does_not_hang__T11(where: str) -> None:
    class Ends(Op):
        def on_complete(self) -> None:
            if where == "complete":
                found.append(purgatory.shutdown())

        def on_expiration(self) -> None:
            if where == "expire":
                found.append(purgatory.shutdown())

    found: list[list[Any]] = []
    purgatory = DelayedOperationPurgatory("inside")
    waiting = Op()
    purgatory.try_complete_else_watch(waiting, ["a"])
    purgatory.try_complete_else_watch(Ends(1), ["a"])
    until(lambda: found != [])
    assert found == [[waiting]]
    assert purgatory.shutdown() == [waiting]


def test_what_is_due_at_shutdown_expires__T11() -> None:
    hold, held = threading.Event(), threading.Event()
    purgatory = DelayedOperationPurgatory("due")
    purgatory.timer.after(0, lambda: (held.set(), hold.wait(20)))
    assert held.wait(20)
    operation = Op(0)
    purgatory.try_complete_else_watch(operation, ["a"])
    until(lambda: purgatory.timer.stats()["executor_depth"] == 1)
    assert purgatory.shutdown(1) == [operation], "it had not started when the time was up"
    hold.set()
    assert operation.log == []
    purgatory = DelayedOperationPurgatory("due")
    purgatory.try_complete_else_watch(operation, ["a"])
    assert purgatory.shutdown() == []
    assert operation.log == ["complete", "expire"]


@pytest.mark.parametrize("kind", ["pool", "driven", "tick", "loop", "wheel"])
def test_any_timer_will_do__P2(kind: str) -> None:
    async def main() -> None:
        with ThreadPoolExecutor(2) as pool:
            made: dict[str, dict[str, Any]] = {
                "pool": {"executor": pool},
                "driven": {"reaper": False},
                "tick": {"precision": "tick", "tick_ms": 5},
                "loop": {"executor": asyncio.get_running_loop()},
                "wheel": {"wheel_size": (2, 3), "slack_us": 0},
            }
            with SystemTimer("given", **made[kind]) as timer:
                purgatory = DelayedOperationPurgatory("given", timer)
                operations = [Op(number if number % 2 else HOUR) for number in range(40)]
                for number, operation in enumerate(operations):
                    purgatory.try_complete_else_watch(operation, [number])
                for number in range(0, 40, 4):
                    operations[number].is_ready = True
                    assert purgatory.check_and_complete(number) == 1
                while not all(operation.is_completed for operation in operations[1::2]):
                    if kind == "driven":
                        timer.advance_clock(100)
                    await asyncio.sleep(0.001)
                assert purgatory.shutdown() == operations[2::4]
                assert len(timer) == 0
            until(lambda: all(operation.log == ["complete", "expire"] for operation in operations[1::2]))
            assert all(operation.log == ["complete"] for operation in operations[::4])

    asyncio.run(main())


def test_two_purgatories_on_one_timer_are_apart__P2() -> None:
    timer = ManualTimer()
    here, there = (DelayedOperationPurgatory(name, timer) for name in ("here", "there"))
    mine, theirs = Op(10), Op(20)
    here.try_complete_else_watch(mine, ["key"])
    there.try_complete_else_watch(theirs, ["key"])
    with pytest.raises(ValueError, match="waits in a purgatory already: make a new one"):
        there.try_complete_else_watch(mine, ["key"])
    assert (counts(here), counts(there), len(timer)) == ((1,) * 4, (1,) * 4, 2)
    theirs.is_ready = mine.is_ready = True
    assert there.check_and_complete("key") == 1
    assert not mine.is_completed
    assert here.shutdown() == [mine]
    assert (counts(there), len(timer)) == (EMPTY, 0)


def test_the_timer_is_shut_down_under_it__P4() -> None:
    timer = ManualTimer()
    purgatory = DelayedOperationPurgatory("under", timer)
    operations = [Op(1000), Op(2000)]
    for operation in operations:
        purgatory.try_complete_else_watch(operation, ["a", "b"])
    assert timer.shutdown() == operations
    assert counts(purgatory) == (2, 0, 4, 2)
    late = Op()
    with pytest.raises(TimerClosed):
        purgatory.try_complete_else_watch(late, ["a"])
    assert counts(purgatory) == (2, 0, 4, 2), "watched nowhere"
    operations[0].is_ready = True
    assert purgatory.check_and_complete("b") == 1
    assert purgatory.shutdown() == [operations[1]]
    assert counts(purgatory) == EMPTY
    ready = Op(ready=True)
    with DelayedOperationPurgatory("under", timer, timer_enabled=False) as without:
        assert without.try_complete_else_watch(ready, ["a"]) is True
        without.try_complete_else_watch(Op(), ["a"])
        assert counts(without) == (1, 0, 1, 1)


def test_a_full_timer_refuses_and_it_is_watched_nowhere__T17() -> None:
    timer = ManualTimer(max_pending=2)
    purgatory = DelayedOperationPurgatory("full", timer)
    for _ in range(2):
        purgatory.try_complete_else_watch(Op(10), ["a"])
    refused = Op(10)
    with pytest.raises(TimerFull):
        purgatory.try_complete_else_watch(refused, ["a"])
    assert (counts(purgatory), refused.tries) == ((2, 2, 2, 1), 2)
    timer.advance(10)
    assert purgatory.try_complete_else_watch(refused, ["a"]) is False
    timer.advance(10)
    assert (refused.log, counts(purgatory)) == (["complete", "expire"], EMPTY)


def test_cancel_many_of_the_timer_takes_the_deadline_and_not_the_operation__P4() -> None:
    timer = ManualTimer()
    purgatory = DelayedOperationPurgatory("many", timer)
    operations = [Op(10) for _ in range(4)]
    for operation in operations:
        purgatory.try_complete_else_watch(operation, ["a", "b"])
    assert timer.cancel_many(operations[:2]) == 2
    assert timer.cancel_many(operations[:2]) == 0
    assert (counts(purgatory), len(timer)) == ((4, 2, 8, 2), 2)
    timer.advance(10)
    assert [operation.log for operation in operations] == [[], [], ["complete", "expire"], ["complete", "expire"]]
    operations[0].is_ready = True
    assert purgatory.check_and_complete("a") == 1
    assert operations[1].cancel() is True
    assert counts(purgatory) == EMPTY


def test_the_cancel_of_the_base_class_keeps_num_delayed_exact__P4() -> None:
    timer = ManualTimer()
    purgatory = DelayedOperationPurgatory("base", timer)
    operation = Op(10)
    purgatory.try_complete_else_watch(operation, ["a"])
    assert TimerTask.cancel(operation) is True
    assert purgatory.num_delayed == len(timer)


@pytest.mark.parametrize("before", ["nothing", "cancel_many", "timer_enabled=False"])
def test_add_of_a_waiting_operation_by_hand_moves_its_deadline_and_num_delayed_is_exact__P1_P4(before: str) -> None:
    timer = ManualTimer()
    purgatory = DelayedOperationPurgatory("by hand", timer, timer_enabled=before != "timer_enabled=False")
    completed, expires = Op(100), Op(100)
    for operation in (completed, expires):
        purgatory.try_complete_else_watch(operation, ["a"])
    if before == "cancel_many":
        timer.cancel_many([completed, expires])
    timer.advance(50)
    for operation in (completed, expires):
        timer.add(operation)
    assert purgatory.num_delayed == len(timer) == 2
    completed.is_ready = True
    assert purgatory.check_and_complete("a") == 1
    assert purgatory.num_delayed == len(timer) == 1, "a completed operation is on no timer"
    timer.advance(99)
    assert expires.log == []
    timer.advance(1)
    assert (expires.log, counts(purgatory), len(timer)) == (["complete", "expire"], EMPTY, 0)


def test_an_operation_on_a_timer_without_a_purgatory__P1() -> None:
    timer = ManualTimer()
    expires, completed, cancelled = Op(10), Op(10), Op(10)
    for operation in (expires, completed, cancelled):
        timer.add(operation)
    assert completed.force_complete() is True
    assert cancelled.cancel() is True
    assert len(timer) == 1, "completing takes it off the timer"
    timer.advance(10)
    assert (expires.log, completed.log, cancelled.log) == (["complete", "expire"], ["complete"], [])


def test_an_executor_that_refuses_leaves_it_waiting_without_a_deadline__P4_T10() -> None:
    told: list[tuple[Any, type[BaseException]]] = []
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    with SystemTimer("refuses", executor=pool, on_error=lambda op, error: told.append((op, type(error)))) as timer:
        purgatory = DelayedOperationPurgatory("refuses", timer)
        operation = Op(1)
        purgatory.try_complete_else_watch(operation, ["a"])
        until(lambda: told != [])
        assert told == [(operation, TimerRejected)]
        assert counts(purgatory) == (1, 0, 1, 1)
        operation.is_ready = True
        assert purgatory.check_and_complete("a") == 1
        assert (operation.log, counts(purgatory)) == (["complete"], EMPTY)
