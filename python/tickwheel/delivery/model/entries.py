"""Items to submit, other than messages and cancels (rules D2, D5, D7, D11)."""

from datetime import timedelta
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple

import msgspec

from tickwheel import _native
from tickwheel._native import Answer as Answer
from tickwheel.delivery.base.errors import BadRecord, WrongUsage, quoted
from tickwheel.delivery.model.operations import reply

OTHER_CONTENT = BadRecord(*_native.OTHER_CONTENT)
MANY_WAIT = BadRecord(reply("put", Answer.FULL).sentence, "a message once others have ended")


def no_destination(name: str | None = None) -> BadRecord:
    """Why something is refused that names this destination; `None`: it names none, or its name is not known here."""
    reason = reply("put", Answer.REFUSED).sentence if name is None else f"there is no destination {quoted(name)}"
    return BadRecord(reason, "the name of one that is set")


class Outcome(IntEnum):
    """The outcome of a message, as the ledger of a store keeps it. `MOVED`: the message goes on under another number.
    `WITHDRAWN`: an occurrence whose rule has ended, or has got another text since.
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
    """A record that could not be read or delivered: its place in the input, the reason, the allowed form, its bytes."""

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


class Reschedule(msgspec.Struct, frozen=True, gc=False):
    """A request to give a waiting message another due time (D16). `due_ms` comes from `due_ms_of`."""

    id: str
    key: str | None
    due_ms: int


class Event(msgspec.Struct, frozen=True, gc=False):
    """Something that has happened to a key: it lets go the messages that wait for `event` (D22)."""

    id: str
    key: str
    event: str
    payload: Any = None
    remember_ms: float | timedelta | None = None


class ForgetEvent(msgspec.Struct, frozen=True, gc=False):
    """A request to remember an event no more (D22)."""

    id: str
    key: str


class Requeue(msgspec.Struct, frozen=True, gc=False):
    """A request to try a dead letter again (D16)."""

    id: str
    key: str | None


class ActionKind(StrEnum):
    """The kinds of action: cancel waiting messages, or try dead letters again."""

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
    destination: str | None = None
    tenant: str | None = None


class Pause(msgspec.Struct, frozen=True, gc=False):
    """A request to pause sending, of one key, one destination, one tenant, or of all, or to resume it (D16).

    `until_ms`: when the pause ends by itself; `None`: never.
    """

    is_paused: bool
    key: str | None = None
    destination: str | None = None
    tenant: str | None = None
    until_ms: int | None = None

    def __post_init__(self) -> None:
        if [self.key, self.destination, self.tenant].count(None) < 2:
            raise WrongUsage("name what to pause or resume: a key, a destination, or a tenant, or none for all")


class SetDestination(msgspec.Struct, frozen=True, gc=False):
    """A request to set a named destination (D23). `settings`: JSON."""

    name: str
    settings: str


class RemoveDestination(msgspec.Struct, frozen=True, gc=False):
    """A request to remove a named destination (D23). `dead`: its messages become dead letters."""

    name: str
    dead: bool


class SetTenant(msgspec.Struct, frozen=True, gc=False):
    """A request to set what a tenant may do (D24). `settings`: JSON."""

    name: str
    settings: str


class RemoveTenant(msgspec.Struct, frozen=True, gc=False):
    """A request to give a tenant the usual limits again (D24)."""

    name: str


class Again(msgspec.Struct, frozen=True, gc=False):
    """A request to try a failing key at once, or a failing message without a key (D16): one of the two is given."""

    id: str | None
    key: str | None

    def __post_init__(self) -> None:
        if (self.id is None) == (self.key is None):
            raise WrongUsage("name what to try: either a key, or the id of a message without a key")
