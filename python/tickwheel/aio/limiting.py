"""A limit of the rate: so many a second, in the order in which they come."""

import asyncio
import math
from collections import deque
from contextvars import Context
from numbers import Real
from types import TracebackType
from weakref import ref

from tickwheel.aio.beside import clock_of_loop, timers


class RateLimiter:
    """A token bucket: at most `rate` a second, and `burst` at once, in the order of the calls.

    >>> limiter = RateLimiter(1_000, burst=2)
    >>> async def main():
    ...     for number in range(4):
    ...         async with limiter:
    ...             print(number)
    >>> asyncio.run(main())
    0
    1
    2
    3
    """

    def __init__(self, rate: float, *, burst: int = 1) -> None:
        for name, given in (("rate", rate), ("burst", burst)):
            if isinstance(given, bool) or not isinstance(given, Real):
                raise TypeError(f"{name} must be a number, got {given!r}: RateLimiter(100, burst=10) is 100 a second")
        if not (rate > 0 and burst >= 1):
            raise ValueError(f"the rate must be more than 0 a second and the burst 1 or more, got {rate} and {burst}")
        self._rate, self._burst = rate, burst
        self._free_at: float | None = None
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._wake: asyncio.TimerHandle | None = None
        self._loop: ref[asyncio.AbstractEventLoop] | None = None
        self._clock: object = None

    async def acquire(self) -> None:
        """Wait for a token. A caller that is cancelled while it waits takes none.

        Errors: `RuntimeError` in another loop than the one before, unless that is closed.
        """
        loop = asyncio.get_running_loop()
        self._belong_to(loop)
        now = timers().time()
        if not self._waiting and self._take(now):
            return
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiting.append(waiter)
        if len(self._waiting) == 1:
            self._wake_at_next(now)
        try:
            await waiter
        except BaseException as error:
            if waiter.done() and not waiter.cancelled() and self._free_at is not None:
                self._free_at -= 1 / self._rate  # it was served in this turn, and is for the next one
                if not isinstance(error, GeneratorExit):  # as the garbage collector raises it, without a loop
                    self._serve(timers().time())
            raise

    def _belong_to(self, loop: asyncio.AbstractEventLoop) -> None:
        before = None if self._loop is None else self._loop()
        if before is loop:
            return
        if before is not None and not before.is_closed():
            raise RuntimeError(f"this limiter belongs to {before!r}, which is not closed: make one for each loop")
        self._loop = ref(loop)
        self._waiting.clear()
        if (clock := clock_of_loop()) != self._clock:
            self._clock, self._free_at = clock, None

    def _next_at(self) -> float:
        """When the next token is there. All are `burst / rate` seconds after the last was taken."""
        return -math.inf if self._free_at is None else self._free_at - (self._burst - 1) / self._rate

    def _take(self, now: float) -> bool:
        """Take a token if there is one."""
        if now < self._next_at() - 1e-9:
            return False
        self._free_at = (now if self._free_at is None else max(now, self._free_at)) + 1 / self._rate
        return True

    def _wake_at_next(self, now: float) -> None:
        if self._wake is not None:
            self._wake.cancel()
        when = max(now, self._next_at())
        # In no context: it wakes one waiter after the other, and keeps no context of one that is gone.
        self._wake = timers().call_at(when, self._serve, when, context=Context())

    def _serve(self, when: float) -> None:
        now = max(when, timers().time())  # where a clock's floats are coarse, it may read a little less
        while self._waiting:
            if self._waiting[0].done():
                self._waiting.popleft()  # it was cancelled
            elif self._take(now):
                self._waiting.popleft().set_result(None)
            else:
                self._wake_at_next(now)
                return

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None: ...
