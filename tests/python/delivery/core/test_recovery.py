"""A crash at every step: all messages arrive; only those without a committed outcome repeat, with a mark (rule D5)."""

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from tickwheel.delivery import Answer, DeliveryFailed, Unanswered
from tickwheel.delivery.model.retry import Retry
from tickwheel.delivery.model.settings import Settings

Desk = Any  # of ../conftest.py


class Crash(Exception):
    """The process has ended."""


def crash_at(desk: Desk, group: int, *, is_committed: bool) -> None:
    """Crash before or after this group is on disk, counted from now."""
    plain, left = desk.engine.native, [group]

    class Dying:
        def write(self) -> bool:
            left[0] -= 1
            if left[0] > 0:
                return bool(plain.write())
            if is_committed:
                plain.write()
            raise Crash

        def __getattr__(self, name: str) -> Any:
            return getattr(plain, name)

    desk.engine.native = Dying()


def work(desk: Desk) -> list[str]:
    """A few items of every kind; returns what was answered before the crash."""
    answered = []
    for number in range(4):
        desk.accept(f"k{number}", 5 * number, key="k")
        answered.append(f"k{number}")
        desk.accept(f"n{number}", 7 * number)
        answered.append(f"n{number}")
        desk.advance(4)
    desk.advance(100)
    return answered


@pytest.mark.parametrize("is_committed", [False, True], ids=["before the commit", "after the commit"])
@pytest.mark.parametrize("moment", range(1, 30, 2))
def test_a_crash_at_any_commit_loses_nothing_and_marks_what_is_repeated__D5(
    desk: Desk, moment: int, is_committed: bool
) -> None:
    desk.start()
    crash_at(desk, moment, is_committed=is_committed)
    answered: list[str] = []
    accept = desk.accept

    def noting(id_: str, *values: Any, **names: Any) -> Any:
        answer = accept(id_, *values, **names)
        answered.append(id_)
        return answer

    desk.accept = noting
    with contextlib.suppress(Crash):
        work(desk)
        desk.close()
    later = desk.again()
    committed = {id_ for id_ in answered if later.state(id_, "k" if id_ < "n" else None) is Answer.DELIVERED}
    later.start()
    later.advance(200)
    first, second = desk.sink.ids, later.sink.ids
    assert set(answered) <= set(first + second), "an accepted message is lost"
    assert committed.isdisjoint(second), "it was committed as delivered and came again"
    repeated = set(first) & set(second)
    assert repeated <= {it.message.id for it in later.sink.sent if it.redelivered}, "repeated without a mark"
    of_key = [id_ for id_ in first + [id_ for id_ in second if id_ not in repeated] if id_.startswith("k")]
    assert of_key == sorted(of_key)
    later.close()


def test_what_was_sent_but_not_settled_is_sent_again_with_a_mark__D5(desk: Desk) -> None:
    desk.start().accept("a", 10)
    desk.accept("later", 2_000_000)

    def send(deliveries: Any) -> Any:
        desk.sink.groups.append(list(deliveries))
        raise Crash

    desk.sink.send = send
    with contextlib.suppress(Crash, DeliveryFailed):
        desk.advance(10)
    desk.crash()
    later = desk.again().start()
    later.advance(2_000_000)
    assert [(it.message.id, it.redelivered) for it in later.sink.sent] == [("a", True), ("later", False)]
    later.close()


def test_what_is_beyond_the_horizon_is_never_marked__D5(desk: Desk) -> None:
    desk.start()
    desk.accept("near", 9_000)
    for after_ms in (12_000, 60_000):
        desk.accept(f"far {after_ms}", after_ms)
    desk.crash()
    later = desk.again().start()
    later.crash()
    last = later.again().start()
    last.advance(61_000)
    assert [(it.message.id, it.redelivered) for it in last.sink.sent if it.message.id != "near"] == [
        ("far 12000", False),
        ("far 60000", False),
    ]
    last.close()


@pytest.mark.parametrize("crashes", [1, 2, 3])
def test_a_mark_stays_through_crashes_until_it_was_delivered__D5(desk: Desk, crashes: int) -> None:
    desk.start().accept("a", 5_000)
    for _ in range(crashes):
        desk.crash()
        desk = desk.again().start()
    desk.crash()
    desk = desk.again()
    desk.crash()  # before anything could be sent
    desk = desk.again().start()
    desk.accept("new", 5_000)
    desk.advance(10_000)
    assert {it.message.id: it.redelivered for it in desk.sink.sent} == {"a": True, "new": False}
    desk.close()


