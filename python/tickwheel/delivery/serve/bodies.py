"""Receives the bodies of requests, each within a time and all within the budget of the process (rules D8, D12).

A body counts from its first part until its message is queued, which counts then; one of many messages, until its
request is answered. If there is no room for a part, the body with the longest time on its way is given up (408), if
this time is more than a second. Otherwise the request of the part gets 503. Slow bodies, however many, therefore hold
up only each other. When the server ends, a body has `_END_WITHIN_S` left, and then gets 503.

A body that is passed on in parts counts by the bytes that are still kept. While a part is taken, its time stands still.

What is wrong with records takes more memory than the records: each bad record of a body of many counts `_OF_A_FAULT`
bytes more, until the request is answered.
"""

import asyncio
import codecs
import contextlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Final, TypeAlias

from starlette.requests import ClientDisconnect, Request

from tickwheel.delivery.serve.problems import AGAIN, CLOSE, problem

_OF_A_FAULT: Final = 1 << 10
_WITHIN_S: Final = 30
_END_WITHIN_S: Final = 3  # less than requests have in all
_SLOW_S: Final = 1
_DISCARD_BYTES, _DISCARD_S = 1 << 26, 2  # how much of a refused body is read


class _NotReceived(Exception):
    def __init__(self, status: int, reason: str, allowed: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(reason)
        self.status, self.reason, self.allowed, self.headers = status, reason, allowed, headers


Take: TypeAlias = Callable[[bytes], Awaitable[int]]
"""Takes a part, and returns how many bytes are still kept of all the parts."""


class _Body:
    def __init__(self, end_s: float) -> None:
        self.since_s = asyncio.get_running_loop().time()
        self.deadline = asyncio.timeout_at(min(self.since_s + _WITHIN_S, end_s))
        self.take: Take | None = None
        self.parts: list[bytes] = []
        self.size = 0  # bytes of room that it has
        self.is_given_up = False


class Bodies:
    """The room for all bodies. Everything runs in the event loop. `take_bytes`: takes so many bytes of the budget, and
    returns whether there was room; a negative number gives back.
    """

    def __init__(self, take_bytes: Callable[[int], bool]) -> None:
        self._take_bytes = take_bytes
        self._on_their_way: dict[_Body, None] = {}
        self._end_s = math.inf  # of the server, on the clock of the loop

    def end(self) -> None:
        """The server ends: bodies on their way have `_END_WITHIN_S` left."""
        now_s = asyncio.get_running_loop().time()
        self._end_s = min(self._end_s, now_s + _END_WITHIN_S)
        for body in self._on_their_way:
            if not body.deadline.expired():
                body.deadline.reschedule(self._end_s)

    @contextlib.asynccontextmanager
    async def receive(self, request: Request, limit: int, more: str = "") -> AsyncIterator[bytes]:
        """The body without a byte order mark, with its room until the end of the block. `more` is added to the reasons
        of errors.

        Errors: 413 for more than `limit` bytes; 415 for a compressed body; 408 if it does not end in time; 503 without
        room, or at the end of the server; 400 if the connection ends before.
        """
        body = _Body(self._end_s)
        try:
            await self._received(request, limit, body, more)
            body.parts = [b"".join(body.parts)]  # the parts are free now
            yield body.parts.pop().removeprefix(codecs.BOM_UTF8)
        finally:
            self._take_bytes(-body.size)

    async def pass_on(self, request: Request, limit: int, take: Take) -> None:
        """Give each part to `take`, in order. Errors: as of `take` and `receive`."""
        body = _Body(self._end_s)
        body.take = take
        try:
            await self._received(request, limit, body)
        finally:
            self._take_bytes(-body.size)

    @contextlib.contextmanager
    def room_for_faults(self, more: str = "") -> Iterator[Callable[[int], None]]:
        """A function that takes room for so many bad records more, until the end of the block. `more` is added to the
        reason of its error: 503 without room.
        """
        faults = _Body(math.inf)

        def add(count: int) -> None:
            try:
                self._keep(faults, faults.size + count * _OF_A_FAULT)
            except _NotReceived as why:
                raise problem(why.status, why.reason + more, why.allowed, why.headers) from None

        try:
            yield add
        finally:
            self._take_bytes(-faults.size)

    async def _received(self, request: Request, limit: int, body: _Body, more: str = "") -> None:
        try:
            await self._receive(request, limit, body)
        except _NotReceived as why:
            raise problem(why.status, why.reason + more, why.allowed, why.headers) from None

    async def _receive(self, request: Request, limit: int, body: _Body) -> None:
        self._on_their_way[body] = None
        try:
            async with body.deadline:
                await self._read(request, limit, body)
        except TimeoutError:
            if asyncio.get_running_loop().time() >= self._end_s:
                reason = "the server is stopping, and the body has not come as a whole"
                raise _NotReceived(503, reason, AGAIN, CLOSE) from None
            if body.is_given_up:
                reason = "there was no room for all bodies, and this one had been on its way for longest"
                raise _NotReceived(408, reason, "the same request again, sent faster", CLOSE) from None
            raise _NotReceived(408, "the body did not end in time", f"within {_WITHIN_S} s", CLOSE) from None
        except ClientDisconnect:
            raise _NotReceived(400, "the connection was closed in the middle of the body", "the whole body") from None
        finally:
            self._on_their_way.pop(body, None)

    async def _read(self, request: Request, limit: int, body: _Body) -> None:
        if (coding := request.headers.get("content-encoding", "identity")).lower() != "identity":
            reason = f"the body has the content-encoding {coding!r:.100}"
            raise await _rest_discarded(request, _NotReceived(415, reason, "a body that is not compressed", CLOSE))
        size = 0
        if int(request.headers.get("content-length", "0")) <= limit:
            async for part in request.stream():
                if body.is_given_up:  # though this part came just before its deadline
                    raise TimeoutError
                size += len(part)
                if size > limit:
                    break
                self._keep(body, body.size + len(part))
                if body.take is None:
                    body.parts.append(part)
                else:
                    await self._pass_on(body, body.take, part)
            else:
                return
        raise await _rest_discarded(
            request, _NotReceived(413, "the body is too large", f"at most {limit:,} bytes", CLOSE)
        )

    async def _pass_on(self, body: _Body, take: Take, part: bytes) -> None:
        loop = asyncio.get_running_loop()
        del self._on_their_way[body]  # its client is not slow now
        body.deadline.reschedule(None)
        began_s = loop.time()
        kept = await take(part)
        body.since_s += loop.time() - began_s
        body.deadline.reschedule(min(body.since_s + _WITHIN_S, self._end_s))
        self._on_their_way[body] = None
        self._keep(body, kept)

    def _keep(self, body: _Body, size: int) -> None:
        while not self._take_bytes(size - body.size):
            self._make_room(body)
        body.size = size

    def _make_room(self, own: _Body) -> None:
        now_s = asyncio.get_running_loop().time()
        slowest = min(self._on_their_way, key=lambda body: body.since_s, default=own)
        if slowest is own or now_s - slowest.since_s < _SLOW_S:
            raise _NotReceived(503, "too many bodies are being received", AGAIN, {**CLOSE, "retry-after": "1"})
        del self._on_their_way[slowest]
        slowest.is_given_up = True
        if not slowest.deadline.expired():
            slowest.deadline.reschedule(now_s)
        self._take_bytes(-slowest.size)
        slowest.size = 0


async def _rest_discarded(request: Request, why: _NotReceived) -> _NotReceived:
    """Read the rest of the body, so that its sender can read the answer. Returns the error."""
    if "expect" in request.headers:
        return why
    size = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DISCARD_S):
            while size < _DISCARD_BYTES:
                event = await request.receive()
                size += len(event.get("body", b""))
                if not event.get("more_body"):
                    break
    return why
