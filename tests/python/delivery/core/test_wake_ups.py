"""No message waits longer than it must, also behind a cancel (rules D4, D7); see the engine's tests in Rust too."""

from typing import Any

import msgspec

from tickwheel.delivery import Answer, Cancel, Message

Desk = Any  # of ../conftest.py
START_MS = 1_700_000_000_000


def put(id_: str, after_ms: int, key: str | None = "k", payload: bytes = b"1") -> Message:
    return Message(id_, key, START_MS + after_ms, msgspec.Raw(payload))


def test_one_that_was_tried_and_went_back_on_the_timer_can_be_cancelled__D7(desk: Desk) -> None:
    desk.sink.refuses = lambda delivery: "no" if delivery.attempt < 2 else None
    desk.start().accept("a", key="k")
    desk.accept("b", key="k")
    desk.step_ms = -10_000
    desk.advance(2_000)  # the second attempt would be early now
    assert [delivery.attempt for delivery in desk.sink.attempts] == [1]
    assert desk.state("a", "k") is Answer.WAITING, "it is not being sent in this moment"
    assert desk.cancel("a", "k") is Answer.CANCELLED
    desk.advance(20_000)
    assert desk.sink.ids == ["b"]


def test_a_message_and_its_cancel_in_one_group_leave_nothing_to_send__D7(desk: Desk) -> None:
    desk.start()
    answers = desk.hand_in(put("a", 5), Cancel("a", "k"), put("b", 5), put("c", 5, None), Cancel("c", None))
    assert answers == [Answer.ACCEPTED, Answer.CANCELLED, Answer.ACCEPTED, Answer.ACCEPTED, Answer.CANCELLED]
    assert desk.engine.in_memory == 1
    desk.advance(100)
    assert desk.sink.ids == ["b"]
    assert desk.engine.summary.not_delivered == 0


def test_a_cancel_that_is_not_committed_holds_its_key_up__D7(desk: Desk) -> None:
    desk.start()
    desk.hand_in(put("a", 5), put("b", 6))
    ticket = desk.submit(Cancel("a", "k"))
    desk.timer.set_ms(desk.timer.now_ms() + 10)
    assert desk.send()  # the cancel is in no group yet
    assert desk.sink.ids == ["a"]
    desk.pump()
    assert ticket.result(0) == [Answer.DELIVERED]
    assert desk.sink.ids == ["a", "b"]
