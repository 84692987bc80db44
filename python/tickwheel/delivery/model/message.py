"""The schema as a user sees it (rule D1): messages, cancels, and the names of the columns.

The rules are native code, the same for every format: `message/fields.rs` in the crate of delivery checks the values of
a record. The files in `formats/`, beside `message/`, read records.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

MAX_PAYLOAD = 1 << 20
"""The most bytes of one payload (D12), unless set otherwise."""

MAX_PAYLOAD_LIMIT = 16 << 20
"""The most bytes that `serve` can be set to."""

MAX_RECORD = 2 * MAX_PAYLOAD
"""The most bytes of one record: written as base64 or with doubled quotes, a payload may take twice its size."""


class Columns(NamedTuple):
    """The name of the field or column of each part; `None` if the caller named none, and the usual name is used.

    A key that is named must be in each record; with a `?` behind its name it may be missing. `zone` is the zone of
    times without an offset.

    >>> Columns(id="flight", key="tail?")
    Columns(id='flight', key='tail?', due=None, payload=None, destination=None, tenant=None, zone=None)
    """

    id: str | None = None
    key: str | None = None
    due: str | None = None
    payload: str | None = None
    destination: str | None = None
    tenant: str | None = None
    zone: str | None = None


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message to deliver at `due_ms`, milliseconds since 1970; its name is `(key, id)`.

    `payload`: bytes, or JSON as `msgspec.Raw`; a queue takes any value that JSON can hold. `delay_ms` is kept if the
    record gave one, because two records with the same delay have the same content (D5) but different due times. Past
    `expires_ms` it is not delivered (D17). `traceparent`: the trace and span in which it was made, as W3C Trace Context
    writes them. `destination`: the name of one that is set (D23). `tenant`: whose it is (D24). `until_event`: an event
    of one of these names makes it due before its time (D22).
    """

    id: str
    key: str | None
    due_ms: int
    payload: msgspec.Raw | bytes
    delay_ms: float | None = None
    expires_ms: int | None = None
    traceparent: str | None = None
    destination: str | None = None
    tenant: str | None = None
    until_event: Sequence[str] | None = None


class Cancel(msgspec.Struct, frozen=True, gc=False):
    """A request not to deliver the message `(key, id)` (D7).

    `keep_days`: how long it is remembered at least if its message has not come; otherwise as long as ids are.
    """

    id: str
    key: str | None
    keep_days: int = 0
