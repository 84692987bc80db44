"""How much may be uncommitted: at most two groups of outcomes, then sending waits (rule D5)."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tickwheel.delivery import DeliveryFailed, writer
from tickwheel.delivery.dispatcher import Settled
from tickwheel.delivery.sender import Sender
from tickwheel.delivery.store import Done, Outcome

Desk = Any  # of ../conftest.py


class Seconds:
    """A monotonic clock."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def monotonic(self) -> float:
        return self.now_s

    def time_ns(self) -> int:
        return 0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Seconds:
    made = Seconds()
    monkeypatch.setattr(writer, "time", made)
    return made


def outcome(seq: int) -> list[Settled]:
    return [Settled(Done(seq, 5, Outcome.DELIVERED, 5))]


def test_outcomes_that_are_not_committed_for_two_groups_time_hold_the_senders__D5(desk: Desk, clock: Seconds) -> None:
    desk.start()
    writer = desk.engine.writer
    assert not writer._is_behind()
    writer.report(outcome(1))
    clock.now_s += 0.09
    writer.report(outcome(2))  # the first one's age counts
    assert not writer._is_behind()
    clock.now_s += 0.02
    assert writer._is_behind()
    writer.step()
    assert not writer._is_behind()


def test_while_a_group_is_being_committed_the_next_may_be_one_groups_time_old__D5(
    desk: Desk, clock: Seconds, during_commit: Callable[..., None]
) -> None:
    desk.start()
    writer = desk.engine.writer
    seen = []

    def act() -> None:
        clock.now_s += 1
        seen.append(writer._is_behind())  # nothing new is uncommitted
        writer.report(outcome(2))
        clock.now_s += 0.04
        seen.append(writer._is_behind())
        clock.now_s += 0.02
        seen.append(writer._is_behind())

    writer.report(outcome(1))
    during_commit(desk, act)
    writer.step()
    assert seen == [False, False, True]
    assert not writer._is_behind(), "one group is committed, the other may be two groups' time old"
    clock.now_s += 0.05
    assert writer._is_behind()


@pytest.mark.timeout(20)
@pytest.mark.parametrize("how", ["commit", "failure"])
def test_a_sender_that_waits_goes_on_after_the_commit_and_ends_after_a_failure__D5(
    desk: Desk, clock: Seconds, how: str
) -> None:
    desk.start()
    writer = desk.engine.writer
    writer.report(outcome(1))
    clock.now_s += 1
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(writer.gate()))
    thread.start()
    while not writer._changed._waiters:  # type: ignore[attr-defined]
        pass
    assert answers == []
    if how == "commit":
        writer.step()
    else:
        writer.fail(DeliveryFailed("no more"))
    thread.join()
    assert answers == [how == "commit"]
    assert writer.gate() is (how == "commit")


def test_nothing_is_handed_to_the_sink_once_delivery_has_failed__D5(desk: Desk) -> None:
    desk.start().accept("a", 5)
    desk.timer.advance(5)
    failed = desk.engine.writer
    failed.fail(DeliveryFailed("no more"))
    sender = Sender(desk.engine.dispatcher, desk.sink, gate=failed.gate, note_position=failed.note_position)
    assert sender.step(lambda _: None, wait=False) is False
    assert desk.sink.attempts == []
