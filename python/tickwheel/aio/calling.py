"""What programs write by hand around calls: debounce, throttle."""

import asyncio
import functools
from collections.abc import Callable
from contextvars import Context, copy_context
from datetime import timedelta
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, Self, overload

from tickwheel._native import _delay_s
from tickwheel.aio.beside import timers

_P = ParamSpec("_P")
_Q = ParamSpec("_Q")


class Debounced(Generic[_P]):
    """What `debounce` makes of a function."""

    def __init__(self, function: Callable[_P, object], delay_s: float) -> None:
        functools.update_wrapper(self, function)
        self._function, self._delay_s = function, delay_s

    def __call__(self, /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        """Call the function after the delay, unless there is another call before."""

        @functools.wraps(self._function)  # a report of the loop names it
        def end() -> None:
            self._pending().pop(self)
            call()

        run = functools.partial(_run, self._function, args, kwargs)
        call = functools.partial(copy_context().run, run)
        handle = timers().call_later(self._delay_s, end, context=Context())
        self.cancel()
        self._pending()[self] = handle, call

    @overload
    def __get__(self, instance: None, owner: object = None) -> Self: ...
    @overload
    def __get__(self: "Debounced[Concatenate[Any, _Q]]", instance: object, owner: object = None) -> "Debounced[_Q]": ...
    def __get__(self, instance: object, owner: object = None) -> Any:
        return self if instance is None else MethodType(self, instance)  # which has the methods of this one

    def is_pending(self) -> bool:
        """Whether a call waits, in the running loop."""
        return self in self._pending()

    def cancel(self) -> bool:
        """Drop the call that waits. Returns whether there was one."""
        handle, _ = self._pending().pop(self, (None, None))
        if handle is not None:
            handle.cancel()
        return handle is not None

    def flush(self) -> Any:
        """Make the call that waits now. Returns what it returns: of a coroutine function its task, of none `None`."""
        handle, call = self._pending().pop(self, (None, None))
        if handle is None:
            return None
        handle.cancel()
        return call()

    def __reduce__(self) -> str:
        return str(vars(self)["__qualname__"])  # a pickle has the name, as that of a function

    def _pending(self) -> dict[Any, Any]:
        return _of_running_loop("debounced")


def debounce(delay: float | timedelta) -> Callable[[Callable[_P, object]], Debounced[_P]]:
    """Call a function once, with the last arguments, when it was not called for `delay` seconds.

    `cancel()`, `flush()` and `is_pending()` of what it makes are about the call that waits.

    >>> @debounce(0.001)
    ... def save(text):
    ...     print("saved", text)
    >>> async def main():
    ...     for text in ("h", "he", "hello"):
    ...         save(text)
    ...     await asyncio.sleep(0.02)
    ...     save("bye")
    ...     save.flush()
    >>> asyncio.run(main())
    saved hello
    saved bye
    """
    delay_s = _delay_s(delay)
    return lambda function: Debounced(function, delay_s)


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


def _run(function: Callable[..., object], args: Any, kwargs: Any) -> object:
    """Call it, and run it as a task if it is a coroutine function. Returns the task, or what it returned."""
    result = function(*args, **kwargs)
    if asyncio.iscoroutine(result):
        task = asyncio.ensure_future(result)
        loop = task.get_loop()
        running: set[asyncio.Future[Any]] = vars(loop).setdefault("_tickwheel_running", set())
        running.add(task)  # a loop keeps no task alive
        task.add_done_callback(running.discard)
        return task
    return result
