"""With more than memory holds delivery goes on (D8); `crates/delivery/src/scenarios/small_memory.rs` has the rest."""

import threading
from pathlib import Path

import msgspec

from tickwheel.delivery import Delivery, DeliveryQueue, Message

START_MS = 1_700_000_000_000


def put(id_: str, due_ms: int, key: str | None, payload: bytes = b"1") -> Message:
    return Message(id_, key, due_ms, msgspec.Raw(payload))


def test_keys_that_fail_with_large_messages_stop_nobody__D6_D8(tmp_path: Path) -> None:
    """150 MB of messages that are tried again and again, with 64 MiB of memory."""
    count, all_arrived = 150, threading.Event()
    arrived: set[str] = set()

    def send(delivery: Delivery) -> None:
        if delivery.message.key == "good":
            arrived.add(delivery.message.id)
            if len(arrived) == count:
                all_arrived.set()
            return
        raise TimeoutError("it is gone")

    queue = DeliveryQueue(tmp_path / "store.db", to=send)
    for number in range(count):
        queue.put_many([put(f"bad {number}", START_MS, f"bad {number}", b'"' + b"x" * 1_000_000 + b'"')])
        queue.put_many([put(f"good {number}", START_MS, "good")])
    assert all_arrived.wait(50), f"{len(arrived)} of {count}"
    queue.close()
