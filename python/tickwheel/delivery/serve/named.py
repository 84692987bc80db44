"""What has a name and settings, over HTTP: `PUT`, `GET` and `DELETE` of `/KIND/{name}`, and a list."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tickwheel._native import Receipt
from tickwheel.delivery.base.errors import BadRecord, WrongUsage
from tickwheel.delivery.engine.running import Running
from tickwheel.delivery.model.entries import Answer
from tickwheel.delivery.model.operations import reply
from tickwheel.delivery.serve.bodies import Bodies
from tickwheel.delivery.serve.problems import decoded, json_response, problem, refuse_query, unavailable
from tickwheel.delivery.serve.threads import Threads

_MOST: Final = 1 << 20
_OBJECT: Final = "a JSON object with the settings"


class Named:
    """Of one kind. `ask` gives an item to the engine. `pages`: the threads that look at the store."""

    kind: ClassVar[str]
    """`destination` or `tenant`: the method of the view that shows one."""
    settings: ClassVar[str]
    """The allowed settings, for the text of an error."""

    def __init__(
        self, running: Running, ask: Callable[..., Awaitable[Receipt]], pages: Threads, bodies: Bodies, list_: Any
    ) -> None:
        self._running = running
        self._ask = ask
        self._pages = pages
        self._bodies = bodies
        self.routes = [
            Route(f"/{self.kind}s", list_, methods=["GET"]),
            Route(f"/{self.kind}s/{{name}}", self._one, methods=["PUT", "GET", "DELETE"]),
        ]

    async def set(self, name: str, text: str, settings: Mapping[str, Any]) -> Response:
        """Set one. `text`: the settings as they were given."""
        raise NotImplementedError

    async def remove(self, request: Request, name: str) -> Response:
        """Remove one."""
        raise NotImplementedError

    async def _one(self, request: Request) -> Response:
        name = request.path_params["name"]
        if request.method == "DELETE":
            return await self.remove(request, name)
        refuse_query(request)
        if request.method == "PUT":
            async with self._bodies.receive(request, _MOST) as body:
                settings = decoded(body, dict[str, Any], _OBJECT)
                text = body.decode()  # as it is: 1.50 in a template is not 1.5
            return await self.set(name, text, settings)
        found = await self._pages.run(lambda: getattr(self._running.view, self.kind)(name))
        return unknown(name) if found is None else json_response(200, found)

    async def submit(self, item: object) -> Answer:
        """The answer of the engine. Errors: `BadRecord`, 422 for a setting, 503."""
        try:
            [answer] = (await self._ask(item, format="item")).answers()
        except BadRecord:
            raise
        except WrongUsage as error:
            raise problem(422, str(error), self.settings) from error
        except Exception as error:
            raise unavailable(error) from error
        return answer  # type: ignore[return-value]  # it is no record


def unknown(name: str) -> Response:
    """404."""
    return json_response(404, {"name": name, "state": Answer.UNKNOWN})


def answered(operation: str, name: str, answer: Answer, allowed: str, **more: str) -> Response:
    """The answer to an operation. `allowed`: what to do if it is refused; `more`: what else to tell if it is not."""
    meaning = reply(operation, answer)
    why = {"reason": meaning.sentence, "allowed": allowed} if answer is Answer.REFUSED else more
    return json_response(meaning.status, {"name": name, "state": answer, **why})
