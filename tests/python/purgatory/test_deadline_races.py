"""P1: exactly one of completion and expiry, also at the very deadline, on real threads."""

import random
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from purgatory.operations import EMPTY, counts
from tickwheel import DelayedOperation, DelayedOperationPurgatory, SystemTimer
from timer.watching import until


class Racing(DelayedOperation):
    """Lean: a hundred thousand of them are made."""

    __slots__ = ("completed", "expired", "order", "taken")

    def __init__(self, delay_ms: float) -> None:
        super().__init__(delay_ms)
        self.completed = self.expired = 0
        self.order = 0
        self.taken = False

    def try_complete(self) -> bool:
        return is_open.is_set() and self.force_complete()

    def on_complete(self) -> None:
        self.completed += 1

    def on_expiration(self) -> None:
        self.order = self.completed  # 1 if on_complete came first
        self.expired += 1


is_open = threading.Event()


@pytest.fixture(autouse=True)
def many_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    yield
    sys.setswitchinterval(before)


def race(count: int, batch: int, end: str) -> tuple[int, int, int]:
    """Watches batches that are all due at one instant, and ends them at that instant; how many went which way."""
    rng = random.Random(batch)
    won = expired = taken = 0
    told: list[object] = []
    setup_ms = 40.0  # what it takes to watch a batch; measured from then on
    moment_ms = 0.0  # when to begin to end them, after they are due; moved to where both sides win
    with SystemTimer("race", on_error=lambda *error: told.append(error)) as timer:
        purgatory = DelayedOperationPurgatory("race", timer)
        for turn in range(count // batch):
            is_open.clear()
            start_ms = timer.now_us() / 1000
            due_ms = start_ms + 1.3 * setup_ms + 0.5
            operations = []
            for number in range(batch):
                operation = Racing(max(0.0, due_ms - timer.now_us() / 1000))
                purgatory.try_complete_else_watch(operation, [number % 50, ("turn", turn)])
                operations.append(operation)
            setup_ms = max(0.9 * setup_ms, timer.now_us() / 1000 - start_ms)
            is_open.set()
            before = purgatory.stats()
            while timer.now_us() / 1000 < due_ms + moment_ms + rng.uniform(-0.1, 0.1):
                pass
            here = 0
            if end == "check":
                here = sum(purgatory.check_and_complete(number) for number in range(50))
            elif end == "force":
                rng.shuffle(operations)
                here = sum(operation.force_complete() for operation in operations)
            else:
                mine = (
                    purgatory.cancel_for_key(("turn", turn))
                    if turn % 2
                    else [operation for operation in operations if operation.cancel()]
                )
                for operation in mine:
                    operation.taken = True
                taken += len(mine)
            until(lambda: len(purgatory) == 0 and timer.stats()["running"] == 0)
            expired_now = sum(operation.expired for operation in operations)
            assert all(operation.completed == (not operation.taken) for operation in operations)
            assert all(operation.order == operation.expired <= operation.completed for operation in operations)
            assert here + expired_now + (sum(operation.taken for operation in operations)) == batch
            moment_ms += 0.05 if expired_now * 2 < batch else -0.05
            after = purgatory.stats()
            assert after["expired"] - before["expired"] <= expired_now
            won += here
            expired += expired_now
        stats = purgatory.stats()
        assert (stats["completed"], stats["expired"], stats["cancelled"]) == (won, expired, taken)
        assert (counts(purgatory), len(timer), told) == (EMPTY, 0, [])
    return won, expired, taken


@pytest.mark.parametrize("end", ["check", "force"])
def test_fifty_thousand_times_at_the_very_deadline_it_is_one_of_both__P1(end: str) -> None:
    won, expired, _ = race(50_000, 500, end)
    assert won > 100, (won, expired)
    assert expired > 100, (won, expired)


def test_what_a_cancel_got_at_the_very_deadline_is_neither_completed_nor_expired__P4() -> None:
    _, expired, taken = race(20_000, 500, "cancel")
    assert expired > 100, (expired, taken)
    assert taken > 100, (expired, taken)


def test_a_deadline_that_has_passed_already_expires_at_once_and_once__P1() -> None:
    is_open.clear()
    with SystemTimer("race") as timer:
        purgatory = DelayedOperationPurgatory("race", timer)
        operations = [Racing(delay_ms) for delay_ms in (-5, 0, 0.0001, 0.5)]
        start = time.monotonic()
        for operation in operations:
            assert purgatory.try_complete_else_watch(operation, ["key"]) is False
        until(lambda: all(operation.expired for operation in operations))
        assert time.monotonic() - start < 5
        assert [operation.completed for operation in operations] == [1] * 4
        assert counts(purgatory) == EMPTY
