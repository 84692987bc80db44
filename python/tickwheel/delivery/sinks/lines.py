"""A message as a record of NDJSON, as it was or could have been given (rule D1)."""

from base64 import b64encode

import msgspec

from tickwheel.delivery.message import Message
from tickwheel.delivery.times import rfc_3339

_encode = msgspec.json.Encoder().encode


def record_of(message: Message) -> bytes:
    """The message as a record that can be given again, without a newline (rule D1)."""
    return _encode({"id": message.id, "key": message.key, "due": rfc_3339(message.due_ms), **_payload(message)})


def _payload(message: Message) -> dict[str, object]:
    if isinstance(message.payload, bytes):
        return {"payload_base64": b64encode(message.payload).decode()}
    return {"payload": message.payload}
