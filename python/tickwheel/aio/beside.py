"""A wheel beside the running loop, asyncio's or uvloop's, on its thread (T21)."""

import asyncio
import os
from collections.abc import Callable
from contextvars import Context
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar, TypeVarTuple, overload
from weakref import ref

from tickwheel._native import LoopTimers, _delay_s, _time_s
from tickwheel.aio.clocks import can_serve
from tickwheel.aio.watching import watch

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")
_sleep_0 = asyncio.sleep
_ATTRIBUTE: Final = "_tickwheel_timers"

if TYPE_CHECKING:  # for checkers each handle of `timers()` is a `TimerHandle`
    from tickwheel._native import TimerHandle as _Handle
else:
    _Handle = asyncio.TimerHandle


class OwnHandle(_Handle):  # type: ignore[misc]  # final, as the native class is
    """A callback on a loop whose clock is its own, as in tests. It can be moved, as one in a wheel."""

    __slots__ = ("_call_at", "_first_when", "_timer")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        call_at: Callable[[float, Callable[[], None]], asyncio.TimerHandle],
        when: float,
        callback: Callable[..., object],
        args: tuple[object, ...],
        context: Context | None,
    ) -> None:
        super().__init__(when, callback, args, loop, context)
        leave_frame_out(self)
        _count_own(loop, 1)
        self._call_at, self._first_when = call_at, when
        self._timer: asyncio.TimerHandle | None = call_at(when, self._due)

    def cancel(self) -> None:
        """As asyncio's."""
        timer, self._timer = self._timer, None
        own: Any = self
        if timer:
            timer.cancel()
            _count_own(own._loop, -1)
        asyncio.Handle.cancel(self)  # that of `TimerHandle` tells the loop, which does not know this one

    def reschedule(self, delay: float | timedelta) -> bool:
        """Move it to `delay` seconds from now, if it has not run and was not cancelled: `True` exactly then."""
        delay_s = _delay_s(delay)
        own: Any = self
        if self._timer is None or own._loop.is_closed():
            return False
        when = own._loop.time() + delay_s
        timer = self._call_at(when, self._due)
        self._timer.cancel()
        self._timer, own._when = timer, when
        return True

    def __hash__(self) -> int:
        return hash(self._first_when)  # so that it stays in a set

    def _due(self) -> None:
        self._timer = None
        own: Any = self
        _count_own(own._loop, -1)
        own._run()


def _count_own(loop: Any, by: int) -> int:
    """How many callbacks of `OwnTimers` are pending on the loop."""
    loop._tickwheel_own = count = getattr(loop, "_tickwheel_own", 0) + by
    return count


def leave_frame_out(handle: asyncio.Handle) -> None:
    """Drop the last frame of where it was made: debug mode shows the line of the user."""
    own: Any = handle
    if own._source_traceback:
        del own._source_traceback[-1]


