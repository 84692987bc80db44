"""Reads and writes wall times (rule D1): RFC 3339 text and integer milliseconds since 1970-01-01T00:00:00Z.

A time always has a zone. A part finer than a millisecond is rounded up, so that nothing is ever early (D3).
"""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from tickwheel.delivery.errors import BadRecord

MAX_DUE_MS = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z, the last time that RFC 3339 can write."""

ALLOWED = (
    "RFC 3339 with an offset, such as 2026-01-31T08:00:00.000Z or 2026-01-31T09:00:00+01:00, "
    "or an integer of epoch milliseconds, from 1970 to 9999"
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RFC_3339 = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d+))?(?:([Zz])|([+-])(\d\d):(\d\d))?", flags=re.ASCII
)
_EPOCH_MS = re.compile(r"-?\d{1,18}", flags=re.ASCII)


def due_from(value: object, name: str) -> int:
    """The epoch milliseconds of a due time in a record; `name` is for the error.

    >>> due_from("1970-01-01T01:00:00.0001+01:00", "due")
    1
    """
    if isinstance(value, str):
        due_ms = _epoch_ms(value, name)
    elif isinstance(value, int) and not isinstance(value, bool):
        due_ms = value
    else:
        raise BadRecord(f"{name} is neither a time nor an integer", ALLOWED)
    if not 0 <= due_ms <= MAX_DUE_MS:
        raise BadRecord(f"{name} is out of range", ALLOWED)
    return due_ms


def number_or_text(text: str) -> int | str:
    """The value of a text from CSV or the command line, where digits are epoch milliseconds."""
    return int(text) if _EPOCH_MS.fullmatch(text) else text


@lru_cache(2048)  # messages written together have few different times
def rfc_3339(epoch_ms: int) -> str:
    """The time in UTC with milliseconds, as in every output.

    >>> rfc_3339(1)
    '1970-01-01T00:00:00.001Z'
    """
    return (_EPOCH + timedelta(milliseconds=epoch_ms)).isoformat(timespec="milliseconds")[:-6] + "Z"


def _epoch_ms(text: str, name: str) -> int:
    match = _RFC_3339.fullmatch(text)
    if match is None:
        raise BadRecord(f"{name} is not a time: {text[:60]!r}", ALLOWED)
    date, time, fraction, zulu, sign, hours, minutes = match.groups()
    if not zulu and not sign:
        raise BadRecord(f"{name} has no zone: {text[:60]!r}", ALLOWED)
    if sign and (hours > "23" or minutes > "59"):
        raise BadRecord(f"{name} has no such offset: {text[:60]!r}", ALLOWED)
    try:
        since = datetime.fromisoformat(f"{date}T{time}+00:00") - _EPOCH
    except ValueError:
        raise BadRecord(f"{name} is not on the calendar: {text[:60]!r}", ALLOWED) from None
    offset_s = 0 if zulu else int(f"{sign}1") * (int(hours) * 3600 + int(minutes) * 60)
    return (since.days * 86_400 + since.seconds - offset_s) * 1000 + _milliseconds_up(fraction or "")


def _milliseconds_up(fraction: str) -> int:
    return int(fraction[:3].ljust(3, "0")) + (1 if fraction[3:].strip("0") else 0)
