"""One submit may be larger than one group: then it is committed in several (rules D5, D11)."""

from collections.abc import Callable
from typing import Any

import pytest

from tickwheel.delivery import Message
from tickwheel.delivery.entries import Answer, Item
from tickwheel.delivery.writer import _GROUP

Desk = Any  # of ../conftest.py


def puts(count: int) -> list[Item]:
    return [Message(f"m{number}", None, 1, b"x") for number in range(count)]


def test_a_large_ticket_takes_several_groups_and_is_answered_after_the_last__D5(desk: Desk) -> None:
    writer, store = desk.engine.writer, desk.engine.store
    ticket = writer.submit([*puts(2 * _GROUP + 1), *puts(1)])
    seen = []
    while writer.step():
        seen.append((store.waiting, ticket.done()))
    assert seen == [(_GROUP, False), (2 * _GROUP, False)]
    assert store.waiting == 2 * _GROUP + 1
    assert ticket.result(0) == [Answer.ACCEPTED] * (2 * _GROUP + 1) + [Answer.DUPLICATE]


def test_small_tickets_share_a_group_and_the_last_may_be_cut__D5(desk: Desk) -> None:
    writer = desk.engine.writer
    tickets = [writer.submit(puts(_GROUP - 1)), writer.submit([]), writer.submit(puts(3)), writer.submit(puts(1))]
    writer.step()
    assert [ticket.done() for ticket in tickets] == [True, True, False, False]
    writer.step()
    assert [len(ticket.result(0)) for ticket in tickets] == [_GROUP - 1, 0, 3, 1]


def test_what_is_left_of_a_large_ticket_is_committed_at_the_end__D5(desk: Desk) -> None:
    ticket = desk.submit(puts(3 * _GROUP))
    desk.engine.writer.step()
    desk.engine.writer.finish()
    assert len(ticket.result(0)) == 3 * _GROUP


def test_a_large_ticket_that_fails_half_way_has_the_error_and_nothing_is_left_of_it__D5(
    desk: Desk, during_commit: Callable[..., None]
) -> None:
    writer = desk.engine.writer
    ticket, other = writer.submit(puts(2 * _GROUP)), writer.submit(puts(1))
    writer.step()

    def break_() -> None:
        raise RuntimeError("broken")

    during_commit(desk, break_)
    with pytest.raises(RuntimeError, match="broken"):
        writer.step()
    assert isinstance(ticket.exception(0), RuntimeError)
    writer.fail(RuntimeError("broken"))
    assert isinstance(other.exception(0), RuntimeError)
    writer.finish()


def test_a_run_that_fails_elsewhere_still_answers_what_it_has_begun__D5(desk: Desk) -> None:
    writer = desk.engine.writer
    begun, other = writer.submit(puts(2 * _GROUP)), writer.submit(puts(1))
    writer.step()
    writer.fail(RuntimeError("the sink is broken"))
    assert isinstance(other.exception(0), RuntimeError)
    writer.finish()
    assert len(begun.result(0)) == 2 * _GROUP