class OwnTimers:
    """The timers of a loop whose clock is its own, as in tests: the loop's, with `call_at`, `call_later` and `time`."""

    slack_us = 0

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.time, self._loop = loop.time, loop

    def __len__(self) -> int:
        return _count_own(self._loop, 0)

    def call_later(
        self, delay: float | timedelta, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> OwnHandle:
        """As that of the loop, also for a `timedelta`."""
        handle = self.call_at(self.time() + _delay_s(delay), callback, *args, context=context)
        leave_frame_out(handle)
        return handle

    def call_at(
        self, when: float, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> OwnHandle:
        """As that of the loop."""
        handle = OwnHandle(self._loop, self._loop.call_at, _time_s(when), callback, args, context)
        leave_frame_out(handle)
        return handle


def timers(*, slack_us: int | None = None) -> LoopTimers:
    """The wheel of the running loop; it is made at the first call, and ends with the loop.

    `slack_us`: the shortest time between two wake-ups, by which a timer may be late; 0 if nobody says otherwise. Given
    at the first call. A loop with a clock of its own, as in tests, keeps its own timers, without `fileno`. Errors:
    `RuntimeError` where no loop runs, or for another `slack_us` later.
    """
    loop = asyncio.get_running_loop()
    found: LoopTimers | None = getattr(loop, _ATTRIBUTE, None)
    if found is None:
        if not can_serve(loop):
            return OwnTimers(loop)  # type: ignore[return-value]  # for checkers it is a wheel too
        found = LoopTimers(loop, is_beside=True, slack_us=slack_us or 0)
        watch(loop, found)
        setattr(loop, _ATTRIBUTE, found)
        found._prepare_collections()
        loop.close = _Close(loop, found)  # type: ignore[method-assign]
    elif vars(loop).get("time") not in (None, getattr(loop, "_tickwheel_shortcuts", {}).get("time")):
        return OwnTimers(loop)  # type: ignore[return-value]  # a test has given it another clock
    elif slack_us is not None and slack_us != found.slack_us:
        raise RuntimeError(
            f"the timers of this loop have slack_us={found.slack_us}, got {slack_us}: give it at the first call"
        )
    return found


def clock_of_loop() -> object:
    """A value that is equal for all loops with the same clock."""
    found = timers()
    return found.clock if type(found) is LoopTimers else ref(asyncio.get_running_loop())


class _Close:
    """The `close` of a loop with timers beside it. It drops the pending timers, as a loop drops its own.

    It has strong references, as the timers have one to the loop. The finalizer of an unclosed loop closes the loop, and
    weak references to the loop are gone by then.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, found: LoopTimers) -> None:
        self.loop, self.found, self.close, self.process = loop, found, loop.close, os.getpid()

    def __call__(self) -> None:
        if os.getpid() != self.process:
            # A child shares the epoll of its parent's loop, and uvloop removes each open descriptor from that.
            self.found._close()
        self.close()
        self.found._close()
        if vars(self.loop).get("close") is self:
            del vars(self.loop)["close"]  # so that the loop is freed without the collector


@overload
async def sleep(delay: float | timedelta) -> None: ...
@overload
async def sleep(delay: float | timedelta, result: _T) -> _T: ...
async def sleep(delay: float | timedelta, result: object = None) -> object:
    """Wait for `delay` seconds, never less, and return `result`. As `asyncio.sleep`."""
    delay_s = _delay_s(delay)
    if delay_s <= 0:
        await _sleep_0(0)  # asyncio.sleep, also where a program puts this one in its place
        return result
    future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    handle = timers().call_later(delay_s, _set_result, future, result)
    try:
        return await future
    finally:
        handle.cancel()


async def sleep_until(when: float) -> None:
    """Wait until the loop's clock reads `when`; where it does, let others have their turn."""
    await sleep(0)
    future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    handle = timers().call_at(when, _set_result, future, None)
    try:
        await future
    finally:
        handle.cancel()


def timeout(delay: float | timedelta | None) -> "Timeout":
    """Cancel the block of an `async with` after so many seconds, with `TimeoutError`, as asyncio's own.

    `None`: no deadline, which `reschedule` can set.
    """
    return Timeout(None if delay is None else timers().time() + _delay_s(delay))


def timeout_at(when: float | None) -> "Timeout":
    """As `timeout`, at a time of the loop's clock."""
    return Timeout(when)


class Timeout(asyncio.Timeout):  # type: ignore[misc]  # final for checkers
    """A deadline for the block of an `async with`: asyncio's, kept in the wheel."""

    def reschedule(self, when: float | None) -> None:
        """Move the deadline. Errors: `RuntimeError` before the block, after it, and once the deadline has passed."""
        super().reschedule(None)
        own: Any = self
        own._when = when
        if when is None:
            return
        found = timers()
        if _time_s(when) <= found.time():
            own._timeout_handler = asyncio.get_running_loop().call_soon(own._on_timeout)
        else:
            own._timeout_handler = found.call_at(when, own._on_timeout)


def _set_result(future: "asyncio.Future[object]", result: object) -> None:
    if not future.done():
        future.set_result(result)
