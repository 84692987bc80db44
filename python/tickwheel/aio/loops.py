"""Event loops all of whose timers are in a wheel: sleep, timeout, wait_for, and those of every library (T21)."""

import asyncio
import os
import sys
from asyncio import format_helpers
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any, Literal, TypeVarTuple
from weakref import WeakValueDictionary

from tickwheel._native import LoopTimers, _delay_s, _is_clock_replaced
from tickwheel.aio.clocks import can_serve, has_own_timers
from tickwheel.aio.watching import watch

_Ts = TypeVarTuple("_Ts")

if TYPE_CHECKING:
    _Base = asyncio.SelectorEventLoop
else:
    _Base = object  # a mixin

_ASYNCIO: Any = asyncio.BaseEventLoop  # whose private check of a callback debug mode asks for
_classes: "WeakValueDictionary[type, type]" = WeakValueDictionary()


def new_event_loop(
    base: type[asyncio.AbstractEventLoop] = asyncio.SelectorEventLoop,
    *,
    slack_us: int = 0,
    clock: Literal["monotonic", "boottime"] = "monotonic",
) -> asyncio.AbstractEventLoop:
    """A new loop of the class `base`, whose timers are in a wheel: for `asyncio.Runner(loop_factory=new_event_loop)`.

    `base`: asyncio's loop, `uvloop.Loop`, or a class of your own. A loop with its own clock, `call_at` or `call_later`
    keeps its timers. `slack_us`: the shortest time between two wake-ups, by which a timer may be late. `clock`: with
    `"boottime"` the time of the loop goes on while the machine is suspended; only on Linux. Errors: `ValueError` if it
    cannot.
    """
    if not isinstance(base, type):
        raise TypeError(f"base is a class of loops, got {base!r}: pass uvloop.Loop, say, and not what makes one")
    kind: Any = base
    made: asyncio.AbstractEventLoop = _class_of(kind)(slack_us=slack_us, clock=clock)
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
    _tickwheel_shortcuts: dict[str, Any] = {}  # noqa: RUF012, replaced as a whole

    def __init__(
        self, *args: Any, slack_us: int = 0, clock: Literal["monotonic", "boottime"] = "monotonic", **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        own = type(self).time is not WheelTimers.time
        behind = type(self).__mro__[type(self).__mro__.index(WheelTimers) + 1]
        try:
            if own or not can_serve(behind) or has_own_timers(behind):
                if clock == "monotonic":
                    return
                raise ValueError(
                    f"{type(self).__name__} keeps its own timers, so clock={clock!r} is not for it: leave it out, or "
                    "take asyncio's loop or uvloop's, on Linux"
                )
            timers = LoopTimers(self, slack_us=slack_us, clock=clock)
        except BaseException:
            super().close()
            raise
        self._tickwheel_timers, self._tickwheel_process = timers, os.getpid()
        watch(self, timers)
        timers._prepare_collections()
        self._tickwheel_shortcuts = self._own_shortcuts(timers)
        self._take_shortcuts()

    def time(self) -> float:
        """The time in seconds; on uvloop too to the nanosecond, where its own is a millisecond's."""
        timers = self._wheel()
        return super().time() if timers is None else timers.time()

    def call_later(
        self, delay: float, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As asyncio's."""
        if self._wheel() is None:
            return super().call_later(delay, callback, *args, context=context)
        if delay is None:
            raise TypeError("delay must not be None")
        handle: Any = self.call_at(self.time() + _delay_s(delay), callback, *args, context=context)
        if handle._source_traceback:
            del handle._source_traceback[-1]
        return handle  # type: ignore[no-any-return]  # its traceback is private

    def call_at(
        self, when: float, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As asyncio's."""
        timers = self._wheel()
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
        self._take_shortcuts()

    def close(self) -> None:
        """As asyncio's."""
        timers = self._tickwheel_timers
        if timers is not None and self._tickwheel_process != os.getpid():
            # A child shares the epoll of its parent's loop, and uvloop removes each open descriptor from that.
            timers._close()
        super().close()
        if timers is not None:
            timers._close()
            self._take_shortcuts()

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in ("call_at", "call_later", "time"):  # as tests do
            self._take_shortcuts()

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        self._take_shortcuts()

    def _wheel(self) -> LoopTimers | None:
        """The wheel, unless the loop or the process has another clock, if only since a test put one there."""
        is_moved = "time" in vars(self) and vars(self)["time"] is not self._tickwheel_shortcuts.get("time")
        return None if is_moved or _is_clock_replaced() else self._tickwheel_timers

    def _own_shortcuts(self, timers: LoopTimers) -> dict[str, Any]:
        """Ways to the wheel without a frame of Python in between, but for the methods that a subclass has."""
        found: dict[str, Any] = {"time": timers.time}
        if type(self).call_at is WheelTimers.call_at:
            found["call_at"] = timers.call_at
            if type(self).call_later is WheelTimers.call_later:  # it goes through call_at
                found["call_later"] = timers.call_later
        return found

    def _take_shortcuts(self) -> None:
        """Take the shortcuts, but where the loop is in debug mode, closed, or one of these methods was replaced."""
        if self._tickwheel_timers is None:
            return
        attributes = vars(self)
        unchanged = {name: it for name, it in self._tickwheel_shortcuts.items() if attributes.get(name, it) is it}
        may_take = len(unchanged) == len(self._tickwheel_shortcuts) and not (self.get_debug() or self.is_closed())
        for name, it in unchanged.items():
            if may_take:
                attributes[name] = it
            else:
                attributes.pop(name, None)


def _class_of(base: Any) -> Any:
    if issubclass(base, WheelTimers):
        return base
    made = _classes.get(base)
    if made is None:
        made = type(f"Wheel{base.__name__}", (WheelTimers, base), {"__module__": __name__, "__doc__": base.__doc__})
        _classes[base] = made
    return made
