"""Accepts messages over HTTP (rules D7, D11, D12). A message or a cancel is answered after its commit.

`docs/openapi.yaml` describes each request with its answers. `arrow_bodies` takes Arrow streams, `actions` begins
actions on many messages, `destinations` and `tenants` have those that messages name, `listing` answers with pages of
messages, and `health`, `metrics` and `live` show the server.

Any request may get 400, 401 without a token, 403 without its right (`guard.py`), 404, 405, 408, 413 and 503. Every body
is JSON: the state of a message is `id, key, state`, an error is `reason, allowed`. An id is the rest of the path,
percent-encoded, with slashes or without. Proxies may change a path (`//` becomes `/`), and so the id: then `/message`
takes it from the query. In the query a + is a space, as in forms.
"""

from asyncio import Future
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec
from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Scope

from tickwheel._native import Receipt, due_ms_of, due_of, read_records, rfc_3339
from tickwheel.delivery.base.errors import BadRecord, StoreFailed, WrongUsage
from tickwheel.delivery.engine.running import Running
from tickwheel.delivery.model.bulk import is_text
from tickwheel.delivery.model.entries import (
    MANY_WAIT,
    OTHER_CONTENT,
    Again,
    Answer,
    ForgetEvent,
    Look,
    Pause,
    Requeue,
    Reschedule,
    no_destination,
)
from tickwheel.delivery.model.message import Cancel
from tickwheel.delivery.model.operations import reply
from tickwheel.delivery.queue.submitting import Submitter
from tickwheel.delivery.serve.actions import Actions
from tickwheel.delivery.serve.application import REQUESTS
from tickwheel.delivery.serve.arrow_bodies import SOME, ArrowBodies, is_arrow
from tickwheel.delivery.serve.bodies import Bodies
from tickwheel.delivery.serve.destinations import Destinations
from tickwheel.delivery.serve.guard import limits_of
from tickwheel.delivery.serve.health import health_routes
from tickwheel.delivery.serve.listing import Listing
from tickwheel.delivery.serve.live import Live
from tickwheel.delivery.serve.metrics import renderer
from tickwheel.delivery.serve.named import Tenants
from tickwheel.delivery.serve.problems import (
    AGAIN,
    DUPLICATE,
    decoded,
    fault,
    json_response,
    or_unavailable,
    parameters,
    problem,
    refuse_query,
    unavailable,
)
from tickwheel.delivery.serve.threads import Threads
from tickwheel.delivery.sight import NoStore

_OVERHEAD = 1 << 16  # bytes for the names and the id beside a payload in base64
_NDJSON = ("application/x-ndjson", "application/ndjson", "application/jsonl")
_MANY = 4 << 20  # bytes of many messages
_MOST_BAD = 10_000  # records of a body
_NOT_JSON = "not a JSON object"
_HEADER, _HEADER_ALLOWED = "the header", "a header with id, and due or delay_ms; key, payload and others as in a record"
_LIMITED = "this token is limited"
_ONE = "one JSON object, each name once; for many, one on each line, send Content-Type: application/x-ndjson"
_NONE_OF_MANY = "; none of its messages was accepted"
_ROUTES = (
    "GET or POST /messages, GET, DELETE or PATCH /messages/{id}?key=K or /message?id=I&key=K, GET /dead, GET /status,"
    " POST /requeue, POST /again?key=K or ?id=I, POST /hand-off, GET /hand-off/marks, GET or POST /actions,"
    " GET /actions/{id}, GET /destinations, PUT, GET or DELETE /destinations/{name}, POST /destinations/{name}/test,"
    " DELETE /remembered?key=K&id=I,"
    " GET /tenants, PUT, GET or DELETE /tenants/{name}, POST /pause or /resume, also with ?key=K, ?destination=NAME or"
    " ?tenant=NAME, GET /metrics, GET /livez, GET /readyz, GET / (a page), GET /events"
)
_NO_KEY = "no message without a key has this id yet, and one that comes is cancelled; one with a key needs ?key=K"
_LONGEST_NAME = 1 << 22  # an id and a key have at most 1 MiB each, and with escapes twice as much
_IN_ADDRESS = "UTF-8, percent-encoded, and ?key=K"
_REPLACING = "/messages, or /messages?replace=true, and then &at_latest_ms=N if it is put off again and again"
_MOST_DIGITS = 15
_SET_AGAIN = "PUT /destinations/{name}, then the same request; or the message anew, to another destination"
_REFUSED = {Answer.CONFLICT: OTHER_CONTENT, Answer.REFUSED: no_destination(), Answer.FULL: MANY_WAIT}
_DUE_ALLOWED = '{"due": RFC 3339 or epoch milliseconds}, or {"delay_ms": milliseconds from now}'


