"""Writes a delivery as one line of NDJSON (rule D11), the same for files, standard output and webhooks.

`id, key, due, payload` (or `payload_base64`), `delivered_at, lateness_ms, attempt, redelivered`. Times are RFC 3339 in
UTC with milliseconds; `lateness_ms` is to the microsecond.
"""

from base64 import b64encode

import msgspec

from tickwheel.delivery.message import Message
from tickwheel.delivery.sinks.sink import Delivery
from tickwheel.delivery.times import rfc_3339

_encode = msgspec.json.Encoder().encode


def record_of(message: Message) -> bytes:
    """The message as a record that can be given again, without a newline (rule D1)."""
    return _encode({"id": message.id, "key": message.key, "due": rfc_3339(message.due_ms), **_payload(message)})


def line_of(delivery: Delivery) -> bytes:
    """The line, with its newline."""
    return delivery.line


def _payload(message: Message) -> dict[str, object]:
    if isinstance(message.payload, bytes):
        return {"payload_base64": b64encode(message.payload).decode()}
    return {"payload": message.payload}
