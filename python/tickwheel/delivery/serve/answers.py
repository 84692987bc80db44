"""Bounds the memory of answers that wait for their readers (rule D12).

At most `_MOST` bytes of answers wait; an answer counts until its client's system has taken nearly all of it. If there
is no room for an answer, the one with the longest time on its way is given up, and its connection closed, if this time
is more than `_SLOW_S`. Otherwise the new one is 503. The answer to a request that may have changed something is never
refused: the others give way to it at once.

An answer of up to `_SMALL` bytes does not count: there is one for each connection, and connections have a bound. Nor
does the page at `GET /`, which needs no token. An answer in parts, as events, has at most one part on its way.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tickwheel.delivery.serve.guard import needs_token
from tickwheel.delivery.serve.http_connection import GIVE_UP, IS_TAKEN
from tickwheel.delivery.serve.problems import AGAIN, fault, json_response

_MOST: Final = 16 << 20
_SMALL: Final = 64 << 10
_SLOW_S: Final = 10
_NO_ROOM: Final = json_response(503, fault("too many answers wait to be read", AGAIN), {"retry-after": "1"})


class _Answer:
    def __init__(self, size: int, give_up: Callable[[], object]) -> None:
        self.size = size
        self.give_up = give_up
        self.since_s = asyncio.get_running_loop().time()


class Answers:
    """Around an application. Everything runs in the event loop."""

    def __init__(self, inner: ASGIApp) -> None:
        self._inner = inner
        self._left = _MOST
        self._on_their_way: dict[_Answer, None] = {}  # the longest first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, until its answer is read if that is large."""
        answer: _Answer | None = None
        is_refused = False

        async def send_within_bound(message: Message) -> None:
            nonlocal answer, is_refused
            if message["type"] == "http.response.start" and (size := _length(scope, message)) > _SMALL:
                new = _Answer(size, scope["state"][GIVE_UP])
                if self._add(new, is_refusable=scope["method"] == "GET"):
                    answer = new
                else:
                    is_refused = True
                    await _NO_ROOM(scope, receive, send)
            if not is_refused:
                await send(message)

        try:
            await self._inner(scope, receive, send_within_bound)
            if answer is not None:
                await scope["state"][IS_TAKEN]()
        finally:
            if answer is not None:
                self._remove(answer)

    def _add(self, new: _Answer, *, is_refusable: bool) -> bool:
        """Whether there is room now. A single answer may be larger than all the room."""
        while self._left < new.size and self._on_their_way:
            slowest = next(iter(self._on_their_way))
            if is_refusable and new.since_s - slowest.since_s < _SLOW_S:
                return False
            self._remove(slowest)
            slowest.give_up()
        self._on_their_way[new] = None
        self._left -= new.size
        return True

    def _remove(self, answer: _Answer) -> None:
        if answer in self._on_their_way:
            del self._on_their_way[answer]
            self._left += answer.size


def _length(scope: Scope, start: Message) -> int:
    """How many bytes of the answer that begins count."""
    if scope["method"] == "HEAD" or not needs_token(scope):
        return 0
    return next((int(value) for name, value in start["headers"] if name == b"content-length"), 0)
