"""Pages of a store against a list of what was put, in every state that a message may be in (rule D14)."""

import os
import random
import threading
import time
from pathlib import Path
from typing import Literal

import pytest

from tickwheel.delivery import Delivery, DeliveryQueue, StoreView, WrongUsage
from tickwheel.delivery.sight import Details, Seen, messages

pytestmark = pytest.mark.timeout(60)
FAR_MS = 4_000_000_000_000
State = Literal["waiting", "delivered", "cancelled", "dead"]


def every(view: StoreView, state: State, limit: int, **which: str | int | None) -> list[Seen]:
    """All pages. Each goes on, or it is the last."""
    found: list[Seen] = []
    cursor: str | None = None
    while True:
        page = view.list(state, limit=limit, cursor=cursor, **which)  # type: ignore[arg-type]
        assert len(page.messages) <= limit
        found += page.messages
        if page.next is None:
            return found
        assert page.next != cursor
        cursor = page.next


def test_each_message_is_on_one_page_whatever_the_filter_and_the_size__D14(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "LOOKED_AT", 7)
    choose = random.Random(4)
    near_ms = time.time_ns() // 1_000_000 + 3_000_000
    dues = [near_ms + choose.randrange(10) for _ in range(60)]
    put = [(f"m{n}", due, n, choose.choice(["a", "b", None])) for n, due in enumerate(dues)]
    with DeliveryQueue(tmp_path / "s.db", to=lambda _: None) as queue:
        queue.put_many([message if message[3] else message[:3] for message in put[:30]])
    with DeliveryQueue(tmp_path / "s.db", to=lambda _: None, horizon_s=3_600) as queue:
        queue.wait_until_empty(0.05)  # all of them are in memory now, and what comes has no row in the plan
        queue.put_many([message if message[3] else message[:3] for message in put[30:]])
        for key in ("a", "b", None):
            for first, last in ((None, None), (near_ms + 3, near_ms + 8)):
                wanted = [
                    it
                    for it in sorted(put, key=lambda it: it[1])
                    if (key is None or it[3] == key) and (first is None or last is None or first <= it[1] < last)
                ]
                for limit in (1, 4, 1_000):
                    seen = every(queue.view, "waiting", limit, key=key, due_from=first, due_before=last)
                    assert [(it.id, it.key) for it in seen] == [(it[0], it[3]) for it in wanted]
        for id_, _, _, key in put[10:50]:
            queue.cancel(id_, key)
        for key in ("a", "b", None):
            cancelled = [it[0] for it in reversed(put[10:50]) if key is None or it[3] == key]
            for limit in (1, 4, 1_000):
                assert [it.id for it in every(queue.view, "cancelled", limit, key=key)] == cancelled
        assert len(every(queue.view, "waiting", 9)) == 20


def test_a_message_is_shown_in_every_state__D14(tmp_path: Path) -> None:
    arrived = threading.Semaphore(0)

    def send(delivery: Delivery) -> None:
        arrived.release()
        if delivery.message.id != "good":
            raise ValueError("no such customer")

    view = StoreView(tmp_path / "s.db")

    def show(id_: str) -> Details:
        found = view.show(id_)
        assert found is not None
        return found

    with DeliveryQueue(tmp_path / "s.db", to=send, backoff_s=(60, 60)) as queue:
        queue.put("good", {"n": 1}, delay_ms=0)
        queue.put("bad", b"\x00", delay_ms=0)
        for _ in range(2):
            assert arrived.acquire(timeout=10)
    good, bad = show("good"), show("bad")
    assert bad.payload_base64 == "AA=="
    assert (good.state, good.attempts, good.last_error, good.next_try) == ("delivered", 1, None, None)
    assert good.lateness_ms is not None
    assert good.ended is not None
    assert good.ended >= good.due
    assert (bad.state, bad.attempts, bad.last_error) == ("waiting", 1, "ValueError: no such customer")
    assert bad.next_try is not None
    assert bad.next_try > bad.due
    assert view.show("good", "k") is None
    [listed] = view.list().messages
    assert (listed.id, listed.last_error, listed.next_try) == ("bad", bad.last_error, bad.next_try)
    with DeliveryQueue(tmp_path / "s.db", to=send, backoff_s=(60, 60)) as queue:
        queue.cancel("bad")  # here, as with one attempt it is given up in the moment of opening
    with DeliveryQueue(tmp_path / "s.db", to=send, max_attempts=1, on_dead_letter=lambda _: None) as queue:
        queue.put("worse", delay_ms=0)
        assert queue.wait_until_empty(10)
        dead = show("worse")
        assert (dead.state, dead.attempts, show("bad").state) == ("dead", 1, "cancelled")
        assert show("bad").ended is not None, "before it was due"
        assert "no such customer" in str(dead.last_error)
        [listed] = view.list("dead").messages
        assert (listed.id, listed.last_error) == ("worse", dead.last_error)
        [letter] = view.dead().letters
        assert (letter.source, letter.line) == ("delivery", dead.seq)
        assert queue.put("worse", b"\x00", delay_ms=3_600_000) == "accepted"
        assert (show("worse").state, show("worse").attempts) == ("waiting", 0)


