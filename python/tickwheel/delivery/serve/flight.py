"""Accepts batches of messages over Arrow Flight (rules D11, D12, S3), the fastest interface.

A client opens `do_exchange`, with any descriptor, and sends batches of D1's schema. The answer to each is a batch of
`ANSWERS`, one row per row in order, once the whole batch is on disk. The answer to a row that can't be used is `bad
record` with the reason; to one whose key and id are known with other content, `other content`. After both the stream
goes on. These errors end it:

- `FlightServerError`: another schema, or a batch that is too large, and the reason. Sending it again does not help.
- `FlightUnauthenticatedError`: the header `authorization: Bearer TOKEN` is missing or wrong.
- `FlightUnauthorizedError`: this token has not the right to produce.
- `FlightUnavailableError`: the server stops, or its delivery has failed. Later, send again what was not answered:
  what was accepted is then answered as `duplicate`.

With the path `hand-off` in the descriptor the rows are those of `handed.py`. The answer to a batch is then one row of
`TAKEN`, once all of it is on disk. A second part of the path is the id of the store that they are for:
`FlightUnavailableError` if another one is here.

The action `marks` answers one JSON object (rule S4): `store_id`, which is another one after the disk was lost or a
backup was restored; `now_ms`, this machine's clock; and `marks`, for each of the 64 partitions the instant up to which
every outcome is on disk. It waits for no commit. With the number of a partition as its body the answer has `recurring`
too: the key and id of each of its recurring messages that is open, or null where they are more than 256 KiB.
"""

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyarrow import flight, types

from tickwheel._native import ArrowRows, HandOffRows, Records
from tickwheel.delivery.base.errors import BadRecord
from tickwheel.delivery.engine.running import Running
from tickwheel.delivery.model.entries import OTHER_CONTENT, Answer, answered
from tickwheel.delivery.model.message import Columns
from tickwheel.delivery.read.arrow import MESSAGE_SCHEMA, check_names, read_batch, stream_of
from tickwheel.delivery.read.hand_off_rows import PARTITIONS
from tickwheel.delivery.serve.access import Access
from tickwheel.delivery.serve.tokens import Right

ANSWERS: Final = pa.schema([pa.field("answer", pa.string(), nullable=False), pa.field("reason", pa.string())])
HAND_OFF: Final = "hand-off"
MARKS: Final = "marks"
TAKEN: Final = pa.schema([pa.field("rows", pa.int64(), nullable=False)])
BAD: Final = "bad record"
MAX_ROWS: Final = 10_000
MAX_BYTES: Final = 64 << 20

_log = logging.getLogger("tickwheel.delivery")
_METHODS: Final = {flight.FlightMethod.DO_EXCHANGE, flight.FlightMethod.DO_ACTION, flight.FlightMethod.LIST_ACTIONS}
_PIECE: Final = 512  # rows of a hand-off that are read at a time, for about half a millisecond
_PIECE_BYTES: Final = 1 << 20


