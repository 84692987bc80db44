"""The one schema (rule D1): what a message is, in every input format, and why a record is not one.

The reader of a format (`ndjson`, `csv_rows`, `arrow_rows`) puts a record's values into `Fields`; `check` turns them
into a `Message` or a `Cancel`, or raises `BadRecord`. Rules for every format:

- `due` and `delay_ms` exclude each other, and so do the payload and `payload_base64`.
- Without a payload the other fields are the payload, as an object; with one, another field is an error. So no value is
  ever dropped.
- JSON keeps its bytes, as a `msgspec.Raw` on one line; a payload of other bytes is `bytes`. If a format has text only,
  text that is not JSON becomes a JSON string.

>>> fields = Fields(id="a1", due=5, others={"x": msgspec.Raw(b"1.50")})
>>> message = check(fields, Columns(), now_ns=None)
>>> message.due_ms, bytes(message.payload)
(5, b'{"x":1.50}')
"""

import binascii
import math
from base64 import b64decode
from collections.abc import Mapping, Sequence

import msgspec

from tickwheel.delivery.errors import BadRecord
from tickwheel.delivery.times import MAX_DUE_MS, due_from

MAX_PAYLOAD = 1 << 20
"""The most bytes of one payload (D12), unless set otherwise."""

_ONE_LINE = str.maketrans("\r\n", "  ")  # white space, because JSON does not allow them inside a string
_decode_raw = msgspec.json.Decoder(msgspec.Raw).decode
_encode = msgspec.json.Encoder().encode


class Columns(msgspec.Struct, frozen=True):
    """The name of the field or column of each part; `None` if the caller named none, and the usual name is used."""

    id: str | None = None
    key: str | None = None
    due: str | None = None
    payload: str | None = None

    def name(self, part: str) -> str:
        """The name to look for: the caller's, or the usual one."""
        return getattr(self, part) or part

    def named(self) -> list[str]:
        """The names that the caller gave."""
        return [name for name in (self.id, self.key, self.due, self.payload) if name is not None]

    def known(self) -> frozenset[str]:
        """Every name with a meaning; all others are part of the payload."""
        return frozenset(map(self.name, ("id", "key", "due", "payload"))) | {"delay_ms", "op", "payload_base64"}

    def fault(self, what: str, names: Sequence[str]) -> BadRecord | None:
        """Why no record can be read with these names, or `None`. `what` is where they come from: header or schema."""
        missing = [name for name in dict.fromkeys([self.name("id"), *self.named()]) if name not in names]
        if missing:
            return BadRecord(
                f"the {what} has no column {', '.join(missing)}", f"of this file: {', '.join(names)[:200]}"
            )
        if len(set(names)) < len(names):
            return BadRecord(f"the {what} names a column twice", "each name once")
        return None


_USUAL = Columns()


