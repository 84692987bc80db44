"""The answers of HTTP while the store is not open (rule D9): this process lives, and is not ready.

    before        /livez 200, /readyz 503 `waiting`
    as a standby  /livez 200, /readyz 503 `standby` and which process owns the store, all else 503
    after         what `http.py` says

A second process on a store waits like this, for as long as the first one lives. Only the port of `--health` is open
then; it answers health only, before and after, without tokens and TLS. A standby of a replicated store has its port
open, if the owner has another machine.
"""

import asyncio
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tickwheel.delivery.serve.access import Access
from tickwheel.delivery.serve.answers import Answers
from tickwheel.delivery.serve.guard import HEALTH, Guard
from tickwheel.delivery.serve.http_connection import ALLOWED_HEAD, MAX_HEAD_BYTES, TOO_LARGE_HEAD
from tickwheel.delivery.serve.problems import AGAIN, CLOSE, fault, json_response

REQUESTS: Final = 512
"""Requests at a time; up to half of them may wait for their bodies."""
_ABSOLUTE: Final = re.compile(rb"(?i:https?)://(?P<host>[^/]+)(?P<path>/.*)?", re.DOTALL)
HEALTH_ONLY: Final = "health_only"
"""In the state of a connection to the port of `--health`."""
_AFTER_S: Final = "3"  # about how long a take-over takes
_ALLOW: Final = {"allow": "GET, HEAD, OPTIONS"}
_REFUSED: Final = json_response(
    400, fault("the request has content-length and transfer-encoding", "one of them (RFC 9112, 6.1)"), CLOSE
)
_TOO_LARGE: Final = json_response(431, fault(TOO_LARGE_HEAD, ALLOWED_HEAD), CLOSE)
_STOPPED: Final = json_response(
    503, fault("the server is stopping, and has not waited for the end of this request: it may be done", AGAIN), CLOSE
)


class Application:
    """The application of HTTP, for one event loop."""

    def __init__(self, access: Access) -> None:
        self._guarded = Guard(Answers(self._answer), access, REQUESTS)
        self._opened: ASGIApp = _Waiting({"status": "waiting"})

    def stand_by(self, owner: str) -> None:
        """Until `open`, every request is told that this process owns the store."""
        self._opened = _Waiting({"status": "standby", "reason": owner})

    def open(self, opened: ASGIApp) -> None:
        """From now on this answers."""
        self._opened = opened

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. At the end of the server it is cancelled if that takes too long."""
        has_begun = False

        async def note_and_send(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._respond(_origin_form(scope), receive, note_and_send)
        except asyncio.CancelledError:
            if not has_begun:
                await _STOPPED(scope, receive, send)

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["http_version"] not in ("1.0", "1.1"):
            reason = f"the request has HTTP/{scope['http_version']}"
            await json_response(505, fault(reason, "HTTP/1.1 and HTTP/1.0"), CLOSE)(scope, receive, send)
        elif _head_bytes(scope) > MAX_HEAD_BYTES:  # it came in one piece
            await _TOO_LARGE(scope, receive, send)
        elif _has_two_lengths(scope):
            await _REFUSED(scope, receive, send)
        elif not scope["state"].get(HEALTH_ONLY):
            await self._guarded(scope, receive, send)
        elif scope["path"] in HEALTH and scope["method"] in ("GET", "HEAD"):
            await self._answer(scope, receive, send)
        elif scope["method"] == "OPTIONS":
            await Response(status_code=204, headers=_ALLOW)(scope, receive, send)
        else:
            refusal = fault("this port answers health only", f"GET {', '.join(HEALTH)}")
            status, headers = (405, _ALLOW) if scope["path"] in HEALTH else (404, None)
            await json_response(status, refusal, headers)(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._opened(scope, receive, send)


def _origin_form(scope: Scope) -> Scope:
    """The request without the host in its target, as clients send it to a proxy (RFC 9112, 3.2.2)."""
    found = _ABSOLUTE.fullmatch(scope["raw_path"])
    if found is None:
        return scope
    path = found["path"] or b"/"
    headers = [(b"host", found["host"]), *((name, value) for name, value in scope["headers"] if name != b"host")]
    return {**scope, "path": unquote(path.decode("ascii")), "raw_path": path, "headers": headers}


def _head_bytes(scope: Scope) -> int:
    """Of the request line and the headers, with one space between them."""
    line = len(f"{scope['method']} ? HTTP/1.1\r\n\r\n") + len(scope["raw_path"]) + len(scope["query_string"])
    return line + sum(len(name) + len(value) + 4 for name, value in scope["headers"])


def _has_two_lengths(scope: Scope) -> bool:
    """Whether there are two lengths. A proxy may use the other length than this server does, and then a part of the
    body would look like another request.
    """
    return {b"content-length", b"transfer-encoding"} <= {name for name, _ in scope["headers"]}


class _Waiting:
    """Answers while another process has the store: `not_ready` is the answer to `/readyz`."""

    def __init__(self, not_ready: Mapping[str, str]) -> None:
        self._not_ready = json_response(503, not_ready)
        reason = f"this process is a standby: {not_ready.get('reason')}"
        self._refused = json_response(503, fault(reason, AGAIN), {"retry-after": _AFTER_S})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["path"] == "/readyz":
            answer = self._not_ready
        else:
            answer = json_response(200, {"status": "ok"}) if scope["path"] in HEALTH else self._refused
        await answer(scope, receive, send)
