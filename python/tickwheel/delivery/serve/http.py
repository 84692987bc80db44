"""Accepts messages over HTTP (rules D7, D11, D12). A message or a cancel is answered after its commit.

| request | answers |
|---|---|
| `POST /messages`, a message (D1) | 201 accepted; 200 duplicate, or cancelled before it came; 409 other content |
| `POST /messages`, a cancel (D1) | 200 cancelled; 409 too late; 202 unknown, and remembered |
| `POST /messages`, NDJSON of many (type `application/x-ndjson`) | 200; a line each, in order: `line`, `status`, ... |
| `POST /messages`, an Arrow IPC stream of many; `POST /hand-off`, `GET /hand-off/marks` | `arrow_bodies.py` |
| `DELETE /messages/{id}?key=K`, `/message?id=I&key=K` | the same |
| `POST /requeue`, `{"id": ..., "key": ...}` | 200 requeued; 409 it is no dead letter; 404 unknown |
| `PATCH` of them, `{"due": ...}` or `{"delay_ms": ...}` | 200 rescheduled; 409 too late; 404 unknown |
| `GET` of them | 200 with its state, due time, attempts, last error and payload; 404 |
| `GET /messages?state=S&key=K&due_from=T&due_before=T&limit=N&cursor=C` | 200, a page of them: `listing.py` |
| `GET /dead?limit=N&cursor=C` | 200, a page of dead letters |
| `GET /status` | 200, the store in figures |
| `POST /again?key=K`, or `?id=I` | 200 `tried`: a failing key is tried at once; 404 nothing waits; 409 |
| `POST /pause`, `POST /resume` | 200 `paused`, `resumed`: nothing more is sent; due messages are sent again |
| `POST /pause?key=K`, `POST /resume?key=K` | the same for a key; 409 where it can't be paused |
| `GET /metrics` | 200, Prometheus's text format |
| `GET /livez`, `/readyz`, `/healthz` | 200, or 503: `health.py` |
| `GET /`, `/events` | 200, the page and its events: `live.py` |

Other statuses: 400, 401 without a token and 403 without its right (`guard.py`), 404, 405, 408, 413, 503. Every body is
JSON: the state of a message is `id, key, state`, an error is `reason, allowed`. An id is the rest of the path,
percent-encoded, with slashes or without. Proxies may change a path (`//` becomes `/`), and so the id: then `/message`
takes it from the query. In the query a + is a space, as in forms.
"""

import codecs
import io
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import TypeAlias
from urllib.parse import parse_qsl, unquote_to_bytes

import msgspec
from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Scope

from tickwheel._native import NdjsonLines, Records, due_ms_of, rfc_3339
from tickwheel.delivery.base.errors import BadRecord, StoreFailed, WrongUsage
from tickwheel.delivery.engine.running import Running
from tickwheel.delivery.model.bulk import is_text
from tickwheel.delivery.model.entries import (
    OTHER_CONTENT,
    Again,
    Answer,
    Fault,
    Item,
    Look,
    Pause,
    Requeue,
    Reschedule,
    answered,
)
from tickwheel.delivery.model.message import Cancel, Columns
from tickwheel.delivery.model.operations import reply
from tickwheel.delivery.queue.submitting import Submitter
from tickwheel.delivery.serve.actions import Actions
from tickwheel.delivery.serve.application import REQUESTS
from tickwheel.delivery.serve.arrow_bodies import SOME, ArrowBodies, is_arrow
from tickwheel.delivery.serve.bodies import Bodies
from tickwheel.delivery.serve.health import health_routes
from tickwheel.delivery.serve.listing import Listing
from tickwheel.delivery.serve.live import Live
from tickwheel.delivery.serve.metrics import renderer
from tickwheel.delivery.serve.problems import AGAIN, fault, json_response, problem, refuse_query, unavailable
from tickwheel.delivery.serve.replacing import Replacing
from tickwheel.delivery.serve.threads import Threads