class _Name(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    key: str | None = None


class _Due(msgspec.Struct, forbid_unknown_fields=True):
    due: msgspec.Raw = msgspec.Raw(b"null")
    delay_ms: float | None = None

    def due_ms(self) -> int:
        """Errors: 400 for a value of another type, `BadRecord`."""
        due = decoded(self.due, str | int | float | None, _DUE_ALLOWED)
        text = bytes(self.due).decode()
        if isinstance(due, float) and "e" in text.lower():
            due = text  # as in a record: it is refused, because it may be rounded
        return due_ms_of(due, self.delay_ms)


def app(running: Running, max_payload: int, bodies: Bodies, live: Live) -> ASGIApp:
    """The application, for one event loop, behind a `Guard`. `max_payload`: bytes."""
    pages, scrapes = Threads("pages", 2, 128), Threads("metrics", 1, 16)
    listing = Listing(running.view, pages, running.status)
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
        Route("/remembered", messages.forget_event, methods=["DELETE"]),
        Route("/requeue", messages.requeue, methods=["POST"]),
        Route("/again", messages.again, methods=["POST"]),
        *messages.actions.routes,
        *messages.arrow.routes,
        *messages.destinations.routes,
        *messages.tenants.routes,
        Route("/pause", messages.pause, methods=["POST"]),
        Route("/resume", messages.pause, methods=["POST"]),
        Route("/metrics", show_metrics, methods=["GET"]),
        *health_routes(running),
        *live.routes,
    ]
    refusals = {HTTPException: _refuse, BadRecord: _bad, StoreFailed: _away, NoStore: _away, Exception: _broken}
    inner = Starlette(routes=routes, exception_handlers=refusals)
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
        self.destinations = Destinations(running, self._submitter.ask, pages, bodies, listing)
        self.tenants = Tenants(running, self._submitter.ask, pages, bodies, listing)
        self.arrow = ArrowBodies(running, self._submitter, max_payload, bodies)
        self._of_many = Threads("lines", 4, REQUESTS)

    async def post(self, request: Request) -> Response:
        options = _options_of(request)
        if is_arrow(request):
            with self._bodies.room_for_faults() as take_room:
                return await self._told(await self.arrow.messages(request, options, take_room))
        limit = 2 * self._max_payload + _OVERHEAD
        options["max_payload"] = self._max_payload
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind in _NDJSON or kind == "text/csv":
            options["format"] = "csv" if kind == "text/csv" else "lines"
            async with self._bodies.receive(request, max(limit, _MANY), _NONE_OF_MANY) as body:
                with self._bodies.room_for_faults(_NONE_OF_MANY) as take_room:
                    return await self._many(body, options, take_room)
        async with self._bodies.receive(request, limit) as body:
            queued = await or_unavailable(self._submitter.submit(body, format="object", **options))
            del body  # its message is queued, and counts there
        return await self._one(queued, options)

    async def _one(self, queued: "Future[Receipt]", options: dict[str, Any]) -> Response:
        receipt = await or_unavailable(queued)
        [(_, operation, found, let_go)] = receipt.rows()
        if isinstance(found, BadRecord):
            allowed = _ONE if found.reason.startswith(_NOT_JSON) else found.allowed
            raise problem(_status_of(found), found.reason, allowed)
        if (bad := _REFUSED.get(found)) is not None:
            raise problem(reply(operation, found).status, bad.reason, bad.allowed)
        assert receipt.name is not None
        id_, key, due = receipt.name
        is_put_off = found is Answer.REPLACED and "at_latest_ms" in options
        more: dict[str, object] = {"due": due} if due and (found is Answer.ACCEPTED or is_put_off) else {}
        if let_go is not None:
            more["let_go"] = let_go
        return _state(operation, id_, key, found, **more)

    async def _many(self, body: bytes, options: dict[str, Any], take_room: Callable[[int], None]) -> Response:
        read = partial(read_records, body, most_bad=_MOST_BAD, **options)
        try:
            [records] = await self._of_many.call(read)
        except BadRecord as bad:
            raise problem(400, bad.reason + _NONE_OF_MANY, bad.allowed) from bad
        if options["format"] == "csv" and len(records) == records.bad_count == 1:
            [first] = records.to_list()
            if isinstance(first, BadRecord) and first.reason.startswith(_HEADER):  # no row was read
                raise problem(400, first.reason + _NONE_OF_MANY, _HEADER_ALLOWED)
        take_room(records.bad_count)
        return await self._told([await or_unavailable(self._submitter.ask(records), f"; {SOME}", DUPLICATE)])

    async def _told(self, receipts: Sequence[Receipt]) -> Response:
        """For each record, in order, its line and the status that it would have had alone."""

        def text() -> bytes:
            lines = bytearray()  # there may be 200,000
            rows = (row for receipt in receipts for row in receipt.rows())
            for number, (line, operation, found, let_go) in enumerate(rows, 1):
                at = number if len(receipts) > 1 else line
                lines += msgspec.json.encode(_answer(at, operation, found, let_go)) + b"\n"
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
            name = decoded(body, _Name, '{"id": text, "key": text or null}')
        if not is_text(name.id) or not (name.key is None or is_text(name.key)):
            raise problem(400, "the id or the key is empty, or too long", "text of 1 byte to 1 MiB")
        answer = await self._ask(Requeue(name.id, name.key))
        why = fault(reply("requeue", answer).sentence, _SET_AGAIN) if answer is Answer.REFUSED else {}
        return _state("requeue", name.id, name.key, answer, **why)

    async def forget_event(self, request: Request) -> Response:
        wrong = "the address names no event", "/remembered?key=K&id=I, neither empty"
        await self._no_body(request, wrong[1])
        given = _given(request, ("key", "id"), *wrong)
        if len(given) != 2:
            raise problem(400, *wrong)
        answer = await self._ask(ForgetEvent(given["id"], given["key"]))
        return _state("forget_event", given["id"], given["key"], answer)

    async def pause(self, request: Request) -> Response:
        path = request.url.path
        allowed = f"{path}, or {path}?key=K, {path}?destination=NAME, or {path}?tenant=NAME, not empty"
        names: tuple[str, ...] = ("key", "destination", "tenant")
        if path == "/pause":
            allowed, names = f"each with until=TIME or without: {allowed}", (*names, "until")
        given = _given(request, names, "the address names nothing", allowed)
        until = given.pop("until", None)
        if len(given) > 1:
            raise problem(400, f"the address names a {' and a '.join(given)}", allowed)
        await self._no_body(request, f"{allowed}: a name is in the address")
        until_ms = None if until is None else due_of(until, "until")
        asked = Pause(path == "/pause", **given, until_ms=until_ms)
        answer = await self._ask(asked)
        if answer is Answer.REFUSED:
            raise problem(reply("pause", answer).status, *self._running.why_not_paused(asked))
        shown = given if until_ms is None else given | {"until": rfc_3339(until_ms)}
        return json_response(
            reply("pause", answer).status if answer is Answer.UNKNOWN else 200, shown | {"state": answer}
        )

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
            due_ms = decoded(body, _Due, _DUE_ALLOWED).due_ms()
        answer = await self._ask(Reschedule(id_, key, due_ms))
        due = {"due": rfc_3339(due_ms)} if answer is Answer.RESCHEDULED else {}
        return _state("reschedule", id_, key, answer, **due)

    async def _ask(self, item: object) -> Answer:
        [answer] = (await self._submit(item, format="item")).answers()
        return answer  # type: ignore[return-value]  # it is no record

    async def _submit(self, given: object, **options: Any) -> Receipt:
        return await or_unavailable(self._submitter.ask(given, **options))


