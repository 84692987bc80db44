"""What programs write by hand around timers: debounce, throttle, retry, a limit of the rate, deadlines that nest."""

import asyncio
import functools
import random
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from contextvars import Context, ContextVar, copy_context
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, ParamSpec, TypeVar
from weakref import WeakKeyDictionary, ref

from tickwheel.aio.beside import OwnTimers, seconds_of, sleep, timeout_at, timers

_P = ParamSpec("_P")
_T = TypeVar("_T")

_deadline: Final[ContextVar[tuple[float, object] | None]] = ContextVar("deadline", default=None)


def debounce(delay: float | timedelta) -> Callable[[Callable[_P, object]], Callable[_P, None]]:
    """Call a function once, with the last arguments, when it was not called for `delay` seconds.

    >>> @debounce(0.001)
    ... def save(text):
    ...     print("saved", text)
    >>> async def main():
    ...     for text in ("h", "he", "hello"):
    ...         save(text)
    ...     await sleep(0.02)
    >>> asyncio.run(main())
    saved hello
    """

    def decorate(function: Callable[_P, object]) -> Callable[_P, None]:
        pending: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.TimerHandle] = WeakKeyDictionary()

        @functools.wraps(function)
        def debounced(*args: _P.args, **kwargs: _P.kwargs) -> None:
            loop = asyncio.get_running_loop()
            handle = timers().call_later(delay, functools.partial(_run, function, args, kwargs))
            before = pending.pop(loop, None)
            if before is not None:
                before.cancel()
            pending[loop] = handle

        return debounced

    return decorate


def throttle(period: float | timedelta) -> Callable[[Callable[_P, object]], Callable[_P, None]]:
    """Call a function at most once in `period` seconds: at once, and at the end with what came last meanwhile.

    >>> @throttle(0.001)
    ... def show(percent):
    ...     print(percent, "%")
    >>> async def main():
    ...     for percent in range(100):
    ...         show(percent)
    ...     await sleep(0.02)
    >>> asyncio.run(main())
    0 %
    99 %
    """

    def decorate(function: Callable[_P, object]) -> Callable[_P, None]:
        # Of each loop in which it rests: what came last meanwhile.
        last: WeakKeyDictionary[asyncio.AbstractEventLoop, Callable[[], object] | None] = WeakKeyDictionary()

        @functools.wraps(function)
        def throttled(*args: _P.args, **kwargs: _P.kwargs) -> None:
            loop = asyncio.get_running_loop()
            call = functools.partial(_run, function, args, kwargs)
            if loop in last:
                last[loop] = functools.partial(copy_context().run, call)
            else:
                rest(loop)
                call()

        def rest(loop: asyncio.AbstractEventLoop) -> None:
            timers().call_later(period, end, context=Context())
            last[loop] = None

        def end() -> None:
            loop = asyncio.get_running_loop()
            call = last.pop(loop)
            if call is not None:
                rest(loop)
                call()

        return throttled

    return decorate


async def retry(
    call: Callable[[], Awaitable[_T]],
    *,
    attempts: int = 5,
    first: float | timedelta = 0.1,
    factor: float = 2.0,
    most: float | timedelta = 30.0,
    on: type[Exception] | tuple[type[Exception], ...] = Exception,
) -> _T:
    """Await `call()` again after it failed, at most `attempts` times in all, and later and later.

    Between the first two it waits up to `first` seconds, then `factor` times as long, never longer than `most`; half of
    each wait is random, so that many callers spread out. `on`: which exceptions are worth another attempt. Errors: the
    last exception.

    >>> answers = iter([ConnectionError(), ConnectionError(), "pong"])
    >>> async def ping():
    ...     answer = next(answers)
    ...     if isinstance(answer, Exception):
    ...         raise answer
    ...     return answer
    >>> asyncio.run(retry(ping, first=0.001))
    'pong'
    """
    if attempts < 1:
        raise ValueError(f"attempts must be 1 or more, got {attempts}")
    if not callable(call):
        raise TypeError(f"retry calls a coroutine function again and again, got {call!r}: pass the function itself")
    wait_s, most_s = seconds_of(first), seconds_of(most)
    for _ in range(attempts - 1):
        try:
            return await call()
        except on:
            await sleep(min(wait_s, most_s) * random.uniform(0.5, 1))  # noqa: S311, nothing secret
            wait_s = min(wait_s * factor, most_s)
    return await call()


