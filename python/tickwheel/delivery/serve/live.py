"""The page at `GET /`, and the events that it gets while it is open (rule D14).

The page needs no token, as it shows nothing of the store. The events are `hello` with the rights of the sender, then
`wheel`, `figures` and `load`.

All pages get the same frames. The engine is asked up to five times a second how full its wheel is, and once a second
for its figures, and the store every five seconds for its load, however many pages are open. While no page is open, none
is asked. If a page does not take a frame in time, it misses this frame and gets the next one.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from tickwheel import __version__
from tickwheel._native import StoreSnapshot, rfc_3339
from tickwheel.delivery.base.errors import StoreFailed, WrongUsage
from tickwheel.delivery.engine.running import Running
from tickwheel.delivery.serve.access import Access
from tickwheel.delivery.serve.metrics import MOST as COUNTED
from tickwheel.delivery.serve.metrics import WINDOWS_MS, look
from tickwheel.delivery.serve.problems import AGAIN, problem, refuse_query, without_folders
from tickwheel.delivery.serve.threads import Threads
from tickwheel.delivery.serve.tokens import Right, names_of
from tickwheel.delivery.sight.destinations import SHOWN
from tickwheel.delivery.sight.status import InDoubt, KeyInDoubt, count_paused_keys, in_doubt_of, sizes_of
from tickwheel.delivery.sinks.addresses import without_user
from tickwheel.pages.live.assembly import live_page
from tickwheel.pages.live.frames import REST

MOST: Final = 32
"""Pages at a time."""
FRAME_S: Final = 0.2
_FIGURES_EVERY: Final = 5  # frames
_LOAD_EVERY_S: Final = 5
_MINUTE_MS, _HOUR_MS, _DAY_MS = 60_000, 3_600_000, 86_400_000
_IN_DOUBT: Final = 1_000
_GROUPS: Final = 10
"""How many errors of keys in doubt a page has, and how many keys of each."""
_HEADERS: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}  # nginx passes each event on at once
_STREAM: Final = "text/event-stream"
_WITHIN_MS: Final = {"now": 0, **WINDOWS_MS}
_COUNTS: Final = ("accepted", "delivered", "cancelled", "expired", "dead_letters")


class Live:
    """The page, and its stream, for one event loop."""

    def __init__(self, running: Running, access: Access, to: str = "") -> None:
        self._frames = Frames(running)
        self._access = access
        self._page = live_page("service", "Delivery", {})
        self._names = {"store": running.store.name, "to": shown_destination(to)}
        self._open = 0
        self.routes = [
            Route("/", self._show, methods=["GET"]),
            Route("/events", self._events, methods=["GET"]),
        ]

    def end(self) -> None:
        """The server ends: no page waits for more events."""
        self._frames.end()

    async def _show(self, request: Request) -> Response:
        refuse_query(request)
        return Response(self._page.body, headers=self._page.headers)

    async def _events(self, request: Request) -> Response:
        refuse_query(request)
        if request.method == "HEAD":
            return Response(headers=_HEADERS, media_type=_STREAM)
        if self._open >= MOST:
            raise problem(503, f"{MOST} pages are open already", AGAIN, {"retry-after": "1"})
        self._open += 1
        return _Stream(self._told(request.headers.getlist("authorization")), self._closed)

    async def _told(self, authorization: list[str]) -> AsyncIterator[bytes]:
        """The events for the sender, as long as its token has the right to read."""
        rights = self._access.rights_of(authorization)
        hello = {"version": __version__, **self._names, "rights": [names_of(right) for right in rights]}
        async for frame in self._frames.events(_event("hello", hello)):
            if Right.READ not in self._access.rights_of(authorization):
                return
            yield frame

    def _closed(self) -> None:
        self._open -= 1


class _Stream(StreamingResponse):
    """Calls `closed` when it ends, for whatever reason."""

    def __init__(self, events: AsyncIterator[bytes], closed: Callable[[], None]) -> None:
        super().__init__(events, headers=_HEADERS, media_type=_STREAM)
        self._closed = closed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._closed()


class Frames:
    """The events for all pages. Two tasks ask the engine and the store, as long as there is a page."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._threads, self._load_threads = Threads("live", 1, 1), Threads("load", 1, 1)
        self._task: asyncio.Future[tuple[None, None]] | None = None
        self._waiting: set[asyncio.Queue[bytes | None]] = set()
        self._is_over = False

    @property
    def pages(self) -> int:
        """How many are open."""
        return len(self._waiting)

    async def events(self, first: bytes) -> AsyncIterator[bytes]:
        """The events for one page, until it is closed."""
        place: asyncio.Queue[bytes | None] = asyncio.Queue(2 * _FIGURES_EVERY)
        self._waiting.add(place)
        try:
            if self._task is None:
                self._task = asyncio.gather(self._tell(), self._tell_load())
            yield first
            while not self._is_over and (frame := await place.get()) is not None:
                yield frame
        finally:
            self._waiting.discard(place)
            if not self._waiting and self._task is not None:
                self._task.cancel()
                self._task = None

    def end(self) -> None:
        """End the events of every page."""
        self._is_over = True
        for place in self._waiting:
            with suppress(asyncio.QueueFull):  # it looks before it waits again
                place.put_nowait(None)

    async def _tell(self) -> None:
        number, next_wheel_s = 0, 0.0
        while not self._is_over:
            try:
                begins_s = time.monotonic()
                if begins_s >= next_wheel_s:
                    self._put(await self._threads.run(self._wheel))
                    next_wheel_s = begins_s + (time.monotonic() - begins_s) * REST
                if number % _FIGURES_EVERY == 0:
                    self._put(await self._threads.run(self._figures))
            except (StoreFailed, WrongUsage) as error:  # the second: its file was moved
                self._put(_event("failed", {"reason": without_folders(str(error))}))
            number += 1
            await asyncio.sleep(FRAME_S)

    async def _tell_load(self) -> None:
        """In a thread of its own: it takes long, and the other frames go on."""
        while not self._is_over:
            begins_s = time.monotonic()
            with suppress(StoreFailed, WrongUsage):  # `_tell` says it
                self._put(await self._load_threads.run(self._load))
            await asyncio.sleep(max(_LOAD_EVERY_S, (time.monotonic() - begins_s) * REST))

    def _put(self, frame: bytes) -> None:
        for place in self._waiting:
            with suppress(asyncio.QueueFull):  # the page does not take them as fast
                place.put_nowait(frame)

    def _wheel(self) -> bytes:
        return _event("wheel", {"wheel": self._running.engine.occupancy()})

    def _figures(self) -> bytes:
        return _event("figures", figures(self._running, time.time_ns() // 1_000_000))

    def _load(self) -> bytes:
        return _event("load", {"load": load(self._running, time.time_ns() // 1_000_000)})


def figures(running: Running, now_ms: int) -> dict[str, Any]:
    """The engine and its store, as a page shows them. Errors: `StoreFailed`, `WrongUsage`."""
    measures, summary = running.engine.measures(), running.summary
    waiting = look(running, now_ms, _WITHIN_MS)
    with StoreSnapshot(running.store) as db:
        paused_keys, letters, until_ms = count_paused_keys(db), db.dead_letters(), db.paused_until_ms()
        in_doubt = running.with_figures(in_doubt_of(db, _IN_DOUBT)) if measures.keys_in_doubt else None
    destinations = running.destination_figures()
    size, log_size = sizes_of(running.store)
    messages, in_memory = running.engine.in_memory()
    bounds, numbers, _ = measures.lateness
    reason, changed_ms = running.engine.down, measures.destination_changed_ms
    destination = None if changed_ms is None else {"up": reason is None, "reason": reason, "changed_ms": changed_ms}
    return {
        "at_ms": now_ms,
        "since_ms": running.opened_ms,
        "counts": {name: getattr(summary, name) for name in _COUNTS},
        "dead_letters": letters,
        "states": dict(measures.states),
        "due": waiting.due,
        "due_most": COUNTED,
        "oldest_overdue_ms": waiting.oldest_overdue_ms,
        "destination": destination,
        "destinations": destinations if destinations.count else None,
        "tenants": running.engine.tenant_figures(SHOWN, [])[0],
        "in_doubt": None if in_doubt is None else grouped(in_doubt),
        "rate_per_s": running.rate_per_s,
        "paused": running.engine.is_paused,
        "paused_until": None if until_ms is None else rfc_3339(until_ms),
        "paused_keys": paused_keys,
        "lateness_us": [*zip([*bounds, None], numbers, strict=True)],
        "window": {"messages": messages, "bytes": in_memory},
        "last_commit_ms": measures.last_commit_ms,
        "store_bytes": size,
        "store_log_bytes": log_size,
    }


def grouped(found: InDoubt) -> dict[str, Any]:
    """The keys in doubt by their last error: first the error of the most keys, with those that fail for longest."""
    groups: dict[str | None, list[KeyInDoubt]] = {}
    for key in found.longest:
        groups.setdefault(key.last_error, []).append(key)
    largest = sorted(groups.items(), key=lambda it: -len(it[1]))[:_GROUPS]
    told = [{"error": error, "keys": len(keys), "first": keys[:_GROUPS]} for error, keys in largest]
    return msgspec.structs.asdict(found) | {"longest": None, "groups": told, "errors": len(groups)}


def load(running: Running, now_ms: int) -> dict[str, Any]:
    """How many messages are due in each minute of an hour and each hour of a day, by the clock, from now on; and how
    many wait for events. About three seconds for ten million messages. Errors: `StoreFailed`.
    """
    minutes, hours = [0] * 60, [0] * 24
    with StoreSnapshot(running.store) as db:
        due = db.due_by_step(now_ms, now_ms // _HOUR_MS * _HOUR_MS + _DAY_MS, _MINUTE_MS)
        found = db.status([])
    for start_ms, number in due:
        hours[start_ms // _HOUR_MS - now_ms // _HOUR_MS] += number
        if (ahead := start_ms // _MINUTE_MS - now_ms // _MINUTE_MS) < len(minutes):
            minutes[ahead] += number
    events = {name: found[name] for name in ("waiting_for_events", "remembered_events")}
    return {"at_ms": now_ms, "minutes": minutes, "hours": hours, **events}


def shown_destination(to: str) -> str:
    """An address without secrets and folders: the host, if it has one.

    >>> shown_destination("https://me:secret@hooks.example/orders?key=1"), shown_destination("file:/var/out.ndjson")
    ('hooks.example', 'file:out.ndjson')
    """
    told = {"named": "named destinations", "-": "standard output"}.get(to)
    return told or urlsplit(to).netloc.rpartition("@")[2] or without_folders(without_user(to))


def _event(name: str, data: object) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(data))
