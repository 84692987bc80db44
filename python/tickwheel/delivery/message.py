"""The one schema (rule D1): what a message is, whatever format it came in, and what makes a record not one.

A reader of some format (`ndjson`, `csv_rows`) lays a record's values out as `Fields`; `check` makes them a `Message` or
a `Cancel`, or raises `BadRecord`. Rules that hold for every format:

- `due` and `delay_ms` exclude each other, and so do the payload and `payload_base64`.
- Without a payload the other fields are the payload, as an object; with one, another field is an error. So no value is
  ever dropped.
- JSON stays as it is, byte for byte, a `msgspec.Raw` on one line; a payload of other bytes is `bytes`.

>>> fields = Fields(id="a1", due=5, others={"x": msgspec.Raw(b"1.50")})
>>> message = check(fields, Columns(), now_ns=None)
>>> message.due_ms, bytes(message.payload)
(5, b'{"x":1.50}')
"""

import binascii
import math
from base64 import b64decode
from collections.abc import Mapping

import msgspec

from tickwheel.delivery.errors import BadRecord
from tickwheel.delivery.times import MAX_DUE_MS, due_from

MAX_PAYLOAD = 1 << 20
"""Bytes of one payload (D12)."""


class Columns(msgspec.Struct, frozen=True):
    """Which field or column holds what; `None` where the caller did not say, and the usual name is looked for."""

    id: str | None = None
    key: str | None = None
    due: str | None = None
    payload: str | None = None

    def name(self, part: str) -> str:
        """The name to look for: what the caller said, or the usual one."""
        return getattr(self, part) or part

    def named(self) -> list[str]:
        """What the caller did say."""
        return [name for name in (self.id, self.key, self.due, self.payload) if name is not None]

    def known(self) -> frozenset[str]:
        """Every name with a meaning; all others are part of the payload."""
        return frozenset(map(self.name, ("id", "key", "due", "payload"))) | {"delay_ms", "op", "payload_base64"}


class Fields(msgspec.Struct):
    """A record's values, not yet checked; `None` is absent."""

    id: object = None
    key: object = None
    due: object = None
    delay_ms: object = None
    op: object = None
    payload: msgspec.Raw | None = None
    payload_base64: object = None
    others: Mapping[str, msgspec.Raw] = {}


class Message(msgspec.Struct, frozen=True):
    """Something to deliver at `due_ms`, milliseconds since 1970; known by `(key, id)`.

    `delay_ms` is kept where the record gave it, as two records with the same delay have the same content (D5), though
    not the same due time.
    """

    id: str
    key: str | None
    due_ms: int
    payload: msgspec.Raw | bytes
    delay_ms: float | None = None


class Cancel(msgspec.Struct, frozen=True):
    """A wish that the message `(key, id)` be not delivered (D7)."""

    id: str
    key: str | None


def check(fields: Fields, columns: Columns, now_ns: int | None) -> Message | Cancel:
    """The message or cancel that a record is. `now_ns`: the wall clock, that a `delay_ms` counts from; `None` in a
    replay, where there is nothing to count from. Errors: `BadRecord`.
    """
    id_ = _text(fields.id, columns.name("id"))
    key = None if fields.key is None else _text(fields.key, columns.name("key"))
    if fields.op is None:
        due_ms, delay_ms = _due(fields, columns, now_ns)
        return Message(id_, key, due_ms, _payload(fields, columns), delay_ms)
    if fields.op != "cancel":
        raise BadRecord("op is not known", 'op: "cancel", or no op at all for a message')
    more = (fields.due, fields.delay_ms, fields.payload, fields.payload_base64)
    if fields.others or any(value is not None for value in more):
        raise BadRecord("a cancel has more than id and key", 'op: "cancel" with id, key and nothing else')
    return Cancel(id_, key)


def _text(value: object, name: str) -> str:
    if not isinstance(value, str) or not value:
        state = "missing" if value is None else "empty" if value == "" else "not text"
        raise BadRecord(f"{name} is {state}", f"{name}: text, not empty")
    return value


def _due(fields: Fields, columns: Columns, now_ns: int | None) -> tuple[int, float | None]:
    name = columns.name("due")
    either = f"{name}, or else delay_ms: one of them"
    if fields.delay_ms is None:
        if fields.due is None:
            raise BadRecord(f"{name} is missing", either)
        return due_from(fields.due, name), None
    if fields.due is not None:
        raise BadRecord(f"both {name} and delay_ms are given", either)
    delay_ms = _delay(fields.delay_ms)
    if now_ns is None:
        raise BadRecord("delay_ms counts from acceptance, which a replay does not know", f"with --speed: {name}")
    return due_from(-(-now_ns // 1_000_000) + math.ceil(delay_ms), "now + delay_ms"), delay_ms


def _delay(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= MAX_DUE_MS:
        raise BadRecord("delay_ms is not a number in range", "delay_ms: milliseconds, such that it is due before 10000")
    return value


def _payload(fields: Fields, columns: Columns) -> msgspec.Raw | bytes:
    payload: msgspec.Raw | bytes
    name = columns.name("payload")
    if fields.payload is not None and fields.payload_base64 is not None:
        raise BadRecord(f"both {name} and payload_base64 are given", f"{name}, or else payload_base64: one of them")
    if fields.payload_base64 is not None:
        payload = _from_base64(fields.payload_base64)
    elif fields.payload is not None:
        payload = fields.payload.copy()
    elif columns.payload is not None:
        raise BadRecord(f"{name} is missing", f"{name}, as --payload says, or payload_base64")
    else:
        members = (msgspec.json.encode(other) + b":" + bytes(raw) for other, raw in fields.others.items())
        return _bounded(msgspec.Raw(b"{" + b",".join(members) + b"}"))
    if fields.others:
        names = ", ".join(fields.others)[:200]
        raise BadRecord(f"fields beside the payload: {names}", f"only {', '.join(sorted(columns.known()))}")
    return _bounded(payload)


def _from_base64(value: object) -> bytes:
    try:
        return b64decode(_base64_text(value), validate=True)
    except binascii.Error as error:
        raise BadRecord(f"payload_base64 can't be decoded: {error}", "payload_base64: text in base64, padded") from None


def _base64_text(value: object) -> bytes:
    if not isinstance(value, str) or not value.isascii():
        raise BadRecord("payload_base64 is not base64", "payload_base64: text in base64, padded")
    return value.encode()


def _bounded(payload: msgspec.Raw | bytes) -> msgspec.Raw | bytes:
    size = len(bytes(payload))
    if size > MAX_PAYLOAD:
        raise BadRecord(f"the payload has {size:,} bytes", f"at most {MAX_PAYLOAD:,} bytes")
    return payload
