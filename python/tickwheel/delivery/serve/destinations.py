"""Named destinations over HTTP (rule D23): `PUT`, `GET`, `DELETE /destinations/{name}`, a list, and a test send.

All of them need the right `destinations`: settings have headers, which may be secrets too. What is set is literal, so
`env:` and `file:` mean nothing here. Secrets are only written.
"""

from typing import Any, ClassVar, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tickwheel.delivery.model.entries import Answer, RemoveDestination, SetDestination
from tickwheel.delivery.serve.named import Named
from tickwheel.delivery.serve.problems import AGAIN, json_response, parameters, problem, refuse_query
from tickwheel.delivery.serve.threads import Threads

_REMOVED: Final = "/destinations/{name}, or /destinations/{name}?messages=dead"


class Destinations(Named):
    """Their routes."""

    kind = "destination"
    item = SetDestination
    settings = (
        "url, and if you like headers, secrets, body, certificates, rate, concurrency, spare, waits_s, sink_timeout_s,"
        " disable_after_days, paused: see the settings of a destination"
    )
    if_refused: ClassVar = {
        "set": "open the server with --to named, or with a webhook",
        "remove": "?messages=dead makes dead letters of them",
    }

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._tests = Threads("destination-tests", 16, 16)  # none waits for another one, which may hang
        self._tested: set[str] = set()
        self.routes.append(Route("/destinations/{name}/test", self._test, methods=["POST"]))

    def removal(self, request: Request, name: str) -> RemoveDestination:
        """With its messages if the address says so."""
        given = parameters(request, ("messages",), _REMOVED)
        if given.get("messages", "dead") != "dead":
            raise problem(400, "messages can only become dead letters", _REMOVED)
        return RemoveDestination(name, bool(given))

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
            return self._answered("remove", name, Answer.UNKNOWN)
        state, error, took_ms = found
        return json_response(200, {"name": name, "state": state, "error": error, "took_ms": round(took_ms, 3)})
