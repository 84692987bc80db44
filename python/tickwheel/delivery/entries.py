"""What is submitted beside messages and cancels, and the answers once it is on disk (rules D2, D5, D7, D11)."""

from enum import IntEnum, StrEnum
from typing import NamedTuple, TypeAlias

import msgspec

from tickwheel.delivery.errors import BadRecord
from tickwheel.delivery.message import Cancel, Message

OTHER_CONTENT = BadRecord(
    "this key and id were accepted before with other content", "the same content again, or another id"
)


class Answer(StrEnum):
    """The answer to a message is one of the first four; to a cancel, one of the last five but `WAITING`; to a look, one
    of the last five. The engine knows the members by their order.
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


class Outcome(IntEnum):
    """What became of a message, as the ledger of a store has it."""

    DELIVERED = 1
    CANCELLED = 2
    DEAD = 3


class Look(msgspec.Struct, frozen=True, gc=False):
    """A question about the state of a message."""

    id: str
    key: str | None


class Dropped(msgspec.Struct, frozen=True, gc=False):
    """A number of duplicates that were dropped before they came here."""

    count: int


class Letter(NamedTuple):
    """A record that could not be read or delivered: where it stood, why, what is allowed, and its bytes."""

    source: str
    line: int
    reason: str
    allowed: str
    record: bytes


class Progress(NamedTuple):
    """The records up to line `line` were taken; the first `size` bytes have this digest."""

    source: str
    line: int
    size: int
    digest: bytes


class Read(NamedTuple):
    """A message that was read and checked, and where: it becomes a dead letter if its name is known with other content."""

    message: Message
    source: str
    line: int
    record: bytes


Item: TypeAlias = Message | Read | Cancel | Look | Letter | Progress | Dropped
