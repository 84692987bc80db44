"""Hashes of a message for the store: of its name and its lane, 64 bits each, and of its content (rules D4, D5).

The name is `(key, id)`. Two names may have the same number, so after a match the names themselves are compared.
Messages of one key share a lane; two keys may share a lane too, without harm. The content decides whether a second
message with the same name is a duplicate.
"""

from functools import lru_cache
from hashlib import blake2b
from struct import Struct

from tickwheel.delivery.message import Message

_signed_64 = Struct("<q").unpack


def name_of(key: str | None, id_: str) -> int:
    """The number of a name, as a signed 64-bit integer.

    >>> name_of(None, "a") != name_of("", "a")
    True
    """
    text = f"\0{id_}" if key is None else f"{len(key)}:{key}{id_}"
    return _number(text.encode())


@lru_cache(4096)
def lane_of(key: str | None) -> int | None:
    """The number of a key's lane; `None` without a key: such a message waits for no other."""
    if key is None:
        return None
    return _number(key.encode())


def content_of(message: Message) -> bytes:
    """A digest of the content: with a delay as given, not with the due time computed from it.

    15 bytes for JSON and 16 for other bytes, so that JSON and bytes are never the same content.
    """
    payload = message.payload
    if message.delay_ms is not None:
        content = b"+%r %b" % (float(message.delay_ms), payload)
    else:
        content = b"%d %b" % (message.due_ms, payload)
    return blake2b(content, digest_size=16 if isinstance(payload, bytes) else 15).digest()


def _number(text: bytes) -> int:
    number: int
    [number] = _signed_64(blake2b(text, digest_size=8).digest())
    return number
