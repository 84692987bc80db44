"""What `GET` shows of messages (rule D14), as `tickwheel list` and `show` do.

Parameters of a page: `state` (`waiting`, `delivered`, `cancelled`, `dead`,
`expired`), `key`, `due_from`, `due_before` (RFC 3339,
or epoch milliseconds), `limit` (1 to 1,000), `cursor`. The answer is `messages, next`: `next` is the cursor of the next
page, null after the last. With a filter a page may be short, or empty, and not the last.
"""

import asyncio
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tickwheel._native import due_of
from tickwheel.delivery.errors import BadRecord, StoreFailed, WrongUsage
from tickwheel.delivery.serve.problems import AGAIN, json_response, problem
from tickwheel.delivery.sight import StoreView

_PARAMETERS: Final = ("state", "key", "due_from", "due_before", "limit", "cursor")
_ALLOWED: Final = f"/messages with {', '.join(_PARAMETERS)}, each at most once"


class Listing:
    """Reads the store beside the engine, in threads."""

    def __init__(self, view: StoreView) -> None:
        self._view = view

    async def page(self, request: Request) -> Response:
        """A page of messages."""
        wanted = _wanted(request.scope["query_string"])
        try:
            return json_response(200, await asyncio.to_thread(lambda: self._view.list(**wanted)))
        except WrongUsage as error:
            raise problem(400, str(error), _ALLOWED) from error
        except StoreFailed as error:
            raise problem(503, str(error), AGAIN) from error

    async def details(self, id_: str, key: str | None) -> dict[str, Any]:
        """What the store has of a message; nothing, if it was forgotten in this moment."""
        try:
            found = await asyncio.to_thread(self._view.show, id_, key)
        except StoreFailed as error:
            raise problem(503, str(error), AGAIN) from error
        return {} if found is None else msgspec.structs.asdict(found)


def _wanted(query_string: bytes) -> dict[str, Any]:
    try:
        given = parse_qsl(
            query_string.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(query_string),
            errors="strict",
            max_num_fields=len(_PARAMETERS),
        )
    except ValueError as error:
        raise problem(400, f"the address can't be read: {error}", _ALLOWED) from None
    wanted: dict[str, Any] = dict(given)
    if len(wanted) < len(given) or not wanted.keys() <= set(_PARAMETERS):
        other = next((name for name in wanted if name not in _PARAMETERS), "a parameter twice")
        raise problem(400, f"the address has {other!r:.100}", _ALLOWED)
    try:
        for name in ("due_from", "due_before"):
            if name in wanted:
                wanted[name] = due_of(wanted[name], name)
    except BadRecord as error:
        raise problem(400, error.reason, error.allowed) from error
    if "limit" in wanted:
        if not (wanted["limit"].isascii() and wanted["limit"].isdecimal() and len(wanted["limit"]) < 10):
            raise problem(400, f"limit is {wanted['limit']!r:.100}", "limit: 1 to 1,000")
        wanted["limit"] = int(wanted["limit"])
    return wanted
