"""`Client` and `AsyncClient`: the calls of a queue, asked of a `tickwheel serve` over HTTP (rule D11).

Each method is made from a method of `DeliveryQueue`, and has the same arguments, checks, answers and errors. Every call
is known by a name, so that it can be sent again.
"""

import asyncio
import os
import ssl
import time
from base64 import b64encode
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from datetime import timedelta
from functools import partial, wraps
from itertools import groupby
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

import msgspec

from tickwheel._event import Event as StopEvent
from tickwheel._native import Receipt, read_records, record_fields
from tickwheel.delivery.base.errors import BadRecord, WrongUsage
from tickwheel.delivery.model.entries import (
    MANY_WAIT,
    OTHER_CONTENT,
    Act,
    Answer,
    Event,
    Look,
    Pause,
    SetDestination,
    SetTenant,
)
from tickwheel.delivery.model.message import MAX_PAYLOAD_LIMIT, Message
from tickwheel.delivery.observe.tracing import current_traceparent
from tickwheel.delivery.outbox.records import event_record, fields_of
from tickwheel.delivery.queue.control import HttpControl
from tickwheel.delivery.queue.queue import DeliveryQueue
from tickwheel.delivery.queue.server_view import Refused, ServerView, Told, address, call, path_of
from tickwheel.delivery.sight import Action

_P = ParamSpec("_P")
_T = TypeVar("_T")

_AT_A_TIME: Final = 8
_ANSWERS: Final = {OTHER_CONTENT.reason: Answer.CONFLICT, MANY_WAIT.reason: Answer.FULL}
_NO_DESTINATION: Final = 422
_NOT_OF_THE_ITEM: Final = (401, 403, 404, 405)


class _Told(msgspec.Struct):
    """The answers to what was asked, as a `Receipt` has them."""

    found: list[tuple[int, str, Answer | BadRecord, int | None]]

    def answers(self) -> list[Answer | BadRecord]:
        return [answer for _, _, answer, _ in self.found]

    def rows(self) -> list[tuple[int, str, Answer | BadRecord, int | None]]:
        return self.found


class _ServedQueue(DeliveryQueue):
    """A queue that asks a server: of the calls only `_ask` is its own."""

    def __init__(self, server: HttpControl) -> None:
        self.server = server
        self._handlers = None

    def put_many(self, messages: Iterable[Message | Mapping[str, Any] | Sequence[Any]]) -> list[Answer]:
        given: Any = list(messages) if isinstance(messages, Iterable) else messages
        read_records(given, format="messages", max_payload=MAX_PAYLOAD_LIMIT)
        answers = list(self._put(given))
        for answer in answers:
            if isinstance(answer, BadRecord):
                raise answer
        return answers  # type: ignore[return-value]

    def action(self, id: str) -> Action | None:  # noqa: A002
        if id is None:
            raise WrongUsage("id is None: give the id of an action")
        return self.server.find(path_of("actions", id), "kind", Action)

    def _ask(self, parts: Sequence[object], read: Callable[[list[Receipt]], _T], **_options: Any) -> _T:
        [item] = parts  # the same errors as of a queue, before anything is sent
        read_records(item, format="item", max_payload=MAX_PAYLOAD_LIMIT)
        return read([self._told(item)])  # type: ignore[list-item]

    def _told(self, item: Any) -> _Told:
        try:
            row = self._row(item)
        except Refused as refused:
            if refused.status in _NOT_OF_THE_ITEM:
                raise
            if isinstance(item, Pause | SetDestination | SetTenant):
                raise WrongUsage(f"{refused.reason}: {refused.allowed}") from refused
            raise BadRecord(refused.reason, refused.allowed) from refused
        if isinstance(row[2], BadRecord):
            raise row[2]
        return _Told([row])

    def _row(self, item: Any) -> tuple[int, str, Answer | BadRecord, int | None]:
        if isinstance(item, Mapping):
            return 1, "put", next(self._put([item])), None
        if isinstance(item, Event):
            [told] = self.server.put([event_record(item, MAX_PAYLOAD_LIMIT).encode()])
            return 1, "event", _answer_of(told), told.let_go
        if isinstance(item, Look):
            found = self.server.request("GET", address("/message", id=item.id, key=item.key))
            return 1, "look", _answer_of(found), None
        if isinstance(item, Act):
            self.server.begin(item)
            return 1, "act", Answer.ACCEPTED, None
        return 1, "", self.server.ask(item), None

    def _put(self, given: Sequence[Any]) -> Iterator[Answer | BadRecord]:
        """Put them in their order, some in each request."""
        for query, records in groupby(map(_record_of, given), key=lambda it: it[0]):
            yield from map(_answer_of, self.server.put((line for _, line in records), query))


