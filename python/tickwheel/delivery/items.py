"""The items that the writer takes, and its answers once they are on disk (rules D5, D7, D11)."""

from enum import StrEnum
from typing import Self, TypeAlias

import msgspec

from tickwheel.delivery.errors import BadRecord
from tickwheel.delivery.message import Cancel, Message
from tickwheel.delivery.record import Record
from tickwheel.delivery.sinks.lines import record_of
from tickwheel.delivery.sinks.sink import Delivery
from tickwheel.delivery.store import Incoming
from tickwheel.delivery.store.inputs import Progress
from tickwheel.delivery.store.letters import Letter

OTHER_CONTENT = BadRecord(
    "this key and id were accepted before with other content", "the same content again, or another id"
)
_ALLOWED = "correct what the reason says, and give the record again under another id"


class Answer(StrEnum):
    """The answer to a message is one of the first four; to a cancel, one of the last five; to a look, one of the last
    five or `WAITING`.
    """

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    OTHER_CONTENT = "other content"
    CANCELLED = "cancelled"
    DELIVERED = "delivered"
    DELIVERING = "being delivered"
    DEAD = "dead letter"
    UNKNOWN = "unknown"
    WAITING = "waiting"


class Put(msgspec.Struct, frozen=True, gc=False):
    """A message to accept. With a `record`, it becomes a dead letter if its name is known with other content."""

    incoming: Incoming
    record: Record | None = None

    @classmethod
    def of(cls, message: Message, record: Record | None = None) -> Self:
        """Made in the thread that accepts, because it costs some microseconds."""
        return cls(Incoming.of(message), record)


class Look(msgspec.Struct, frozen=True, gc=False):
    """A question about the state of a message."""

    id: str
    key: str | None


class Dropped(msgspec.Struct, frozen=True, gc=False):
    """A number of duplicates that were dropped before they came here."""

    count: int


Item: TypeAlias = Put | Cancel | Look | Letter | Progress | Dropped


def letter_of_delivery(delivery: Delivery, reason: str) -> Letter:
    """The dead letter of a message that its destination did not accept."""
    reason = f"gave up after {delivery.attempt} attempts: {reason}"
    return Letter("delivery", delivery.seq, reason, _ALLOWED, record_of(delivery.message))


def letter_of(record: Record, bad: BadRecord) -> Letter:
    """The dead letter of a record that can't be used."""
    return Letter(record.source, record.line, bad.reason, bad.allowed, record.data)
