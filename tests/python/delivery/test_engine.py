"""The engine on the manual clock: time, order, once; cancels, replays, and clocks or sinks with faults."""

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tickwheel.delivery import Answer, DeliveryFailed, Message
from tickwheel.delivery.model.settings import Bounds
from tickwheel.delivery.model.settings import Settings as Delivering

Desk = Any  # of conftest.py


def test_a_message_goes_out_at_its_due_time__D3(desk: Desk, start_ms: int) -> None:
    desk.start().accept("a", 250)
    desk.advance(249)
    assert desk.sink.sent == []
    desk.advance(1)
    [delivery] = desk.sink.sent
    assert (delivery.delivered_at_ms, delivery.lateness_ms) == (start_ms + 250, 0.0)
    assert (delivery.attempt, delivery.redelivered) == (1, False)


def test_an_overdue_message_goes_at_once__D3(desk: Desk) -> None:
    desk.start().accept("a", -5_000)
    desk.advance(0)
    assert [delivery.lateness_ms for delivery in desk.sink.sent] == [5_000.0]


def test_order_is_due_time_then_acceptance__D4(desk: Desk) -> None:
    desk.start()
    for id_, after_ms in [("c", 30), ("a", 10), ("d", 30), ("b", 20), ("e", 30)]:
        desk.accept(id_, after_ms, key="k")
    desk.advance(5)
    desk.accept("f", 30, key="k")  # accepted later, and nearer: another level of the wheel
    desk.advance(100)
    assert desk.sink.ids == ["a", "b", "c", "d", "e", "f"]


def test_what_is_due_at_one_moment_is_one_write(desk: Desk) -> None:
    desk.start()
    for number in range(70):
        desk.accept(str(number), 10)
    desk.advance(10)
    assert [len(group) for group in desk.sink.groups] == [64, 6]


def test_the_same_delay_is_the_same_content_though_due_later__D5(desk: Desk) -> None:
    desk.start()
    for accepted_ms in [0, 3]:
        desk.accept("a", accepted_ms + 10, delay_ms=10)
    assert desk.engine.summary.duplicates == 1


def test_text_and_bytes_that_look_alike_are_other_content__D5(desk: Desk, start_ms: int) -> None:
    desk.start().hand_in(Message("a", None, start_ms, b"1"))
    assert desk.accept("a", payload=b'"MQ=="') is Answer.CONFLICT


def test_a_cancelled_message_does_not_go_out__D7(desk: Desk) -> None:
    desk.start().accept("a", 10, key="k")
    assert desk.cancel("a", None) is Answer.UNKNOWN  # another key: remembered
    assert desk.cancel("a", "k") is Answer.CANCELLED
    assert desk.cancel("a", "k") is Answer.CANCELLED
    assert desk.accept("a", 10, key="k") is Answer.CANCELLED
    desk.advance(10)
    desk.close()
    summary = desk.engine.summary
    assert desk.sink.sent == []
    assert (summary.cancelled, summary.duplicates, summary.cancels_unknown) == (1, 2, 1)
    assert summary.not_delivered == 0


def test_a_cancel_of_an_unknown_message_is_remembered__D7(desk: Desk) -> None:
    assert desk.start().cancel("a") is Answer.UNKNOWN
    answers = [desk.accept("a", 10), desk.accept("a", 10), desk.accept("a", 11)]
    assert answers == [Answer.CANCELLED, Answer.CANCELLED, Answer.CONFLICT]
    desk.advance(10)
    desk.close()
    summary = desk.engine.summary
    assert desk.sink.sent == []
    assert (summary.accepted, summary.cancelled, summary.duplicates, summary.cancels_unknown) == (1, 1, 1, 0)


def test_a_cancel_that_comes_too_late_is_counted__D7(desk: Desk) -> None:
    desk.start().accept("a")
    desk.advance(0)
    assert desk.cancel("a") is Answer.DELIVERED
    assert (desk.engine.summary.delivered, desk.engine.summary.cancels_too_late) == (1, 1)


def test_a_wall_clock_that_is_stepped_back_makes_nothing_early__D3(desk: Desk, start_ms: int) -> None:
    desk.start()
    for id_ in ["a", "b", "c"]:
        desk.accept(id_, 500)
    desk.accept("d", 400)
    desk.step_ms = -300
    desk.advance(699)
    assert desk.sink.sent == []
    desk.advance(101)
    assert desk.sink.ids == ["d", "a", "b", "c"]
    assert [delivery.lateness_ms for delivery in desk.sink.sent] == [0.0, 0.0, 0.0, 0.0]
    assert desk.sink.sent[-1].delivered_at_ms == start_ms + 500