def test_after_a_clean_stop_nothing_is_marked_and_the_sink_is_not_asked__D5(desk: Desk) -> None:
    desk.start()
    for number in range(5):
        desk.accept(str(number), 10 * number)
    desk.advance(20)
    desk.close()
    later = desk.again()
    assert later.sink.asked == []
    later.start().advance(100)
    assert [(it.message.id, it.redelivered) for it in later.sink.sent] == [("3", False), ("4", False)]
    later.close()


def test_what_was_tried_before_a_clean_stop_is_marked__D5(make_desk: Callable[..., Desk]) -> None:
    desk = make_desk(Settings(retry=Retry(first_ms=60_000)))
    desk.sink.refuses = lambda delivery: Unanswered("too slow") if delivery.message.id == "a" else None
    desk.start().accept("a", 0)
    desk.accept("b", 20)
    desk.advance(10)
    desk.close()
    later = desk.again()
    assert len(later.sink.asked) == 1
    later.start().advance(60_000)  # its key waits for its next attempt
    assert [(it.message.id, it.redelivered) for it in later.sink.sent] == [("b", False), ("a", True)]
    later.close()


@pytest.mark.parametrize("has", [[1], [2, 3], [1, 2, 3], [99]])
def test_what_the_destination_has_is_not_sent_again__D5_D10(desk: Desk, has: list[int]) -> None:
    desk.start()
    for number in (1, 2, 3):
        desk.accept(str(number), 10 * number, key="k")
    desk.crash()
    desk.sink.has_already = set(has)
    later = desk.again()
    assert later.sink.asked == [1, 2, 3]
    known = set(has) & {1, 2, 3}
    assert later.engine.summary.delivered == len(known)
    later.start().advance(100)
    assert later.sink.ids == [str(number) for number in (1, 2, 3) if number not in known]
    assert all(it.redelivered for it in later.sink.sent)
    assert later.engine.summary.not_delivered == 0
    later.close()
    last = later.again()
    assert last.sink.asked == []
    last.close()


def test_only_a_position_from_before_what_was_committed_is_kept__D10(desk: Desk) -> None:
    positions: list[str | None] = []

    def with_positions(sink: Any, start: int) -> None:
        sink.position = lambda: str(start + len(sink.attempts))
        plain = sink.arrived
        sink.arrived = lambda suspects, position: (positions.append(position), plain(suspects, position))[1]

    with_positions(desk.sink, 0)
    desk.start()
    for number in range(3):
        desk.accept(str(number), 10 * number)
        desk.advance(10)
    desk.accept("last", 35)
    desk.timer.set_ms(desk.timer.now_ms() + 5)
    assert desk.send()  # and nothing is committed
    assert len(desk.sink.attempts) == 4
    desk.crash()
    sink = type(desk.sink)()
    with_positions(sink, 100)
    later = type(desk)(desk.folder, desk.settings, boot_ms=100, sink=sink)
    later.crash()
    assert positions[0] is not None
    assert int(positions[0]) <= 3, "messages sent after the last commit are before the position, and would not be found"
    sink = type(desk.sink)()
    with_positions(sink, 200)
    type(desk)(desk.folder, desk.settings, boot_ms=200, sink=sink).crash()
    assert positions[1] == "100", "where the second run began"


def test_a_sink_that_can_not_say_what_it_has_ends_the_start_and_changes_nothing__D5(desk: Desk) -> None:
    desk.start().accept("a", 10)
    desk.crash()
    sink = type(desk.sink)()

    def arrived(suspects: Any, position: Any) -> Any:
        raise DeliveryFailed("can't be reached")

    sink.arrived = arrived
    with pytest.raises(DeliveryFailed, match="can't be reached"):
        type(desk)(desk.folder, desk.settings, sink=sink)
    assert sink.closed, "the sink was opened and stays open"
    later = desk.again()
    assert later.sink.asked == [1]
    later.start().advance(100)
    assert [it.redelivered for it in later.sink.sent] == [True]
    later.close()


def test_of_the_numbers_that_have_arrived_no_more_are_read_than_a_send_may_have__D5_D8(desk: Desk) -> None:
    desk.start().accept("a", 10)
    desk.crash()
    sink = type(desk.sink)()
    sink.arrived = lambda suspects, position: itertools.repeat(1)
    with pytest.raises(DeliveryFailed, match="arrived returned more than 1000000 numbers: return those it was asked"):
        type(desk)(desk.folder, desk.settings, sink=sink)
