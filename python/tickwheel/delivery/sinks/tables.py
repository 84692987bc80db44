"""The common parts of the two SQL sinks (rule D5): the columns of a delivery, and the table's name.

A transaction that writes the table `T` also writes `T_ids`. That table has the 128-bit digest of each message's key and
id, the store, and the run that sent it. A message whose digest is in `T_ids` has its row in `T`, and gets no second
one. `writers.py` says which digests of this run are not needed any more. Digests of earlier runs are deleted once every
message that those runs may have sent has its outcome.
"""

import re
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
