"""Shows a message by its name: its content and its state."""

import base64

import msgspec

from tickwheel._native import StoreSnapshot
from tickwheel.delivery.sight.messages import Seen, seen, time_of


class Details(Seen, frozen=True, kw_only=True):
    """A message with its content, as long as the store has it: the payload, as JSON or as bytes in base64; `expires`
    and `traceparent`, if it has them. `seq`: its number. `key_paused_since`: only of a waiting or recurring message, if
    its key is paused. `next_id`: only of a recurring message; the id of its open occurrence.
    """

    seq: int
    next_id: str | None = None
    key_paused_since: str | None = None
    payload: msgspec.Raw | None = None
    payload_base64: str | None = None
    expires: str | None = None
    traceparent: str | None = None


def show_message(db: StoreSnapshot, id_: str, key: str | None) -> Details | None:
    """The newest message with this name; `None`: it has not come, or is forgotten. Errors: `StoreFailed`.

    The time and the lateness of an outcome come from a part of the ledger: for a delivered message, the 300,000 rows
    from its due time on; for other outcomes, the last 300,000 rows. If the outcome is not there, they are missing.
    """
    found = db.show(id_, key)
    if found is None:
        return None
    message, content = found
    payload, is_json = content["payload"] or (b"", None)
    return Details(
        **seen(message),
        seq=message["seq"],
        next_id=content["next_id"],
        key_paused_since=time_of(content["key_paused_ms"]),
        payload=msgspec.Raw(payload) if is_json else None,
        payload_base64=base64.b64encode(payload).decode() if is_json is False else None,
        expires=time_of(content["expires_ms"]),
        traceparent=content["traceparent"],
    )
