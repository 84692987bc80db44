"""What programs write by hand around calls: debounce, throttle, retry."""

import asyncio
import functools
import random
from collections.abc import Awaitable, Callable
from contextvars import Context
from datetime import timedelta
from numbers import Real
from operator import index
from typing import Any, ParamSpec, TypeVar

from tickwheel._native import _delay_s
from tickwheel.aio.beside import sleep, timers
from tickwheel.aio.deadlines import context_without_deadline

_P = ParamSpec("_P")
_T = TypeVar("_T")


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
    delay_s = _delay_s(delay)

    def decorate(function: Callable[_P, object]) -> Callable[_P, None]:
        @functools.wraps(function)
        def debounced(*args: _P.args, **kwargs: _P.kwargs) -> None:
            pending = _of_running_loop("debounced")
            handle = timers().call_later(delay_s, call, args, kwargs, context=context_without_deadline())
            before = pending.pop(debounced, None)
            if before is not None:
                before.cancel()
            pending[debounced] = handle

        @functools.wraps(function)  # a report of the loop names it
        def call(args: Any, kwargs: Any) -> None:
            _of_running_loop("debounced").pop(debounced, None)
            _run(function, args, kwargs)

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
    period_s = _delay_s(period, "period")

    def decorate(function: Callable[_P, object]) -> Callable[_P, None]:
        @functools.wraps(function)
        def throttled(*args: _P.args, **kwargs: _P.kwargs) -> None:
            last = _of_running_loop("throttled")  # where it rests: what came last meanwhile
            call = functools.partial(_run, function, args, kwargs)
            if throttled in last:
                last[throttled] = functools.partial(context_without_deadline().run, call)
            else:
                rest()
                call()

        def rest() -> None:
            timers().call_later(period_s, end, context=Context())
            _of_running_loop("throttled")[throttled] = None

        @functools.wraps(function)
        def end() -> None:
            call = _of_running_loop("throttled").pop(throttled)
            if call is not None:
                rest()
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
    if isinstance(attempts, bool) or not hasattr(attempts, "__index__"):
        raise TypeError(f"attempts must be a whole number, got {attempts!r}: 5 is five calls in all")
    if isinstance(factor, bool) or not isinstance(factor, Real):
        raise TypeError(f"factor must be a number, got {factor!r}: with 2 each wait is twice as long")
    attempts = index(attempts)
    if attempts < 1:
        raise ValueError(f"attempts must be 1 or more, got {attempts}")
    if not callable(call):
        raise TypeError(f"retry calls a coroutine function again and again, got {call!r}: pass the function itself")
    wait_s, most_s = _delay_s(first, "first"), _delay_s(most, "most")
    if not (wait_s >= 0 and most_s >= 0 and factor > 0):
        raise ValueError(
            f"first and most must be 0 or more and the factor more than 0, got {first}, {most} and {factor}: "
            "leave them out"
        )
    for _ in range(attempts - 1):
        try:
            return await call()
        except on:
            await sleep(min(wait_s, most_s) * random.uniform(0.5, 1))  # noqa: S311, nothing secret
            wait_s = min(wait_s * factor, most_s)
    return await call()


def _of_running_loop(what: str) -> dict[Any, Any]:
    """The data that the running loop keeps for its functions. A reference from here would keep the loop alive."""
    found: dict[Any, Any] = vars(asyncio.get_running_loop()).setdefault(f"_tickwheel_{what}", {})
    return found


def _run(function: Callable[..., object], args: Any, kwargs: Any) -> None:
    """Call it, and run it as a task if it is a coroutine function."""
    result = function(*args, **kwargs)
    if asyncio.iscoroutine(result):
        task = asyncio.ensure_future(result)
        loop = task.get_loop()
        running: set[asyncio.Future[Any]] = vars(loop).setdefault("_tickwheel_running", set())
        running.add(task)  # a loop keeps no task alive
        task.add_done_callback(running.discard)
