"""Formats names and times for a page."""

from typing import Final

from tickwheel._native import rfc_3339
from tickwheel._printable import ESCAPES

SHOWN: Final = 120
"""The most characters of a name."""

_DAY_MS: Final = 86_400_000
_PICTURES: Final = ESCAPES | {code: chr(0x2400 + code) for code in range(32)} | {127: "\u2421"}


def shown_text(text: str | bytes, most: int = SHOWN) -> str:
    """At most `most` characters. Control characters of ASCII become pictures (␀). Other controls, invisible signs and
    those for writing from right to left become escapes, because one name may look like another with them.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    text = text.translate(_PICTURES)
    return text if len(text) <= most else f"{text[:most]}…"


def utc(epoch_ms: int, step_ms: int = 1) -> str:
    """RFC 3339 in UTC, with no more digits than the start of a step of this size needs; at most its last time.

    >>> utc(60_000), utc(60_000, 60_000), utc(86_400_000, 86_400_000)
    ('1970-01-01T00:01:00.000Z', '1970-01-01T00:01Z', '1970-01-02')
    """
    text = rfc_3339(epoch_ms)
    if step_ms % _DAY_MS == 0:
        return text[:10]
    if step_ms % 60_000 == 0:
        return text[:16] + "Z"
    return text[:19] + "Z" if step_ms % 1_000 == 0 else text
