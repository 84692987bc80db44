"""What is known of messages, for how long, and what a crash makes doubtful (rules D5, D7, D8)."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tickwheel.delivery import Answer, Message
from tickwheel.delivery.model.settings import Bounds, Settings

Desk = Any  # of ../conftest.py
START_MS = 1_700_000_000_000
DAY_MS = 86_400_000


def pass_time(desk: Desk, ms: int) -> None:
    """The timer's clock and the wall clock go on together; what is old is forgotten in small steps."""
    for _ in range(40):
        desk.timer.set_ms(desk.timer.now_ms() + ms // 40)
        for _ in range(20):
            desk.pump()


@pytest.mark.parametrize("stopped", [False, True], ids=["while it runs", "while it is stopped"])
def test_a_wall_clock_that_is_stepped_eight_days_ahead_forgets_no_id__D5(desk: Desk, stopped: bool) -> None:
    desk.start()
    for number in range(50):
        desk.accept(str(number))
    desk.cancel("cancelled")
    desk.accept("cancelled")
    assert desk.engine.summary.delivered == 50
    if stopped:
        desk.close()
        desk = desk.again(after_ms=8 * DAY_MS).start()
    else:
        desk.step_ms = 8 * DAY_MS
    pass_time(desk, 3_600_000)
    assert {desk.accept(str(number)) for number in range(50)} == {Answer.DUPLICATE}
    assert desk.accept("cancelled") is Answer.CANCELLED
    assert desk.state("0") is Answer.DELIVERED


def test_after_seven_days_that_passed_an_id_is_forgotten__D5(desk: Desk) -> None:
    desk.start().accept("a")
    pass_time(desk, 8 * DAY_MS)
    assert desk.state("a") is Answer.UNKNOWN
    assert desk.accept("a") is Answer.ACCEPTED


def test_of_thousands_overdue_of_one_key_a_crash_marks_only_what_was_in_memory__D5_D8(
    make_desk: Callable[..., Desk],
) -> None:
    bounds = Bounds(lane_messages=16)
    desk = make_desk(Settings(bounds=bounds))
    ids = [f"{number:04}" for number in range(3_000)]
    desk.hand_in(*(Message(id_, "k", START_MS - 5_000 + place, msgspec.Raw(b"1")) for place, id_ in enumerate(ids)))
    desk.engine.native.start()
    while len(desk.sink.sent) < 100:
        desk.commit()
        desk.send()
    sent = desk.sink.ids
    later = desk.again(settings=Settings(bounds=bounds)).start()
    later.advance(1_000)
    marked = [it.message.id for it in later.sink.sent if it.redelivered]
    assert set(sent) & set(later.sink.ids) <= set(marked)
    assert len(marked) <= 3 * bounds.lane_messages
    known = [id_ for id_ in ids if id_ not in later.sink.ids]
    assert later.sink.ids == ids[len(known) :], "in order, without a gap"
    assert set(known) <= set(sent)
