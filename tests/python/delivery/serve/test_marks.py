"""The marks of a deliverer, asked over Arrow Flight: up to when every outcome is on disk (rules S4, D12)."""

import json
import queue
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyarrow import flight

from tickwheel.delivery import Delivery, DeliveryFailed, DeliveryQueue
from tickwheel.delivery.model.message import MAX_PAYLOAD, Cancel, Message
from tickwheel.delivery.read.hand_off_rows import PARTITIONS
from tickwheel.delivery.serve.access import Access, Address
from tickwheel.delivery.serve.flight import FlightServer
from tickwheel.delivery.serve.tokens import Right, Tokens
from tickwheel.delivery.sinks import Refusals, Sink

from .conftest import TOKEN, Served

pytestmark = pytest.mark.timeout(30)
PARTITION = 13  # of the key `customer 3`


def asked(served: Served, token: bytes | None = None, body: bytes = b"") -> dict[str, Any]:
    options = flight.FlightCallOptions(timeout=20, headers=[(b"authorization", b"Bearer " + token)] if token else [])
    with flight.connect(f"grpc://127.0.0.1:{served.flight_port}") as client:
        [answer] = client.do_action(flight.Action("marks", body), options)
        found: dict[str, Any] = json.loads(answer.body.to_pybytes())
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
        assert found["store_id"] == served.running.history_id
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
        address = Address.of("--flight", "127.0.0.1:0")
        server = FlightServer(address.url("grpc", 0), queue_._running, Access(None, address), MAX_PAYLOAD)
        try:
            queue_.put("a", due=overdue_ms, key="customer 3")
            assert syncs.wait(20)
            ticket = queue_.submit([{"id": "b", "key": "k", "due": overdue_ms}])
            with flight.connect(f"grpc://127.0.0.1:{server.port}") as client:
                [answer] = client.do_action("marks", flight.FlightCallOptions(timeout=10))
            found = json.loads(answer.body.to_pybytes())
            assert not ticket.done()
            assert found["marks"][PARTITION] == overdue_ms - 1, "it was sent, and that is not on disk"
        finally:
            may_end.set()
            assert server.stop(5)


def test_marks_need_a_token_that_may_produce__S4_D12(tmp_path: Path) -> None:
    reader = b"a token that only reads"
    served = Served(tmp_path, tokens=Tokens({TOKEN: Right.PRODUCE, reader: Right.READ}))
    try:
        assert len(asked(served, TOKEN)["marks"]) == PARTITIONS
        with pytest.raises(flight.FlightUnauthenticatedError, match="no token is given"):
            asked(served)
        with pytest.raises(flight.FlightUnauthorizedError, match="this token may read, and the request needs produce"):
            asked(served, reader)
    finally:
        served.close()


def test_what_recurs_in_a_partition_is_told_until_it_ends__S4_D19(served: Served) -> None:
    rules = [{"id": f"r{n}", "key": "customer 3", "every": 60_000} for n in range(3)]
    for rule in (*rules, {"id": "elsewhere", "every": 60_000}):
        assert served.ask("POST", "/messages", rule).status == 201
    assert "recurring" not in asked(served)
    body = b"%d" % PARTITION
    assert asked(served, body=body)["recurring"] == [["customer 3", f"r{n}"] for n in range(3)]
    served.running.submit([Cancel("r1", "customer 3")]).result(20)
    assert served.ask("POST", "/messages", rules[1]).status == 200, "a duplicate"
    assert asked(served, body=body)["recurring"] == [["customer 3", "r0"], ["customer 3", "r2"]]
    for wrong in (b"64", b"-1", b"x", b" 1", "²".encode()):
        with pytest.raises(flight.FlightServerError, match="the number of a partition, 0 to 63") as refused:
            asked(served, body=wrong)
        assert "Traceback" not in str(refused.value)


def test_the_actions_are_listed_and_another_is_refused__S4(served: Served) -> None:
    with flight.connect(f"grpc://127.0.0.1:{served.flight_port}") as client:
        assert [it.type for it in client.list_actions()] == ["marks"]
        with pytest.raises(flight.FlightServerError, match="there is no action 'other' here: use marks") as refused:
            list(client.do_action("other"))
        assert "Traceback" not in str(refused.value)


def test_once_delivery_has_failed_there_are_no_marks__S4(tmp_path: Path) -> None:
    served = Served(tmp_path)
    try:
        served.running.fail(DeliveryFailed("the destination is gone"))
        with pytest.raises(flight.FlightUnavailableError, match="the destination is gone"):
            asked(served)
    finally:
        with pytest.raises(DeliveryFailed):
            served.close()
