"""What a sink is: one small class that takes deliveries in order and returns when their destination has them."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from tickwheel.delivery.message import Message


class Delivery(msgspec.Struct, frozen=True):
    """A message on its way out: the wall clock when it was sent, and by how much that was late."""

    message: Message
    delivered_at_ms: int
    lateness_ms: float
    attempt: int = 1
    redelivered: bool = False


class Sink(Protocol):
    """Called by one thread at a time."""

    def send(self, deliveries: Sequence[Delivery]) -> None:
        """Hand these over, in this order. When it returns the destination has them all. Errors: `OSError`."""

    def close(self) -> None:
        """No more will be sent. Errors: `OSError`."""
