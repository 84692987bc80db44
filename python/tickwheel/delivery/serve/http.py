"""Accepts messages over HTTP (rules D7, D11, D12). A message or a cancel is answered after its commit.

| request | answers |
|---|---|
| `POST /messages`, a message (D1) | 201 accepted; 200 duplicate, or cancelled before it came; 409 other content |
| `POST /messages`, a cancel (D1) | 200 cancelled; 409 too late; 202 unknown, and remembered |
| `POST /messages`, NDJSON of many (type `application/x-ndjson`) | 200; a line each, in order, with its `status` |
| `DELETE /messages/{id}?key=K` | the same |
| `PATCH /messages/{id}?key=K`, `{"due": ...}` or `{"delay_ms": ...}` | 200 rescheduled; 409 too late; 404 unknown |
| `GET /messages/{id}?key=K` | 200 with its state; 404 |
| `GET /metrics` | 200, Prometheus's text format |
| `GET /healthz` | 200; 503 once delivery has failed. Needs no token, and shows nothing else |

Other statuses: 400, 401, 403 for web pages, 404, 405, 408, 413, 503. Every body is JSON: the state of a message is `id,
key, state`, an error is `reason, allowed`. An id is the rest of the path, percent-encoded, with slashes or without. In
the query a + is a space, as in forms.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeAlias
from urllib.parse import parse_qsl, unquote_to_bytes

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from tickwheel._native import NdjsonLines, due_ms_of, rfc_3339
from tickwheel.delivery.entries import OTHER_CONTENT, Answer, Fault, Item, Look, Reschedule
from tickwheel.delivery.errors import BadRecord, StoreFailed
from tickwheel.delivery.message import Cancel, Columns, Message
from tickwheel.delivery.running import Running
from tickwheel.delivery.serve.access import Access
from tickwheel.delivery.serve.intake import Intake
from tickwheel.delivery.serve.metrics import renderer

_OVERHEAD = 1 << 16  # bytes for the names and the id beside a payload in base64
_NDJSON = ("application/x-ndjson", "application/ndjson", "application/jsonl")
_MANY = 4 << 20  # bytes of many messages
_BODY_WITHIN_S = 30
_DISCARD_BYTES, _DISCARD_S = 1 << 26, 2  # read from a body that is too large, so that its sender can read the answer
_STATES: Mapping[Answer, int] = {
    Answer.DUPLICATE: 200,
    Answer.CANCELLED: 200,
    Answer.UNKNOWN: 202,
    Answer.DELIVERED: 409,
    Answer.DELIVERING: 409,
    Answer.DEAD: 409,
}
_AGAIN = "the same request again, later"
_ROUTES = "POST /messages, GET, DELETE or PATCH /messages/{id}?key=K, GET /metrics, GET /healthz"

_DUE_ALLOWED = '{"due": RFC 3339 or epoch milliseconds}, or {"delay_ms": milliseconds from now}'


class _Due(msgspec.Struct, forbid_unknown_fields=True):
    due: str | int | None = None
    delay_ms: float | None = None


_Handler: TypeAlias = Callable[[Request], Awaitable[Response]]


def app(running: Running, access: Access, max_payload: int) -> ASGIApp:
    """The application, for one event loop. `max_payload`: bytes."""
    messages = _Messages(running, max_payload)
    metrics = renderer(running)
    one_at_a_time = asyncio.Lock()

    async def show_metrics(_request: Request) -> Response:
        async with one_at_a_time:
            try:
                text = await asyncio.to_thread(metrics)
            except StoreFailed as error:
                raise _problem(503, str(error), _AGAIN) from error
        return Response(text, headers={"content-type": CONTENT_TYPE_LATEST})

    async def show_health(_request: Request) -> Response:
        try:
            running.check()
        except BaseException:
            return _json(503, {"status": "failed"})
        return _json(200, {"status": "ok"})

    register_url_convertor("any", _Any())
    routes = [
        Route("/messages", messages.post, methods=["POST"]),
        Route("/messages/{id:any}", messages.one, methods=["GET", "DELETE", "PATCH"]),
        Route("/metrics", show_metrics, methods=["GET"]),
        Route("/healthz", show_health, methods=["GET"]),
    ]
    inner = Starlette(routes=routes, exception_handlers={HTTPException: _refuse, Exception: _broken})
    inner.router.redirect_slashes = False
    return _Guarded(inner, access)


class _Messages:
    def __init__(self, running: Running, max_payload: int) -> None:
        self._running = running
        self._intake = Intake(partial(running.submit, max_payload=max_payload))
        self._max_payload = max_payload
        self._lines = NdjsonLines("-", Columns().names, max_payload, letters=False)

    async def post(self, request: Request) -> Response:
        limit = 2 * self._max_payload + _OVERHEAD
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() in _NDJSON:
            return await self._many(await _body(request, max(limit, _MANY)))
        records = self._lines.read_object(await _body(request, limit), now_ns=time.time_ns())
        [item] = records.to_list()
        if isinstance(item, BadRecord):
            raise _problem(400, item.reason, item.allowed)
        answer = await self._ask(records)
        if answer is Answer.CONFLICT:
            raise _problem(409, OTHER_CONTENT.reason, OTHER_CONTENT.allowed)
        if answer is Answer.ACCEPTED:
            assert isinstance(item, Message)
            return _state(201, item.id, item.key, answer, due=rfc_3339(item.due_ms))
        return _state(_STATES[answer], item.id, item.key, answer)

    async def _many(self, body: bytes) -> Response:
        records = await asyncio.to_thread(self._lines.read, body, now_ns=time.time_ns())
        try:
            ticket = await asyncio.to_thread(self._running.submit_records, [records])
            found = await asyncio.wrap_future(ticket)
        except Exception as error:
            raise _problem(503, str(error), _AGAIN) from error
        text = b"\n".join(msgspec.json.encode(line) for line in _answers(records.faults(), found))
        return Response(text + b"\n" if text else b"", 200, media_type="application/x-ndjson")

    async def one(self, request: Request) -> Response:
        id_, key = _name(request)
        if request.method == "DELETE":
            answer = await self._ask(Cancel(id_, key))
            return _state(_STATES[answer], id_, key, answer)
        if request.method == "PATCH":
            return await self._reschedule(request, id_, key)
        answer = await self._ask(Look(id_, key))
        return _state(404 if answer is Answer.UNKNOWN else 200, id_, key, answer)

    async def _reschedule(self, request: Request, id_: str, key: str | None) -> Response:
        try:
            to = msgspec.json.decode(await _body(request, _OVERHEAD), type=_Due)
            due_ms = due_ms_of(to.due, to.delay_ms)
        except msgspec.DecodeError as error:
            raise _problem(400, f"the body can't be read: {error}", _DUE_ALLOWED) from error
        except BadRecord as error:
            raise _problem(400, error.reason, error.allowed) from error
        answer = await self._ask(Reschedule(id_, key, due_ms))
        if answer is Answer.RESCHEDULED:
            return _state(200, id_, key, answer, due=rfc_3339(due_ms))
        return _state(404 if answer is Answer.UNKNOWN else 409, id_, key, answer)

    async def _ask(self, item: Item) -> Answer:
        try:
            return await self._intake.ask(item)
        except Exception as error:
            raise _problem(503, str(error), _AGAIN) from error


def _answers(faults: Sequence[Fault | None], found: Sequence[Answer | BadRecord]) -> Iterator[dict[str, object]]:
    """For each record, in order, the status that it would have had alone."""
    for fault, answer in zip(faults, found, strict=True):
        if isinstance(answer, BadRecord):
            assert fault is not None
            yield {"status": 400, "line": fault[0], **_fault(answer.reason, answer.allowed)}
        elif answer is Answer.CONFLICT:
            yield {"status": 409, **_fault(OTHER_CONTENT.reason, OTHER_CONTENT.allowed)}
        else:
            yield {"status": 201 if answer is Answer.ACCEPTED else _STATES[answer], "state": answer}


class _Any(Convertor[str]):
    """The rest of a path, newlines too, which Starlette's own convertor does not accept."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


