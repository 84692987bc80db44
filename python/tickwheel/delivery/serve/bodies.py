"""Receives the bodies of requests, each within a time and all within a bound (rules D8, D12).

At most `_MOST` bytes of bodies are in memory; a body counts from its first part until its request is answered. Where a
part has no room, the body that has been on its way for longest is given up (408), if that is more than a second, as it
is slow. Otherwise the request of that part gets 503. So slow bodies, however many, hold up nothing but each other.
When the server ends, a body has `_END_WITHIN_S` left, and then gets 503.
"""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Mapping
from typing import Final

from starlette.requests import ClientDisconnect, Request

from tickwheel.delivery.serve.problems import AGAIN, CLOSE, problem

_MOST: Final = 64 << 20
_WITHIN_S: Final = 30
_END_WITHIN_S: Final = 3  # less than requests have in all
_SLOW_S: Final = 1
_DISCARD_BYTES, _DISCARD_S = 1 << 26, 2  # read from a body that is too large, so that its sender can read the answer


class _NotReceived(Exception):
    def __init__(self, status: int, reason: str, allowed: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(reason)
        self.status, self.reason, self.allowed, self.headers = status, reason, allowed, headers


class _Body:
    def __init__(self, end_s: float) -> None:
        self.since_s = asyncio.get_running_loop().time()
        self.deadline = asyncio.timeout_at(min(self.since_s + _WITHIN_S, end_s))
        self.parts: list[bytes] = []
        self.size = 0  # for which it has room


class Bodies:
    """The room for all bodies. Everything runs in the event loop."""

    def __init__(self) -> None:
        self._left = _MOST
        self._on_their_way: dict[_Body, None] = {}  # the first one first
        self._end_s = math.inf  # of the server, on the clock of the loop

    def end(self) -> None:
        """The server ends: what is on its way has a moment left."""
        now_s = asyncio.get_running_loop().time()
        self._end_s = min(self._end_s, now_s + _END_WITHIN_S)
        for body in self._on_their_way:
            if not body.deadline.expired():
                body.deadline.reschedule(self._end_s)

    @contextlib.asynccontextmanager
    async def receive(self, request: Request, limit: int, more: str = "") -> AsyncIterator[bytes]:
        """The body, with its room until the end of the block. Errors: 413 for more than `limit` bytes; 408 if it does
        not end in time; 503 without room, or at the end of the server; 400 if the connection ends before.
        `more` is added to their reasons.
        """
        body = _Body(self._end_s)
        try:
            try:
                await self._receive(request, limit, body)
            except _NotReceived as why:
                raise problem(why.status, why.reason + more, why.allowed, why.headers) from None
            yield b"".join(body.parts)
        finally:
            self._left += body.size

    async def _receive(self, request: Request, limit: int, body: _Body) -> None:
        self._on_their_way[body] = None
        try:
            async with body.deadline:
                await self._read(request, limit, body)
        except TimeoutError:
            if asyncio.get_running_loop().time() >= self._end_s:
                reason = "the server is stopping, and the body has not come as a whole"
                raise _NotReceived(503, reason, AGAIN, CLOSE) from None
            raise _NotReceived(408, "the body did not end in time", f"within {_WITHIN_S} s", CLOSE) from None
        except ClientDisconnect:
            raise _NotReceived(400, "the connection was closed in the middle of the body", "the whole body") from None
        finally:
            self._on_their_way.pop(body, None)

    async def _read(self, request: Request, limit: int, body: _Body) -> None:
        size = 0
        if int(request.headers.get("content-length", "0")) <= limit:
            async for part in request.stream():
                size += len(part)
                if size > limit:
                    break
                body.parts.append(part)
                body.size += len(part)
                self._left -= len(part)
                if self._left < 0:
                    self._make_room(body)
            else:
                return
        if "expect" not in request.headers:
            await _discard(request)
        raise _NotReceived(413, "the body is too large", f"at most {limit:,} bytes", CLOSE)

    def _make_room(self, own: _Body) -> None:
        now_s = asyncio.get_running_loop().time()
        slowest = next(iter(self._on_their_way))
        if slowest is own or now_s - slowest.since_s < _SLOW_S:
            raise _NotReceived(503, "too many bodies are being received", AGAIN, {**CLOSE, "retry-after": "1"})
        del self._on_their_way[slowest]
        slowest.deadline.reschedule(now_s)
        self._left, slowest.size = self._left + slowest.size, 0


async def _discard(request: Request) -> None:
    size = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DISCARD_S):
            while size < _DISCARD_BYTES:
                event = await request.receive()
                size += len(event.get("body", b""))
                if not event.get("more_body"):
                    return
