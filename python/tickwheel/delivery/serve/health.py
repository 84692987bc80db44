"""Shows whether this process is to be ended, and whether it can be given work (rules D6, D12). Nothing else is shown.

No token is needed.

| request | 200 | 503 |
|---|---|---|
| `GET /livez`, `/healthz` | it works, or waits | `failed`: delivery has failed, start it again |
| `GET /readyz` | due messages go out | `failed`; `down`: the destination is down, messages are accepted and wait; |
| | | `store`: it can't be written now, so nothing is accepted or sent until it can; |
| | | `no descriptors`: the process may open no more files, so pages and sends fail |

If named destinations are down, `/readyz` says how many, and is ready: messages to the others go out.

The threads for requests are started before the port is open (`threads.py`), so they are not looked at. Before the store
is open, `application.py` answers.
"""

import contextlib
import os
from collections.abc import Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tickwheel.delivery.engine.running import Running
from tickwheel.delivery.serve.problems import json_response

_DESCRIPTORS: Final = 8  # a page opens the store, its log, their index and its folder; a send, a connection


def health_routes(running: Running) -> Sequence[Route]:
    """The routes."""

    async def live(_request: Request) -> Response:
        return _told("failed" if _has_failed(running) else None)

    async def ready(_request: Request) -> Response:
        if _has_failed(running):
            return _told("failed")
        if not _has_descriptors():
            return _told("no descriptors")
        if running.engine.waits_for_store:
            return _told("store")
        if running.engine.down:
            return _told("down")
        down = running.engine.destinations_down
        return json_response(200, {"status": "ok", "destinations_down": down}) if down else _told(None)

    routes = {"/livez": live, "/healthz": live, "/readyz": ready}
    return [Route(path, handler, methods=["GET"]) for path, handler in routes.items()]


def _has_failed(running: Running) -> bool:
    try:
        running.check()
    except BaseException:  # any exception that a function of the program has raised
        return True
    return False


def _has_descriptors() -> bool:
    with contextlib.ExitStack() as opened:
        try:
            for _ in range(_DESCRIPTORS):
                opened.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        except OSError:
            return False
    return True


def _told(trouble: str | None) -> Response:
    return json_response(200, {"status": "ok"}) if trouble is None else json_response(503, {"status": trouble})
