"""What a sink is (rule D10): one small class that hands deliveries to its destination and says which have arrived.

Adding one is one file: a subclass of `Sink`, a function that reads its address, and a line in `sinks/__init__.py`.

The deliverer opens `threads` sinks, each used by one thread of its own, so a sink needs no locks. A key is in one
thread's hands at a time, and has at most one message in each `send` (D4). A `send` that hangs is cut off after
`timeout_s` by leaving thread and sink to themselves, its messages count as failed, and a fresh sink takes over (D6).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import ClassVar, TypeAlias

import msgspec

from tickwheel.delivery.message import Message


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """A message on its way out: the wall clock when it was sent, and by how much that was late, in whole microseconds.

    `seq` numbers the messages of one store in order of acceptance, and stays the same when a message is sent again.
    `attempt` counts from 1. `redelivered`: an earlier run may have sent it already, before it crashed (D5).
    """

    seq: int
    message: Message
    delivered_at_ms: int
    lateness_us: int
    attempt: int = 1
    redelivered: bool = False

    @property
    def lateness_ms(self) -> float:
        """As it is written out, to the microsecond."""
        return self.lateness_us / 1000


class SinkSettings(msgspec.Struct, frozen=True):
    """What every sink is told when it is opened: `store_id` is unique to the store, `timeout_s` is `--sink-timeout`."""

    store_id: str
    timeout_s: float = 30.0


Refusals: TypeAlias = Mapping[int, str]
"""Which of the deliveries did not arrive, by their place in the sequence, and why; empty when all arrived."""

NONE_REFUSED: Refusals = {}


class Sink(ABC):
    """One way to one destination, open until `close`."""

    max_batch: ClassVar[int] = 1
    """How many deliveries one `send` may be given."""

    threads: ClassVar[int] = 1
    """How many of these to open, each in a thread of its own."""

    is_cut_off: ClassVar[bool] = True
    """Whether a `send` that takes longer than `timeout_s` is given up; `False` where waiting is what is wanted."""

    @abstractmethod
    def send(self, deliveries: Sequence[Delivery]) -> Refusals:
        """Hand these over, in this order, and return once the destination has them.

        Any exception means that none is known to have arrived: each counts as a failed attempt, for its reason.
        `DeliveryFailed` ends the run instead, where trying again is of no use.
        """

    def close(self) -> None:  # noqa: B027, most have nothing to close
        """No more will be sent. Errors: any exception, which is told."""

    def sync(self) -> None:  # noqa: B027, most have nothing to do
        """Make durable what was sent; called before it is committed as delivered, by another thread, also during
        a `send`. Errors: `DeliveryFailed`.
        """

    def position(self) -> str | None:
        """How far the destination is: all that is sent from now on comes after it. Kept in the store with what was
        delivered before it, and given to `arrived` after a crash. `None` where the sink has no use for it.
        """
        return None

    def arrived(self, suspects: Collection[int], position: str | None) -> Collection[int]:  # noqa: ARG002
        """Which of these the destination has already, by `seq`; asked once, before anything is sent.

        `suspects` may have been sent by a run that crashed. What isn't named here is sent again, as `redelivered`.
        """
        return ()


SinkOpener: TypeAlias = Callable[[SinkSettings], Sink]
"""Opens a sink. Errors: `DeliveryFailed` if the destination can't be reached or used."""