_OVERHEAD = 1 << 16  # bytes for the names and the id beside a payload in base64
_NDJSON = ("application/x-ndjson", "application/ndjson", "application/jsonl")
_MANY = 4 << 20  # bytes of many messages
_MOST_BAD = 10_000  # records of a body
_LINES_AT_ONCE = 1_000
_NOT_JSON = "not a JSON object"
_ONE = "one JSON object, each name once; for many, one on each line, send Content-Type: application/x-ndjson"
_NONE_OF_MANY = "; none of its messages was accepted"
_ROUTES = (
    "GET or POST /messages, GET, DELETE or PATCH /messages/{id}?key=K or /message?id=I&key=K, GET /dead, GET /status,"
    " POST /requeue, POST /again?key=K or ?id=I, POST /hand-off, GET /hand-off/marks, GET or POST /actions,"
    " GET /actions/{id}, POST /pause or /resume, also with ?key=K, GET /metrics, GET /livez, GET /readyz,"
    " GET / (a page), GET /events"
)
_NO_KEY = "no message without a key has this id yet, and one that comes is cancelled; one with a key needs ?key=K"
_LONGEST_NAME = 1 << 22  # an id and a key have at most 1 MiB each, and with escapes twice as much
_IN_ADDRESS = "UTF-8, percent-encoded, and ?key=K"
_DUE_ALLOWED = '{"due": RFC 3339 or epoch milliseconds}, or {"delay_ms": milliseconds from now}'

_Change: TypeAlias = Callable[[Records], Records]


