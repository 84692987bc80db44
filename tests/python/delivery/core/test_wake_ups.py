"""No message waits longer than it must: the end of every obstacle wakes the messages behind it (rules D3, D4, D7)."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tickwheel.delivery import Answer, Cancel, Message, loader
from tickwheel.delivery.clock import WallClock
from tickwheel.delivery.items import Put
from tickwheel.delivery.retry import Retry
from tickwheel.delivery.settings import Bounds, Settings

Desk = Any  # of conftest.py
During = Callable[[Desk, Callable[[], object]], None]
START_MS = 1_700_000_000_000


def put(id_: str, after_ms: int, key: str | None = "k", payload: bytes = b"1") -> Put:
    return Message(id_, key, START_MS + after_ms, msgspec.Raw(payload))


def give(desk: Desk, *items: Any) -> None:
    """Commit these, and run nothing else."""
    desk.submit(items)
    desk.engine.writer.step()


def run_now(desk: Desk) -> None:
    """Run what the threads would do while no time passes: the writer runs only if something wakes it."""
    writer = desk.engine.writer
    is_busy = True
    while is_busy:
        is_busy = bool(writer._tickets or writer._done or writer._is_woken)
        if is_busy:
            writer.step()
        desk.timer.advance(0)
        is_busy |= desk.sender.step(lambda _: None, wait=False)


def test_a_cancel_of_the_first_of_a_key_lets_the_next_one_go_that_was_due_while_the_first_was_committed__D7(
    desk: Desk, during_commit: During
) -> None:
    desk.start().accept("b", 10, key="k")
    during_commit(desk, lambda: desk.timer.advance(10))  # b is due, while a, which is before it, is not committed
    give(desk, put("a", 5))
    give(desk, Cancel("a", "k"))  # before the timer released it
    desk.advance(60_000)
    assert desk.sink.ids == ["b"]


def test_a_cancel_lets_the_next_one_go_that_was_due_while_another_was_being_sent__D7(
    desk: Desk, during_commit: During
) -> None:
    desk.start()
    desk.accept("flies", 10, key="k")
    desk.accept("b", 10, key="k")
    desk.timer.advance(10)
    dispatcher = desk.engine.dispatcher
    deliveries = dispatcher.stamp(dispatcher.take(64, wait=False))
    during_commit(desk, lambda: dispatcher.settle(deliveries, {}))  # now a is next, but not committed
    give(desk, put("a", 5))
    give(desk, Cancel("a", "k"))
    desk.advance(60_000)
    assert desk.sink.ids == ["b"]


@pytest.mark.parametrize("number", [4, 7])
def test_what_found_no_room_goes_on_as_soon_as_there_is_some__D8(make_desk: Callable[..., Desk], number: int) -> None:
    desk = make_desk(Settings(bounds=Bounds(messages=number)))
    desk.hand_in(*(put(str(one), -1, None) for one in range(50)))
    desk.engine.start(WallClock(desk.timer, desk.wall_ns))
    run_now(desk)
    assert len(desk.sink.sent) == 50, "it waits for a quarter of the horizon although it could go on"


def test_large_messages_do_not_wait_for_the_next_look_at_the_store__D8(make_desk: Callable[..., Desk]) -> None:
    desk = make_desk(Settings(bounds=Bounds(size=100_000)))
    desk.hand_in(*(put(str(one), 10, None, b'"' + b"x" * 30_000 + b'"') for one in range(30)))
    desk.engine.start(WallClock(desk.timer, desk.wall_ns))
    run_now(desk)
    desk.timer.advance(10)
    run_now(desk)
    assert len(desk.sink.sent) == 30


def test_a_key_whose_next_message_is_far_behind_others_in_the_store_is_not_kept_waiting__D4_D8(
    make_desk: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "_SCAN", 10)
    desk = make_desk(Settings(bounds=Bounds(lane_messages=2), retry=Retry(1_000, 3_600_000, 3_600_000)))
    desk.sink.refuses = lambda delivery: "no" if delivery.message.key == "bad" else None
    first = [put(f"good {one}", -900 + one, "good") for one in range(3)]
    hot = [put(f"bad {one}", -800 + one, "bad") for one in range(300)]
    desk.hand_in(*first, *hot, put("good 3", -100, "good"))
    desk.engine.start(WallClock(desk.timer, desk.wall_ns))
    run_now(desk)
    assert desk.sink.ids == ["good 0", "good 1", "good 2", "good 3"]


def test_a_cancel_while_a_message_goes_back_on_the_timer_has_a_definite_answer__D7(desk: Desk) -> None:
    desk.start().accept("a", 100)
    desk.timer.advance(100)
    desk.step_ms = -50  # the clock is stepped back when it is about to be sent
    dispatcher = desk.engine.dispatcher
    take_back = dispatcher.take_back

    def while_a_sender_has_it(seq: int) -> Any:
        dispatcher.take_back = take_back
        entries = dispatcher.take(64, wait=False)
        try:
            return take_back(seq)
        finally:
            dispatcher.stamp(entries)

    dispatcher.take_back = while_a_sender_has_it
    ticket = desk.submit([Cancel("a", None)])
    desk.engine.writer.step()
    [answer] = ticket.result(0)
    assert answer in (Answer.CANCELLED, Answer.DELIVERING)
    desk.advance(1_000)
    assert (desk.sink.ids == []) == (answer is Answer.CANCELLED)


def test_a_cancel_of_one_that_was_tried_and_went_back_on_the_timer_is_definite__D7(desk: Desk) -> None:
    desk.sink.refuses = lambda delivery: "no" if delivery.attempt < 2 else None
    desk.start().accept("a")
    desk.advance(0)
    desk.step_ms = -10_000
    desk.timer.advance(200)  # the second attempt would be early now
    desk.sender.step(lambda _: None, wait=False)
    assert [delivery.attempt for delivery in desk.sink.attempts] == [1]
    assert desk.state("a") is Answer.DELIVERING
    assert desk.cancel("a") is Answer.DELIVERING
    desk.advance(20_000)
    assert desk.sink.ids == ["a"]


def test_waiting_does_not_end_while_a_message_is_being_accepted__D11(desk: Desk, during_commit: During) -> None:
    desk.start()
    ended = []
    store = desk.engine.store
    plain = store.accept

    def accept(*values: Any) -> Any:
        ended.append(desk.engine.wait(0))
        return plain(*values)

    store.accept = accept
    desk.accept("a", 10)
    assert ended == [False]


def test_waiting_does_not_end_before_a_cancel_is_committed__D7(desk: Desk, during_commit: During) -> None:
    desk.start().accept("a", 10)
    ended = []
    during_commit(desk, lambda: ended.append(desk.engine.wait(0)))
    desk.cancel("a")
    assert ended == [False]


def test_a_message_and_its_cancel_in_one_group_leave_nothing_to_send__D7(desk: Desk) -> None:
    desk.start()
    answers = desk.hand_in(put("a", 5), Cancel("a", "k"), put("b", 5), put("c", 5, None), Cancel("c", None))
    assert answers == [Answer.ACCEPTED, Answer.CANCELLED, Answer.ACCEPTED, Answer.ACCEPTED, Answer.CANCELLED]
    assert len(desk.engine.dispatcher.window) == 1
    desk.advance(100)
    assert desk.sink.ids == ["b"]
    assert desk.engine.summary.not_delivered == 0
