"""What a `tickwheel serve` shows over HTTP, as `StoreView` shows it of a file (rule D14)."""

import http.client
import random
import re
import ssl
import time
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, Final, TypeVar
from urllib.parse import SplitResult, quote, urlencode, urlsplit

import msgspec

from tickwheel._event import Event
from tickwheel.delivery.base.errors import DeliveryFailed, WrongUsage, quoted
from tickwheel.delivery.base.tls_errors import sentence, usual_context
from tickwheel.delivery.model.entries import Answer
from tickwheel.delivery.queue.connections import LONGEST_ANSWER, Connections, NotConnected
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
from tickwheel.delivery.sinks.failures import retry_after_s

_T = TypeVar("_T")
_TIMEOUT_S: Final = 30.0
_WAITS_S: Final = (0.1, 5.0)  # the first before another try, and the longest
_NDJSON: Final = "application/x-ndjson"
_BATCH_BYTES, _BATCH_LINES = 1 << 20, 5_000
_PASSING: Final = (408, 429)
_MOST_S: Final = 1_000_000  # a socket takes no longer time
_MAY_BE_ACCEPTED: Final = "it may have been accepted, and is not sent again, as it replaces a message"

call: ContextVar[tuple[float, Event] | None] = ContextVar("call", default=None)
"""When the call of an `AsyncClient` began, as `time.monotonic` has it; set: it tries no more."""


class Refused(WrongUsage):
    """The server refuses a request, whenever it is sent."""

    def __init__(self, url: str, status: int, reason: str, allowed: str) -> None:
        super().__init__(f"{url} answers {status}: {reason} (allowed: {allowed})")
        self.status, self.reason, self.allowed = status, reason, allowed


class _MayPass(Exception):
    def __init__(self, failed: Exception, after_s: float = 0) -> None:
        self.failed, self.after_s = DeliveryFailed(str(failed)), after_s


class Fields(dict[str, Any]):
    """An object of an answer. One that is not as of a tickwheel serve raises `DeliveryFailed` where it is read."""

    def __missing__(self, name: str) -> Any:
        raise DeliveryFailed(f"the server answers, but not as a tickwheel serve: {name!r} is missing")

    @property
    def answer(self) -> Answer:
        """What its `state` says."""
        try:
            return Answer(self["state"])
        except ValueError as error:
            raise DeliveryFailed(
                f"the server answers, but not as a tickwheel serve of this version: {error}"
            ) from error


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
        if not isinstance(url, str):
            raise WrongUsage(f"url is {quoted(url)}: give the address of a tickwheel serve, as http://127.0.0.1:7400")
        if token is not None and re.fullmatch(rb"[!-~]+", token) is None:
            raise WrongUsage("the token has a character that no token has, or none at all: it is ASCII without spaces")
        if not isinstance(context, ssl.SSLContext | None):
            raise WrongUsage(f"context is {quoted(context)}: give an ssl.SSLContext, or None")
        for name, given, least in (("timeout_s", timeout_s, 0.001), ("retry_s", retry_s, 0)):
            if isinstance(given, bool) or not isinstance(given, int | float) or not least <= given <= _MOST_S:
                raise WrongUsage(f"{name} is {quoted(given)}: give {least} to {_MOST_S:,} seconds")
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

    def request(self, method: str, path: str, body: object = None) -> Fields:
        """The answer to a request."""
        return Fields(msgspec.json.decode(self._ask(method, path, body)))

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

    def lines(self, path: str, body: bytes) -> Sequence[Fields]:
        """The answers to a body of many records, in order."""
        text = self._ask("POST", path, body, _NDJSON)
        return [Fields(msgspec.json.decode(line)) for line in text.splitlines()]

    def _ask(self, method: str, path: str, body: object = None, kind: str = "application/json") -> bytes:
        """An answer in JSON, an object that tells no problem; or a line of it for each record."""
        data = body if isinstance(body, bytes | None) else msgspec.json.encode(body)
        began_s, is_over = call.get() or (time.monotonic(), Event())
        wait_s = _WAITS_S[0]
        while True:
            try:
                return self._try(method, path, data, kind)
            except _MayPass as passing:
                after_s = max(passing.after_s, wait_s * random.uniform(0.5, 1))  # noqa: S311, so that clients spread
                if time.monotonic() + after_s > began_s + self._retry_s or is_over.wait(after_s):
                    raise passing.failed from passing.__cause__
            wait_s = min(2 * wait_s, _WAITS_S[1])

    def _try(self, method: str, path: str, data: bytes | None, kind: str) -> bytes:
        headers = {**self._headers, "content-type": kind}
        replaces = "?replace=" in path
        try:
            head, text = self._connections.ask(method, self._path + path, data, headers, is_once=replaces)
            if len(text) > LONGEST_ANSWER:
                raise DeliveryFailed(f"{self._url} answers more than {LONGEST_ANSWER:,} bytes, and no more is read")
            if kind == _NDJSON and head.status == http.client.OK:
                self._check_lines(text, (data or b"").count(b"\n") + 1)
                return text
        except NotConnected as error:
            failed = self._not_asked(error.__cause__)
            raise (failed if isinstance(error.__cause__, ssl.SSLError) else _MayPass(failed)) from error.__cause__
        except (OSError, http.client.HTTPException) as error:
            failed = self._not_asked(error)
            if replaces:
                raise DeliveryFailed(f"{failed}: {_MAY_BE_ACCEPTED}") from error
            raise (failed if isinstance(error, ssl.SSLError) else _MayPass(failed)) from error
        may_pass = head.status >= 500 or head.status in _PASSING
        try:
            self._check(head.status, text)
        except (DeliveryFailed, Refused) as failed:
            if not may_pass:
                raise
            is_refused = head.status in _PASSING or head.status == http.client.SERVICE_UNAVAILABLE
            if replaces and not (is_refused and b"\n" not in (data or b"")):  # of many, some may be accepted
                raise DeliveryFailed(f"{failed}: {_MAY_BE_ACCEPTED}") from failed
            raise _MayPass(failed, retry_after_s(head) or 0) from failed.__cause__
        return text

    def _not_asked(self, error: BaseException | None) -> DeliveryFailed:
        told = sentence(error) if isinstance(error, ssl.SSLError) else error
        return DeliveryFailed(f"{self._url} can't be asked: {told}")

    def _check_lines(self, text: bytes, count: int) -> None:
        """Errors: `IncompleteRead`, `DeliveryFailed`."""
        lines = text.splitlines()
        try:
            if len(lines) == count and all(isinstance(msgspec.json.decode(line), dict) for line in lines):
                return
        except msgspec.DecodeError:
            pass
        if len(lines) <= count and text[:1] in (b"", b"{"):
            raise http.client.IncompleteRead(text)
        raise DeliveryFailed(f"{self._url} answers 200, and not as a tickwheel serve does")

    def _check(self, status: int, text: bytes) -> None:
        """Errors: `Refused`, `DeliveryFailed`."""
        try:
            answer = msgspec.json.decode(text)
        except msgspec.DecodeError:
            answer = None
        if isinstance(answer, dict):
            if "state" in answer or ("reason" not in answer and 200 <= status < 300):
                return
            if isinstance(answer.get("reason"), str) and isinstance(answer.get("allowed"), str):
                raise Refused(self._url, status, answer["reason"], answer["allowed"])
        raise DeliveryFailed(f"{self._url} answers {status}, and not as a tickwheel serve does")


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
