"""A port for the hand-off before a queue of the test."""

from collections.abc import Iterator
from contextlib import contextmanager

from tickwheel.delivery import DeliveryQueue
from tickwheel.delivery.serve.access import Access, Address
from tickwheel.delivery.serve.ports import Listening, Ports
from tickwheel.delivery.serve.tokens import Tokens


@contextmanager
def port_of(queue: DeliveryQueue, tokens: Tokens | None = None, port: int = 0) -> Iterator[str]:
    """Its address, until the end of the block."""
    address = Address.of("--listen", f"127.0.0.1:{port}")
    listening = Listening(address)
    ports = Ports(listening, Access(tokens, address), None)
    ports.open(queue._running, 1 << 20)
    try:
        yield f"127.0.0.1:{listening.port}"
    finally:
        ports.close()
