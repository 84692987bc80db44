"""What programs write by hand around calls: debounce, throttle."""

import asyncio
import functools
from collections.abc import Callable
from contextvars import Context, copy_context
from datetime import timedelta
from typing import Any, ParamSpec

from tickwheel._native import _delay_s
from tickwheel.aio.beside import timers

_P = ParamSpec("_P")


def debounce(delay: float | timedelta) -> Callable[[Callable[_P, object]], Callable[_P, None]]:
    """Call a function once, with the last arguments, when it was not called for `delay` seconds.

    >>> @debounce(0.001)
    ... def save(text):
    ...     print("saved", text)
    >>> async def main():
    ...     for text in ("h", "he", "hello"):
    ...         save(text)
    ...     await asyncio.sleep(0.02)
    >>> asyncio.run(main())
    saved hello
    """
    delay_s = _delay_s(delay)

    def decorate(function: Callable[_P, object]) -> Callable[_P, None]:
        @functools.wraps(function)
        def debounced(*args: _P.args, **kwargs: _P.kwargs) -> None:
            pending = _of_running_loop("debounced")
            handle = timers().call_later(delay_s, call, args, kwargs)
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
    ...     await asyncio.sleep(0.02)
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
                last[throttled] = functools.partial(copy_context().run, call)
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
