"""The items that the writer takes, and its answers once they are on disk (rules D5, D7, D11)."""

from typing import Self, TypeAlias

import msgspec

from tickwheel.delivery.entries import OTHER_CONTENT as OTHER_CONTENT
from tickwheel.delivery.entries import Answer as Answer
from tickwheel.delivery.entries import Dropped as Dropped
from tickwheel.delivery.entries import Look as Look
from tickwheel.delivery.errors import BadRecord
from tickwheel.delivery.message import Cancel, Message
from tickwheel.delivery.record import Record
from tickwheel.delivery.sinks.lines import record_of
from tickwheel.delivery.sinks.sink import Delivery
from tickwheel.delivery.store import Incoming
from tickwheel.delivery.store.inputs import Progress
from tickwheel.delivery.store.letters import Letter

_ALLOWED = "correct what the reason says, and give the record again under another id"


class Put(msgspec.Struct, frozen=True, gc=False):
    """A message to accept. With a `record`, it becomes a dead letter if its name is known with other content."""

    incoming: Incoming
    record: Record | None = None

    @classmethod
    def of(cls, message: Message, record: Record | None = None) -> Self:
        """Made in the thread that accepts, because it costs some microseconds."""
        return cls(Incoming.of(message), record)


Item: TypeAlias = Put | Cancel | Look | Letter | Progress | Dropped


def letter_of_delivery(delivery: Delivery, reason: str) -> Letter:
    """The dead letter of a message that its destination did not accept."""
    reason = f"gave up after {delivery.attempt} attempts: {reason}"
    return Letter("delivery", delivery.seq, reason, _ALLOWED, record_of(delivery.message))


def letter_of(record: Record, bad: BadRecord) -> Letter:
    """The dead letter of a record that can't be used."""
    return Letter(record.source, record.line, bad.reason, bad.allowed, record.data)
