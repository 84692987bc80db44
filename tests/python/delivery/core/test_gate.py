"""At most two groups of outcomes may be uncommitted, then sending waits; and the order of the work (rules D3, D5)."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tickwheel.delivery import DeliveryFailed, writer
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


def outcome(seq: int) -> list[Done]:
    return [Done(seq, 5, Outcome.DELIVERED, 5, 0)]


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


def test_a_commit_that_hangs_holds_the_senders_though_nothing_else_is_uncommitted__D5_D10(
    desk: Desk, clock: Seconds, during_commit: Callable[..., None]
) -> None:
    """SQL sinks forget what was sent a minute ago, so it must be committed by then."""
    desk.start()
    writer = desk.engine.writer
    seen = []

    def act() -> None:
        clock.now_s += 9
        seen.append(writer._is_behind())
        clock.now_s += 2
        seen.append(writer._is_behind())

    writer.report(outcome(1))
    during_commit(desk, act)
    writer.step()
    assert seen == [False, True]
    assert not writer._is_behind()


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


@pytest.mark.timeout(20)
def test_more_is_accepted_only_when_the_senders_have_heard_of_what_is_due__D3(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tickwheel.delivery.writer._GIVE_WAY_S", 600)
    desk.start()
    for ms in range(1, 11):
        desk.accept(str(ms), ms)
    desk.timer.advance(10)  # ten milliseconds are due
    writer, dispatcher = desk.engine.writer, desk.engine.dispatcher
    assert dispatcher.is_behind
    thread = threading.Thread(target=writer._give_way)
    thread.start()
    while not writer._changed._waiters:
        pass
    assert desk.sender.step(lambda _: None, wait=False)
    thread.join()
    assert not dispatcher.is_behind


@pytest.mark.timeout(20)
def test_a_destination_that_hangs_does_not_keep_messages_from_being_accepted__D5(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tickwheel.delivery.writer._GIVE_WAY_S", 0.001)
    desk.start()
    for ms in range(1, 11):
        desk.accept(str(ms), ms)
    desk.timer.advance(10)
    desk.engine.writer._give_way()
    assert desk.engine.dispatcher.is_behind
