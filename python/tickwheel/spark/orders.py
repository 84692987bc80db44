"""The orders of the hand-off to the hold for one micro-batch: which deliverer takes each shard, and its marks.

The hand-off makes the orders in the driver, before the micro-batch runs, and the tasks read them as a local property of
Spark's job. All tasks of a micro-batch, also repeated ones, therefore have the same orders.
"""

import re
from collections.abc import Sequence
from typing import Final, TypeAlias

import msgspec

from tickwheel.delivery.base.errors import WrongUsage

PROPERTY: Final = "tickwheel.orders"


ALL_OTHERS: Final = "*"
"""Instead of an address that is lost: every one that does not answer."""


_ADDRESS: Final = re.compile(r"(?:\[[\w:.%]+\]|[^\s/:@\[\]]+):([0-9]{1,5})")


def checked(deliverers: Sequence[str], lost: Sequence[str]) -> Sequence[str]:
    """The deliverers, each once. Errors: `WrongUsage` if there is none, or an address is no `HOST:PORT`, or is lost."""
    for address in (*deliverers, *(it for it in lost if it != ALL_OTHERS)):
        found = _ADDRESS.fullmatch(address)
        if not (found and 0 < int(found[1]) < 1 << 16):
            raise WrongUsage(f"{address!r:.200} is no deliverer: write HOST:PORT, as 10.0.0.5:7400")
    if both := {*deliverers} & {*lost}:
        raise WrongUsage(
            f"{min(both)} is a deliverer and lost: leave it out of the one or the other; an empty store at the address "
            "of a lost one is noticed by itself"
        )
    if not deliverers:
        raise WrongUsage("there is no deliverer: name one at least, as HOST:PORT")
    return [*dict.fromkeys(deliverers)]


Seen: TypeAlias = tuple[str, int]
"""The last opening of a store, and the number of its commits, when the store was asked."""


class Taker(msgspec.Struct, frozen=True):
    """A deliverer that answers now. `store_id`: of its store; with an empty disk it has another one."""

    address: str
    store_id: str
    marks: Sequence[int]
    """For each shard the instant until which all its messages have their outcome on disk, in ms since 1970."""
    openings: Sequence[Seen]
    """The last openings of its store, each with the number of commits before it."""
    commits: int
    ahead_ms: int = 0
    """How far its clock, by which messages are due, is ahead of the driver's, by which they leave the hold."""

    @property
    def seen(self) -> Seen:
        """What a later question about this store is compared with."""
        return self.openings[-1][0], self.commits

    def has_all_of(self, seen: Seen | None) -> bool:
        """Whether the store has all that it had then. A copy that was made before has fewer commits of that opening, or
        does not know it; the number of all commits may be larger by now.
        """
        if seen is None:
            return True
        ends = [*(before for _, before in self.openings[1:]), self.commits]
        return any(name == seen[0] and end >= seen[1] for (name, _), end in zip(self.openings, ends, strict=True))

    def was_opened_since(self, seen: Seen | None) -> bool:
        """Whether another process has the store than then. It may be a copy from before what was sent since."""
        return seen is not None and self.seen[0] != seen[0]


class Orders(msgspec.Struct, frozen=True):
    """For one micro-batch."""

    takers: Sequence[Taker]
    assigned: Sequence[str]
    """For each shard the address of the deliverer that its messages belong to."""
    failed: frozenset[int] = frozenset()
    """Shards of which it is not known whether all that was sent last was taken."""
    is_again: bool = False
    """This micro-batch may have been begun before, and may have sent something that the state does not know of."""
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
        """The deliverer with this store, at whatever address; None if it does not answer."""
        return next((it for it in self.takers if it.store_id == store_id), None)

    def is_lost(self, store_id: str, address: str) -> bool:
        """Whether this store, which was at this address, will never report the outcomes of its messages."""
        if self.with_store(store_id):
            return False
        return self.at(address) is not None or bool(self.lost & {address, ALL_OTHERS})
