"""`?replace=true` and `&at_latest_ms=N` of `POST /messages`: to take the place of the message of a name (rule D16)."""

import codecs
from collections.abc import Iterator, Mapping
from typing import Final, Self

import msgspec
from starlette.requests import Request

from tickwheel._native import Records
from tickwheel.delivery.base.errors import BadRecord
from tickwheel.delivery.serve.problems import problem

_ALLOWED: Final = "/messages, or /messages?replace=true, and then &at_latest_ms=N if it is put off again and again"
_MOST_DIGITS: Final = 15
_RECURS: Final = BadRecord(
    "a message that recurs can't be debounced", "every or cron without &at_latest_ms in the address"
)


class _Rule(msgspec.Struct):
    every: object = None
    cron: object = None


class Replacing(msgspec.Struct, frozen=True):
    """What the address asks for. `at_latest_ms`: after the first of the requests that put a message off."""

    is_wanted: bool = False
    at_latest_ms: int | None = None

    @classmethod
    def of(cls, request: Request) -> Self:
        """From the query. Errors: 400."""
        given = request.query_params.multi_items()
        wanted = dict(given)
        latest = wanted.pop("at_latest_ms", None)
        is_whole = latest is None or (latest.isascii() and latest.isdecimal() and len(latest) <= _MOST_DIGITS)
        if not given:
            return cls()
        if wanted != {"replace": "true"} or not is_whole or len(given) > 1 + (latest is not None):
            raise problem(400, f"the address asks for {str(request.url.query)!r:.100}", _ALLOWED)
        return cls(True, None if latest is None else int(latest))

    def place(self, records: Records) -> Records:
        """The records, in the place of what they name if that is asked for."""
        return records.replacing(self.at_latest_ms) if self.is_wanted else records

    def check(self, body: bytes) -> None:
        """One record. Errors: 400 if it recurs, and can't be put off."""
        if self.at_latest_ms is not None and _recurs(body.removeprefix(codecs.BOM_UTF8)):
            raise problem(400, _RECURS.reason, _RECURS.allowed)

    def checked(self, body: bytes) -> tuple[bytes, Mapping[int, BadRecord]]:
        """The lines without those that recur and can't be put off, which are empty now; and these, by their numbers."""
        if self.at_latest_ms is None:
            return body, {}
        lines = body.removeprefix(codecs.BOM_UTF8).split(b"\n")
        bad = {number: _RECURS for number, line in enumerate(lines, 1) if _recurs(line)}
        return b"\n".join(b"" if number in bad else line for number, line in enumerate(lines, 1)), bad


def numbered(body: bytes) -> Iterator[int]:
    """The numbers of the lines that have a record."""
    lines = body.removeprefix(codecs.BOM_UTF8).split(b"\n")
    return (number for number, line in enumerate(lines, 1) if line.strip(b" \t\r"))


def _recurs(record: bytes) -> bool:
    """Whether it has a rule; one that can't be read has none, and is refused for that."""
    try:
        rule = msgspec.json.decode(record, type=_Rule)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return rule.every is not None or rule.cron is not None