def test_a_step_back_keeps_the_order_of_acceptance__D4(desk: Desk) -> None:
    desk.start()
    desk.accept("a", 100, key="k")
    desk.accept("b", 101, key="k")
    desk.step_ms = -50
    desk.advance(100)  # a is found early: every waiting message gets a new instant
    desk.accept("c", 101, key="k")
    desk.advance(100)
    assert desk.sink.ids == ["a", "b", "c"]


def test_a_wall_clock_that_is_stepped_forward_is_noticed_within_a_second__D3(desk: Desk) -> None:
    desk.start().accept("a", 3_600_000)
    desk.step_ms = 3_600_000
    desk.advance(1_000)
    assert desk.sink.ids == ["a"]
    desk.accept("b", 7_200_000)
    desk.advance(5_000)
    desk.step_ms = 7_200_000
    desk.advance(1_000)
    assert desk.sink.ids == ["a", "b"]


def test_a_step_does_not_bring_a_cancelled_message_back__D7(desk: Desk) -> None:
    desk.start().accept("a", 500)
    desk.accept("b", 600)
    desk.cancel("b", None)
    desk.step_ms = -300
    desk.advance(2_000)
    assert desk.sink.ids == ["a"]


def test_a_replay_runs_at_its_speed__D11(desk: Desk, start_ms: int) -> None:
    for id_, after_ms in [("b", 60_000), ("a", 0), ("c", 90_000)]:
        desk.accept(id_, after_ms)
    first_ms = desk.engine.first_due_ms
    assert first_ms == start_ms
    desk.advance(7_000)  # recorded messages wait for the start
    desk.start_replay(60, first_ms)
    desk.advance(0)
    assert desk.sink.ids == ["a"]
    desk.advance(999)
    assert desk.sink.ids == ["a"]
    desk.advance(501)
    assert desk.sink.ids == ["a", "b", "c"]
    assert [delivery.lateness_ms for delivery in desk.sink.sent] == [0.0, 0.0, 0.0]
    assert desk.sink.sent[-1].delivered_at_ms == start_ms + 7_000 + 1_500


def test_a_replay_from_a_time_sends_what_was_before_it_at_once_and_in_order__D11(desk: Desk, start_ms: int) -> None:
    for id_, after_ms in [("c", 2_000), ("b", 500), ("a", 0)]:
        desk.accept(id_, after_ms)
    desk.start_replay(1, start_ms + 1_000)
    desk.advance(0)
    assert desk.sink.ids == ["a", "b"]
    assert [delivery.lateness_ms for delivery in desk.sink.sent] == [1_000.0, 500.0]
    desk.advance(1_000)
    assert desk.sink.ids == ["a", "b", "c"]


def test_a_replay_does_not_look_at_the_wall_clock__D11(desk: Desk, start_ms: int) -> None:
    desk.accept("a", 2_000)
    desk.start_replay(1, start_ms)
    desk.step_ms = -1_000_000
    desk.advance(2_000)
    assert desk.sink.ids == ["a"]


def test_before_a_replay_starts_a_message_can_be_cancelled__D7(desk: Desk, start_ms: int) -> None:
    desk.accept("a", 10)
    desk.cancel("a", None)
    assert desk.engine.first_due_ms is None
    desk.start_replay(1, start_ms)
    desk.advance(10)
    assert desk.sink.sent == []
    assert desk.engine.summary.cancelled == 1


def test_a_destination_that_takes_no_more_ends_the_run_and_nothing_is_lost__D5(desk: Desk) -> None:
    desk.start()
    for id_, after_ms in [("a", 10), ("b", 20), ("c", 20), ("d", 30)]:
        desk.accept(id_, after_ms)
    desk.advance(10)
    desk.sink.error = DeliveryFailed("the disk is full")
    with pytest.raises(DeliveryFailed, match="the disk is full") as failed:
        desk.advance(10)
    desk.engine.fail(failed.value)  # as the sender's thread does
    with pytest.raises(DeliveryFailed, match="the disk is full"):
        desk.accept("e")
    with pytest.raises(DeliveryFailed, match="the disk is full"):
        desk.close()
    assert (desk.sink.ids, desk.engine.summary.not_delivered) == (["a"], 3)
    later = desk.again().start()
    later.advance(100)
    assert later.sink.ids == ["b", "c", "d"]
    assert [delivery.redelivered for delivery in later.sink.sent] == [True, True, True], "they may have arrived"
    later.close()