class _Guarded:
    """Checks the sender before anything of a request is read."""

    def __init__(self, inner: ASGIApp, access: Access) -> None:
        self._inner = inner
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = scope["headers"]

        def every(name: bytes) -> list[bytes]:
            return [value for each, value in headers if each == name]

        app = self._inner
        if self._access.is_web_page(every(b"host"), every(b"origin")):
            app = _json(403, _fault("the sender is a web page", "programs on this machine; or serve with a token"))
        elif scope["path"] != "/healthz" and (reason := self._access.why_not(every(b"authorization"))):
            fault = _fault(reason, "Authorization: Bearer TOKEN, with the token of the server's --token-file")
            app = _json(401, fault, {"www-authenticate": "Bearer"})
        await app(scope, receive, send)


async def _body(request: Request, limit: int) -> bytes:
    """The body. Errors: 413 for more than `limit` bytes, 408 if it does not end in time."""
    length = request.headers.get("content-length", "0")
    parts, size = [], 0
    try:
        async with asyncio.timeout(_BODY_WITHIN_S):
            if int(length) <= limit:
                async for part in request.stream():
                    size += len(part)
                    if size > limit:
                        break
                    parts.append(part)
                else:
                    return b"".join(parts)
    except TimeoutError:
        allowed = f"within {_BODY_WITHIN_S} s"
        raise _problem(408, "the body did not end in time", allowed, {"connection": "close"}) from None
    except ClientDisconnect:
        raise _problem(400, "the connection was closed in the middle of the body", "the whole body") from None
    if "expect" not in request.headers:
        await _discard(request)
    raise _problem(413, "the body is too large", f"at most {limit:,} bytes", {"connection": "close"})


