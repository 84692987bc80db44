"""What a `tickwheel serve` shows over HTTP, as `StoreView` shows it of a file (rule D14)."""

import http.client
import random
import ssl
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import SplitResult, quote, urlencode, urlsplit

import msgspec

from tickwheel.delivery.base.errors import DeliveryFailed, WrongUsage
from tickwheel.delivery.base.tls_errors import sentence, usual_context
from tickwheel.delivery.queue.connections import Connections
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
_TIMEOUT_S: Final = 30.0
_WAITS_S: Final = (0.1, 5.0)  # the first before another try, and the longest
_NDJSON: Final = "application/x-ndjson"
_BATCH_BYTES, _BATCH_LINES = 1 << 20, 5_000
_PASSING: Final = (408, 429)


class Refused(WrongUsage):
    """The server refuses a request, whenever it is sent."""

    def __init__(self, url: str, status: int, reason: str, allowed: str) -> None:
        super().__init__(f"{url} answers {status}: {reason} (allowed: {allowed})")
        self.status, self.reason, self.allowed = status, reason, allowed


class _MayPass(DeliveryFailed):
    pass


class _Shown(Details, frozen=True, kw_only=True):
    state: str  # type: ignore[assignment]  # an engine also knows which messages are being sent
    payload: msgspec.Raw = msgspec.Raw(b"null")
    event: msgspec.Raw = msgspec.Raw(b"null")


class ServerView:
    """`url`: `http://HOST:PORT`, or https; with a path before that of each request, if a proxy wants it.

    Proxies of the environment are not asked. A request that failed for a reason that may pass is sent again for
    `retry_s`. Errors of every call: `WrongUsage`, `DeliveryFailed`.
    """

    def __init__(
        self,
        url: str,
        token: bytes | None = None,
        context: ssl.SSLContext | None = None,
        timeout_s: float = _TIMEOUT_S,
        retry_s: float = 0,
    ) -> None:
        try:
            parts = urlsplit(url)
        except ValueError as error:  # as of half a bracket
            raise WrongUsage(f"{without_secrets(url)} is no address of a tickwheel serve: {error}") from None
        if "@" in parts.netloc:
            advice = "leave it out, and give a token (--token-file FILE)"
            raise WrongUsage(f"{without_secrets(url)} has a user, which is not sent: {advice}")
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise WrongUsage(f"{url!r:.200} is no address of a tickwheel serve: write http://HOST:PORT, or https://")
        _check_port(url, parts)
        self._url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self._headers = {} if token is None else {"authorization": f"Bearer {token.decode('ascii')}"}
        if context is None and parts.scheme == "https":
            context = usual_context()
        self._connections = Connections(parts, timeout_s, context)
        self._path = parts.path.rstrip("/")
        self._retry_s = retry_s

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
        """Close the connections that are kept."""
        self._connections.close()

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

    def lines(self, path: str, body: bytes) -> Sequence[Any]:
        """The answers to a body of many records, in order."""
        return [msgspec.json.decode(line) for line in self._ask("POST", path, body, _NDJSON).splitlines()]

    def _ask(self, method: str, path: str, body: object = None, kind: str = "application/json") -> bytes:
        """An answer in JSON, an object that tells no problem; or lines of it."""
        data = body if isinstance(body, bytes | None) else msgspec.json.encode(body)
        end_s, wait_s = time.monotonic() + self._retry_s, _WAITS_S[0]
        while True:
            try:
                return self._try(method, path, data, kind)
            except _MayPass:
                if time.monotonic() + wait_s > end_s:
                    raise
            time.sleep(wait_s * random.uniform(0.5, 1))  # noqa: S311, so that clients do not come together
            wait_s = min(2 * wait_s, _WAITS_S[1])

    def _try(self, method: str, path: str, data: bytes | None, kind: str) -> bytes:
        headers = {**self._headers, "content-type": kind}
        try:
            status, text = self._connections.ask(method, self._path + path, data, headers)
        except (OSError, http.client.HTTPException) as error:
            is_tls = isinstance(error, ssl.SSLError)
            failed = f"{self._url} can't be asked: {sentence(error) if is_tls else error}"
            raise (DeliveryFailed if is_tls else _MayPass)(failed) from error
        if kind != _NDJSON or status != http.client.OK:
            self._check(status, text)
        return text

    def _check(self, status: int, text: bytes) -> None:
        may_pass = status >= 500 or status in _PASSING
        try:
            answer = msgspec.json.decode(text)
            if "reason" in answer and "state" not in answer:
                refused = Refused(self._url, status, answer["reason"], answer["allowed"])
                raise _MayPass(str(refused)) if may_pass else refused
        except (msgspec.DecodeError, TypeError, KeyError) as error:
            failed = f"{self._url} answers {status}, and not as a tickwheel serve does"
            raise (_MayPass if may_pass else DeliveryFailed)(failed) from error


def batches(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Bodies of at most a megabyte and 5,000 lines, but for a line that is longer."""
    batch: list[bytes] = []
    size = 0
    for line in lines:
        if batch and (size + len(line) > _BATCH_BYTES or len(batch) == _BATCH_LINES):
            yield b"\n".join(batch)
            batch, size = [], 0
        batch.append(line)
        size += len(line)
    if batch:
        yield b"\n".join(batch)


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
