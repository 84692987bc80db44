"""The records of an outbox: messages, cancels and other due times as lines of NDJSON (rule D1).

A record is checked before it is written, by the same code that reads it later. A fault is therefore an error in the
caller's transaction, and not a dead letter later.
"""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from tickwheel._native import read_records, record_fields, rfc_3339
from tickwheel.delivery.base.errors import BadRecord, WrongUsage
from tickwheel.delivery.model.entries import Event
from tickwheel.delivery.model.message import MAX_PAYLOAD, Message
from tickwheel.delivery.model.payloads import json_of
from tickwheel.delivery.observe.tracing import current_traceparent


def record_of(given: Message | Mapping[str, Any] | Sequence[Any]) -> str:
    """The record of a message, which is given as to `DeliveryQueue.put_many`. Errors: `BadRecord`, `WrongUsage`."""
    if isinstance(given, Mapping) and (given.get("replace") or given.get("debounce_ms") is not None):
        raise WrongUsage("a message of an outbox can't replace another: leave out replace, debounce_ms, at_latest_ms")
    fields = {"traceparent": current_traceparent()} | record_fields(fields_of(given))
    read_records(given, format="item")  # its errors say more than those of a record
    payload = fields.pop("payload")
    if isinstance(payload, bytes):
        return _checked(fields | {"payload_base64": b64encode(payload).decode()})
    return _checked(fields | {"payload": payload})


def cancel_record(id: object, key: object) -> str:  # noqa: A002
    """The record that cancels a message. Errors: `BadRecord`."""
    return _checked({"op": "cancel", "id": id, "key": key})


def reschedule_record(id: object, key: object, due: object, delay_ms: object) -> str:  # noqa: A002
    """The record that gives a message another due time. Errors: `BadRecord`."""
    fields = record_fields({"id": id, "key": key, "due": due, "delay_ms": delay_ms})
    del fields["payload"]
    return _checked({"op": "reschedule", **fields})


def event_record(it: Event, max_payload: int = MAX_PAYLOAD) -> str:
    """The record of an event. Errors: `BadRecord`, `WrongUsage`."""
    remember_ms, payload = it.remember_ms, it.payload
    if isinstance(remember_ms, timedelta):
        remember_ms //= timedelta(milliseconds=1)
    fields = {"op": "event", "id": it.id, "key": it.key, "event": it.event, "remember_ms": remember_ms}
    if isinstance(payload, bytes):
        return _checked(fields | {"payload_base64": b64encode(payload).decode()}, max_payload)
    return _checked(fields | {"payload": None if payload is None else msgspec.Raw(json_of(payload))}, max_payload)


def readable(record: bytes, max_payload: int = MAX_PAYLOAD) -> str:
    """The record as text. Errors: `BadRecord` if the reader would make it a dead letter."""
    [records] = read_records(record, format="lines", max_payload=max_payload)
    for item in records.to_list():
        if isinstance(item, BadRecord):
            raise item
    return record.decode()


def fields_of(given: Any) -> Any:
    """The arguments of `put`, if it is a `Message`; any other as it is."""
    if not isinstance(given, Message):
        return given
    has_delay, expires_ms = given.delay_ms is not None, given.expires_ms
    return {
        "id": given.id,
        "key": given.key,
        "due": None if has_delay else rfc_3339(given.due_ms),
        "delay_ms": given.delay_ms,
        "expires": None if expires_ms is None else rfc_3339(expires_ms),
        "traceparent": given.traceparent,
        "destination": given.destination,
        "tenant": given.tenant,
        "until_event": given.until_event,
        "payload": {} if given.payload is None else given.payload,
    }


def _checked(fields: Mapping[str, Any], max_payload: int = MAX_PAYLOAD) -> str:
    try:
        record = msgspec.json.encode({name: value for name, value in fields.items() if value is not None})
    except (TypeError, ValueError, OverflowError) as error:  # not for a message, which is checked before
        raise BadRecord(f"the record can't be written as JSON: {error}", "text for id and key") from None
    return readable(record, max_payload)
