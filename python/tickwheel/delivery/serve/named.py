"""What has a name and settings, over HTTP: a list, and `PUT`, `GET` and `DELETE` of one. Tenants have no more."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, ClassVar, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tickwheel._native import Receipt
from tickwheel.delivery.base.errors import BadRecord, WrongUsage
from tickwheel.delivery.engine.running import Running
from tickwheel.delivery.model.entries import Answer, RemoveDestination, RemoveTenant, SetDestination, SetTenant
from tickwheel.delivery.model.operations import reply
from tickwheel.delivery.serve.bodies import Bodies
from tickwheel.delivery.serve.listing import Listing
from tickwheel.delivery.serve.problems import decoded, json_response, problem, refuse_query, unavailable
from tickwheel.delivery.serve.threads import Threads

_MOST: Final = 1 << 20


class Named:
    """Those of one `kind`, as the view names it. `ask` gives an item to the engine. `pages`: the threads that look at
    the store.
    """

    kind: ClassVar[str]
    item: ClassVar[type[SetDestination | SetTenant]]
    removed: ClassVar[Callable[..., RemoveDestination | RemoveTenant]]
    settings: ClassVar[str]  # that are allowed
    if_refused: ClassVar[Mapping[str, str]]  # what to do then, by the operation

    def __init__(
        self, running: Running, ask: Callable[..., Awaitable[Receipt]], pages: Threads, bodies: Bodies, listing: Listing
    ) -> None:
        self._running = running
        self._ask = ask
        self._pages = pages
        self._bodies = bodies
        self.routes = [
            Route(f"/{self.kind}s", partial(listing.named, f"{self.kind}s"), methods=["GET"]),
            Route(f"/{self.kind}s/{{name}}", self._one, methods=["PUT", "GET", "DELETE"]),
        ]

    def removal(self, request: Request, name: str) -> RemoveDestination | RemoveTenant:
        """The item that removes one."""
        refuse_query(request)
        return self.removed(name)

    async def _one(self, request: Request) -> Response:
        name = request.path_params["name"]
        if request.method == "DELETE":
            return self._answered("remove", name, await self._submit(self.removal(request, name)))
        refuse_query(request)
        if request.method == "PUT":
            async with self._bodies.receive(request, _MOST) as body:
                settings = decoded(body, dict[str, Any], "a JSON object with the settings")
                text = body.decode()  # as it is: 1.50 in a template is not 1.5
            answer = await self._submit(self.item(name, text))
            why = self._running.engine.why_refused(settings["url"]) if "url" in settings else None
            return self._answered("set", name, answer, {} if why is None else {"warning": why})
        found = await self._pages.run(lambda: getattr(self._running.view, self.kind)(name))
        return self._answered("remove", name, Answer.UNKNOWN) if found is None else json_response(200, found)

    async def _submit(self, item: object) -> Answer:
        try:
            [answer] = (await self._ask(item, format="item")).answers()
        except BadRecord:
            raise
        except WrongUsage as error:
            raise problem(422, str(error), self.settings) from error
        except Exception as error:
            raise unavailable(error) from error
        return answer  # type: ignore[return-value]  # it is no record

    def _answered(self, operation: str, name: str, answer: Answer, more: Mapping[str, str] = {}) -> Response:
        meaning = reply(f"{operation}_{self.kind}", answer)
        if answer is Answer.REFUSED:
            more = {"reason": meaning.sentence, "allowed": self.if_refused[operation]}
        return json_response(meaning.status, {"name": name, "state": answer, **more})


class Tenants(Named):
    """What each tenant may do (D24). No setting sends a payload elsewhere, so the right `control` may set it."""

    kind = "tenant"
    item, removed = SetTenant, RemoveTenant
    settings = "any of concurrency, rate, weight, paused: see the settings of a tenant"
    if_refused: ClassVar = {"set": "open the server with --order key"}
