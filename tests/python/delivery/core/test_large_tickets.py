"""One submit may be larger than one group: then it is committed in several (rules D5, D11);
`crates/delivery/src/scenarios/large_tickets.rs` has the groups.
"""

from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from tickwheel.delivery import DeliveryFailed, DeliveryQueue, Message
from tickwheel.delivery.engine.running import Running
from tickwheel.delivery.model.entries import Answer
from tickwheel.delivery.model.settings import Settings
from tickwheel.delivery.sinks import Sink

GROUP = 4_096

pytestmark = pytest.mark.timeout(30)


def puts(count: int, name: str = "m") -> list[Any]:
    return [Message(f"{name}{number}", None, 4_000_000_000_000, b"x") for number in range(count)]


def test_what_is_left_of_a_large_ticket_is_committed_at_the_end__D5(tmp_path: Path) -> None:
    with DeliveryQueue(tmp_path / "store.db", to=lambda it: None) as queue:
        ticket = queue.submit(puts(3 * GROUP))
    assert len(ticket.result(0)) == 3 * GROUP


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
