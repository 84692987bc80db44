"""Answers `GET` with the contents of a store (rule D14), as `tickwheel list`, `show`, `dead` and `status` do.

`StoreView` and `docs/openapi.yaml` describe the parameters and the pages.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tickwheel._native import due_of
from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.delivery.serve.problems import json_response, parameters, problem, refuse_query
from tickwheel.delivery.serve.threads import Threads
from tickwheel.delivery.sight import NoStore, StoreStatus, StoreView

_PARAMETERS: Final = ("state", "key", "destination", "tenant", "until", "due_from", "due_before", "limit", "cursor")
_PARAMETERS_OF_DEAD: Final = ("destination", "tenant", "limit", "cursor")
_PARAMETERS_OF_A_PAGE: Final = ("limit", "cursor")


class Listing:
    """Reads the store beside the engine: pages in the threads of `pages`, messages and status in its own threads.

    `status`: the store in figures, with those of the engine.
    """

    def __init__(self, view: StoreView, pages: Threads, status: Callable[[], StoreStatus]) -> None:
        self._view = view
        self._status = status
        self._pages = pages
        self._messages = Threads("messages", 2, 256)
        self._counts = Threads("status", 1, 16)

    async def page(self, request: Request) -> Response:
        """A page of messages."""
        return await self._page(request, _PARAMETERS, self._view.list)

    async def dead(self, request: Request) -> Response:
        """A page of dead letters."""
        return await self._page(request, _PARAMETERS_OF_DEAD, self._view.dead)

    async def named(self, kinds: str, request: Request) -> Response:
        """A page of named `destinations`, or of `tenants`."""
        return await self._page(request, _PARAMETERS_OF_A_PAGE, getattr(self._view, kinds))

    async def status(self, request: Request) -> Response:
        """The store in figures: counted for one request at a time, as it takes a second for ten million messages."""
        refuse_query(request)
        return json_response(200, await self._counts.run(self._status))

    async def details(self, id_: str, key: str | None) -> dict[str, Any]:
        """The store's data about a message; empty if the message has just been forgotten."""
        found = await self._messages.run(lambda: self._view.show(id_, key))
        return {} if found is None else msgspec.structs.asdict(found)

    async def _page(self, request: Request, names: Sequence[str], look: Callable[..., object]) -> Response:
        allowed = f"{request.url.path} with {', '.join(names)}, each at most once"
        wanted = _wanted(request, names, allowed)
        try:
            return json_response(200, await self._pages.run(lambda: look(**wanted)))
        except NoStore:
            raise
        except WrongUsage as error:
            raise problem(400, str(error), allowed) from error


def _wanted(request: Request, names: Sequence[str], allowed: str) -> dict[str, Any]:
    wanted: dict[str, Any] = parameters(request, names, allowed)
    for name in ("due_from", "due_before"):
        if name in wanted:
            wanted[name] = due_of(wanted[name], name)
    if wanted.get("until") == "":
        raise problem(400, "until is empty", "until: the name of an event")
    if "limit" in wanted:
        if not (wanted["limit"].isascii() and wanted["limit"].isdecimal() and len(wanted["limit"]) < 10):
            raise problem(400, f"limit is {wanted['limit']!r:.100}", "limit: 1 to 1,000")
        wanted["limit"] = int(wanted["limit"])
    return wanted
