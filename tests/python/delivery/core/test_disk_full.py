"""A full disk: waiting callers get the error, no accepted message is lost, and it goes on when there is room (D5)."""

import sqlite3
from concurrent.futures import Future
from typing import Any

import msgspec
import pytest

from tickwheel.delivery import Answer, Message, StoreFailed
from tickwheel.delivery.items import Put

Desk = Any  # of ../conftest.py
START_MS = 1_700_000_000_000


def put(id_: str, after_ms: int = 10, size: int = 10_000) -> Put:
    return Message(id_, None, START_MS + after_ms, b"x" * size)


def fill(desk: Desk) -> None:
    """Allow the store no further page."""
    [(pages,)] = desk.engine.store.db.execute("PRAGMA page_count")
    desk.engine.store.db.execute(f"PRAGMA max_page_count = {pages}")


def no_room_for_outcomes(desk: Desk) -> None:
    """Make the next group of outcomes fail with a full disk."""

    def write_outcomes(_: Any) -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorname = "SQLITE_FULL"
        raise error

    desk.engine.store._write_outcomes = write_outcomes


def step(desk: Desk) -> None:
    """One step of the writer's thread."""
    try:
        desk.engine.writer.step()
    except StoreFailed as error:
        desk.engine.fail(error)
        raise


def test_an_accept_on_a_full_disk_is_answered_with_advice_and_the_rest_is_kept__D5(desk: Desk) -> None:
    desk.start()
    assert desk.hand_in(put("before")) == [Answer.ACCEPTED]
    fill(desk)
    tickets: list[Future[list[Answer]]] = [desk.submit([put(f"lost {n}") for n in range(800)]) for n in range(3)]
    with pytest.raises(
        StoreFailed, match="full; make room on the disk and run again: nothing that was accepted is lost"
    ):
        step(desk)
    for ticket in tickets:
        assert isinstance(ticket.exception(0), StoreFailed)
    with pytest.raises(StoreFailed, match="make room"):
        desk.submit([put("after")])
    with pytest.raises(StoreFailed, match="make room"):
        desk.engine.wait(0)
    with pytest.raises(StoreFailed, match="make room"):
        desk.close()
    later = desk.again().start()
    assert later.hand_in(put("lost 1")) == [Answer.ACCEPTED]
    later.advance(100)
    assert sorted(later.sink.ids) == ["before", "lost 1"]
    later.close()


def test_an_outcome_that_found_no_room_is_sent_again_with_a_mark__D5(desk: Desk) -> None:
    desk.start()
    desk.hand_in(*(put(str(number), 10, 10) for number in range(300)))
    desk.hand_in(put("far away", 60_000, 10))
    no_room_for_outcomes(desk)
    desk.timer.advance(10)
    while desk.sender.step(lambda _: None, wait=False):
        pass
    assert len(desk.sink.sent) == 300
    with pytest.raises(StoreFailed, match="make room"):
        step(desk)
    with pytest.raises(StoreFailed, match="make room"):
        desk.close()
    later = desk.again().start()
    later.advance(60_000)
    assert sorted(later.sink.ids) == sorted([*desk.sink.ids, "far away"])
    assert {it.message.id for it in later.sink.sent if not it.redelivered} == {"far away"}
    later.close()


def test_what_could_not_be_committed_is_not_counted__D11(desk: Desk, during_commit: Any) -> None:
    desk.start()
    desk.hand_in(*(put(str(number), 10, 10) for number in range(300)))
    desk.timer.advance(10)
    while desk.sender.step(lambda _: None, wait=False):
        pass

    def full() -> None:
        raise StoreFailed("the disk is full")

    during_commit(desk, full)
    with pytest.raises(StoreFailed):
        step(desk)
    summary = desk.engine.summary
    assert (summary.delivered, summary.not_delivered) == (0, 300)


@pytest.mark.parametrize("when", ["in the middle", "at the commit"])
def test_any_error_in_a_group_ends_the_run_and_leaves_nothing_of_the_group__D5(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    desk.start()
    desk.accept("before", 10)

    def fail(*_: Any) -> Any:
        raise ValueError("a fault of the program")

    place = "accept" if when == "in the middle" else "hand"
    with monkeypatch.context() as patch:
        patch.setattr(desk.engine.store, place, fail)
        ticket = desk.submit([Message("a", None, START_MS + 5_000, msgspec.Raw(b"1"))])
        with pytest.raises(ValueError, match="a fault of the program") as failed:
            desk.engine.writer.step()
    desk.engine.fail(failed.value)
    assert ticket.exception(0) is failed.value
    with pytest.raises(ValueError, match="a fault of the program"):
        desk.close()  # not the error that a transaction is open
    later = desk.again().start()
    later.advance(10_000)
    assert later.sink.ids == ["before"]
    later.close()
