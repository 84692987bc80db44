"""The common parts of the two SQL sinks (rule D5): the columns of a delivery, the table's name, and old digests.

Beside the table `T` there is `T_ids`, written in the same transaction: the 128-bit digest of each message's key and id, with
the store and the run that sent it. A message whose digest is there has its row in `T`, and gets no second one. A digest is
needed until the store has committed the message's outcome: those of this run go by `Old`, and those of earlier runs with the
first sends, as `arrived` was asked before.
"""

import re
import time
from collections import deque
from collections.abc import Callable, Iterable
from urllib.parse import parse_qsl

from tickwheel.delivery.errors import WrongUsage
from tickwheel.delivery.message import Message

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
"""PostgreSQL truncates names after 63 bytes, and a suffix is appended to this one."""

KEPT_S = 60.0
"""How long a digest is kept after it was sent. Sending pauses while two groups of outcomes are uncommitted (D5)."""

OWN_SHARE = 0.8
"""The part of the time-out after which the database gives up, so that its own error is the reason, not a cut-off."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", flags=re.ASCII)
MOST_AT_ONCE = 512
"""Digests that one send deletes: twice a batch, so it keeps up with sending, and no send deletes those of a whole burst."""


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


class Old:
    """The digests of what one sink has sent, oldest first. Those older than `KEPT_S` are no longer needed.

    Their outcomes are committed in the store by then, because sending pauses otherwise. So call `some` only during a
    send. Memory: 60 s of deliveries, some 100 bytes each.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._sent: deque[tuple[float, bytes]] = deque()

    def note(self, digests: Iterable[bytes]) -> None:
        """Add what was sent in a committed transaction."""
        now_s = self._now_s()
        self._sent.extend((now_s, digest) for digest in digests)

    def some(self) -> list[bytes]:
        """Some that may be deleted; the same ones until `forget`."""
        before_s = self._now_s() - KEPT_S
        old: list[bytes] = []
        for sent_s, digest in self._sent:
            if sent_s > before_s or len(old) == MOST_AT_ONCE:
                break
            old.append(digest)
        return old

    def forget(self, count: int) -> None:
        """Remove the first `count`, which have been deleted."""
        for _ in range(count):
            self._sent.popleft()