class FlightServer(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """Listens from the start, on `location`, at `port`. Each stream has its own thread."""

    def __init__(self, location: str, running: Running, access: Access, max_payload: int) -> None:
        super().__init__(location, middleware={"token": _Token(access)})
        self._running = running
        self._max_payload = max_payload
        self._closing: threading.Thread | None = None
        self._reading = threading.Lock()  # held for a piece of a hand-off: only one thread competes with due messages
        self._rows = ArrowRows("flight", Columns().names, max_payload, letters=False)
        self._handed = HandOffRows(max_payload)

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Serve one stream until its client ends it. Only `FlightError`s leave it: pyarrow sends the traceback of any
        other exception to the client.
        """
        try:
            self._serve_stream(descriptor, reader, writer)
        except flight.FlightError:
            raise
        except (pa.ArrowException, OSError) as error:  # the store's own errors are `FlightUnavailableError` by now
            raise flight.FlightServerError(str(error)) from None
        except Exception as error:
            if context.is_cancelled():
                raise flight.FlightCancelledError("the client has gone") from None
            _log.exception("a stream of Arrow Flight failed")
            raise flight.FlightServerError(f"this server has an error, see its log: {type(error).__name__}") from None

    def _serve_stream(self, descriptor: Any, reader: Any, writer: Any) -> None:
        [kind, *store] = [part.decode(errors="replace") for part in descriptor.path or [b""]]
        if kind == HAND_OFF:
            self._check_store(store)
            schema, answer = TAKEN, self._take
        else:
            _check_schema(self._rows, reader.schema)
            schema, answer = ANSWERS, self._answer
        writer.begin(schema)
        for chunk in reader:
            if chunk.data is not None:
                _check_size(chunk.data)
                writer.write_batch(answer(chunk.data))

    def _check_store(self, asked_for: Sequence[str]) -> None:
        """A client that believes in a store that is not here any more must learn that before it gives anything."""
        if asked_for and asked_for != [self._running.history_id]:
            raise flight.FlightUnavailableError(
                f"the store here is {self._running.history_id}, not {asked_for[0]:.200}: ask for marks, which tell it"
            )

    def do_action(self, _context: Any, action: Any) -> Sequence[Any]:
        """Answer the action `marks`."""
        if action.type != MARKS:
            raise flight.FlightServerError(f"there is no action {action.type!r:.200} here: use {MARKS}")
        partition = _partition_in(bytes(action.body))
        try:
            now_ms, marks = self._running.marks()
            body: dict[str, Any] = {"store_id": self._running.history_id, "now_ms": now_ms, "marks": marks}
            if partition is not None:
                body["recurring"] = self._running.rules_of(partition)
        except Exception as error:
            raise flight.FlightUnavailableError(str(error)) from error
        return [flight.Result(pa.py_buffer(msgspec.json.encode(body)))]

    def list_actions(self, _context: Any) -> Sequence[Any]:
        """What `do_action` knows."""
        return [flight.ActionType(MARKS, "for each partition, up to which instant every outcome is on disk")]

    def stop(self, timeout_s: float) -> bool:
        """Take no more streams. Returns whether the open ones ended within this time. Otherwise the process can't end
        normally, because there is no way to close a stream from here.
        """
        if self._closing is None:
            self._closing = threading.Thread(target=self.shutdown, name="flight-serve", daemon=True)
            self._closing.start()
        self._closing.join(timeout_s)
        return not self._closing.is_alive()

    def _take(self, batch: Any) -> Any:
        batch.validate(full=True)
        step = max(1, min(_PIECE, _PIECE_BYTES * batch.num_rows // max(1, batch.get_total_buffer_size())))
        tickets = []
        for start in range(0, batch.num_rows, step):
            with self._reading:
                try:
                    [records] = self._handed.body().add(stream_of(batch.slice(start, step)))
                except BadRecord as bad:
                    raise pa.ArrowInvalid(str(bad)) from bad
            tickets.append(self._hand_in([records]))  # pieces share commits: none waits for that of the one before
        for ticket in tickets:
            _result(ticket)
        return pa.record_batch([[batch.num_rows]], schema=TAKEN)

    def _answer(self, batch: Any) -> Any:
        pieces = read_batch(self._rows, batch, now_ns=time.time_ns())
        tickets = [(records.faults(), self._hand_in([records])) for records in pieces]
        found = [each for faults, ticket in tickets for each in answered(faults, _result(ticket))]
        answers = [BAD if isinstance(each, BadRecord) else each for each in found]
        reasons = [_reason(each) for each in found]
        return pa.record_batch([answers, reasons], schema=ANSWERS)

    def _hand_in(self, records: Sequence[Records]) -> Any:
        try:
            return self._running.submit(records, self._max_payload)
        except Exception as error:
            raise flight.FlightUnavailableError(str(error)) from error


def _partition_in(body: bytes) -> int | None:
    """What the body of the action `marks` asks for. Errors: `FlightServerError`."""
    if not body:
        return None
    if body.isdigit() and int(body) < PARTITIONS:
        return int(body)
    raise flight.FlightServerError(
        f"the body of {MARKS} is {body!r:.200}: it may be empty, or the number of a partition, 0 to {PARTITIONS - 1}"
    )


def _reason(found: Answer | BadRecord) -> str | None:
    bad = OTHER_CONTENT if found is Answer.CONFLICT else found
    return str(bad) if isinstance(bad, BadRecord) else None


def _result(ticket: Any) -> list[Answer]:
    try:
        answers: list[Answer] = ticket.result()
    except Exception as error:
        raise flight.FlightUnavailableError(str(error)) from error
    return answers


class _Token(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Checks the token and the method before anything of a call is read."""

    def __init__(self, access: Access) -> None:
        super().__init__()
        self._access = access

    def start_call(self, info: Any, headers: Mapping[str, Sequence[str | bytes]]) -> None:
        given = headers.get("authorization", ())
        refusal = self._access.why_not(
            [it.encode(errors="surrogateescape") if isinstance(it, str) else it for it in given], Right.PRODUCE
        )
        if refusal is not None and refusal.is_known:
            raise flight.FlightUnauthorizedError(f"{refusal.reason}: send {refusal.allowed}")
        if refusal is not None:
            raise flight.FlightUnauthenticatedError(f"{refusal.reason}: send the header {refusal.allowed}")
        if info.method not in _METHODS:
            raise flight.FlightServerError(f"there is no {info.method.name.lower()} here: use do_exchange or do_action")


def _is_text(kind: Any) -> bool:
    if types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_time(kind: Any) -> bool:
    return bool(types.is_timestamp(kind) and kind.tz is not None) or bool(types.is_integer(kind)) or _is_text(kind)


def _check_size(batch: Any) -> None:
    size = batch.get_total_buffer_size()
    if batch.num_rows > MAX_ROWS or size > MAX_BYTES:
        raise pa.ArrowInvalid(
            f"a batch has {batch.num_rows:,} rows and {size:,} bytes: it may have {MAX_ROWS:,} and {MAX_BYTES:,}; "
            "send smaller ones"
        )


def _check_schema(rows: ArrowRows, schema: Any) -> None:
    """Columns of D1 in any order, with `id`, of types that can be read as D1's. Errors: `ArrowInvalid`."""
    problem, fault = "", ""
    try:
        check_names(rows, schema)
    except BadRecord as bad:
        fault = bad.reason
    with suppress(UnicodeDecodeError):  # which is the fault, then
        for field in schema:
            fits = {"due": _is_time, "expires": _is_time, "delay_ms": _is_number, "payload": _is_any}.get(
                field.name, _is_text
            )
            if field.name not in MESSAGE_SCHEMA.names:
                problem = problem or f"the schema has a column {field.name!r:.200}"
            elif not (fits(field.type) or types.is_null(field.type)):
                problem = problem or f"the column {field.name} is of type {str(field.type)[:200]}"
    problem = problem or fault
    if problem:
        allowed = ", ".join(f"{field.name} {field.type}" for field in MESSAGE_SCHEMA)
        raise pa.ArrowInvalid(
            f"{problem}: it may have {allowed}; id is required, and due, delay_ms or op; the others only if needed"
        )


def _is_number(kind: Any) -> bool:
    return bool(types.is_integer(kind) or types.is_floating(kind))


def _is_any(_kind: Any) -> bool:
    return True