async def _discard(request: Request) -> None:
    size = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DISCARD_S):
            while size < _DISCARD_BYTES:
                event = await request.receive()
                size += len(event.get("body", b""))
                if not event.get("more_body"):
                    return


def _name(request: Request) -> tuple[str, str | None]:
    """The id and key in the address. Errors: 400."""
    try:
        _, _, name = request.scope["raw_path"].partition(b"/messages/")
        id_ = unquote_to_bytes(name).decode()
        query = request.scope["query_string"].decode("ascii")
        given = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), errors="strict", max_num_fields=2)
    except ValueError as error:
        raise _problem(400, f"the address can't be read: {error}", "UTF-8, percent-encoded, and ?key=K") from None
    if [name for name, _ in given] not in ([], ["key"]) or not id_ or not all(value for _, value in given):
        raise _problem(400, "the address names no message", "/messages/{id}, or /messages/{id}?key=K, neither empty")
    return id_, given[0][1] if given else None


def _state(status: int, id_: str, key: str | None, answer: Answer, **more: str) -> Response:
    return _json(status, {"id": id_, "key": key, **more, "state": answer})


def _problem(status: int, reason: str, allowed: str, headers: dict[str, str] | None = None) -> HTTPException:
    return HTTPException(status, _fault(reason, allowed), headers)  # type: ignore[arg-type]  # `_refuse` takes it out


def _fault(reason: str, allowed: str) -> dict[str, str]:
    return {"reason": reason, "allowed": allowed}


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    fault: object = error.detail
    if not isinstance(fault, dict):  # Starlette's own
        fault = _fault(f"there is no {request.method} {request.url.path[:200]}", _ROUTES)
    return _json(error.status_code, fault, error.headers)


async def _broken(_request: Request, error: Exception) -> Response:
    return _json(500, _fault(f"this server has an error: {type(error).__name__}: {error}", _AGAIN))


def _json(status: int, value: object, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), status, headers, "application/json")