def _record_of(given: Any) -> tuple[str, bytes]:
    """The query of the request that puts it, and its line."""
    fields = record_fields(fields_of(given))
    replaces = dict.fromkeys(("replace", "debounce_ms", "at_latest_ms"))
    if isinstance(given, Mapping):
        replaces |= {name: given.get(name) for name in replaces}
    if (delay_ms := replaces["debounce_ms"]) is not None:
        fields["delay_ms"] = delay_ms / timedelta(milliseconds=1) if isinstance(delay_ms, timedelta) else delay_ms
    query = ""
    if replaces["replace"] or delay_ms is not None:
        latest = replaces["at_latest_ms"]
        latest = latest // timedelta(milliseconds=1) if isinstance(latest, timedelta) else latest
        query = address("", replace="true", at_latest_ms=latest)
    payload = fields.pop("payload")
    named = {"payload_base64": b64encode(payload).decode()} if isinstance(payload, bytes) else {"payload": payload}
    record = {"traceparent": current_traceparent()} | fields | named
    return query, msgspec.json.encode({name: value for name, value in record.items() if value is not None})


def _answer_of(told: Told) -> Answer | BadRecord:
    if told.state is not None:
        return told.state
    if told.status == _NO_DESTINATION:
        return Answer.REFUSED
    return _ANSWERS.get(told.reason) or BadRecord(told.reason, told.allowed)


def _asked(
    method: Callable[Concatenate[DeliveryQueue, _P], _T],
) -> "Callable[Concatenate[Client, _P], _T]":
    """Makes a method of `Client` from a method of `DeliveryQueue`."""

    @wraps(method)
    def ask(client: "Client", /, *args: _P.args, **options: _P.kwargs) -> _T:
        return getattr(client._calls, method.__name__)(*args, **options)  # type: ignore[no-any-return]

    return ask