class RateLimiter:
    """A token bucket: at most `rate` a second, and `burst` at once; who comes first is served first.

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
        if not (rate > 0 and burst >= 1):
            raise ValueError(f"the rate must be more than 0 a second and the burst 1 or more, got {rate} and {burst}")
        self._rate, self._burst = rate, burst
        self._free_at: float | None = None
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._wake: asyncio.TimerHandle | None = None
        self._loop: ref[asyncio.AbstractEventLoop] | None = None

    async def acquire(self) -> None:
        """Wait for a token. A caller that is cancelled while it waits takes none.

        Errors: `RuntimeError` in another loop than the one before, unless that is closed.
        """
        loop = asyncio.get_running_loop()
        self._belong_to(loop)
        if not self._waiting and self._take(timers().time()):
            return
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiting.append(waiter)
        if len(self._waiting) == 1:
            self._wake_at_next(timers().time())
        try:
            await waiter
        except BaseException:
            if waiter.done() and not waiter.cancelled() and self._free_at is not None:
                self._free_at -= 1 / self._rate  # it was served in this turn, and is for the next one
                self._serve()
            raise

    def _belong_to(self, loop: asyncio.AbstractEventLoop) -> None:
        before = None if self._loop is None else self._loop()
        if before is loop:
            return
        if before is not None and not before.is_closed():
            raise RuntimeError(f"this limiter belongs to {before!r}, which is not closed: make one for each loop")
        self._loop = ref(loop)
        self._waiting.clear()
        if self._free_at is not None:  # the clock may be another one
            self._free_at = min(self._free_at, timers().time() + self._burst / self._rate)

    def _take(self, now: float) -> bool:
        """Take a token if there is one. All are there `burst / rate` seconds after the last was taken."""
        free_at = max(now, self._free_at or now)
        if free_at - now > (self._burst - 1) / self._rate + 1e-9:
            return False
        self._free_at = free_at + 1 / self._rate
        return True

    def _wake_at_next(self, now: float) -> None:
        assert self._free_at is not None
        if self._wake is not None:
            self._wake.cancel()
        self._wake = timers().call_at(max(now, self._free_at - (self._burst - 1) / self._rate), self._serve)

    def _serve(self) -> None:
        now = timers().time()
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


@asynccontextmanager
async def deadline(delay: float | timedelta) -> AsyncIterator[None]:
    """Cancel what is inside after `delay` seconds, or at an earlier deadline around it, with `TimeoutError`.

    >>> async def ask():
    ...     async with deadline(3600):
    ...         print("an hour" if remaining() > 60 else "less than a minute")
    >>> async def main():
    ...     async with deadline(30):
    ...         await ask()
    >>> asyncio.run(main())
    less than a minute
    """
    clock, own = timers().time(), _clock()
    when = clock + seconds_of(delay)
    outer = _left(own)
    token = _deadline.set((when if outer is None else min(when, outer), own))
    try:
        async with timeout_at(_left(own)):
            yield
    finally:
        with suppress(ValueError):  # the end of a generator that was left may run elsewhere
            _deadline.reset(token)


def remaining() -> float | None:
    """How many seconds are left until the deadline around this code; `None` if there is none."""
    when = _left(_clock())
    return None if when is None else max(0.0, when - timers().time())


def _clock() -> object:
    """Whose clock it is: a loop's own, or that of all others."""
    return ref(asyncio.get_running_loop()) if isinstance(timers(), OwnTimers) else None


def _left(clock: object) -> float | None:
    """The deadline around this code by this clock; one by another clock says nothing here."""
    when = _deadline.get()
    return when[0] if when is not None and when[1] == clock else None


def _run(function: Callable[..., object], args: Any, kwargs: Any) -> None:
    """Call it, and run it as a task if it is a coroutine function."""
    result = function(*args, **kwargs)
    if asyncio.iscoroutine(result):
        task = asyncio.ensure_future(result)
        loop = task.get_loop()
        running: set[asyncio.Future[Any]] = vars(loop).setdefault("_tickwheel_running", set())
        running.add(task)  # a loop keeps no task alive
        task.add_done_callback(running.discard)
