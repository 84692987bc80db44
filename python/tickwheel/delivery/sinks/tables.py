"""The common parts of the two SQL sinks (rule D5): what is asked and told of digests, the columns, the table's name.

A transaction that writes the table `T` also writes `T_ids`. That table has the 128-bit digest of each message's key and
id, the store, the run that sent it, and `first_seq`. A message whose digest is in `T_ids` has its row in `T`, and gets
no second one. If the digest is of the same store and has a lower `first_seq`, it is that of an earlier message, whose
name the store has forgotten since. The new message takes its place. `writers.py` says which digests of this run are not
needed any more. Digests of earlier runs are deleted once every message that those runs may have sent has its outcome.

If the store is replicated (D21), one row of `T_ids` has the newest epoch that has written, as `first_seq`. A process
with an older epoch writes nothing.
"""

import math
import re
from abc import abstractmethod
from collections.abc import Callable, Collection, Container, Iterable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import ClassVar, TypeAlias
from urllib.parse import parse_qsl

import msgspec

from tickwheel.delivery.base.errors import DeliveryFailed, Unanswered, Unavailable, WrongUsage
from tickwheel.delivery.model.message import Message
from tickwheel.delivery.sinks.sink import Delivery, Refusals, Sink, SinkSettings
from tickwheel.delivery.sinks.writers import Writer

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

IF_THERE = ("cause", "event", "tenant")
"""These are written if the table has them: why a message with `until_event` is due, the event as JSON (D22), and the
tenant of the message (D24).
"""

LONGEST_NAME = 53
"""PostgreSQL truncates names after 63 bytes, and a suffix is appended to this name."""

OWN_SHARE = 0.8
"""The part of the time-out after which the database gives up, so that its own error is the reason, not a cut-off."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", flags=re.ASCII)

MAX_BATCH = 1024
"""Rows of one transaction: with more, no rate is gained, and each waits longer for the last (measured)."""

EARLIER_AT_ONCE = 2 * MAX_BATCH
"""Digests of earlier runs that one send deletes."""


Verdicts: TypeAlias = dict[int, str | Unanswered | Unavailable | None]


class TableSink(Sink):
    """A sink that writes to `T` and `T_ids`."""

    max_batch: ClassVar[int] = MAX_BATCH
    threads: ClassVar[int] = 1

    def __init__(self, settings: SinkSettings, writer: Writer) -> None:
        self._settings = settings
        self._writer = writer
        self._own_s = OWN_SHARE * settings.timeout_s
        self._owner: tuple[str, int] | None = None
        """Of the messages that are sent: the store, and the epoch; `None`: it is not replicated."""

    def send(self, deliveries: Sequence[Delivery]) -> Refusals:
        """One transaction if no row is refused. Errors: `Unavailable`, `Unanswered`, if none is known to be written."""
        self._owner = deliveries[0].owner
        self._writer.begin(deliveries)
        try:
            verdicts = self._send(deliveries)
            self._writer.note([it for place, it in enumerate(deliveries) if place not in verdicts])
        finally:
            self._writer.end()
        return verdicts

    @abstractmethod
    def _send(self, deliveries: Sequence[Delivery]) -> Refusals: ...

    def committed(self, sends: int, earlier: bool) -> None:
        """The next sends delete the digests of these sends."""
        self._writer.committed(sends, earlier)

    def arrived(self, suspects: Sequence[Delivery], position: str | None) -> Collection[int]:  # noqa: ARG002
        """Looks up the suspects by their digests."""
        store, there = self._settings.store_id, self._there([it.digest for it in suspects])
        first = {digest: seq if of == store else math.inf for digest, of, seq in there}
        return {it.seq for it in suspects if first.get(it.digest, -1) >= it.first_seq}

    def _epoch_row(self, owner: tuple[str, int]) -> tuple[bytes, str, str, int]:
        """The row of `T_ids` that has the newest epoch of this store."""
        store, epoch = owner
        digest = blake2b(store.encode(), digest_size=16, person=b"epoch").digest()
        return digest, f"epoch of {store}", self._settings.run, epoch

    def _check_epoch(self, newest: int, own: int) -> None:
        """Errors: `DeliveryFailed` if a newer owner of the store has written."""
        if newest > own:
            problem = f"another process has taken the store over: it has epoch {newest}, and this one {own}"
            raise DeliveryFailed(f"{problem}: start again, and this process waits as a standby")

    @abstractmethod
    def _there(self, digests: Sequence[bytes]) -> Iterable[tuple[bytes, str, int]]:
        """Digest, store and `first_seq` of those that are in `T_ids`."""


def row_of(delivery: Delivery, moment: Callable[[int], object], if_there: Sequence[str]) -> tuple[object, ...]:
    """The values of `COLUMNS`, and of those of `IF_THERE`. `moment`: the value of milliseconds since 1970."""
    message, event = delivery.message, delivery.event if if_there else None
    json = None if event is None else msgspec.json.encode(event).decode()
    more = {"cause": delivery.cause, "event": json, "tenant": message.tenant}
    return (
        message.id,
        message.key,
        moment(message.due_ms),
        *payload_of(message),
        moment(delivery.delivered_at_ms),
        delivery.lateness_ms,
        delivery.attempt,
        delivery.redelivered,
        *(more[name] for name in if_there),
    )


def check_columns(table: str, needed: Iterable[str], there: Container[str]) -> None:
    """Errors: `DeliveryFailed` if a column is missing."""
    if missing := [column for column in needed if column not in there]:
        raise DeliveryFailed(f"the table {table} has no {', '.join(missing)}: add them, or name a new table")


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


def file_and_table(spec: str, form: str) -> tuple[Path, str]:
    """The parts of `sqlite:PATH?table=T`. Errors: `WrongUsage`."""
    path, mark, query = spec.partition(":")[2].rpartition("?")
    if not mark or not path or "\0" in path:
        raise WrongUsage(f"{spec!r:.200} names no file, or no table: write {form}")
    (table,) = table_of(query, form)
    return Path(path).absolute(), table


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
