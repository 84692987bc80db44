"""Checks the sender and the right of a request before its body is read, and limits the requests at a time (D12).

A request counts from this check on until its answer begins, so that a client that does not read takes no place of
others. A request that needs no token, or has no valid one, never counts. It waits only for its reader.

| request | right |
|---|---|
| `/hand-off`, `/hand-off/marks` | hand-off |
| `/destinations`, and all below it | destinations |
| `GET`, `HEAD` | read |
| `POST /messages` | produce |
| `POST /pause` and `/resume` with `?destination=` | control or destinations |
| any other | control |
| `/healthz`, `/livez`, `/readyz` | none, and no token; they show nothing else |
| `GET /` | none, and no token: a page without any figures, which asks for a token |
| `OPTIONS` | none, and no token: it shows the methods of an address |

A token that is limited to destinations is good for requests alone that name one of them: in the path, `destination=`,
or in the body (`POST /messages` and `/actions`), where the handler looks at it. Of tenants the same is true.
"""

from collections.abc import Mapping
from typing import Final, cast
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tickwheel.delivery.serve.access import Access, Fetched, Refusal
from tickwheel.delivery.serve.http_connection import IS_KNOWN
from tickwheel.delivery.serve.problems import AGAIN, CLOSE, fault, json_response, problem
from tickwheel.delivery.serve.tokens import LIMITS, Right

_OF_THEIR_OWN: Final = {"hand-off": Right.HAND_OFF, "destinations": Right.DESTINATIONS}
_BY_QUERY: Final = {("GET", "/messages"), ("GET", "/dead"), ("POST", "/pause"), ("POST", "/resume")}
_BY_BODY: Final = {("POST", "/messages"), ("POST", "/actions")}
_LIMITS: Final = "limits"
HEALTH: Final = ("/livez", "/readyz", "/healthz")
"""Paths that show only a word."""


class Guard:
    """Around an application. `most`: requests at a time; what needs no token is answered beyond this limit too."""

    def __init__(self, inner: ASGIApp, access: Access, most: int) -> None:
        self._inner = inner
        self._access = access
        self._left = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or answer 401, 403 or 503."""
        tokens = self._access.tokens

        async def receive_with_token() -> Message:
            message = await receive()
            is_body = message["type"] == "http.request" and needs_token(scope)
            if is_body and self._access.tokens is not tokens and (refusal := self._refusal(scope)):
                raise problem(401, refusal.reason, refusal.allowed, CLOSE)  # it was taken back during the body
            return message

        is_counted = False

        def gives_back() -> None:
            nonlocal is_counted
            self._left += is_counted
            is_counted = False

        async def give_back_and_send(message: Message) -> None:
            gives_back()
            await send(message)  # may wait for the reader

        app = self._app(scope)
        if app is self._inner and needs_token(scope):
            is_counted = True
            self._left -= 1
        try:
            await app(scope, receive_with_token, give_back_and_send)
        finally:
            gives_back()

    def _refusal(self, scope: Scope) -> Refusal | None:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        method, path, query = scope["method"], scope["path"], scope["query_string"]
        found = self._access.granted(given, right_of(method, path, query), named_by(method, path, query))
        if isinstance(found, Refusal):
            return found
        scope["state"][_LIMITS] = found.limits
        return None

    def _app(self, scope: Scope) -> ASGIApp:
        headers: list[tuple[bytes, bytes]] = scope["headers"]

        def every(name: bytes) -> list[bytes]:
            return [value for each, value in headers if each == name]

        if scope["path"] in HEALTH:
            return self._inner
        fetched = Fetched(*(b"".join(every(name)) for name in (b"sec-fetch-site", b"sec-fetch-dest")))
        if reason := self._access.why_foreign(every(b"host"), every(b"origin"), fetched):
            allowed = (
                "programs on this machine, with its own name in Host; or serve with tokens, for any Host and any sender"
            )
            return json_response(403, fault(reason, allowed))
        if needs_token(scope):
            if refusal := self._refusal(scope):
                more = {} if refusal.is_known else {"www-authenticate": "Bearer"}
                return json_response(403 if refusal.is_known else 401, fault(refusal.reason, refusal.allowed), more)
            if self._access.tokens is not None:
                scope["state"][IS_KNOWN]()
            if self._left <= 0:
                return json_response(503, fault("too many requests at a time", AGAIN), {"retry-after": "1"})
        return self._inner


def needs_token(scope: Scope) -> bool:
    """Whether a request needs a token, on a server with tokens."""
    if scope["path"] in HEALTH or scope["method"] == "OPTIONS":
        return False
    return scope["path"] != "/" or scope["method"] not in ("GET", "HEAD")


def limits_of(request: Request) -> Mapping[str, frozenset[str]]:
    """The limits of the token of an accepted request."""
    return cast("Mapping[str, frozenset[str]]", request.scope["state"][_LIMITS])


def named_by(method: str, path: str, query: bytes) -> dict[str, list[str]] | None:
    """Each `destination` and `tenant` that a request names in its address; `None`: its body names them, or what it asks
    for.
    """
    first, _, rest = path.removeprefix("/").partition("/")
    if first.removesuffix("s") in LIMITS:
        return {first.removesuffix("s"): [rest.partition("/")[0]]}
    if (method, path) in _BY_BODY or (method == "GET" and first == "actions" and rest):
        return None
    given = parse_qsl(query.decode("latin-1"), keep_blank_values=True) if (method, path) in _BY_QUERY else []
    return {kind: [value for name, value in given if name == kind] for kind in LIMITS}


def right_of(method: str, path: str, query: bytes = b"") -> Right:
    """The right that a request needs; of several, any.

    >>> right_of("POST", "/messages"), right_of("POST", "/pause"), right_of("GET", "/messages/a")
    (<Right.PRODUCE: 1>, <Right.CONTROL: 2>, <Right.READ: 4>)
    >>> right_of("POST", "/hand-off"), right_of("GET", "/hand-off/marks"), right_of("GET", "/messages/hand-off")
    (<Right.HAND_OFF: 8>, <Right.HAND_OFF: 8>, <Right.READ: 4>)
    >>> right_of("GET", "/destinations"), right_of("PUT", "/destinations/acme")
    (<Right.DESTINATIONS: 16>, <Right.DESTINATIONS: 16>)
    >>> right_of("POST", "/pause", b"destination=acme")
    <Right.CONTROL|DESTINATIONS: 18>
    """
    first = path.partition("/")[2].partition("/")[0]
    if first in _OF_THEIR_OWN:
        return _OF_THEIR_OWN[first]
    if method in ("GET", "HEAD"):
        return Right.READ
    if path in ("/pause", "/resume") and query.startswith(b"destination="):
        return Right.CONTROL | Right.DESTINATIONS
    return Right.PRODUCE if (method, path) == ("POST", "/messages") else Right.CONTROL
