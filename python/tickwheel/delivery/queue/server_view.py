"""What a `tickwheel serve` shows over HTTP, as `StoreView` shows it of a file (rule D14)."""

import http.client
import random
import re
import socket
import ssl
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Final, TypeVar
from urllib.parse import SplitResult, quote, urlencode, urlsplit

import msgspec

from tickwheel._event import Event
from tickwheel.delivery.base.errors import DeliveryFailed, WrongUsage, quoted
from tickwheel.delivery.base.tls_errors import sentence, usual_context
from tickwheel.delivery.model.entries import Answer
from tickwheel.delivery.queue.connections import LONGEST_ANSWER, Connections
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
_NOT_TAKEN: Final = (408, 429)  # but a server that is stopping answers 503, and may have taken it
_NOT_SENT: Final = (ConnectionRefusedError, socket.gaierror, ssl.SSLCertVerificationError)
_MOST_S: Final = 1_000_000  # a socket takes no longer time
_MAY_BE_DONE: Final = "it may have been done, and is not sent again, as twice is not the same as once"

call: ContextVar[tuple[float, Event]] = ContextVar("call", default=(0.0, Event()))
"""Of an `AsyncClient`: for how many seconds the call waited for a thread, and an event after which it tries no more."""


class Refused(WrongUsage):
    """The server refuses a request, whenever it is sent."""

    def __init__(self, url: str, status: int, reason: str, allowed: str) -> None:
        super().__init__(f"{url} answers {status}: {reason} (allowed: {allowed})")
        self.status, self.reason, self.allowed = status, reason, allowed


class _MayPass(Exception):
    """Another try may have another end. `is_sent`: the server may have done what was asked."""

    def __init__(self, failed: Exception | str, is_sent: bool, after_s: float = 0) -> None:
        self.failed, self.is_sent, self.after_s = DeliveryFailed(str(failed)), is_sent, after_s


