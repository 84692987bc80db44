"""What can be handed to the writer, and what it answers once that is on disk (rules D5, D7, D11)."""

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
_ALLOWED = "mend what the reason says, and give the record again under another id"


class Answer(StrEnum):
    """To a message: the first four. To a cancel: the last five. To a look: the last five, or `WAITING`."""

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
    """A message to accept; with a `record`, a known name with other content becomes a dead letter."""

    incoming: Incoming
    record: Record | None = None

    @classmethod
    def of(cls, message: Message, record: Record | None = None) -> Self:
        """Costs some microseconds, so it is done in the thread that accepts."""
        return cls(Incoming.of(message), record)


class Look(msgspec.Struct, frozen=True, gc=False):
    """A question what has become of a message."""

    id: str
    key: str | None


class Dropped(msgspec.Struct, frozen=True, gc=False):
    """So many duplicates were dropped on the way here."""

    count: int


Item: TypeAlias = Put | Cancel | Look | Letter | Progress | Dropped


def letter_of_delivery(delivery: Delivery, reason: str) -> Letter:
    """The dead letter of a message that its destination did not take."""
    reason = f"gave up after {delivery.attempt} attempts: {reason}"
    return Letter("delivery", delivery.seq, reason, _ALLOWED, record_of(delivery.message))


def letter_of(record: Record, bad: BadRecord) -> Letter:
    """The dead letter of a record that can't be used."""
    return Letter(record.source, record.line, bad.reason, bad.allowed, record.data)
