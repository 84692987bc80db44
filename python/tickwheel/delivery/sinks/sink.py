"""The interface of a sink (rule D10): a small class that sends deliveries to its destination and says which arrived.

A program's own sink is a subclass of `Sink`: `DeliveryQueue` takes its class, `--to` takes `python:MODULE:CLASS`. To
add a sink that has an address, add a file to this folder with a subclass and a function that reads the address. Add its
line to `sinks/__init__.py`.

The deliverer opens `threads` sinks and uses each from its own thread, so a sink needs no locks. The messages of a key
are in one thread at a time, at most one in each `send` (D4). A `send` that takes longer than `timeout_s`
is cut off (D6): the engine abandons its thread and its sink, and opens a new sink. Its messages have no answer.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import ClassVar, TypeAlias

import msgspec

from tickwheel._native import Delivery as Delivery
from tickwheel.delivery.base.errors import Final, Unanswered, Unavailable


class SinkSettings(msgspec.Struct, frozen=True):
    """The settings of every sink: `store_id` is unique to the store, `timeout_s` is `--sink-timeout`, `run` is the same
    for the sinks of one run and differs from run to run.
    """

    store_id: str
    timeout_s: float = 30.0
    run: str = ""


Refusals: TypeAlias = Mapping[int, str | Final | Unanswered | Unavailable | None]
"""The deliveries that did not arrive, by their place in the sequence, and why; empty if all arrived.

- A text: the destination refused the message. It is tried again, `max_attempts` times in all.
- An exception: as if `send` raised it, for this message alone.
- `None`: the message was not tried. If no message of a send was tried, that counts as `Unavailable`.
"""

NONE_REFUSED: Refusals = {}


class Sink(ABC):
    """A connection to one destination, open until `close`.

    It is opened by a call of its class with the `SinkSettings`. Errors: `DeliveryFailed` if it can't be opened.
    """

    max_batch: ClassVar[int] = 1
    """The largest number of deliveries in one `send`, at least 1."""

    threads: ClassVar[int] = 1
    """How many sinks of this kind to open, each in its own thread; 1 to 256."""

    spare: ClassVar[int] = 0
    """How many more threads may be opened, for long sends and for keys whose last send was not accepted. A class that
    has a `position` gets none: that of one sink would pass messages which another one has not sent.
    """

    def __init__(self, settings: SinkSettings | None = None) -> None:  # noqa: B027, many have nothing to open
        """A subclass that has something to open does it here."""

    @abstractmethod
    def send(self, deliveries: Sequence[Delivery]) -> Refusals:
        """Send the deliveries in this order. Return when the destination has them.

        After an exception, no delivery is known to have arrived, and the keys of all of them wait (D6). The exception
        counts as an attempt, except if it means that there was no answer: `Unavailable`, `Unanswered`, an `OSError`
        that is not about a file. `failures.py` has the others. `DeliveryFailed` is for errors that no retry can repair,
        and ends the run.
        """

    def close(self) -> None:  # noqa: B027, most have nothing to close
        """Close the sink; nothing is sent after it. Errors: any exception, which is reported."""

    def sync(self) -> None:  # noqa: B027, most have nothing to do
        """Make all sent messages durable. Another thread calls this before they are committed as delivered, also
        during a `send`. The store commits nothing until it returns, and the log says so after 3 s. Errors: any
        exception ends the run.
        """

    def committed(self, sends: int, earlier: bool) -> None:  # noqa: B027, most have nothing to forget
        """Called before a `send`: the outcomes of this object's first `sends` calls of `send` are committed.

        Calls that raised count too. The engine never sends those messages again, and never asks `arrived` for them,
        even after a crash. The destination can therefore forget them. `earlier`: the same is true of all messages of
        earlier runs. If this raises, the log says so, and the engine calls it again before the next `send`.
        """

    def position(self) -> str | None:
        """The destination's position: all messages of later sends come after it. `None`: the sink has no positions.

        The store keeps the position together with the outcomes before it, and gives it to `arrived` after a crash. If
        this raises, the log says so, and the last position remains valid. The call is a part of the `send` before it:
        if it hangs, it is cut off.
        """
        return None

    def arrived(self, suspects: Sequence[Delivery], position: str | None) -> Collection[int]:  # noqa: ARG002
        """The `seq` of each suspect that the destination already has. A suspect is known by its `digest`.

        A crashed run may have sent the `suspects`. The engine calls this before it sends anything, with at most a
        thousand suspects at a time. It sends all other suspects again, as `redelivered`.
        """
        return ()


SinkOpener: TypeAlias = Callable[[SinkSettings], Sink]
"""Opens a sink. Errors: `DeliveryFailed` if the destination can't be reached or used."""