def _status_of(bad: BadRecord) -> int:
    if bad.reason.startswith(_LIMITED):
        return 403
    return 413 if bad.is_too_large else 400


def _answer(line: int, operation: str, found: Answer | BadRecord, let_go: int | None) -> dict[str, object]:
    if isinstance(found, BadRecord):
        return {"line": line, "status": _status_of(found), **fault(found.reason, found.allowed)}
    status = reply(operation, found).status
    if (bad := _REFUSED.get(found)) is not None:
        return {"line": line, "status": status, **fault(bad.reason, bad.allowed)}
    count = {} if let_go is None else {"let_go": let_go}
    return {"line": line, "status": status, **count, "state": found}


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
    given = parameters(request, names, allowed)
    if not all(given.values()):
        raise problem(400, reason, allowed)
    return given


def _options_of(request: Request) -> dict[str, Any]:
    """What a `POST /messages` says of all its messages (rule D16), as the engine's `submit` takes it. Errors: 400."""
    options: dict[str, Any] = {"trace": request.headers.get("traceparent")}
    if limits := limits_of(request):
        options["limits"] = {f"{kind}s": sorted(names) for kind, names in limits.items()}
    given = parameters(request, ("replace", "at_latest_ms"), _REPLACING)
    if not given:
        return options
    latest = given.get("at_latest_ms", "0")
    is_whole = latest.isascii() and latest.isdecimal() and len(latest) <= _MOST_DIGITS
    if given.get("replace") != "true" or not is_whole:
        raise problem(400, f"the address asks for {str(request.url.query)!r:.100}", _REPLACING)
    return options | {"replace": True} | ({"at_latest_ms": int(latest)} if "at_latest_ms" in given else {})


def _state(operation: str, id_: str, key: str | None, answer: Answer, **more: object) -> Response:
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


async def _bad(_request: Request, error: Exception) -> Response:
    assert isinstance(error, BadRecord)
    return json_response(400, fault(error.reason, error.allowed))


async def _away(request: Request, error: Exception) -> Response:
    """The store can't be read, or its file was moved."""
    return await _refuse(request, unavailable(error))


async def _broken(_request: Request, _error: Exception) -> Response:
    return json_response(500, fault("this server has an error, and its log says which", AGAIN))
