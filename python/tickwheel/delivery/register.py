"""What was accepted and what became of it, by `(key, id)`: each message once (D5), cancels with an answer (D7).

In memory, for one run. A message is let go with its outcome; its name, the digest of its content and the outcome stay.
Not locked: the deliverer holds its lock around every call.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b
from typing import TypeAlias

import msgspec

from tickwheel import TimerTask
from tickwheel.delivery.errors import BadRecord
from tickwheel.delivery.message import Cancel, Message

_Name: TypeAlias = tuple[str | None, str]


class Outcome(Enum):
    """What became of an accepted message."""

    DELIVERED = "delivered"
    CANCELLED = "cancelled"


@dataclass(slots=True, eq=False)
class Entry:
    """A message without an outcome. `task` is its place on the timer: `None` before it has one, and once released."""

    message: Message
    digest: bytes
    task: TimerTask | None = None


class Register:
    """What waits, in order of acceptance; what is finished; and the cancels whose message has not come yet."""

    def __init__(self) -> None:
        self._waiting: dict[_Name, Entry] = {}
        self._finished: dict[_Name, tuple[bytes, Outcome]] = {}
        self._cancels: set[_Name] = set()

    def accept(self, message: Message) -> Entry | Outcome | None:
        """The new entry; or `CANCELLED`, if its cancel came before; or `None` for a duplicate.

        Errors: `BadRecord` if `(key, id)` is known with other content.
        """
        name, digest = _name(message), _digest(message)
        waiting, finished = self._waiting.get(name), self._finished.get(name)
        known = waiting.digest if waiting else finished[0] if finished else digest
        if known != digest:
            raise BadRecord(
                "this key and id were accepted before with other content", "the same content again, or another id"
            )
        if waiting or finished:
            return None
        if name in self._cancels:
            self._cancels.remove(name)
            self._finished[name] = digest, Outcome.CANCELLED
            return Outcome.CANCELLED
        entry = self._waiting[name] = Entry(message, digest)
        return entry

    def find(self, cancel: Cancel) -> Entry | Outcome | None:
        """What the cancel is for: an entry, or what became of it; `None` if it is unknown, and then remembered."""
        name = _name(cancel)
        if name in self._finished:
            return self._finished[name][1]
        if name not in self._waiting:
            self._cancels.add(name)
        return self._waiting.get(name)

    def finish(self, entry: Entry, outcome: Outcome) -> None:
        """The entry has its outcome."""
        name = _name(entry.message)
        del self._waiting[name]
        self._finished[name] = entry.digest, outcome

    def waiting(self) -> Iterable[Entry]:
        """What has no outcome yet, in order of acceptance."""
        return self._waiting.values()

    @property
    def unknown_cancels(self) -> int:
        """Cancels whose message has not come."""
        return len(self._cancels)


def _name(of: Message | Cancel) -> _Name:
    return of.key, of.id


def _digest(message: Message) -> bytes:
    """Of the content: a delay as it was given, not the due time that came of it."""
    when = message.due_ms if message.delay_ms is None else ["delay_ms", message.delay_ms]
    what = message.payload if isinstance(message.payload, bytes) else ["json", message.payload]
    return blake2b(msgspec.json.encode([when, what]), digest_size=16).digest()
