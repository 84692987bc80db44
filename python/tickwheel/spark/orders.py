"""What the hand-off tells the hold for one micro-batch: who takes the messages of a shard, and what is settled.

The hand-off makes the orders in the driver, before the micro-batch runs, and the tasks read them as a local property of
Spark's job. So all tasks of a micro-batch, also those that are run again, have the same.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

PROPERTY: Final = "tickwheel.orders"


ALL_OTHERS: Final = "*"
"""Instead of an address that is lost: every one that does not answer."""


class Taker(msgspec.Struct, frozen=True):
    """A deliverer that answers now. `store_id`: of its store; with an empty disk it has another one."""

    address: str
    store_id: str
    marks: Sequence[int]
    """For each shard the instant, in milliseconds since 1970, until which all that it took has its outcome on disk."""
    ahead_ms: int = 0
    """How far its clock, by which messages are due, is ahead of the driver's, by which they leave the hold."""


class Orders(msgspec.Struct, frozen=True):
    """For one micro-batch."""

    takers: Sequence[Taker]
    assigned: Sequence[str]
    """For each shard the address of the deliverer that its messages belong to."""
    failed: frozenset[int] = frozenset()
    """Shards of which it is not known whether all that was sent last was taken."""
    lost: frozenset[str] = frozenset()
    """Addresses of deliverers whose stores will never come back."""

    def encode(self) -> str:
        """As text."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def decode(cls, text: str) -> "Orders":
        """The opposite of `encode`."""
        return msgspec.json.decode(text, type=cls)

    def at(self, address: str) -> Taker | None:
        """The deliverer at this address, if it answers."""
        return next((it for it in self.takers if it.address == address), None)

    def with_store(self, store_id: str) -> Taker | None:
        """The deliverer that has this store, wherever it is now, if it answers."""
        return next((it for it in self.takers if it.store_id == store_id), None)

    def is_lost(self, store_id: str, address: str) -> bool:
        """Whether this store, which was at this address, will never tell what became of what it took."""
        if self.with_store(store_id):
            return False
        return self.at(address) is not None or bool(self.lost & {address, ALL_OTHERS})
