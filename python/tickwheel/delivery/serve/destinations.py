"""Named destinations over HTTP (rule D23): `PUT`, `GET`, `DELETE /destinations/{name}`, a list, and a test send.

All of them need the right `destinations`: settings have headers, which may be secrets too. What is set is literal, so
`env:` and `file:` mean nothing here. Secrets are only written.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tickwheel._native import Receipt
from tickwheel.delivery.base.errors import BadRecord, WrongUsage
from tickwheel.delivery.engine.running import Running
from tickwheel.delivery.model.entries import Answer, RemoveDestination, SetDestination
from tickwheel.delivery.model.operations import reply
from tickwheel.delivery.serve.bodies import Bodies
from tickwheel.delivery.serve.problems import (
    AGAIN,
    decoded,
    json_response,
    parameters,
    problem,
    refuse_query,
    unavailable,
)
from tickwheel.delivery.serve.threads import Threads

_MOST: Final = 1 << 20
_OBJECT: Final = "a JSON object with the settings"
_ALLOWED: Final = (
    "url, and if you like headers, secrets, body, certificates, rate, concurrency, spare, waits_s, sink_timeout_s,"
    " disable_after_days, paused: see the settings of a destination"
)
_REMOVED: Final = "/destinations/{name}, or /destinations/{name}?messages=dead"


class Destinations:
    """`ask` gives an item to the engine. `pages`: the threads that look at the store."""

    def __init__(
        self, running: Running, ask: Callable[..., Awaitable[Receipt]], pages: Threads, bodies: Bodies, list_: Any
    ) -> None:
        self._running = running
        self._ask = ask
        self._pages = pages
        self._bodies = bodies
        self._tests = Threads("destination-tests", 16, 16)  # none waits for another one, which may hang
        self._tested: set[str] = set()
        self.routes = [
            Route("/destinations", list_, methods=["GET"]),
            Route("/destinations/{name}", self._one, methods=["PUT", "GET", "DELETE"]),
            Route("/destinations/{name}/test", self._test, methods=["POST"]),
        ]

    async def _one(self, request: Request) -> Response:
        name = request.path_params["name"]
        if request.method == "PUT":
            return await self._set(request, name)
        if request.method == "DELETE":
            return await self._remove(request, name)
        refuse_query(request)
        found = await self._pages.run(lambda: self._running.view.destination(name))
        return _unknown(name) if found is None else json_response(200, found)

    async def _set(self, request: Request, name: str) -> Response:
        refuse_query(request)
        async with self._bodies.receive(request, _MOST) as body:
            url = decoded(body, dict[str, Any], _OBJECT).get("url", "")
            settings = body.decode()  # as it is: 1.50 in a template is not 1.5
        answer = await self._submit(SetDestination(name, settings))
        warning = None if answer is Answer.REFUSED else self._running.engine.why_refused(url)
        more = {} if warning is None else {"warning": warning}
        return _answer("set_destination", name, answer, "open the server with --to named, or with a webhook", **more)

    async def _remove(self, request: Request, name: str) -> Response:
        given = parameters(request, ("messages",), _REMOVED)
        if given.get("messages", "dead") != "dead":
            raise problem(400, "messages can only become dead letters", _REMOVED)
        answer = await self._submit(RemoveDestination(name, bool(given)))
        return _answer("remove_destination", name, answer, "?messages=dead makes dead letters of them")

    async def _test(self, request: Request) -> Response:
        refuse_query(request)
        name = request.path_params["name"]
        if name in self._tested:  # else those of one that hangs take all threads
            raise problem(503, "another test of this destination is under way", AGAIN, {"retry-after": "1"})
        self._tested.add(name)
        try:
            found = await self._tests.run(lambda: self._running.engine.test_destination(name))
        finally:
            self._tested.discard(name)
        if found is None:
            return _unknown(name)
        state, error, took_ms = found
        return json_response(200, {"name": name, "state": state, "error": error, "took_ms": round(took_ms, 3)})

    async def _submit(self, item: object) -> Answer:
        try:
            [answer] = (await self._ask(item, format="item")).answers()
        except BadRecord:
            raise
        except WrongUsage as error:
            raise problem(422, str(error), _ALLOWED) from error
        except Exception as error:
            raise unavailable(error) from error
        return answer  # type: ignore[return-value]  # it is no record


def _unknown(name: str) -> Response:
    return json_response(404, {"name": name, "state": Answer.UNKNOWN})


def _answer(operation: str, name: str, answer: Answer, allowed: str, **more: str) -> Response:
    meaning = reply(operation, answer)
    why = {"reason": meaning.sentence, "allowed": allowed} if answer is Answer.REFUSED else more
    return json_response(meaning.status, {"name": name, "state": answer, **why})