def test_a_message_is_found_by_its_name_however_old__D14(tmp_path: Path) -> None:
    count = 140_000  # more than names are in memory
    with DeliveryQueue(tmp_path / "s.db", to=lambda _: None) as queue:
        queue.put_many((f"m{n}", FAR_MS + n, None, f"k{n % 3}") for n in range(count))
        for n in (0, 1, 70_000, 131_071, 131_072, count - 1):
            found = queue.view.show(f"m{n}", f"k{n % 3}")
            assert (found and found.id) == f"m{n}"
            assert queue.view.show(f"m{n}") is None


def test_the_status_counts_what_there_is__D14(tmp_path: Path) -> None:
    down = threading.Event()

    def send(delivery: Delivery) -> None:
        if delivery.message.id.startswith("unlucky"):
            down.set()
            raise ConnectionError("nobody is there")

    with DeliveryQueue(tmp_path / "s.db", to=send, backoff_s=(0.05, 0.1)) as queue:
        queue.put("now", delay_ms=0)
        assert queue.wait_until_empty(10)
        queue.put("soon", delay_ms=50_000)
        queue.put("later", delay_ms=50_000_000)
        queue.cancel("later")
        for number in range(5):
            queue.put(f"unlucky {number}", delay_ms=0)
        assert down.wait(10)
        while (status := queue.view.status()).down_since is None:
            pass
        assert status.down_reason == "ConnectionError: nobody is there"
        assert (status.delivered, status.cancelled, status.dead) == (1, 1, 0)
        assert status.due_within["1 h"] == status.due_within["1 day"] == status.waiting
        assert status.first_due is not None
        assert status.last_commit is not None
        assert status.file_size > 0


def test_a_moved_message_is_there_once__D14_D16(tmp_path: Path) -> None:
    with DeliveryQueue(tmp_path / "s.db", to=lambda _: None) as queue:
        queue.put("a", due=FAR_MS)
        assert queue.reschedule("a", due=FAR_MS + 5_000) == "rescheduled"
        assert [it.due for it in queue.view.list().messages] == ["2096-10-02T07:06:45.000Z"]
        shown = queue.view.show("a")
        assert (shown and shown.due) == "2096-10-02T07:06:45.000Z"
        status = queue.view.status()
        assert (status.in_use, status.process) == (True, os.getpid())
        assert (status.waiting, status.delivered, status.cancelled, status.dead) == (1, 0, 0, 0)


@pytest.mark.parametrize("cursor", ["", "x", "1", "1.2.3", "1.x", "9" * 19 + ".1", "1_0.2", " 1.2", "-1.1", "٣.1"])
def test_a_cursor_that_is_none_is_refused__D14(cursor: str, tmp_path: Path) -> None:
    with DeliveryQueue(tmp_path / "s.db", to=lambda _: None) as queue:
        if cursor:
            with pytest.raises(WrongUsage, match="is no cursor"):
                queue.view.list(cursor=cursor)
    with pytest.raises(WrongUsage, match="there is no store"):
        StoreView(tmp_path / "other.db").list()


def test_a_message_without_an_answer_may_have_arrived_while_it_waits__D14_D5(tmp_path: Path) -> None:
    tried = threading.Semaphore(0)

    def send(delivery: Delivery) -> None:
        tried.release()
        raise TimeoutError("no answer") if delivery.message.id == "unanswered" else ValueError("refused")

    with DeliveryQueue(tmp_path / "s.db", to=send, backoff_s=(60, 60)) as queue:
        queue.put("unanswered", key="a", delay_ms=0)
        queue.put("refused", key="b", delay_ms=0)
        for _ in range(2):
            assert tried.acquire(timeout=10)
    view = StoreView(tmp_path / "s.db")
    assert {it.id: it.redelivered for it in view.list().messages} == {"unanswered": True, "refused": False}
    shown = view.show("unanswered", "a"), view.show("refused", "b")
    assert [it and (it.state, it.redelivered) for it in shown] == [("waiting", True), ("waiting", False)]
    assert view.status().may_have_arrived == 1