class Fields(msgspec.Struct):
    """A record's values before the check; `None` is absent."""

    id: object = None
    key: object = None
    due: object = None
    delay_ms: object = None
    op: object = None
    payload: msgspec.Raw | bytes | None = None
    payload_base64: object = None
    others: Mapping[str, msgspec.Raw] = {}


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message to deliver at `due_ms`, milliseconds since 1970; its name is `(key, id)`.

    `delay_ms` is kept if the record gave one, because two records with the same delay have the same content (D5) but
    different due times.
    """

    id: str
    key: str | None
    due_ms: int
    payload: msgspec.Raw | bytes
    delay_ms: float | None = None


class Cancel(msgspec.Struct, frozen=True, gc=False):
    """A request not to deliver the message `(key, id)` (D7).

    `keep_days`: how long it is remembered at least if its message has not come; otherwise as long as ids are.
    """

    id: str
    key: str | None
    keep_days: int = 0


def check_name(id_: object, key: object) -> None:
    """Errors: `BadRecord` if no message can have this name."""
    _text(id_, _USUAL, "id")
    if key is not None:
        _text(key, _USUAL, "key")


def checked(message: Message, max_payload: int = MAX_PAYLOAD) -> Message:
    """Check a message made by a program, by the rules for records; JSON is put on one line. Errors: `BadRecord`."""
    check_name(message.id, message.key)
    due_from(message.due_ms, "due_ms")
    payload = _bounded(message.payload, max_payload)
    if isinstance(payload, bytes):
        return message
    try:
        text = str(payload, "utf-8")
        _decode_raw(text)
    except (UnicodeDecodeError, msgspec.DecodeError) as error:
        raise BadRecord(f"the payload is not JSON: {error}", "JSON in UTF-8 as msgspec.Raw, or bytes") from None
    if "\n" not in text and "\r" not in text:
        return message
    return msgspec.structs.replace(message, payload=msgspec.Raw(text.translate(_ONE_LINE).encode()))


def json_or_text(text: str) -> msgspec.Raw:
    """JSON as it is, on one line; any other text as a JSON string. Errors: `BadRecord`.

    >>> bytes(json_or_text("[1.50]")), bytes(json_or_text("NaN"))
    (b'[1.50]', b'"NaN"')
    """
    try:
        raw = _decode_raw(text)
    except msgspec.DecodeError:
        return json_text(text)
    except RecursionError:
        raise BadRecord("the JSON is nested too deep", "a few hundred levels") from None
    if "\n" in text or "\r" in text:  # white space, because inside a JSON string they are escaped
        return msgspec.Raw(bytes(raw).replace(b"\n", b" ").replace(b"\r", b" "))
    return raw


def json_text(text: str) -> msgspec.Raw:
    """Text as a JSON string."""
    return msgspec.Raw(_encode(text))


def check(fields: Fields, columns: Columns, now_ns: int | None, max_payload: int = MAX_PAYLOAD) -> Message | Cancel:
    """The message or cancel of a record. `now_ns`: the wall time from which a `delay_ms` counts; `None` in a replay,
    which has no such time. Errors: `BadRecord`.
    """
    id_ = _text(fields.id, columns, "id")
    key = None if fields.key is None else _text(fields.key, columns, "key")
    if fields.op is None:
        due_ms, delay_ms = _due(fields, columns, now_ns)
        return Message(id_, key, due_ms, _bounded(_payload(fields, columns), max_payload), delay_ms)
    if fields.op != "cancel":
        raise BadRecord("op is not known", 'op: "cancel", or no op at all for a message')
    more = (fields.due, fields.delay_ms, fields.payload, fields.payload_base64)
    if fields.others or any(value is not None for value in more):
        raise BadRecord("a cancel has more than id and key", 'op: "cancel" with id, key and nothing else')
    return Cancel(id_, key)


def _text(value: object, columns: Columns, part: str) -> str:
    if not isinstance(value, str) or not value:
        name = columns.name(part)
        state = "missing" if value is None else "empty" if value == "" else "not text"
        raise BadRecord(f"{name} is {state}", f"{name}: text, not empty")
    try:
        value.encode()
    except UnicodeEncodeError:
        name = columns.name(part)
        raise BadRecord(f"{name} has half of a surrogate pair", f"{name}: text that can be written in UTF-8") from None
    return value


def _due(fields: Fields, columns: Columns, now_ns: int | None) -> tuple[int, float | None]:
    name = columns.name("due")
    if (fields.due is None) == (fields.delay_ms is None):
        given = f"{name} is missing" if fields.due is None else f"both {name} and delay_ms are given"
        raise BadRecord(given, f"either {name} or delay_ms")
    if fields.delay_ms is None:
        return due_from(fields.due, name), None
    delay_ms = _delay(fields.delay_ms)
    if now_ns is None:
        raise BadRecord("delay_ms counts from acceptance, which a replay does not have", f"with --speed: {name}")
    return due_from(-(-now_ns // 1_000_000) + math.ceil(delay_ms), "now + delay_ms"), delay_ms


def _delay(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= MAX_DUE_MS:
        raise BadRecord(
            "delay_ms is not a number in range", "delay_ms: milliseconds, with a due time before year 10000"
        )
    return value


def _payload(fields: Fields, columns: Columns) -> msgspec.Raw | bytes:
    payload: msgspec.Raw | bytes
    name = columns.name("payload")
    if fields.payload is not None and fields.payload_base64 is not None:
        raise BadRecord(f"both {name} and payload_base64 are given", f"either {name} or payload_base64")
    if fields.payload_base64 is not None:
        payload = _from_base64(fields.payload_base64)
    elif fields.payload is not None:
        payload = fields.payload if isinstance(fields.payload, bytes) else fields.payload.copy()
    elif columns.payload is not None:
        raise BadRecord(f"{name} is missing", f"{name}, as named by --payload, or payload_base64")
    else:
        members = (_encode(other) + b":" + bytes(raw) for other, raw in fields.others.items())
        return msgspec.Raw(b"{" + b",".join(members) + b"}")
    if fields.others:
        names = ", ".join(fields.others)[:200]
        raise BadRecord(f"fields beside the payload: {names}", f"only {', '.join(sorted(columns.known()))}")
    return payload


def _from_base64(value: object) -> bytes:
    try:
        return b64decode(_base64_text(value), validate=True)
    except binascii.Error as error:
        raise BadRecord(f"payload_base64 can't be decoded: {error}", "payload_base64: text in base64, padded") from None


def _base64_text(value: object) -> bytes:
    if not isinstance(value, str) or not value.isascii():
        raise BadRecord("payload_base64 is not base64", "payload_base64: text in base64, padded")
    return value.encode()


def _bounded(payload: msgspec.Raw | bytes, max_payload: int) -> msgspec.Raw | bytes:
    size = memoryview(payload).nbytes
    if size > max_payload:
        raise BadRecord(f"the payload has {size:,} bytes", f"at most {max_payload:,} bytes")
    return payload
