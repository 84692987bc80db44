"""`?replace=true` and `&at_latest_ms=N` of `POST /messages`: to take the place of the message of a name (rule D16)."""

from typing import Final, Self

import msgspec
from starlette.requests import Request

from tickwheel._native import Records
from tickwheel.delivery.serve.problems import problem

_ALLOWED: Final = "/messages, or /messages?replace=true, and then &at_latest_ms=N if it is put off again and again"
_MOST_DIGITS: Final = 15


class Replacing(msgspec.Struct, frozen=True):
    """The parameters in the address. `at_latest_ms`: counts from the first of the requests that put a message off."""

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
        """The records; if the address asks for it, they replace the messages with their names."""
        return records.replacing(self.at_latest_ms) if self.is_wanted else records