class Client:
    """The calls of a `DeliveryQueue` for a `tickwheel serve` at `url`, as `http://127.0.0.1:7400`.

    `token`: one with the rights of what is called. `context`: how TLS trusts the server; by default by the authorities
    of the system. `timeout_s`: how long the server may say nothing. `retry_s`: for how long a request is sent again if
    it may pass later, as while the server starts anew, and if its answer was lost. So a `put` may answer `DUPLICATE`,
    and a `requeue` or `again` what became of the first try. A `put` that replaces, and a `reschedule`, are sent again
    only if they were not taken; else `DeliveryFailed` says that they may have been. Any thread may use it, also in a
    process that was forked.
    `put_many` sends a megabyte at a time: after an error, some of it may be accepted. Errors: those of the queue's own
    calls; `WrongUsage` for a right that is missing; `DeliveryFailed` if the server can't be asked.

    `view`: as of a queue, `client.view.list(key="k")`, and `show`, `dead`, `status`, `destinations`, `tenants`.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        context: ssl.SSLContext | None = None,
        timeout_s: float = 30.0,
        retry_s: float = 60.0,
    ) -> None:
        given: Any = token.encode(errors="surrogatepass") if isinstance(token, str) else token
        self._calls = _ServedQueue(HttpControl(url, given, context, timeout_s, retry_s))

    put = _asked(DeliveryQueue.put)
    put_many = _asked(DeliveryQueue.put_many)
    cancel = _asked(DeliveryQueue.cancel)
    reschedule = _asked(DeliveryQueue.reschedule)
    event = _asked(DeliveryQueue.event)
    forget_event = _asked(DeliveryQueue.forget_event)
    requeue = _asked(DeliveryQueue.requeue)
    again = _asked(DeliveryQueue.again)
    cancel_many = _asked(DeliveryQueue.cancel_many)
    requeue_many = _asked(DeliveryQueue.requeue_many)
    action = _asked(DeliveryQueue.action)
    set_destination = _asked(DeliveryQueue.set_destination)
    remove_destination = _asked(DeliveryQueue.remove_destination)
    set_tenant = _asked(DeliveryQueue.set_tenant)
    remove_tenant = _asked(DeliveryQueue.remove_tenant)
    pause = _asked(DeliveryQueue.pause)
    resume = _asked(DeliveryQueue.resume)
    state = _asked(DeliveryQueue.state)

    @property
    def view(self) -> ServerView:
        """Looks at the server's store."""
        return self._calls.server

    def close(self) -> None:
        """Close the connections that are kept."""
        self._calls.server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _awaited(
    method: Callable[Concatenate[Client, _P], _T],
) -> "Callable[Concatenate[AsyncClient, _P], Coroutine[object, object, _T]]":
    """Makes a method of `AsyncClient` from a method of `Client`."""

    @wraps(method)
    async def ask(client: "AsyncClient", /, *args: _P.args, **options: _P.kwargs) -> _T:
        return await client.call(partial(method, client._client, *args, **options))

    return ask


class AsyncClient:
    """A `Client` for asyncio, with the same arguments: each call is awaited, and runs in one of eight threads.

    If its task is cancelled, the request may still be done. A wait for a thread counts to `retry_s`.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        context: ssl.SSLContext | None = None,
        timeout_s: float = 30.0,
        retry_s: float = 60.0,
    ) -> None:
        self._client = Client(url, token, context=context, timeout_s=timeout_s, retry_s=retry_s)
        self._begun = set[StopEvent]()
        self._process = 0  # no threads

    put = _awaited(Client.put)
    put_many = _awaited(Client.put_many)
    cancel = _awaited(Client.cancel)
    reschedule = _awaited(Client.reschedule)
    event = _awaited(Client.event)
    forget_event = _awaited(Client.forget_event)
    requeue = _awaited(Client.requeue)
    again = _awaited(Client.again)
    cancel_many = _awaited(Client.cancel_many)
    requeue_many = _awaited(Client.requeue_many)
    action = _awaited(Client.action)
    set_destination = _awaited(Client.set_destination)
    remove_destination = _awaited(Client.remove_destination)
    set_tenant = _awaited(Client.set_tenant)
    remove_tenant = _awaited(Client.remove_tenant)
    pause = _awaited(Client.pause)
    resume = _awaited(Client.resume)
    state = _awaited(Client.state)

    async def call(self, ask: Callable[[], _T]) -> _T:
        """Call this in a thread of the client, as `await client.call(client.view.status)`."""
        if self._process != os.getpid():  # a fork has no threads of its parent
            self._process = os.getpid()
            self._threads = ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="asks-server")
        asked_s, is_over = time.monotonic(), StopEvent()

        def asked() -> _T:
            call.set((time.monotonic() - asked_s, is_over))
            return ask()

        self._begun.add(is_over)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, copy_context().run, asked)
        finally:
            is_over.set()
            self._begun.discard(is_over)

    @property
    def view(self) -> ServerView:
        """Looks at the server's store, by calls that block: give them to `call`."""
        return self._client.view

    async def close(self) -> None:
        """Wait for the answers to requests that were sent, send none again, and close the connections."""
        for is_over in self._begun:
            is_over.set()
        if self._process == os.getpid():
            await asyncio.to_thread(self._threads.shutdown)
        self._client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
