"""Event loops all of whose timers are in a wheel: sleep, timeout, wait_for, and those of every library (T21)."""

import asyncio
import functools
import os
import sys
import time
from asyncio import format_helpers
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final, TypeVarTuple

from tickwheel._native import LoopTimers
from tickwheel.aio.clocks import can_serve
from tickwheel.aio.collecting import know

_Ts = TypeVarTuple("_Ts")

if TYPE_CHECKING:
    _Base = asyncio.SelectorEventLoop
else:
    _Base = object  # a mixin

_ASYNCIO: Any = asyncio.BaseEventLoop  # whose private check of a callback debug mode asks for
_SHORTCUTS: Final = ("call_later", "call_at", "time")


def new_event_loop(
    base: type[asyncio.AbstractEventLoop] = asyncio.SelectorEventLoop, *, slack_us: int = 0
) -> asyncio.AbstractEventLoop:
    """A new loop of the class `base`, whose timers are in a wheel: for `asyncio.Runner(loop_factory=new_event_loop)`.

    `base`: asyncio's loop, `uvloop.Loop`, or a class of your own. A loop with a clock of its own, as those of tests,
    keeps its own timers. `slack_us`: the shortest time between two wake-ups, by which a timer may be late.
    """
    if not isinstance(base, type):
        raise TypeError(f"base is a class of loops, got {base!r}: pass uvloop.Loop, say, and not what makes one")
    kind: Any = base
    made: asyncio.AbstractEventLoop = _class_of(kind)(slack_us=slack_us)
    return made


class WheelTimers(_Base):
    """Write it before a loop's class, and all timers of that loop are in a wheel.

    >>> import asyncio
    >>> class Loop(WheelTimers, asyncio.SelectorEventLoop):
    ...     pass
    >>> with asyncio.Runner(loop_factory=Loop) as runner:
    ...     runner.run(asyncio.sleep(0.001, "slept"))
    'slept'
    """

    _tickwheel_timers: LoopTimers | None = None

    def __init__(self, *args: Any, slack_us: int = 0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        own = type(self).time is not WheelTimers.time
        behind = type(self).__mro__[type(self).__mro__.index(WheelTimers) + 1]
        if own or not can_serve(behind):
            return
        self._tickwheel_timers = timers = LoopTimers(self, slack_us=slack_us)
        self._tickwheel_process = os.getpid()
        self.add_reader(timers.fileno(), timers._run_due)
        know(timers)
        self._take_shortcuts()

    def time(self) -> float:
        """The time in seconds; on uvloop too to the nanosecond, where its own is a millisecond's."""
        return super().time() if self._tickwheel_timers is None else time.monotonic()

    def call_later(
        self, delay: float, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As asyncio's."""
        if self._tickwheel_timers is None:
            return super().call_later(delay, callback, *args, context=context)
        if delay is None:
            raise TypeError("delay must not be None")
        handle: Any = self.call_at(self.time() + delay, callback, *args, context=context)
        if handle._source_traceback:
            del handle._source_traceback[-1]
        return handle  # type: ignore[no-any-return]  # its traceback is private

    def call_at(
        self, when: float, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As asyncio's."""
        timers = self._tickwheel_timers
        if timers is None:
            return super().call_at(when, callback, *args, context=context)
        if when is None:
            raise TypeError("when cannot be None")
        if self.is_closed():
            raise RuntimeError("Event loop is closed")
        is_debugged = self.get_debug()
        if is_debugged:
            if self.is_running() and asyncio._get_running_loop() is not self:
                raise RuntimeError("Non-thread-safe operation invoked on an event loop other than the current one")
            _ASYNCIO._check_callback(self, callback, "call_at")
        handle = timers.call_at(when, callback, *args, context=context)
        if is_debugged:
            handle._source_traceback = format_helpers.extract_stack(sys._getframe(1))
        return handle

    def set_debug(self, enabled: bool) -> None:
        """As asyncio's."""
        super().set_debug(enabled)
        if self._tickwheel_timers is not None:
            self._take_shortcuts()

    def close(self) -> None:
        """As asyncio's."""
        timers = self._tickwheel_timers
        # A child's copy of a loop shares what it waits with: taken out there, it would be taken out of the parent's.
        is_ours = timers is not None and self._tickwheel_process == os.getpid()
        if timers is not None and is_ours and not self.is_closed() and not self.is_running():
            self.remove_reader(timers.fileno())
        super().close()
        if timers is not None:
            for name in _SHORTCUTS:
                vars(self).pop(name, None)
            timers._close()

    def _take_shortcuts(self) -> None:
        """Call the wheel without a frame of Python in between, where no subclass and no debug mode is in between."""
        timers, own = self._tickwheel_timers, type(self)
        is_own = {name: getattr(own, name) is getattr(WheelTimers, name) for name in _SHORTCUTS}
        # call_later goes through call_at: a subclass with a call_at of its own gets both.
        may = {"call_at": is_own["call_at"], "call_later": is_own["call_at"] and is_own["call_later"], "time": True}
        for name in _SHORTCUTS:
            vars(self).pop(name, None)
            if may[name] and not self.get_debug():
                vars(self)[name] = time.monotonic if name == "time" else getattr(timers, name)


@functools.cache
def _class_of(base: Any) -> Any:
    if issubclass(base, WheelTimers):
        return base
    return type(f"Wheel{base.__name__}", (WheelTimers, base), {"__module__": __name__, "__doc__": base.__doc__})
