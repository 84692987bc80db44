"""Answers `GET` with the contents of a store (rule D14), as `tickwheel list`, `show`, `dead` and `status` do.

Parameters of a page of messages: `state` (`waiting`, `recurring`, `delivered`, `cancelled`, `dead`, `expired`), `key`,
`due_from`, `due_before` (RFC 3339, or epoch milliseconds), `limit` (1 to 1,000), `cursor`. The answer is `messages,
next`: `next` is the cursor of the next page, null after the last. A page ends early after 4 MiB of ids and keys. With a
filter it may be short or empty, although it is not the last. A page of dead letters has `limit` and `cursor`, and its
answer is `letters, next`.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tickwheel._native import due_of
from tickwheel.delivery.base.errors import BadRecord, StoreFailed, WrongUsage
from tickwheel.delivery.serve.problems import json_response, problem, refuse_query, unavailable
from tickwheel.delivery.serve.threads import Threads
from tickwheel.delivery.sight import InDoubt, NoStore, StoreStatus, StoreView

_PARAMETERS: Final = ("state", "key", "due_from", "due_before", "limit", "cursor")
_PARAMETERS_OF_DEAD: Final = ("limit", "cursor")
_T = TypeVar("_T")


class Listing:
    """Reads the store beside the engine: pages in the threads of `pages`, messages and status in its own threads.

    `with_figures`: adds what only the engine knows of the keys in doubt.
    """

    def __init__(self, view: StoreView, pages: Threads, with_figures: Callable[[InDoubt], InDoubt]) -> None:
        self._view = view
        self._with_figures = with_figures
        self._pages = pages
        self._messages = Threads("messages", 2, 256)
        self._counts = Threads("status", 1, 16)

    async def page(self, request: Request) -> Response:
        """A page of messages."""
        return await self._page(request, _PARAMETERS, self._view.list)

    async def dead(self, request: Request) -> Response:
        """A page of dead letters."""
        return await self._page(request, _PARAMETERS_OF_DEAD, self._view.dead)

    async def status(self, request: Request) -> Response:
        """The store in figures: counted for one request at a time, as it takes a second for ten million messages."""
        refuse_query(request)

        def look() -> StoreStatus:
            found = self._view.status()
            return msgspec.structs.replace(found, in_doubt=self._with_figures(found.in_doubt))

        return json_response(200, await _look(self._counts, look))

    async def details(self, id_: str, key: str | None) -> dict[str, Any]:
        """The store's data about a message; empty if the message has just been forgotten."""
        found = await _look(self._messages, lambda: self._view.show(id_, key))
        return {} if found is None else msgspec.structs.asdict(found)

    async def _page(self, request: Request, parameters: Sequence[str], look: Callable[..., object]) -> Response:
        allowed = f"{request.url.path} with {', '.join(parameters)}, each at most once"
        wanted = _wanted(request.scope["query_string"], parameters, allowed)
        try:
            return json_response(200, await _look(self._pages, lambda: look(**wanted)))
        except WrongUsage as error:
            raise problem(400, str(error), allowed) from error


async def _look(threads: Threads, look: Callable[[], _T]) -> _T:
    try:
        return await threads.run(look)
    except (StoreFailed, NoStore) as error:  # the second: its file was moved
        raise unavailable(error) from error


def _wanted(query_string: bytes, parameters: Sequence[str], allowed: str) -> dict[str, Any]:
    try:
        given = parse_qsl(
            query_string.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(query_string),
            errors="strict",
            max_num_fields=len(parameters),
        )
    except ValueError as error:
        raise problem(400, f"the address can't be read: {error}", allowed) from None
    wanted: dict[str, Any] = dict(given)
    if len(wanted) < len(given) or not wanted.keys() <= set(parameters):
        other = next((name for name in wanted if name not in parameters), "a parameter twice")
        raise problem(400, f"the address has {other!r:.100}", allowed)
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
