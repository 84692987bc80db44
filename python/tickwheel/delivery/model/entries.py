"""What is submitted beside messages and cancels, and the answers once it is on disk (rules D2, D5, D7, D11)."""

from collections.abc import Iterable, Iterator
from enum import IntEnum, StrEnum
from typing import NamedTuple, TypeAlias

import msgspec

from tickwheel._native import Answer as Answer
from tickwheel._native import Records
from tickwheel.delivery.base.errors import BadRecord
from tickwheel.delivery.model.message import Cancel, Message

OTHER_CONTENT = BadRecord(
    "this key and id were accepted before with other content", "the same content again, or another id"
)


class Outcome(IntEnum):
    """What became of a message, as the ledger of a store has it. `MOVED`: it goes on under another number.
    `WITHDRAWN`: the occurrence of a rule that has ended, or has another text since.
    """

    DELIVERED = 1
    CANCELLED = 2
    DEAD = 3
    MOVED = 4
    EXPIRED = 5
    WITHDRAWN = 6


class Look(msgspec.Struct, frozen=True, gc=False):
    """A question about the state of a message."""

    id: str
    key: str | None


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


class Put(NamedTuple):
    """A message by values of Python, to be checked by the rules for records. `payload`: the bytes, of JSON or not."""

    id: object
    key: object
    due: object
    delay_ms: object
    payload: bytes
    is_json: bool
    expires: object = None
    traceparent: object = None
    every: object = None
    cron: object = None
    tz: object = None
    missed: object = None


class Reschedule(msgspec.Struct, frozen=True, gc=False):
    """A request to deliver a message that waits at another time (D16); `due_ms` is one that `due_ms_of` gave."""

    id: str
    key: str | None
    due_ms: int


class Requeue(msgspec.Struct, frozen=True, gc=False):
    """A request to try a dead letter anew (D16)."""

    id: str
    key: str | None


class ActionKind(StrEnum):
    """What an action does: cancels messages that wait, or tries dead letters anew."""

    CANCEL = "cancel"
    REQUEUE = "requeue"


class Act(msgspec.Struct, frozen=True, gc=False):
    """An action on all messages that match (D16); `id` is the name that its user knows it by."""

    id: str
    kind: ActionKind
    filter_key: str | None
    key_prefix: str | None
    due_from_ms: int | None
    due_before_ms: int | None


class Pause(msgspec.Struct, frozen=True, gc=False):
    """A request to send nothing more, of a key or of all, or to go on (D16)."""

    is_paused: bool
    key: str | None = None


Fault: TypeAlias = tuple[int, str, str]
"""What is wrong with a record: its line, the reason, and what is allowed."""

Item: TypeAlias = Records | Message | Put | Cancel | Reschedule | Requeue | Act | Pause | Look | Letter | Progress


def answered(faults: Iterable[Fault | None], answers: Iterable[Answer]) -> "Iterator[Answer | BadRecord]":
    """For each record in order its answer, or what is wrong with it: it has none."""
    given = iter(answers)
    for fault in faults:
        yield next(given) if fault is None else BadRecord(*fault[1:])
