"""The interface of a sink (rule D10): a small class that sends deliveries to its destination and says which arrived.

A program's own sink is a subclass of `Sink`, or of `BatchSink` for whole Arrow batches: `DeliveryQueue` takes its
class, `--to` takes `python:MODULE:CLASS`. A sink with an address of its own is one file in this folder: a subclass, a
function that reads its address, and a line in `sinks/__init__.py`.

The deliverer opens `threads` sinks and uses each from its own thread, so a sink needs no locks. The messages of a key
are in one thread at a time, at most one in each `send` (D4). A `send` that hangs is cut off after `timeout_s`: its
thread and sink are abandoned, its messages count as failed, and a new sink takes over (D6).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import msgspec

from tickwheel._native import Delivery as Delivery
from tickwheel.delivery.base.errors import Unanswered, Unavailable


class SinkSettings(msgspec.Struct, frozen=True):
    """The settings of every sink: `store_id` is unique to the store, `timeout_s` is `--sink-timeout`, `run` is the same
    for the sinks of one run and differs from run to run.
    """

    store_id: str
    timeout_s: float = 30.0
    run: str = ""


Refusals: TypeAlias = Mapping[int, str | Unanswered | Unavailable | None]
"""The deliveries that did not arrive, by their place in the sequence, and why; empty if all arrived.

A text: this message is refused, and tried again, `max_attempts` times in all. An exception: as if it was raised, for
this message alone. `None`: it was not tried; if none of a send was, that counts as `Unavailable`.
"""

NONE_REFUSED: Refusals = {}


class Sink(ABC):
    """A connection to one destination, open until `close`.

    It is opened by a call of its class with the `SinkSettings`. Errors: `DeliveryFailed` if it can't be opened.
    """

    max_batch: ClassVar[int] = 1
    """The most deliveries of one `send`, from 1."""

    threads: ClassVar[int] = 1
    """How many sinks of this kind to open, each in its own thread; 1 to 256."""

    spare: ClassVar[int] = 0
    """How many more threads there may be, for a `send` that takes long and keys whose last send was not accepted."""

    is_cut_off: ClassVar[bool] = True
    """Whether a `send` that takes longer than `timeout_s` is given up; `False` if it should wait instead."""

    def __init__(self, settings: SinkSettings | None = None) -> None:  # noqa: B027, many have nothing to open
        """A subclass that has something to open does it here."""

    @abstractmethod
    def send(self, deliveries: Sequence[Delivery]) -> Refusals:
        """Send these, in this order, and return once the destination has them.

        Any exception means that none is known to have arrived, and the keys of all of them wait (D6). It counts as an
        attempt, unless it says that there was no answer: `Unavailable`, `Unanswered`, an `OSError` that is not about a
        file, and the others in `failures.py`. `DeliveryFailed` ends the run, for errors that no retry can repair.
        """

    def close(self) -> None:  # noqa: B027, most have nothing to close
        """Close the sink; nothing is sent after it. Errors: any exception, which is reported."""

    def sync(self) -> None:  # noqa: B027, most have nothing to do
        """Make durable what was sent. Called by another thread before it is committed as delivered, also during a
        `send`. Nothing is committed until it returns: after 3 s the log says so. Errors: any exception ends the run.
        """

    def committed(self, sends: int, earlier: bool) -> None:  # noqa: B027, most have nothing to forget
        """Called before a `send`: the outcomes of the first `sends` calls of this object's `send` are committed.

        So not even a crash makes the engine send again what arrived then, or ask `arrived` for it: the destination need
        not know it any more. Calls that raised count too. `earlier`: the same holds for all that earlier runs sent.
        What it raises is logged, and it is called again before the next `send`.
        """

    def position(self) -> str | None:
        """The destination's position: everything sent from now on comes after it. The store keeps it together with the
        outcomes before it, and gives it to `arrived` after a crash. `None` if the sink does not use it. What it raises
        is logged, and the position before it holds. It belongs to the `send` before it: one that hangs is cut off.
        """
        return None

    def arrived(self, suspects: Sequence[Delivery], position: str | None) -> Collection[int]:  # noqa: ARG002
        """The `seq` of those that the destination already has, by their `digest`. Called before anything is sent, with
        at most a thousand at a time.

        `suspects` may have been sent by a run that crashed. Those not returned are sent again, as `redelivered`.
        """
        return ()


Verdict: TypeAlias = bool | str | Unanswered | Unavailable | None
"""What became of one delivery of a batch: `True` if it has arrived, `False` or a text if it is refused, the rest as in
`Refusals`.
"""


class BatchSink(Sink):
    """A sink that takes Arrow batches, without a Python object for each delivery. It needs pyarrow.

    A `pyarrow.RecordBatch` has a row for each delivery, in order, and the columns `seq` (int64), `id` (text), `key`
    (text, or null), `due_ms` (int64), `payload` (bytes), `is_json` (boolean), `delivered_at_ms`, `lateness_us` (int64),
    `attempt` (uint32), `redelivered` (boolean), `digest` (16 bytes). Nothing is copied for it.

    >>> import pyarrow as pa
    >>> class Short(BatchSink):
    ...     def send_batch(self, batch):
    ...         return [len(payload) < 100 or "too long" for payload in batch["payload"].to_pylist()]
    >>> batch = pa.RecordBatch.from_pydict({"id": ["a", "b"], "payload": [b"1", b"1" * 100]})
    >>> Short().send_batch(batch)
    [True, 'too long']
    """

    max_batch: ClassVar[int] = 1024

    @abstractmethod
    def send_batch(self, batch: Any) -> Iterable[Verdict]:
        """Send these, in this order, and return once the destination has them: a boolean array of pyarrow or numpy, or
        a sequence with a `Verdict` for each. Exceptions: as of `send`.
        """

    def send(self, deliveries: Sequence[Delivery]) -> Refusals:
        """Not called: `send_batch` is."""
        raise NotImplementedError


SinkOpener: TypeAlias = Callable[[SinkSettings], Sink]
"""Opens a sink. Errors: `DeliveryFailed` if the destination can't be reached or used."""
