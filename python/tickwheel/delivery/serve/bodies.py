"""Receives the bodies of requests, each within a time and all within a bound (rules D8, D12).

At most `most` bytes of bodies are in memory; a body counts from its first part until its request is answered. Where a
part has no room, the body that has been on its way for longest is given up (408), if that is more than a second, as it
is slow. Otherwise the request of that part gets 503. So slow bodies, however many, hold up nothing but each other.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Final

from starlette.requests import ClientDisconnect, Request

from tickwheel.delivery.serve.problems import AGAIN, CLOSE, problem

_WITHIN_S: Final = 30
_SLOW_S: Final = 1
_DISCARD_BYTES, _DISCARD_S = 1 << 26, 2  # read from a body that is too large, so that its sender can read the answer


class _NotReceived(Exception):
    def __init__(self, status: int, reason: str, allowed: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(reason)
        self.status, self.reason, self.allowed, self.headers = status, reason, allowed, headers


class Bodies:
    """The room for all bodies; `most`: bytes."""

    def __init__(self, most: int) -> None:
        self._left = most
        self._on_their_way: dict[asyncio.Timeout, float] = {}  # since when, the first one first

    @contextlib.asynccontextmanager
    async def receive(self, request: Request, limit: int, more: str = "") -> AsyncIterator[bytes]:
        """The body, with its room until the end of the block. Errors: 413 for more than `limit` bytes; 408 if it does
        not end in time; 503 without room; 400 if the connection ends before. `more` is added to their reasons.
        """
        parts: list[bytes] = []
        try:
            try:
                await self._receive(request, limit, parts)
            except _NotReceived as why:
                raise problem(why.status, why.reason + more, why.allowed, why.headers) from None
            yield b"".join(parts)
        finally:
            self._left += sum(map(len, parts))

    async def _receive(self, request: Request, limit: int, parts: list[bytes]) -> None:
        deadline = asyncio.timeout(_WITHIN_S)
        try:
            async with deadline:
                self._on_their_way[deadline] = asyncio.get_running_loop().time()
                await self._read(request, limit, parts, deadline)
        except TimeoutError:
            raise _NotReceived(408, "the body did not end in time", f"within {_WITHIN_S} s", CLOSE) from None
        except ClientDisconnect:
            raise _NotReceived(400, "the connection was closed in the middle of the body", "the whole body") from None
        finally:
            self._on_their_way.pop(deadline, None)

    async def _read(self, request: Request, limit: int, parts: list[bytes], deadline: asyncio.Timeout) -> None:
        size = 0
        if int(request.headers.get("content-length", "0")) <= limit:
            async for part in request.stream():
                size += len(part)
                if size > limit:
                    break
                parts.append(part)
                self._left -= len(part)
                if self._left < 0:
                    self._make_room(deadline)
            else:
                return
        if "expect" not in request.headers:
            await _discard(request)
        raise _NotReceived(413, "the body is too large", f"at most {limit:,} bytes", CLOSE)

    def _make_room(self, own: asyncio.Timeout) -> None:
        now_s = asyncio.get_running_loop().time()
        slowest, since_s = next(iter(self._on_their_way.items()))
        if slowest is own or now_s - since_s < _SLOW_S:
            raise _NotReceived(503, "too many bodies are being received", AGAIN, {**CLOSE, "retry-after": "1"})
        del self._on_their_way[slowest]
        slowest.reschedule(now_s)


async def _discard(request: Request) -> None:
    size = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DISCARD_S):
            while size < _DISCARD_BYTES:
                event = await request.receive()
                size += len(event.get("body", b""))
                if not event.get("more_body"):
                    return