class Told(msgspec.Struct):
    """What became of a request, or of a line of one: it has a state, or a reason."""

    state: Answer | None = None
    status: int = 200
    reason: str = ""
    allowed: str = ""
    let_go: int | None = None
    warning: str | None = None

    def __post_init__(self) -> None:
        if self.state is None and not self.reason:
            raise ValueError("it has no state")


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
        if token is not None and (not isinstance(token, bytes) or re.fullmatch(rb"[!-~]+", token) is None):
            raise WrongUsage("the token has a character that no token has, or none at all: it is ASCII without spaces")
        if not isinstance(context, ssl.SSLContext | None):
            raise WrongUsage(f"context is {quoted(context)}: give an ssl.SSLContext, or None")
        for name, given, least in (("timeout_s", timeout_s, 0.001), ("retry_s", retry_s, 0)):
            if isinstance(given, bool) or not isinstance(given, int | float) or not least <= given <= _MOST_S:
                raise WrongUsage(f"{name} is {quoted(given)}: give {least} to {_MOST_S:,} seconds")
        try:
            parts = urlsplit(url := str(url))
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
        found = self.find(address("/message", id=id, key=key), "seq", _Shown)
        if found is None:  # it has not come, or was forgotten in the moment of the request
            return None
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
        return self.find(path_of("destinations", name), "settings", DestinationShown)

    def tenants(self, *, limit: int = 100, cursor: str | None = None) -> TenantPage:
        """A page of the tenants that were set or paused, and the busiest of all."""
        return self._show(address("/tenants", limit=limit, cursor=cursor), TenantPage)

    def tenant(self, name: str) -> TenantSeen | None:
        """A tenant that was set or paused, or `None`."""
        return self.find(path_of("tenants", name), "settings", TenantSeen)

    def action(self, id_: str) -> Action:
        """As the server's store has it."""
        return self._show(path_of("actions", id_), Action)

    def status(self) -> StoreStatus:
        """The figures of the server, which also knows its keys in doubt."""
        return self._show("/status", StoreStatus)

    def request(self, method: str, path: str, body: object = None, *, is_once: bool = False) -> Told:
        """What becomes of a request."""
        return self._read(self._ask(method, path, body, is_once=is_once), Told)

    def put(self, records: Iterable[bytes], query: str = "") -> Iterator[Told]:
        """What becomes of each record, in order, some in each request. With a query, they replace others."""
        for batch in _batches(records):
            text = self._ask("POST", f"/messages{query}", b"\n".join(batch), records=len(batch), is_once=bool(query))
            yield from (self._read(line, Told) for line in text.splitlines())

    def find(self, path: str, field: str, kind: type[_T]) -> _T | None:
        """What is there; `None` if the answer has no such field, but a state."""
        text = self._ask("GET", path)
        fields = self._read(text, dict[str, Any])
        return self._read(text, kind) if field in fields or "state" not in fields else None

    def close(self) -> None:
        """Close the connections that are kept."""
        self._connections.close()

    def _show(self, path: str, kind: type[_T]) -> _T:
        return self._read(self._ask("GET", path), kind)

    def _read(self, text: bytes, kind: type[_T]) -> _T:
        try:
            return msgspec.json.decode(text, type=kind)
        except msgspec.DecodeError as error:
            problem = (
                f"{self._url} answers, but not as a tickwheel serve of this version: {error}: update the older one"
            )
            raise DeliveryFailed(problem) from error

    def _ask(self, method: str, path: str, body: object = None, *, records: int = 0, is_once: bool = False) -> bytes:
        """An object in JSON that tells no problem, or one for each record. `is_once`: it may not be done twice."""
        data = body if isinstance(body, bytes | None) else msgspec.json.encode(body)
        waited_s, is_over = call.get()
        end_s, wait_s = time.monotonic() + self._retry_s - waited_s, _WAITS_S[0]
        while True:
            try:
                return self._try(method, path, data, records, is_once)
            except _MayPass as passing:
                if is_once and passing.is_sent:
                    raise DeliveryFailed(f"{passing.failed}: {_MAY_BE_DONE}") from passing.__cause__
                after_s = max(passing.after_s, wait_s * random.uniform(0.5, 1))  # noqa: S311, so that clients spread
                if time.monotonic() + after_s > end_s or is_over.wait(after_s):
                    raise passing.failed from passing.__cause__
            wait_s = min(2 * wait_s, _WAITS_S[1])

    def _try(self, method: str, path: str, data: bytes | None, records: int, is_once: bool) -> bytes:
        headers = {**self._headers, "content-type": _NDJSON if records else "application/json"}
        try:
            status, after_s, text = self._connections.ask(method, self._path + path, data, headers, is_new=is_once)
        except (OSError, http.client.HTTPException) as error:
            is_tls = isinstance(error, ssl.SSLError)
            told = f"{self._url} can't be asked: {sentence(error) if is_tls else error}"
            raise _MayPass(told, not isinstance(error, _NOT_SENT), float("inf") if is_tls else 0) from error
        if len(text) > LONGEST_ANSWER:
            raise DeliveryFailed(f"{self._url} answers more than {LONGEST_ANSWER:,} bytes, and no more is read")
        if records and status == http.client.OK and text[:1] in (b"", b"{"):
            if (answers := text.count(b"\n")) == records:
                return text
            raise _MayPass(f"{self._url} answers {answers:,} of {records:,} records", is_sent=True)
        failed: Exception = DeliveryFailed(f"{self._url} answers {status}, and not as a tickwheel serve does")
        with suppress(msgspec.DecodeError, KeyError):
            found = msgspec.json.decode(text, type=dict[str, Any])
            if "state" in found or ("reason" not in found and status < 300):
                return text
            failed = Refused(self._url, status, found["reason"], found["allowed"])
        if status >= 500 or status in _NOT_TAKEN:
            raise _MayPass(failed, status not in _NOT_TAKEN or records > 1, after_s)
        raise failed


def _batches(lines: Iterable[bytes]) -> Iterator[Sequence[bytes]]:
    """Bodies of at most a megabyte and 5,000 lines, but for a line that is longer."""
    batch: list[bytes] = []
    size = 0
    for line in lines:
        if batch and (size + len(line) > _BATCH_BYTES or len(batch) == _BATCH_LINES):
            yield batch
            batch, size = [], 0
        batch.append(line)
        size += len(line)
    if batch:
        yield batch


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
