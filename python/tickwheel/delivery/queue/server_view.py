"""What a `tickwheel serve` shows over HTTP, as `StoreView` shows it of a file (rule D14). For the command line."""

import http.client
import ssl
import urllib.error
import urllib.request
from typing import Any, Final, TypeVar
from urllib.parse import SplitResult, quote, urlencode, urlsplit

import msgspec

from tickwheel.delivery.base.errors import DeliveryFailed, WrongUsage
from tickwheel.delivery.base.tls_errors import sentence, usual_context
from tickwheel.delivery.sight import (
    Action,
    DestinationPage,
    DestinationShown,
    Details,
    LetterPage,
    Page,
    StoreStatus,
)
from tickwheel.delivery.sight.tenants import TenantPage, TenantSeen
from tickwheel.delivery.sinks.addresses import without_secrets

_T = TypeVar("_T")
_TIMEOUT_S: Final = 30
_LONGEST_ANSWER: Final = 1 << 24


class _Shown(Details, frozen=True, kw_only=True):
    state: str  # type: ignore[assignment]  # an engine also knows which messages are being sent
    payload: msgspec.Raw = msgspec.Raw(b"null")
    event: msgspec.Raw = msgspec.Raw(b"null")


class ServerView:
    """`url`: `http://HOST:PORT`, or https; with a path before that of each request, if a proxy wants it.

    Proxies of the environment are not asked. Errors of every call: `WrongUsage`, `DeliveryFailed`.
    """

    def __init__(self, url: str, token: bytes | None = None, context: ssl.SSLContext | None = None) -> None:
        try:
            parts = urlsplit(url)
        except ValueError as error:  # as of half a bracket
            raise WrongUsage(f"{without_secrets(url)} is no address of a tickwheel serve: {error}") from None
        if "@" in parts.netloc:
            advice = "leave it out, and give a token (--token-file FILE)"
            raise WrongUsage(f"{without_secrets(url)} has a user, which is not sent: {advice}")
        if not parts.netloc or parts.query or parts.fragment:
            raise WrongUsage(f"{url!r:.200} is no address of a tickwheel serve: write http://HOST:PORT, or https://")
        _check_port(url, parts)
        self._url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self._headers = {} if token is None else {"authorization": f"Bearer {token.decode('ascii')}"}
        if context is None and parts.scheme == "https":
            context = usual_context()
        secure = urllib.request.HTTPSHandler(context=context)
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), secure)

    def list(self, **which: Any) -> Page:
        """A page of messages. The arguments are those of `StoreView.list`; times are epoch milliseconds."""
        return self._show(address("/messages", **which), Page)

    def show(self, id: str, key: str | None = None) -> Details | None:  # noqa: A002, as in a message
        """A message and its payload, or `None`."""
        text = self._ask("GET", address("/message", id=id, key=key))
        if "seq" not in msgspec.json.decode(text):  # it has not come, or was forgotten in the moment of the request
            return None
        found = self._read(text, _Shown)
        raw = {"payload": found.payload, "event": found.event}
        none = dict.fromkeys(name for name, json in raw.items() if bytes(json) == b"null")
        return Details(**msgspec.structs.asdict(found) | none)

    def dead(self, **which: Any) -> LetterPage:
        """A page of dead letters, the last one first. The arguments are those of `StoreView.dead`."""
        return self._show(address("/dead", **which), LetterPage)

    def destinations(self, *, limit: int = 100, cursor: str | None = None) -> DestinationPage:
        """A page of named destinations."""
        return self._show(address("/destinations", limit=limit, cursor=cursor), DestinationPage)

    def destination(self, name: str) -> DestinationShown | None:
        """A named destination, or `None`."""
        return self._named("destinations", name, DestinationShown)

    def tenants(self, *, limit: int = 100, cursor: str | None = None) -> TenantPage:
        """A page of the tenants that were set or paused, and the busiest of all."""
        return self._show(address("/tenants", limit=limit, cursor=cursor), TenantPage)

    def tenant(self, name: str) -> TenantSeen | None:
        """A tenant that was set or paused, or `None`."""
        return self._named("tenants", name, TenantSeen)

    def action(self, id_: str) -> Action:
        """As the server's store has it."""
        return self._show(path_of("actions", id_), Action)

    def status(self) -> StoreStatus:
        """The figures of the server, which also knows its keys in doubt."""
        return self._show("/status", StoreStatus)

    def request(self, method: str, path: str, body: object = None) -> Any:
        """The answer to a request."""
        return msgspec.json.decode(self._ask(method, path, body))

    def close(self) -> None:
        """Each request has its own connection."""
        self._opener.close()

    def _named(self, kind: str, name: str, shown: type[_T]) -> _T | None:
        text = self._ask("GET", path_of(kind, name))
        return self._read(text, shown) if "settings" in msgspec.json.decode(text) else None

    def _show(self, path: str, kind: type[_T]) -> _T:
        return self._read(self._ask("GET", path), kind)

    def _read(self, text: bytes, kind: type[_T]) -> _T:
        try:
            return msgspec.json.decode(text, type=kind)
        except msgspec.ValidationError as error:
            problem = (
                f"{self._url} answers, but not as a tickwheel serve of this version: {error}: update the older one"
            )
            raise DeliveryFailed(problem) from error

    def _ask(self, method: str, path: str, body: object = None) -> bytes:
        """An answer in JSON, an object that tells no problem."""
        data = None if body is None else msgspec.json.encode(body)
        headers = {**self._headers, "content-type": "application/json"}
        request = urllib.request.Request(self._url + path, data, headers, method=method)  # noqa: S310, http or https
        try:
            with self._opener.open(request, timeout=_TIMEOUT_S) as response:
                status, text = response.status, bytes(response.read(_LONGEST_ANSWER))
        except urllib.error.HTTPError as refused:
            with refused:
                status, text = refused.code, bytes(refused.read(_LONGEST_ANSWER))
        except (OSError, http.client.HTTPException) as error:
            cause = error.reason if isinstance(error, urllib.error.URLError) else error
            told = sentence(cause) if isinstance(cause, ssl.SSLError) else cause
            raise DeliveryFailed(f"{self._url} can't be asked: {told}") from error
        self._check(status, text)
        return text

    def _check(self, status: int, text: bytes) -> None:
        try:
            answer = msgspec.json.decode(text)
            if "reason" in answer and "state" not in answer:
                problem = f"{self._url} answers {status}: {answer['reason']} (allowed: {answer['allowed']})"
                raise DeliveryFailed(problem) if status >= 500 else WrongUsage(problem)
        except (msgspec.DecodeError, TypeError, KeyError) as error:
            raise DeliveryFailed(f"{self._url} answers {status}, and not as a tickwheel serve does") from error


def address(path: str, **parameters: object) -> str:
    """The path with these parameters, without those that are `None`.

    >>> address("/message", id="a//b", key=None)
    '/message?id=a%2F%2Fb'
    """
    given = urlencode(
        {name: value for name, value in parameters.items() if value is not None}, quote_via=quote, safe=""
    )
    return f"{path}?{given}" if given else path


def path_of(kind: str, name: str) -> str:
    """The path of one, whatever is in its name."""
    return f"/{kind}/{quote(name, safe='')}"


def _check_port(url: str, parts: SplitResult) -> None:
    """A system takes a greater number for another port, and the token would go there. Errors: `WrongUsage`."""
    try:
        is_one = parts.port is None or parts.port > 0
    except ValueError:
        is_one = False
    if not is_one:
        raise WrongUsage(f"the port of {url!r:.200} can't be used: write http://HOST:PORT with a port from 1 to 65535")
