"""One submit may be larger than one group: then it is committed in several (rules D5, D11)."""

from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from tickwheel.delivery import DeliveryFailed, DeliveryQueue, Message
from tickwheel.delivery.engine.running import Running
from tickwheel.delivery.model.entries import Answer, Item
from tickwheel.delivery.model.settings import Settings
from tickwheel.delivery.sinks import Sink

Desk = Any  # of ../conftest.py
GROUP = 4_096

pytestmark = pytest.mark.timeout(30)


def puts(count: int, name: str = "m") -> list[Item]:
    return [Message(f"{name}{number}", None, 4_000_000_000_000, b"x") for number in range(count)]


def test_a_large_ticket_takes_several_groups_and_is_answered_after_the_last__D5(desk: Desk) -> None:
    ticket = desk.submit(*puts(2 * GROUP + 1), *puts(1))
    seen = []
    while desk.commit():
        seen.append((desk.engine.native.waiting, ticket.done()))
    assert seen == [(GROUP, False), (2 * GROUP, False)]
    assert desk.engine.native.waiting == 2 * GROUP + 1
    assert ticket.result(0) == [Answer.ACCEPTED] * (2 * GROUP + 1) + [Answer.DUPLICATE]


def test_small_tickets_share_a_group_and_the_last_may_be_cut__D5(desk: Desk) -> None:
    tickets = [desk.submit(*puts(size, f"{size} ")) for size in (GROUP - 1, 0, 3, 2)]
    assert desk.commit()
    assert [ticket.done() for ticket in tickets] == [True, True, False, False]
    desk.commit()
    assert [len(ticket.result(0)) for ticket in tickets] == [GROUP - 1, 0, 3, 2]


def test_what_is_left_of_a_large_ticket_is_committed_at_the_end__D5(tmp_path: Path) -> None:
    with DeliveryQueue(tmp_path / "store.db", to=lambda it: None) as queue:
        ticket = queue.submit(puts(3 * GROUP))
    assert len(ticket.result(0)) == 3 * GROUP


def test_a_large_ticket_that_fails_half_way_has_the_error_and_keeps_what_is_on_disk__D5(desk: Desk) -> None:
    desk.start().accept("due", 10)
    ticket, other = desk.submit(*puts(2 * GROUP)), desk.submit(*puts(1, "other"))
    desk.commit()
    desk.timer.set_ms(desk.timer.now_ms() + 10)
    desk.sink.sync_error = DeliveryFailed("broken")
    assert desk.send()
    with pytest.raises(DeliveryFailed, match="broken"):
        desk.commit()
    for each in (ticket, other):
        with pytest.raises(DeliveryFailed, match="broken"):
            each.result(0)
    later = desk.again()
    assert later.engine.native.waiting == GROUP + 1, "the first group was on disk, and nothing of the second"
    assert later.start().hand_in(*puts(2 * GROUP)) == [Answer.DUPLICATE] * GROUP + [Answer.ACCEPTED] * GROUP
    assert [(it.message.id, it.redelivered) for it in later.sink.sent] == [("due", True)]


class Broken(Sink):
    def send(self, deliveries: Any) -> Any:
        raise DeliveryFailed("the sink is broken")


def test_when_the_run_fails_every_ticket_has_its_answers_or_the_error__D5(tmp_path: Path) -> None:
    made = Running(tmp_path / "store.db", lambda settings: Broken(), Settings(), lambda letters: None)
    made.start()
    tickets: list[Future[list[Answer]]] = []

    def submit_many() -> None:
        for number in range(100):
            items = [*puts(3 * GROUP, f"{number} "), Message(f"due {number}", None, 5, b"x")]
            tickets.append(made.submit(items))

    with pytest.raises(DeliveryFailed, match="the sink is broken"):
        submit_many()
    kept = 0
    for ticket in tickets:
        error = ticket.exception(20)
        assert error is None or "the sink is broken" in str(error)
        kept += 0 if error else len(ticket.result(0))
    with pytest.raises(DeliveryFailed, match="the sink is broken"):
        made.close(10)
    with DeliveryQueue(tmp_path / "store.db", to=lambda it: it.message.id) as again:
        assert len(again) + again.summary.delivered >= kept, "what was answered is on disk"
