"""The sources of an outbox: `sqlite:PATH?table=T` or `postgresql://...?table=T`; each kind is one file.

Only one process reads an outbox at a time. Rows are read in the order of their numbers. If a row commits later than a
row with a higher number, it is read later.
"""

import importlib
import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from tickwheel._event import Event
from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.delivery.model.message import MAX_PAYLOAD
from tickwheel.delivery.outbox.tables import TABLE
from tickwheel.delivery.sinks.addresses import without_secrets

_KINDS: Final = ("sqlite", "postgresql")
_FORMS: Final = "sqlite:PATH?table=T, postgresql://USER:PASSWORD@HOST/DATABASE?table=T"


class Row(NamedTuple):
    """A row. `record` is `None` if it is longer than a record may be, or NULL. `size`: its bytes, `None` for NULL."""

    n: int
    written_ms: int
    record: bytes | None
    size: int | None


class Source(ABC):
    """The table of an outbox, for one thread. `max_payload`: bytes; a record may have twice as many.

    Every method but `close` raises the errors of its driver; then it is closed, and used again after a wait.
    """

    def __init__(self, name: str, max_payload: int) -> None:
        self.name = name.encode(errors="backslashreplace").decode()
        """The address without user and password, as UTF-8 can hold it: a path may have other bytes."""
        self.max_payload = max_payload
        _sources.add(self)

    @abstractmethod
    def open(self) -> bool:
        """Connect, if it is not connected. `False`: another reader has the outbox."""

    @abstractmethod
    def read(self, passed: Sequence[int] = ()) -> Sequence[Row]:
        """The first rows, at most `BATCH_ROWS` and `BATCH_BYTES`, without those with the numbers in `passed`."""

    @abstractmethod
    def fetch(self, n: int) -> Row | None:
        """The row of this number, if it is there."""

    @abstractmethod
    def delete(self, numbers: Sequence[int], within_s: float) -> Sequence[int]:
        """Delete rows and commit. Returns the numbers of the rows that are gone. A locked row is not waited for long.

        It fails if it takes longer than `within_s`. After an error some may be gone. A call without numbers is a probe:
        it fails if no row can be deleted.
        """

    @abstractmethod
    def wait(self, stopping: Event, at_most_s: float) -> None:
        """Wait after an empty `read` until rows may have come, or until `stopping`."""

    def has_lost_connection(self) -> bool:
        """Whether a server has ended the connection. Never true without a server."""
        return False

    @abstractmethod
    def close(self) -> None:
        """Close the connection, if there is one, and let another reader have the outbox."""

    @abstractmethod
    def leave_to_parent(self) -> None:
        """In a forked child: close the descriptor that would keep the outbox locked after the parent's end."""


_sources: "weakref.WeakSet[Source]" = weakref.WeakSet()


def _leave_to_parent() -> None:
    for source in list(_sources):
        source.leave_to_parent()


os.register_at_fork(after_in_child=_leave_to_parent)


SourceOpener: TypeAlias = Callable[[], Source]
"""Makes the source. Errors: `WrongUsage` if the file is an open store."""


def source_of(address: str, max_payload: int = MAX_PAYLOAD) -> SourceOpener:
    """The opener of an address, by default of the usual table; nothing is connected yet. Errors: `WrongUsage`."""
    kind, colon, rest = address.partition(":") if isinstance(address, str) else ("", "", "")
    if not colon or kind not in _KINDS:
        raise WrongUsage(f"{_shown(address)} is no outbox: it may be {_FORMS}")
    if "table=" not in rest.rpartition("?")[2]:
        mark = "&" if "?" in rest and kind == "postgresql" else "?"
        address = f"{address}{mark}table={TABLE}"
    try:
        module = importlib.import_module(f"tickwheel.delivery.outbox.{kind}")
    except ImportError as error:
        if kind == "sqlite":
            raise
        raise WrongUsage(f"psycopg can't be imported ({error}): run pip install 'tickwheel[postgresql]'") from error
    opener: SourceOpener = module.opener_of(address, max_payload)
    return opener


def sources_of(addresses: str | Iterable[str] | None, max_payload: int = MAX_PAYLOAD) -> Sequence[SourceOpener]:
    """The openers for one address, for several, or for none. Errors: `WrongUsage`."""
    given = [addresses] if isinstance(addresses, str) else [*(addresses or ())]
    for address in given:
        if given.count(address) > 1:
            raise WrongUsage(f"the outbox {_shown(address)} is given {given.count(address)} times: name it once")
    return [source_of(address, max_payload) for address in given]


def _shown(address: object) -> str:
    return without_secrets(address) if isinstance(address, str) else f"{address!r:.200}"
