"""Numbers that stand for a message in the store: 64 bits for its name, its lane and its content (rules D4, D5).

The name is `(key, id)`. Two names may share a number, so whoever finds a number compares the name itself. Messages of
one key share a lane; that two keys may share one too does no harm. The content is what makes a second message with the
same name a duplicate, or not.
"""

from functools import lru_cache
from hashlib import blake2b

import msgspec

from tickwheel.delivery.message import Message

_encode = msgspec.json.Encoder().encode


def name_of(key: str | None, id_: str) -> int:
    """The number of a name, as a signed 64-bit integer.

    >>> name_of(None, "a") != name_of("", "a")
    True
    """
    text = b"\0" + id_.encode() if key is None else b"\1%d:" % len(key) + key.encode() + id_.encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little", signed=True)


@lru_cache(4096)
def lane_of(key: str | None) -> int | None:
    """The number of a key's lane; `None` for no key, which waits for nobody."""
    if key is None:
        return None
    return int.from_bytes(blake2b(key.encode(), digest_size=8, person=b"lane").digest(), "little", signed=True)


def content_of(message: Message) -> bytes:
    """16 bytes of the content: a delay as it was given, not the due time that came of it."""
    when = message.due_ms if message.delay_ms is None else ["delay_ms", message.delay_ms]
    what = message.payload if isinstance(message.payload, bytes) else ["json", message.payload]
    return blake2b(_encode([when, what]), digest_size=16).digest()
