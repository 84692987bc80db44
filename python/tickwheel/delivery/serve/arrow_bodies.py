"""Takes requests whose body is an Arrow IPC stream: many messages, or a hand-off (rules D11, D12, S3).

| request | answer |
|---|---|
| `POST /messages` of type `application/vnd.apache.arrow.stream` | 200; a line for each row, as for NDJSON |
| `POST /hand-off?store=ID`, of this type too | 200 `{"rows": N}`, once all are on disk; 409 if another store is here |
| `GET /hand-off/marks?partition=N` | 200, how far the outcomes are on disk |

Each batch is read and given to the engine as soon as it has come, in pieces of some megabytes. A single thread does
this for all requests, so that only one thread competes with due messages. It takes a piece of each request in turn, so
that no request holds up the others. The answer comes after the last commit.

Memory holds the incomplete batch, the dictionaries of the stream, and as much as the engine has room for. A stream is
not compressed, so a batch in memory is about as large as it was on its way. Messages that share a value of a dictionary
are larger in memory. There is a limit for each piece, and for all messages of a request.

A body that can't be read ends with 400. The rows before the fault may have been accepted. It does no harm to send the
same body again: accepted messages are duplicates then.

`marks` (rule S4) has `store_id`, which changes if the disk is lost or a backup is restored; `openings` and `commits`,
which tell whether the store is an older copy of itself; `now_ms`, this machine's
clock; and `marks`, for each of the 64 partitions the instant up to which every outcome is on disk. It waits for no
commit. For one partition the answer also has `recurring`: the key and id of each open recurring message, or null if
they take more than 256 KiB.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tickwheel._native import PARTITIONS, ArrowBody, ArrowRows, HandOffRows, Records
from tickwheel.delivery.base.errors import BadRecord
from tickwheel.delivery.engine.running import Running
from tickwheel.delivery.model.entries import Answer, Fault, answered
from tickwheel.delivery.model.message import Columns
from tickwheel.delivery.queue.submitting import Submitter
from tickwheel.delivery.serve.bodies import Bodies
from tickwheel.delivery.serve.http_connection import HELD_UP
from tickwheel.delivery.serve.problems import AGAIN, json_response, problem, unavailable
from tickwheel.delivery.serve.threads import Threads

TYPE: Final = "application/vnd.apache.arrow.stream"
MOST_BYTES: Final = 64 << 20
MOST_ROWS: Final = 10_000
MOST_DECODED_BYTES: Final = 256 << 20
SOME: Final = "some of its messages may have been accepted"
_MARKS: Final = f"/hand-off/marks, or /hand-off/marks?partition=N, 0 to {PARTITIONS - 1}"

_T = TypeVar("_T")


class ArrowBodies:
    """`max_payload`: bytes. Everything runs in the event loop, except for reading."""

    def __init__(self, running: Running, submitter: Submitter, max_payload: int, bodies: Bodies) -> None:
        self._running = running
        self._submitter = submitter
        self._bodies = bodies
        self._messages = ArrowRows("-", Columns().names, max_payload, letters=False)
        self._hand_off = HandOffRows(max_payload)
        self._thread = Threads("Arrow streams", 1, 256)
        self._marking = Threads("marks", 1, 64)
        self._turn = asyncio.Lock()
        self.routes: Sequence[Route] = [
            Route("/hand-off", self.hand_off, methods=["POST"]),
            Route("/hand-off/marks", self.marks, methods=["GET"]),
        ]

    async def messages(
        self, request: Request, change: Callable[[Records], Records], take_room: Callable[[int], None]
    ) -> Sequence[tuple[str, Answer | BadRecord]]:
        """For each row its operation and its answer. `change` is applied to the records before they are submitted, and
        `take_room` is called with the number of bad ones. Errors: 400, 408, 413, 503.
        """
        noted = 0
        operations: list[str] = []
        faults: list[Fault | None] = []

        def prepare(records: Records) -> Records:
            changed = change(records)
            operations.extend(changed.operations())
            faults.extend(changed.faults())
            return changed

        def note() -> None:
            nonlocal noted
            new = faults[noted:]
            noted += len(new)
            take_room(len(new) - new.count(None))

        answers = await self._take(request, self._messages.body(), prepare, note)
        if not operations:
            raise problem(400, "the stream has no rows", f"1 to {MOST_ROWS:,} rows")
        return [*zip(operations, answered(faults, answers), strict=True)]

    async def hand_off(self, request: Request) -> Response:
        """Take the rows of a hand-off. Errors: 400, 408, 409, 413, 415, 503."""
        if not is_arrow(request):
            raise problem(415, "the body is no Arrow IPC stream", f"content-type: {TYPE}")
        self._check_store(request)
        body = self._hand_off.body()
        await self._take(request, body, lambda records: records, lambda: None)
        return json_response(200, {"rows": body.rows})

    async def marks(self, request: Request) -> Response:
        """How far the outcomes of each partition are on disk. Errors: 400, 503."""
        partition = _partition(request)
        return json_response(200, await self._marking.run(partial(self._marks, partition)))

    def _marks(self, partition: int | None) -> dict[str, object]:
        try:
            engine = self._running.engine
            openings, commits = engine.openings()  # before the marks, so that what it tells is on disk with them
            now_ms, marks = engine.marks()
            store = {"store_id": engine.history_id, "openings": openings, "commits": commits}
            found: dict[str, object] = {**store, "now_ms": now_ms, "marks": marks}
            return found if partition is None else found | {"recurring": self._running.engine.rules_of(partition)}
        except Exception as error:
            raise unavailable(error) from error

    def _check_store(self, request: Request) -> None:
        """If the client expects another store, it gets an error before anything is read. Errors: 400, 409."""
        if not request.scope["query_string"]:
            return
        given = request.query_params.multi_items()
        if [name for name, _ in given] != ["store"]:
            raise problem(400, f"the address asks for {str(request.url.query)!r:.100}", "/hand-off, or ?store=ID")
        if given[0][1] != self._running.engine.history_id:
            reason = f"the store here is {self._running.engine.history_id}, not {given[0][1]:.100}"
            raise problem(409, reason, "GET /hand-off/marks, which tells the store's id")

    async def _take(
        self,
        request: Request,
        body: ArrowBody,
        prepare: Callable[[Records], Records],
        note: Callable[[], None],
    ) -> list[Answer]:
        """The answers, once the whole body is on disk. `prepare` is called in the thread for each piece, and `note`
        after it in the event loop, before the piece is submitted.
        """
        submitted: list[asyncio.Future[list[Answer]]] = []
        held_up: Callable[[bool], object] = request.scope["state"][HELD_UP]

        async def take(part: bytes) -> int:
            pieces = map(prepare, self._pieces(body, part))
            held_up(True)
            try:
                with self._thread.place():
                    while await self._submit_next(pieces, note, submitted):
                        pass  # other requests have their turns
            finally:
                held_up(False)
            return body.kept_bytes

        try:
            await self._bodies.pass_on(request, MOST_BYTES, take)
            _checked(body.end)
            return [answer for future in submitted for answer in await _result(future)]
        except HTTPException as refused:
            if not submitted:
                raise  # nothing was accepted
            fault: Mapping[str, str] = refused.detail  # type: ignore[assignment]  # of `problem`
            reason = f"{fault['reason']}; {SOME}"
            raise problem(refused.status_code, reason, fault["allowed"], refused.headers) from refused

    async def _submit_next(
        self, pieces: Iterator[Records], note: Callable[[], None], submitted: "list[asyncio.Future[list[Answer]]]"
    ) -> bool:
        """Whether there was a piece. Waits while the engine has no room. A single piece is in memory at a time, of all
        requests.
        """
        async with self._turn:
            if (records := await self._thread.call(partial(next, pieces, None))) is None:
                return False
            note()
            submitted.append(await _result(self._submitter.submit([records])))
            return True

    @staticmethod
    def _pieces(body: ArrowBody, part: bytes) -> Iterator[Records]:
        pieces = _checked(partial(body.add, part, now_ns=time.time_ns()))
        if body.rows > MOST_ROWS:
            raise problem(413, "the stream has too many rows", f"at most {MOST_ROWS:,} in a request")
        while (records := _checked(partial(next, pieces, None))) is not None:
            if body.decoded_bytes > MOST_DECODED_BYTES:
                reason = "the messages of the stream are too large, each with its own values"
                raise problem(413, reason, f"at most {MOST_DECODED_BYTES:,} bytes in a request")
            yield records


def is_arrow(request: Request) -> bool:
    """By its type."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == TYPE


def _checked(read: Callable[[], _T]) -> _T:
    """The value that `read` returns. Errors: 400 for a stream that can't be read."""
    try:
        return read()
    except BadRecord as bad:
        raise problem(400, bad.reason, bad.allowed) from bad


async def _result(awaited: Awaitable[_T]) -> _T:
    """Errors: 503 if the engine takes no more, or the commit has failed."""
    try:
        return await awaited
    except Exception as error:
        raise unavailable(error, allowed=f"{AGAIN}: what was accepted answers duplicate") from error


def _partition(request: Request) -> int | None:
    """Errors: 400."""
    if not request.scope["query_string"]:
        return None
    match request.query_params.multi_items():
        case [("partition", digits)] if digits.isascii() and digits.isdigit() and len(digits) <= 4:
            if int(digits) < PARTITIONS:
                return int(digits)
    raise problem(400, f"the address asks for {str(request.url.query)!r:.100}", _MARKS)
