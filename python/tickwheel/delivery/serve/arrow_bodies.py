"""Takes requests whose body is an Arrow IPC stream: many messages, or a hand-off (rules D11, D12, S3).

Each batch is read and given to the engine as soon as it has come, in pieces of some megabytes. A single thread does
this for all requests, so that only one thread competes with due messages. It takes a piece of each request in turn, so
that no request holds up the others. The answer comes after the last commit.

Memory holds the incomplete batch, the dictionaries of the stream, and as much as the engine has room for. A stream is
not compressed, so a batch in memory is about as large as it was on its way. Messages that share a value of a dictionary
are larger in memory. There is a limit for each piece, and for all messages of a request.

A body that can't be read ends with 400. The rows before the fault may have been accepted. It does no harm to send the
same body again: accepted messages are duplicates then.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tickwheel._native import ArrowBody, ArrowRows, Receipt, Records, read_records
from tickwheel.delivery.base.errors import BadRecord
from tickwheel.delivery.engine.running import Running
from tickwheel.delivery.model.message import Columns
from tickwheel.delivery.queue.submitting import Submitter
from tickwheel.delivery.serve.bodies import Bodies
from tickwheel.delivery.serve.http_connection import HELD_UP
from tickwheel.delivery.serve.problems import (
    DUPLICATE,
    json_response,
    or_unavailable,
    parameters,
    problem,
    refuse_query,
    unavailable,
)
from tickwheel.delivery.serve.threads import Threads

TYPE: Final = "application/vnd.apache.arrow.stream"
MOST_BYTES: Final = 64 << 20
MOST_ROWS: Final = 10_000
MOST_DECODED_BYTES: Final = 256 << 20
SOME: Final = "some of its messages may have been accepted"

_T = TypeVar("_T")


class ArrowBodies:
    """`max_payload`: bytes. Everything runs in the event loop, except for reading."""

    def __init__(self, running: Running, submitter: Submitter, max_payload: int, bodies: Bodies) -> None:
        self._running = running
        self._submitter = submitter
        self._bodies = bodies
        self._messages = ArrowRows("-", Columns(), max_payload, letters=False)
        self._hand_off = ArrowRows.hand_off(max_payload)
        self._thread = Threads("Arrow streams", 1, 256)
        self._marking = Threads("marks", 1, 64)
        self._turn = asyncio.Lock()
        self.routes: Sequence[Route] = [
            Route("/hand-off", self.hand_off, methods=["POST"]),
            Route("/hand-off/marks", self.marks, methods=["GET"]),
        ]

    async def messages(
        self, request: Request, options: Mapping[str, Any], take_room: Callable[[int], None]
    ) -> list[Receipt]:
        """The receipts of all rows. `options`: as for the engine's `submit`. `take_room` is called with the number of
        bad rows, before they are submitted. Errors: 400, 408, 413, 503.
        """
        body = self._messages.body()
        receipts = await self._take(request, body, options, take_room)
        if not body.rows:
            raise problem(400, "the stream has no rows", f"1 to {MOST_ROWS:,} rows")
        return receipts

    async def hand_off(self, request: Request) -> Response:
        """Take the rows of a hand-off. Errors: 400, 408, 409, 413, 415, 503."""
        if not is_arrow(request):
            raise problem(415, "the body is no Arrow IPC stream", f"content-type: {TYPE}")
        self._check_store(request)
        body = self._hand_off.body()
        await self._take(request, body, {}, lambda _: None)
        return json_response(200, {"rows": body.rows})

    async def marks(self, request: Request) -> Response:
        """How far the outcomes of each partition are on disk. Errors: 400, 503."""
        refuse_query(request)
        return json_response(200, await self._marking.run(self._marks))

    def _marks(self) -> dict[str, object]:
        try:
            engine = self._running.engine
            openings, commits = engine.openings()  # before the marks, so that what it tells is on disk with them
            now_ms, marks = engine.marks()
            store = {"store_id": engine.history_id, "openings": openings, "commits": commits}
            return {**store, "now_ms": now_ms, "marks": marks}
        except Exception as error:
            raise unavailable(error) from error

    def _check_store(self, request: Request) -> None:
        """If the client expects another store, it gets an error before anything is read. Errors: 400, 409."""
        here = self._running.engine.history_id
        expected = parameters(request, ("store",), "/hand-off, or ?store=ID").get("store", here)
        if expected != here:
            reason = f"the store here is {here}, not {expected:.100}"
            raise problem(409, reason, "GET /hand-off/marks, which tells the store's id")

    async def _take(
        self,
        request: Request,
        body: ArrowBody,
        options: Mapping[str, Any],
        take_room: Callable[[int], None],
    ) -> list[Receipt]:
        """The receipts of the pieces, once the whole body is on disk."""
        submitted: list[asyncio.Future[Receipt]] = []
        held_up: Callable[[bool], object] = request.scope["state"][HELD_UP]

        async def take(part: bytes) -> int:
            pieces = self._pieces(body, part, options)
            held_up(True)
            try:
                with self._thread.place():
                    while await self._submit_next(pieces, take_room, submitted):
                        pass  # other requests have their turns
            finally:
                held_up(False)
            return body.kept_bytes

        try:
            await self._bodies.pass_on(request, MOST_BYTES, take)
            _checked(body.end)
            return [await or_unavailable(future, "", DUPLICATE) for future in submitted]
        except HTTPException as refused:
            if not submitted:
                raise  # nothing was accepted
            fault: Mapping[str, str] = refused.detail  # type: ignore[assignment]  # of `problem`
            reason = f"{fault['reason']}; {SOME}"
            raise problem(refused.status_code, reason, fault["allowed"], refused.headers) from refused

    async def _submit_next(
        self,
        pieces: Iterator[Records],
        take_room: Callable[[int], None],
        submitted: "list[asyncio.Future[Receipt]]",
    ) -> bool:
        """Whether there was a piece. Waits while the engine has no room. A single piece is in memory at a time, of all
        requests.
        """
        async with self._turn:
            if (records := await self._thread.call(partial(next, pieces, None))) is None:
                return False
            take_room(records.bad_count)
            submitted.append(await or_unavailable(self._submitter.submit(records), "", DUPLICATE))
            return True

    @staticmethod
    def _pieces(body: ArrowBody, part: bytes, options: Mapping[str, Any]) -> Iterator[Records]:
        pieces = _checked(partial(body.add, part, now_ns=time.time_ns()))
        if body.rows > MOST_ROWS:
            raise problem(413, "the stream has too many rows", f"at most {MOST_ROWS:,} in a request")
        while (records := _checked(partial(next, pieces, None))) is not None:
            if body.decoded_bytes > MOST_DECODED_BYTES:
                reason = "the messages of the stream are too large, each with its own values"
                raise problem(413, reason, f"at most {MOST_DECODED_BYTES:,} bytes in a request")
            yield from read_records(records, **options)


def is_arrow(request: Request) -> bool:
    """By its type."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == TYPE


def _checked(read: Callable[[], _T]) -> _T:
    """The value that `read` returns. Errors: 400 for a stream that can't be read."""
    try:
        return read()
    except BadRecord as bad:
        raise problem(400, bad.reason, bad.allowed) from bad
