"""Actions on many messages over HTTP (rule D16).

The filters are `key`, `key_prefix`, `due_from`, `due_before`, `destination` and `tenant`; a message must match all
given ones. Without a filter: `"all": true`. `id`: a name of the client's own, so that it can repeat a request that got
no answer.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Literal, TypeAlias

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.delivery.model.bulk import act_of, why_refused
from tickwheel.delivery.model.entries import Act, Answer
from tickwheel.delivery.model.operations import reply
from tickwheel.delivery.serve.bodies import Bodies
from tickwheel.delivery.serve.guard import limits_of
from tickwheel.delivery.serve.problems import decoded, json_response, problem, refuse_query
from tickwheel.delivery.serve.threads import Threads
from tickwheel.delivery.sight import Action, NoStore, StoreView

_MOST: Final = 1 << 22  # a key may have 1 MiB, and as much again in escapes
_ALLOWED: Final = (
    '{"kind": "cancel" or "requeue"} with key, key_prefix, due_from, due_before, destination, tenant, or "all": true;'
    " and an id if you like"
)

Ask: TypeAlias = Callable[[Act], Awaitable[Answer]]


class _Asked(msgspec.Struct, forbid_unknown_fields=True):
    kind: Literal["cancel", "requeue"]
    id: str | None = None
    key: str | None = None
    key_prefix: str | None = None
    due_from: str | int | None = None
    due_before: str | int | None = None
    destination: str | None = None
    tenant: str | None = None
    all: bool = False


class Actions:
    """`ask` gives an item to the engine, `view` looks at the store in the threads of `pages`."""

    def __init__(self, ask: Ask, view: StoreView, pages: Threads, bodies: Bodies) -> None:
        self._ask = ask
        self._view = view
        self._pages = pages
        self._bodies = bodies
        self.routes = [
            Route("/actions", self._begin, methods=["POST"]),
            Route("/actions", self._list, methods=["GET"]),
            Route("/actions/{id:path}", self._show, methods=["GET"]),
        ]

    async def _begin(self, request: Request) -> Response:
        refuse_query(request)
        async with self._bodies.receive(request, _MOST) as body:
            asked = msgspec.structs.asdict(decoded(body, _Asked, _ALLOWED))
            if (kind := _missing(request, asked)) is not None:
                raise problem(403, f"this token is limited to {kind}s, and the request names none of them", _ALLOWED)
            try:
                act = act_of(asked.pop("kind"), **asked, how_all='"all": true')
            except WrongUsage as error:
                raise problem(400, str(error), _ALLOWED) from error
        answer = await self._ask(act)
        status, refused = reply("act", answer).status, why_refused(act, answer)
        if refused is not None:
            raise problem(status, refused.reason, refused.allowed)
        return json_response(status, {"id": act.id, "state": answer})

    async def _list(self, request: Request) -> Response:
        refuse_query(request)
        return json_response(200, {"actions": await self._read(None)})

    async def _show(self, request: Request) -> Response:
        refuse_query(request)
        id_ = request.path_params["id"]
        found = [it for it in await self._read(id_) if _missing(request, msgspec.structs.asdict(it)) is None]
        if not found:
            return json_response(404, {"id": id_, "state": Answer.UNKNOWN})
        return json_response(200, found[0])

    async def _read(self, id_: str | None) -> list[Action]:
        try:
            return [*await self._pages.run(lambda: self._view.actions(id_))]
        except NoStore:
            raise
        except WrongUsage as error:
            raise problem(400, str(error), "/actions/{id}") from error


def _missing(request: Request, filters: Mapping[str, object]) -> str | None:
    """Which filter is not within the limits of the token: `destination` or `tenant`; `None`: all are."""
    return next((kind for kind, names in limits_of(request).items() if filters[kind] not in names), None)