class _Name(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    key: str | None = None


class _Due(msgspec.Struct, forbid_unknown_fields=True):
    due: msgspec.Raw = msgspec.Raw(b"null")
    delay_ms: float | None = None

    def due_ms(self) -> int:
        """Errors: `BadRecord`, and `msgspec.DecodeError` for a value of another type."""
        due = msgspec.json.decode(self.due, type=str | int | float | None)
        text = bytes(self.due).decode()
        if isinstance(due, float) and "e" in text.lower():
            due = text  # as in a record: it is refused, because it may be rounded
        return due_ms_of(due, self.delay_ms)


def app(running: Running, max_payload: int, bodies: Bodies, live: Live) -> ASGIApp:
    """The application, for one event loop, behind a `Guard`. `max_payload`: bytes."""
    pages, scrapes = Threads("pages", 2, 128), Threads("metrics", 1, 16)
    listing = Listing(running.view, pages, running.with_figures)
    messages = _Messages(running, max_payload, listing, pages, bodies)
    metrics = renderer(running)

    async def show_metrics(request: Request) -> Response:
        accept = ",".join(request.headers.getlist("accept"))
        try:
            text, kind = await scrapes.run(lambda: metrics(accept))
        except (StoreFailed, WrongUsage) as error:  # the second: its file was moved
            raise unavailable(error) from error
        return Response(text, headers={"content-type": kind})

    register_url_convertor("any", _Any())
    routes = [
        Route("/messages", messages.post, methods=["POST"]),
        Route("/messages", listing.page, methods=["GET"]),
        Route("/messages/{id:any}", messages.one, methods=["GET", "DELETE", "PATCH"]),
        Route("/message", messages.one, methods=["GET", "DELETE", "PATCH"]),
        Route("/dead", listing.dead, methods=["GET"]),
        Route("/status", listing.status, methods=["GET"]),
        Route("/requeue", messages.requeue, methods=["POST"]),
        Route("/again", messages.again, methods=["POST"]),
        *messages.actions.routes,
        *messages.arrow.routes,
        Route("/pause", messages.pause, methods=["POST"]),
        Route("/resume", messages.pause, methods=["POST"]),
        Route("/metrics", show_metrics, methods=["GET"]),
        *health_routes(running),
        *live.routes,
    ]
    inner = Starlette(routes=routes, exception_handlers={HTTPException: _refuse, Exception: _broken})
    inner.router.redirect_slashes = False
    return inner


class _Messages:
    def __init__(self, running: Running, max_payload: int, listing: Listing, pages: Threads, bodies: Bodies) -> None:
        self._running = running
        self._listing = listing
        self._submitter = Submitter(running)
        self._max_payload = max_payload
        self._bodies = bodies
        self.actions = Actions(self._ask, running.view, pages, self._bodies)
        self.arrow = ArrowBodies(running, self._submitter, max_payload, bodies)
        self._of_many = Threads("lines", 4, REQUESTS)
        self._lines = NdjsonLines("-", Columns().names, max_payload, letters=False)

    async def post(self, request: Request) -> Response:
        replacing, traced = Replacing.of(request), _traced(request)

        def change(records: Records) -> Records:
            return replacing.place(traced(records))

        if is_arrow(request):
            with self._bodies.room_for_faults() as take_room:
                answers = await self.arrow.messages(request, change, take_room)
                return await self._told((line, *each) for line, each in enumerate(answers, 1))
        limit = 2 * self._max_payload + _OVERHEAD
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() in _NDJSON:
            async with self._bodies.receive(request, max(limit, _MANY), _NONE_OF_MANY) as body:
                with self._bodies.room_for_faults(_NONE_OF_MANY) as take_room:
                    return await self._many(body, change, take_room)
        async with self._bodies.receive(request, limit) as body:
            return await self._one(body, change, is_put_off=replacing.at_latest_ms is not None)

    async def _one(self, body: bytes, change: _Change, *, is_put_off: bool) -> Response:
        records = change(self._lines.read_object(body, now_ns=time.time_ns()))
        [fault], [name], [operation] = records.faults(), records.names(), records.operations()
        if name is None:
            assert fault is not None
            bad = BadRecord(*fault[1:])
            raise problem(_status_of(bad), bad.reason, _ONE if bad.reason.startswith(_NOT_JSON) else bad.allowed)
        (id_, key, due_ms), answer = name, await self._ask(records)
        if answer is Answer.CONFLICT:
            raise problem(409, OTHER_CONTENT.reason, OTHER_CONTENT.allowed)
        due = {}
        if is_put_off and answer in (Answer.ACCEPTED, Answer.REPLACED):
            due = await self._due_of(id_, key)
        elif answer is Answer.ACCEPTED:
            assert due_ms is not None
            due = {"due": rfc_3339(due_ms)}
        return _state(operation, id_, key, answer, **due)

    async def _due_of(self, id_: str, key: str | None) -> dict[str, str]:
        """The due time of a committed message, which may be earlier than in its record; nothing if it can't be read."""
        try:
            due = (await self._listing.details(id_, key)).get("due")
        except HTTPException:  # the message is accepted all the same
            return {}
        return {"due": due} if due else {}

    async def _many(self, body: bytes, change: _Change, take_room: Callable[[int], None]) -> Response:
        records, faults = await self._of_many.call(partial(self._read, body, change))
        take_room(_bad_in(faults))
        try:
            answers = await self._submitter.ask(records)
        except Exception as error:
            raise unavailable(error, f"; {SOME}", f"{AGAIN}: what was accepted answers duplicate") from error
        operations = chain.from_iterable(part.operations() for part in records)
        return await self._told(zip(_numbered(body), operations, answered(faults, answers), strict=True))

    def _read(self, body: bytes, change: _Change) -> tuple[list[Records], list[Fault | None]]:
        """The records, in parts, and their faults. Errors: 400 for too many bad ones, of which no more are read."""
        records: list[Records] = []
        faults: list[Fault | None] = []
        lines, first_line, bad, now_ns = io.BytesIO(body), 1, 0, time.time_ns()
        while part := [*islice(lines, _LINES_AT_ONCE)]:
            records.append(change(self._lines.read(b"".join(part), first_line=first_line, now_ns=now_ns)))
            found = records[-1].faults()
            faults += found
            first_line += len(part)
            bad += _bad_in(found)
            if bad > _MOST_BAD:
                line, reason, allowed = next(filter(None, faults))
                raise problem(
                    400,
                    f"more than {_MOST_BAD:,} records are bad, the first in line {line}: {reason}{_NONE_OF_MANY}",
                    f"at most {_MOST_BAD:,} bad records in a request; {allowed}",
                )
        return records, faults

    async def _told(self, found: Iterable[tuple[int, str, Answer | BadRecord]]) -> Response:
        """For each record, in order, its line and the status that it would have had alone."""

        def text() -> bytes:
            lines = bytearray()  # there may be 200,000
            for each in found:
                lines += msgspec.json.encode(_answer(*each)) + b"\n"
            return bytes(lines)

        return Response(await self._of_many.call(text), 200, media_type="application/x-ndjson")

    async def one(self, request: Request) -> Response:
        id_, key = _name(request)
        if request.method == "DELETE":
            answer = await self._ask(Cancel(id_, key))
            note = {"note": _NO_KEY} if answer is Answer.UNKNOWN and key is None else {}
            return _state("cancel", id_, key, answer, **note)
        if request.method == "PATCH":
            return await self._reschedule(request, id_, key)
        answer = await self._ask(Look(id_, key))
        if answer is Answer.UNKNOWN:
            return _state("look", id_, key, answer)
        # The engine knows which messages are being sent now; the store knows everything else.
        return json_response(200, {**await self._listing.details(id_, key), "id": id_, "key": key, "state": answer})

    async def requeue(self, request: Request) -> Response:
        refuse_query(request)
        async with self._bodies.receive(request, 2 * _LONGEST_NAME) as body:
            try:
                name = msgspec.json.decode(body, type=_Name)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise problem(400, f"the body can't be read: {error}", '{"id": text, "key": text or null}') from error
        if not is_text(name.id) or not (name.key is None or is_text(name.key)):
            raise problem(400, "the id or the key is empty, or too long", "text of 1 byte to 1 MiB")
        answer = await self._ask(Requeue(name.id, name.key))
        return _state("requeue", name.id, name.key, answer)

    async def pause(self, request: Request) -> Response:
        allowed = f"{request.url.path}, or {request.url.path}?key=K, not empty"
        key = _key(request, "the address names no key", allowed)
        await self._no_body(request, f"{allowed}: a key is in the address")
        answer = await self._ask(Pause(request.url.path == "/pause", key))
        if answer is Answer.REFUSED:
            raise problem(reply("pause", answer).status, *self._running.why_not_paused())
        return json_response(200, {"state": answer} if key is None else {"key": key, "state": answer})

    async def again(self, request: Request) -> Response:
        wrong = "the address names nothing", "/again?key=K, or /again?id=I of a message without a key, not empty"
        await self._no_body(request, wrong[1])
        given = _given(request, ("key", "id"), *wrong)
        if len(given) != 1:
            raise problem(400, "the address names a key and an id" if given else wrong[0], wrong[1])
        asked = Again(given.get("id"), given.get("key"))
        answer = await self._ask(asked)
        return json_response(reply("again", answer).status, {"id": asked.id, "key": asked.key, "state": answer})

    async def _no_body(self, request: Request, allowed: str) -> None:
        async with self._bodies.receive(request, _OVERHEAD) as body:
            if body:
                raise problem(400, "there is a body, and this request reads none", allowed)

    async def _reschedule(self, request: Request, id_: str, key: str | None) -> Response:
        async with self._bodies.receive(request, _OVERHEAD) as body:
            try:
                due_ms = msgspec.json.decode(body, type=_Due).due_ms()
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise problem(400, f"the body can't be read: {error}", _DUE_ALLOWED) from error
            except BadRecord as error:
                raise problem(400, error.reason, error.allowed) from error
        answer = await self._ask(Reschedule(id_, key, due_ms))
        due = {"due": rfc_3339(due_ms)} if answer is Answer.RESCHEDULED else {}
        return _state("reschedule", id_, key, answer, **due)

    async def _ask(self, item: Item) -> Answer:
        try:
            [answer] = await self._submitter.ask([item])
        except Exception as error:
            raise unavailable(error) from error
        return answer


def _status_of(bad: BadRecord) -> int:
    return 413 if bad.is_too_large else 400


def _bad_in(faults: Sequence[Fault | None]) -> int:
    return len(faults) - faults.count(None)


def _numbered(body: bytes) -> Iterator[int]:
    """The numbers of the lines that have a record."""
    lines = io.BytesIO(body.removeprefix(codecs.BOM_UTF8))
    return (number for number, line in enumerate(lines, 1) if line.strip(b" \t\r\n"))


def _answer(line: int, operation: str, found: Answer | BadRecord) -> dict[str, object]:
    if isinstance(found, BadRecord):
        return {"line": line, "status": _status_of(found), **fault(found.reason, found.allowed)}
    status = reply(operation, found).status
    if found is Answer.CONFLICT:
        return {"line": line, "status": status, **fault(OTHER_CONTENT.reason, OTHER_CONTENT.allowed)}
    return {"line": line, "status": status, "state": found}


class _Any(Convertor[str]):
    """The rest of a path, newlines too, which Starlette's own convertor does not accept."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


def _name(request: Request) -> tuple[str, str | None]:
    """The id and key in the address. Errors: 400."""
    if request.scope["path"] == "/message":
        wrong = "the address names no message", "/message?id=I, or /message?id=I&key=K, neither empty"
        given = _given(request, ("id", "key"), *wrong)
        if "id" not in given:
            raise problem(400, *wrong)
        return given["id"], given.get("key")
    try:
        _, _, name = request.scope["raw_path"].partition(b"/messages/")
        id_ = unquote_to_bytes(name).decode()
    except ValueError as error:
        raise problem(400, f"the address can't be read: {error}", _IN_ADDRESS) from None
    wrong = "the address names no message", "/messages/{id}, or /messages/{id}?key=K, neither empty"
    key = _key(request, *wrong)
    if not id_:
        raise problem(400, *wrong)
    return id_, key


def _key(request: Request, reason: str, allowed: str) -> str | None:
    """The key in the address, which has nothing else. Errors: 400."""
    return _given(request, ("key",), reason, allowed).get("key")


def _given(request: Request, names: Sequence[str], reason: str, allowed: str) -> dict[str, str]:
    """The parameters in the address, each of these at most once and not empty. Errors: 400."""
    try:
        query = request.scope["query_string"].decode("ascii")
        given = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), errors="strict", max_num_fields=3)
    except ValueError as error:
        raise problem(400, f"the address can't be read: {error}", _IN_ADDRESS) from None
    seen: dict[str, str] = {}
    for name, value in given:
        if name in seen or name not in names:
            other = f"{name} twice" if name in seen else name
            raise problem(400, f"the address has {other!r:.100}", allowed)
        seen[name] = value
    if not all(seen.values()):
        raise problem(400, reason, allowed)
    return seen


def _traced(request: Request) -> _Change:
    """Messages without a `traceparent` get the `traceparent` of the request."""
    parent = request.headers.get("traceparent")
    return (lambda records: records) if parent is None else lambda records: records.traced_by(parent)


def _state(operation: str, id_: str, key: str | None, answer: Answer, **more: str) -> Response:
    return json_response(reply(operation, answer).status, {"id": id_, "key": key, **more, "state": answer})


def _methods(routes: Sequence[BaseRoute], scope: Scope) -> str:
    """The methods of this address; empty without any. Starlette's own `Allow` has those of one route."""
    path = scope["path"]
    found = {
        method
        for it in routes
        if isinstance(it, Route) and (path == "*" or it.path_regex.match(path))
        for method in it.methods or ()
    }
    return ", ".join(sorted(found | {"OPTIONS"})) if found else ""


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    detail: object = error.detail
    if isinstance(detail, dict):
        return json_response(error.status_code, detail, error.headers)
    methods = _methods(request.app.routes, request.scope)  # the error is Starlette's own
    if methods and request.method == "OPTIONS":
        return Response(status_code=204, headers={"allow": methods})
    reason = f"there is no {request.method} {request.url.path[:200]}"
    return json_response(error.status_code, fault(reason, _ROUTES), {"allow": methods} if methods else None)


async def _broken(_request: Request, _error: Exception) -> Response:
    return json_response(500, fault("this server has an error, and its log says which", AGAIN))
