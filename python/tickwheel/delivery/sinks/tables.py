"""The common parts of the two SQL sinks (rule D5): the columns of a delivery, the table's name, and kept digests.

Beside the table `T` there is `T_ids`, written in the same transaction: the 128-bit digest of each message's key and
id, with the store and the run that sent it. A message whose digest is there has its row in `T`, and gets no second one.

A digest is needed until the store has committed the message's outcome. `Kept` says which digests of this run are not
needed any more, by the number of a send and not by a clock. Digests of earlier runs are deleted once every message that
those runs may have sent has its outcome. If a sink was replaced, the next run deletes its digests.

Deleting takes a while. If a message comes whose digest is there but not needed, its name was forgotten and is used
again. The old digest is deleted first; otherwise the message would count as arrived.
"""

import re
from collections import deque
from collections.abc import Callable, Sequence
from urllib.parse import parse_qsl

from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.delivery.model.message import Message

COLUMNS = (
    "id",
    "key",
    "due",
    "payload",
    "payload_bytes",
    "delivered_at",
    "lateness_ms",
    "attempt",
    "redelivered",
)

LONGEST_NAME = 53
"""PostgreSQL truncates names after 63 bytes, and a suffix is appended to this name."""

OWN_SHARE = 0.8
"""The part of the time-out after which the database gives up, so that its own error is the reason, not a cut-off."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", flags=re.ASCII)

MAX_BATCH = 1024
"""Rows of one transaction: with more, no rate is gained, and each waits longer for the last (measured)."""

SENDS_AT_ONCE = 2
"""Sends whose digests the next one deletes: it keeps up with sending, and none deletes those of a whole burst."""

EARLIER_AT_ONCE = 2 * MAX_BATCH
"""Digests of earlier runs that one send deletes."""


def table_of(query: str, form: str, *, schema: bool = False) -> list[str]:
    """The parts of the name in `table=T`: one, or two if it has a `schema`. Errors: `WrongUsage`."""
    given = parse_qsl(query, keep_blank_values=True)
    if [name for name, _ in given] != ["table"]:
        raise WrongUsage(f"a table is missing: write {form}, with one ?table=T and nothing else")
    table = given[0][1]
    names = table.split(".")
    most = 2 if schema else 1
    if len(names) > most or not all(_NAME.fullmatch(name) and len(name) <= LONGEST_NAME for name in names):
        raise WrongUsage(
            f"{table[:100]!r} is no name of a table: it may have letters, digits and _, not a digit first, and at most"
            f" {LONGEST_NAME} of them" + (", and a schema and a dot before it" if schema else "")
        )
    return names


def payload_of(message: Message) -> tuple[str | None, bytes | None]:
    """The values of `payload` and `payload_bytes`: JSON text, or bytes, also for JSON that is not UTF-8.

    >>> payload_of(Message("a", None, 0, b"xyz"))
    (None, b'xyz')
    """
    if not isinstance(message.payload, bytes):
        raw = bytes(message.payload)
        try:
            return raw.decode(), None
        except UnicodeDecodeError:
            return None, raw
    return None, message.payload


class Newest:
    """Knows, for each store, which of the sinks of one opener is the newest.

    A sink that hangs is replaced. If it goes on later, it must not write: the new sink may have written the same
    message already, and its digest may be deleted.
    """

    def __init__(self) -> None:
        self._marks: dict[str, object] = {}

    def opens(self, store_id: str) -> Callable[[], bool]:
        """Note that a new sink is opened. The returned function says whether it is still the newest."""
        mark = self._marks[store_id] = object()
        return lambda: self._marks[store_id] is mark


class Kept:
    """The digests of the messages that one sink has sent, by the number of the send, until the outcomes are committed.

    >>> kept = Kept()
    >>> kept.begin_send()
    >>> kept.note([b"a", b"b"])
    >>> kept.begin_send()
    >>> kept.free()
    []
    >>> kept.committed(1, earlier=True)
    >>> kept.free()
    [b'a', b'b']

    Memory: some 200 bytes for each delivery whose outcome is not committed. Sending pauses while these are two groups.
    """

    def __init__(self) -> None:
        self._sent: deque[tuple[int, Sequence[bytes]]] = deque()
        self._last_send: dict[bytes, int] = {}  # the last send of each digest
        self._sends = 0
        self._committed = 0
        self._freed = 0
        self.earlier = False
        """Whether what earlier runs have left may be deleted."""

    def committed(self, sends: int, earlier: bool) -> None:
        """The outcomes of the first `sends` sends are committed. `earlier`: the outcomes of earlier runs too."""
        self._committed = sends
        self.earlier = earlier

    def begin_send(self) -> None:
        """Count a send, also if it fails."""
        self._sends += 1

    def note(self, digests: Sequence[bytes]) -> None:
        """Add the digests that this send has written, or found."""
        self._sent.append((self._sends, digests))
        self._last_send.update(dict.fromkeys(digests, self._sends))

    def used_again(self, digests: Sequence[bytes]) -> list[bytes]:
        """The digests that are there although their outcome is committed: another message has the name now."""
        if not self._last_send:
            return []
        last = self._last_send.get
        return [digest for digest in digests if 0 < last(digest, 0) <= self._committed]

    def free(self) -> list[bytes]:
        """Some digests that may be deleted; the same digests until `forget`."""
        free: list[bytes] = []
        self._freed = 0
        for send, digests in self._sent:
            if send > self._committed or self._freed == SENDS_AT_ONCE:
                break
            free += [digest for digest in digests if self._last_send.get(digest) == send]
            self._freed += 1
        return free

    def forget(self) -> None:
        """The digests that `free` returned last are deleted, and the deletion is committed."""
        for _ in range(self._freed):
            send, digests = self._sent.popleft()
            for digest in digests:
                if self._last_send.get(digest) == send:
                    del self._last_send[digest]
        self._freed = 0