def test_closing_sends_what_is_due_and_keeps_the_rest__D13(desk: Desk) -> None:
    desk.start()
    for id_, after_ms in [("a", -5), ("b", 0), ("c", 10)]:
        desk.accept(id_, after_ms)
    desk.close()
    with pytest.raises(RuntimeError, match="closed"):
        desk.engine.submit([])
    assert desk.sink.ids == ["a", "b"]
    later = desk.again().start()
    later.advance(10)
    assert [(delivery.message.id, delivery.redelivered) for delivery in later.sink.sent] == [("c", False)]
    later.close()


def test_waiting_ends_when_nothing_waits_any_more__D11(desk: Desk) -> None:
    desk.start().accept("a", 10)
    assert not desk.engine.wait(0)
    desk.advance(10)
    assert desk.engine.wait(0)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("accept"), st.integers(0, 9), st.integers(-20, 60)),
        st.tuples(st.just("cancel"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("advance"), st.just(0), st.integers(0, 20)),
        st.tuples(st.just("step"), st.just(0), st.integers(-40, 40)),
    ),
    max_size=30,
)


@settings(deadline=None, max_examples=50)
@given(steps)
def test_whatever_happens_each_message_has_one_outcome_and_none_is_early(
    new_desk: Callable[..., Desk], steps: list[tuple[str, int, int]]
) -> None:
    desk = new_desk()
    desk.start()
    accepted: dict[str, int] = {}
    for what, number, ms in steps:
        now_ms = desk.wall_ns() // 1_000_000
        if what == "accept" and str(number) not in accepted:
            accepted[str(number)] = now_ms + ms
            desk.hand_in(Message(str(number), "k", now_ms + ms, msgspec.Raw(b"1")))
        elif what == "cancel":
            desk.cancel(str(number), "k")
        elif what == "advance":
            desk.advance(ms)
        elif what == "step":
            desk.step_ms += ms
    desk.advance(3_000)
    summary = desk.engine.summary
    assert len(desk.sink.ids) == len(set(desk.sink.ids)) == summary.delivered
    assert summary.accepted == len(accepted) == summary.delivered + summary.cancelled
    assert all(delivery.lateness_ms >= 0 for delivery in desk.sink.sent)
    assert all(delivery.delivered_at_ms >= accepted[delivery.message.id] for delivery in desk.sink.sent)


def test_when_memory_is_full_of_later_messages_an_earlier_one_is_on_time__D3_D8(new_desk: Callable[..., Desk]) -> None:
    desk = new_desk(Delivering(bounds=Bounds(messages=4)))
    desk.start()
    desk.accept("second", 2_000, key="k")
    for number in range(3):
        desk.accept(f"later {number}", 3_000 + number)
    desk.accept("keyless", 500)
    desk.accept("first", 1_900, key="k")
    desk.advance(5_000)
    assert desk.sink.ids == ["keyless", "first", "second", "later 0", "later 1", "later 2"]
    assert [delivery.lateness_ms for delivery in desk.sink.sent] == [0.0] * 6


@pytest.mark.parametrize("bounds", [Bounds(messages=6, lane_messages=2), Bounds(6, lane_messages=1), Bounds(6)])
def test_whatever_the_order_of_acceptance_a_small_memory_delivers_in_order_and_on_time__D4_D8(
    new_desk: Callable[..., Desk], bounds: Bounds
) -> None:
    rng = random.Random(11)
    desk = new_desk(Delivering(bounds=bounds))
    desk.start()
    expected = []
    for number in range(400):
        key, after_ms = rng.choice([None, "k", "l", "m"]), 1_000 + rng.randrange(8_000)
        desk.accept(str(number), after_ms, key=key)
        expected.append((key, after_ms, number))
        assert desk.engine.in_memory <= 6
    desk.advance(20_000)
    for key in ("k", "l", "m"):
        sent = [int(delivery.message.id) for delivery in desk.sink.sent if delivery.message.key == key]
        assert sent == [number for of, _, number in sorted(expected, key=lambda one: one[1:]) if of == key]
    assert len(desk.sink.sent) == 400
    assert max(delivery.lateness_ms for delivery in desk.sink.sent) <= 1
