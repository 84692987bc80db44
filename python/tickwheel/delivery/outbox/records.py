"""The records of an outbox: messages, cancels and other due times as lines of NDJSON (rule D1).

A record is checked before it is written, by the same code that reads it later. A fault is therefore an error in the
caller's transaction, and not a dead letter later.
"""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from tickwheel._native import NdjsonLines, rfc_3339
from tickwheel.delivery.base.errors import BadRecord, WrongUsage
from tickwheel.delivery.model.message import MAX_PAYLOAD, Columns, Message
from tickwheel.delivery.model.putting import (
    RULE,
    arguments_of,
    message_of,
    payload_of,
    plain_field,
    plain_of,
    span_of,
    with_bytes,
)
from tickwheel.delivery.observe.tracing import current_traceparent

_READER: Final = NdjsonLines("", Columns().names, MAX_PAYLOAD, letters=False)
_FIELDS: Final = ("id", "key", "due", "delay_ms", "expires", "traceparent")
_LATER_MS: Final = 2_000_000_000_000  # any time: it is only checked that a delay can be added to it


def record_of(given: Message | Mapping[str, Any] | Sequence[Any]) -> str:
    """The record of a message, which is given as to `DeliveryQueue.put_many`. Errors: `BadRecord`, `WrongUsage`."""
    message_of(given)
    return _checked(_fields_of_message(with_bytes(given)) if isinstance(given, Message) else _fields_of(given))


def cancel_record(id: object, key: object) -> str:  # noqa: A002
    """The record that cancels a message. Errors: `BadRecord`."""
    return _checked({"op": "cancel", "id": id, "key": key})


def reschedule_record(id: object, key: object, due: object, delay_ms: object) -> str:  # noqa: A002
    """The record that gives a message another due time. Errors: `BadRecord`."""
    return _checked({"op": "reschedule", "id": id, "key": key, "due": plain_of(due), "delay_ms": span_of(delay_ms)})


def readable(record: bytes) -> str:
    """The record as text. Errors: `BadRecord` if the reader would make it a dead letter."""
    [fault] = _READER.read_values([(record, None, None, _LATER_MS)]).faults()
    if fault is not None:
        raise BadRecord(*fault[1:])
    return record.decode()


def _fields_of(given: object) -> dict[str, Any]:
    named = arguments_of(given)
    if named.get("replace") or named.get("debounce_ms") is not None:
        raise WrongUsage("a message of an outbox can't replace another: leave out replace, debounce_ms, at_latest_ms")
    fields = {name: plain_field(name, named.get(name)) for name in (*_FIELDS, *RULE)}
    return fields | _payload_of(*payload_of(named["payload"]))


def _fields_of_message(message: Message) -> dict[str, Any]:
    has_delay, expires_ms = message.delay_ms is not None, message.expires_ms
    is_json = isinstance(message.payload, msgspec.Raw)
    return {
        "id": message.id,
        "key": message.key,
        "due": None if has_delay else rfc_3339(message.due_ms),
        "delay_ms": message.delay_ms,
        "expires": None if expires_ms is None else rfc_3339(expires_ms),
        "traceparent": message.traceparent,
        **_payload_of(bytes(message.payload), is_json),
    }


def _payload_of(payload: bytes, is_json: bool) -> dict[str, Any]:
    return {"payload": msgspec.Raw(payload)} if is_json else {"payload_base64": b64encode(payload).decode()}


def _checked(fields: dict[str, Any]) -> str:
    if "op" not in fields and fields["traceparent"] is None:
        fields["traceparent"] = current_traceparent()
    return readable(_json_of({name: value for name, value in fields.items() if value is not None}))


def _json_of(fields: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(fields)
    except (TypeError, ValueError, OverflowError) as error:  # not for a message, which is checked before
        raise BadRecord(f"the record can't be written as JSON: {error}", "text for id and key") from None
