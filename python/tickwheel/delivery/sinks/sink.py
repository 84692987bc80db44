"""The interface of a sink (rule D10): a small class that sends deliveries to its destination and says which arrived.

A new kind of sink is one file: a subclass of `Sink`, a function that reads its address, and a line in
`sinks/__init__.py`.

The deliverer opens `threads` sinks and uses each from its own thread, so a sink needs no locks. The messages of a key
are in one thread at a time, at most one in each `send` (D4). A `send` that hangs is cut off after `timeout_s`: its
thread and sink are abandoned, its messages count as failed, and a new sink takes over (D6).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import ClassVar, TypeAlias

import msgspec

from tickwheel.delivery.message import Message


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """One attempt to send a message, with the wall time of the send and its lateness in whole microseconds.

    `seq` numbers the messages of one store in order of acceptance, and stays the same when a message is sent again.
    `attempt` counts from 1. `redelivered`: an earlier run may have sent it before it crashed (D5).
    """

    seq: int
    message: Message
    delivered_at_ms: int
    lateness_us: int
    attempt: int = 1
    redelivered: bool = False

    @property
    def lateness_ms(self) -> float:
        """Lateness in milliseconds, to the microsecond, as in every output."""
        return self.lateness_us / 1000


class SinkSettings(msgspec.Struct, frozen=True):
    """The settings of every sink: `store_id` is unique to the store, `timeout_s` is `--sink-timeout`."""

    store_id: str
    timeout_s: float = 30.0


Refusals: TypeAlias = Mapping[int, str]
"""The deliveries that did not arrive, by their place in the sequence, and why; empty if all arrived."""

NONE_REFUSED: Refusals = {}


class Sink(ABC):
    """A connection to one destination, open until `close`."""

    max_batch: ClassVar[int] = 1
    """The most deliveries of one `send`."""

    threads: ClassVar[int] = 1
    """How many sinks of this kind to open, each in its own thread."""

    is_cut_off: ClassVar[bool] = True
    """Whether a `send` that takes longer than `timeout_s` is given up; `False` if it should wait instead."""

    @abstractmethod
    def send(self, deliveries: Sequence[Delivery]) -> Refusals:
        """Send these, in this order, and return once the destination has them.

        Any exception means that none is known to have arrived: each counts as a failed attempt, with this reason.
        `DeliveryFailed` ends the run instead, for errors that no retry can repair.
        """

    def close(self) -> None:  # noqa: B027, most have nothing to close
        """Close the sink; nothing is sent after it. Errors: any exception, which is reported."""

    def sync(self) -> None:  # noqa: B027, most have nothing to do
        """Make durable what was sent. Called by another thread before it is committed as delivered, also during a
        `send`. Errors: `DeliveryFailed`.
        """

    def position(self) -> str | None:
        """The destination's position: everything sent from now on comes after it. The store keeps it together with the
        outcomes before it, and gives it to `arrived` after a crash. `None` if the sink does not use it.
        """
        return None

    def arrived(self, suspects: Collection[int], position: str | None) -> Collection[int]:  # noqa: ARG002
        """Which of these the destination already has, by `seq`; called once, before anything is sent.

        `suspects` may have been sent by a run that crashed. Those not returned are sent again, as `redelivered`.
        """
        return ()


SinkOpener: TypeAlias = Callable[[SinkSettings], Sink]
"""Opens a sink. Errors: `DeliveryFailed` if the destination can't be reached or used."""
