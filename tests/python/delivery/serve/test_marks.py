"""The marks of a deliverer, `GET /hand-off/marks`: up to when every outcome is on disk (rules S4, D12)."""

import queue
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from delivery.batches import stream
from tickwheel._native import NdjsonLines
from tickwheel.delivery import Delivery, DeliveryFailed, DeliveryQueue
from tickwheel.delivery.engine.running import Running
from tickwheel.delivery.model.message import MAX_PAYLOAD, Columns, Message
from tickwheel.delivery.read.hand_off_rows import HANDED, PARTITIONS, batch_of
from tickwheel.delivery.serve.access import Access, Address
from tickwheel.delivery.serve.ports import Listening, Ports
from tickwheel.delivery.serve.tokens import Right, Tokens
from tickwheel.delivery.sinks import Refusals, Sink

from .conftest import ARROW, TOKEN, Reply, Served, ask

pytestmark = pytest.mark.timeout(30)
PARTITION = 13  # of the key `customer 3`
ANYWHERE = Address.of("--listen", "127.0.0.1:0")


def ask_for(served: Served, token: bytes | None = None, query: str = "") -> Reply:
    headers = {"authorization": f"Bearer {token.decode()}"} if token else {}
    return served.ask("GET", f"/hand-off/marks{query}", headers=headers)


def asked(served: Served, token: bytes | None = None, query: str = "") -> dict[str, Any]:
    reply = ask_for(served, token, query)
    assert reply.status == 200, reply
    found: dict[str, Any] = reply.body
    return found


def test_a_mark_stays_before_what_is_overdue_until_its_outcome_is_on_disk__S4(tmp_path: Path) -> None:
    sent: queue.SimpleQueue[str] = queue.SimpleQueue()
    may_end = threading.Event()

    def hang(delivery: Delivery) -> None:
        sent.put(delivery.message.id)
        assert may_end.wait(20)

    served = Served(tmp_path, to=hang)
    try:
        began_ms = int(time.time() * 1000)
        overdue_ms = began_ms - 5_000
        message = Message("a", "customer 3", overdue_ms, b"1")
        served.running.submit([message]).result(20)
        assert sent.get(timeout=20) == "a"
        found = asked(served)
        assert found["store_id"] == served.running.engine.history_id
        assert len(found["marks"]) == PARTITIONS
        assert found["marks"][PARTITION] == overdue_ms - 1
        assert {*found["marks"]} == {overdue_ms - 1, found["now_ms"] - 1}
        may_end.set()
        assert served.running.wait(20)
        found = asked(served)
        assert {*found["marks"]} == {found["now_ms"] - 1}
        assert began_ms <= found["now_ms"] <= int(time.time() * 1000)
    finally:
        may_end.set()
        served.close()


def test_with_the_marks_each_opening_of_the_store_is_told_and_how_many_commits_it_has__S4(tmp_path: Path) -> None:
    found = []
    for n in range(2):
        served = Served(tmp_path)
        try:
            served.running.submit([Message(f"m{n}", None, 4_000_000_000_000, b"1")]).result(20)
            found.append(asked(served))
        finally:
            served.close()
    (first,), (again, second) = found[0]["openings"], found[1]["openings"]
    assert first == again == [first[0], 0]
    assert second[1] >= found[0]["commits"] > 0
    assert found[1]["commits"] > second[1]


def test_marks_are_told_while_a_commit_does_not_end__S4(tmp_path: Path) -> None:
    syncs, may_end = threading.Event(), threading.Event()

    class SlowSink(Sink):
        def send(self, deliveries: Sequence[Delivery]) -> Refusals:
            return {}

        def sync(self) -> None:
            syncs.set()
            assert may_end.wait(20)

    overdue_ms = int(time.time() * 1000) - 5_000
    with DeliveryQueue(tmp_path / "store.db", to=SlowSink) as queue_:
        ports = Ports(Listening(ANYWHERE), Access(None, ANYWHERE), None)
        try:
            port = int(ports.open(queue_._running, MAX_PAYLOAD).rpartition(":")[2])
            queue_.put("a", due=overdue_ms, key="customer 3")
            assert syncs.wait(20)
            ticket = queue_.submit([{"id": "b", "key": "k", "due": overdue_ms}])
            found = ask(port, "GET", "/hand-off/marks").body
            assert not ticket.done()
            assert found["marks"][PARTITION] == overdue_ms - 1, "it was sent, and that is not on disk"
        finally:
            may_end.set()
            ports.close()


def test_marks_are_told_while_a_hand_off_waits_for_room__S4(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    has_begun, may_end = threading.Event(), threading.Event()

    submit = Running.try_submit

    def submit_later(running: Running, given: Any, told: Any) -> Any:
        has_begun.set()
        return submit(running, given, told) if may_end.is_set() else given

    served = Served(tmp_path)
    try:
        monkeypatch.setattr(Running, "try_submit", submit_later)
        row = batch_of(NdjsonLines("in", Columns(), 1000).read(b'{"id": "a", "due": 4000000000000}'))
        given = stream(row.select(HANDED.names))
        with ThreadPoolExecutor(1) as pool:
            handed = pool.submit(served.ask, "POST", "/hand-off", given, headers=ARROW)
            assert has_begun.wait(20)
            assert len(asked(served)["marks"]) == PARTITIONS
            assert not handed.done()
            may_end.set()
            assert handed.result(20).status == 200
    finally:
        may_end.set()
        served.close()


def test_marks_need_the_right_to_hand_off__S4_D12(tmp_path: Path) -> None:
    reader = b"a-token-that-only-reads"
    served = Served(tmp_path, tokens=Tokens({TOKEN: Right.HAND_OFF, reader: Right.READ | Right.PRODUCE}))
    try:
        assert len(asked(served, TOKEN)["marks"]) == PARTITIONS
        assert ask_for(served).status == 401
        refused = ask_for(served, reader)
        assert (refused.status, refused.body["reason"]) == (
            403,
            "this token may produce,read, and the request needs hand-off",
        )
    finally:
        served.close()


def test_marks_take_no_parameter__S4(served: Served) -> None:
    for asks in ("?partition=1", "?&", "?store=1", "?=1", f"?{'9' * 5000}"):
        refused = ask_for(served, query=asks)
        assert refused.status == 400, asks
        assert refused.body["allowed"] == "/hand-off/marks"
        assert len(refused.body["reason"]) < 200


def test_once_delivery_has_failed_there_are_no_marks__S4(tmp_path: Path) -> None:
    served = Served(tmp_path)
    try:
        served.running.fail(DeliveryFailed("the destination is gone"))
        assert ask_for(served)[:2] == (
            503,
            {"reason": "the destination is gone", "allowed": "the same request again, later"},
        )
    finally:
        with pytest.raises(DeliveryFailed):
            served.close()
