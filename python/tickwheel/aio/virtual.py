"""An event loop on a clock that no one waits for: `await asyncio.sleep(3600)` ends at once, and a deadlock is an error.

Time moves when nothing else can happen: to the next timer, in the order of the wheel, so a run is always the same.
"""

import asyncio
import math
import selectors
from collections.abc import Awaitable, Callable, Generator
from contextvars import Context
from datetime import timedelta
from typing import Any, Final, TypeVar, TypeVarTuple
from weakref import WeakSet, ref

from tickwheel._native import ManualTimer, TimerTask, _delay_s, _time_s
from tickwheel.aio.beside import leave_frame_out

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

_OWN_FILES: Final = 1  # by which other threads wake the loop
_NEVER_S: Final = 2**52 / 1000  # beyond the timer's clock


class Deadlock(RuntimeError):
    """All tasks of a `VirtualLoop` wait for something that cannot happen any more. The text names them."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose timers are in a `ManualTimer`, its `timer`; time begins at 0, or where that is.

    `grace_s`: for how many real seconds a thread, or a socket or process that the loop watches, may do something before
    time moves on. Errors: `run_until_complete` raises `Deadlock` where nothing can happen any more; `run_forever` waits
    for what other threads bring.

    >>> import asyncio
    >>> with asyncio.Runner(loop_factory=VirtualLoop) as runner:
    ...     runner.run(asyncio.sleep(3600, "an hour later"))
    ...     runner.get_loop().time()
    'an hour later'
    3600.0
    """

    _closed = True  # until it is made, or its finalizer fails where an argument is refused

    def __init__(self, timer: ManualTimer | None = None, *, grace_s: float = 0.05) -> None:
        if not (timer is None or isinstance(timer, ManualTimer)):
            raise TypeError(f"timer is a ManualTimer, got {timer!r}: leave it out for one that begins at 0")
        if not 0 <= grace_s < math.inf:
            raise ValueError(f"grace_s must be real seconds, 0 or more, got {grace_s}: leave it out for 0.05")
        self.timer = ManualTimer("virtual time") if timer is None else timer
        self._is_until_complete = False
        self._pending: dict[int, TimerTask] = {}
        self._in_threads: set[object] = set()
        self._processes: WeakSet[asyncio.SubprocessTransport] = WeakSet()
        super().__init__(_Selector(ref(self), grace_s))

    def time(self) -> float:
        """The timer's time, in seconds."""
        return self.timer.now_us() / 1e6

    def call_later(
        self, delay: float, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As asyncio's."""
        if delay is None:
            raise TypeError("delay must not be None")
        handle = self.call_at(self.time() + _delay_s(delay), callback, *args, context=context)
        leave_frame_out(handle)
        return handle

    def call_at(
        self, when: float, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As asyncio's."""
        if when is None:
            raise TypeError("when cannot be None")
        when_s = _time_s(when)
        if self.is_closed():
            raise RuntimeError("Event loop is closed")
        if self.get_debug():
            checks: Any = self
            checks._check_thread()
            checks._check_callback(callback, "call_at")
        handle = VirtualHandle(when, callback, args, self, context)
        leave_frame_out(handle)
        own: Any = handle
        own._scheduled = True
        self._put(handle, when_s)
        return handle

    def run_in_executor(self, executor: Any, func: Callable[[*_Ts], Any], *args: *_Ts) -> "asyncio.Future[Any]":
        """As asyncio's; time stands still until a thread or process is done, for `grace_s` at least."""
        future = super().run_in_executor(executor, func, *args)
        self._in_threads.add(future)
        future.add_done_callback(self._in_threads.discard)
        return future

    def run_until_complete(self, future: Generator[Any, None, _T] | Awaitable[_T]) -> _T:
        """As asyncio's. Errors: `Deadlock`."""
        self._is_until_complete = True
        try:
            return super().run_until_complete(future)
        finally:
            self._is_until_complete = False

    async def shutdown_default_executor(self, *timeout: float | None) -> None:
        """As asyncio's, however long the threads take: a time-out of virtual time would pass at once."""
        waits = object()
        self._in_threads.add(waits)
        try:
            await super().shutdown_default_executor(*(None for _ in timeout))
        finally:
            self._in_threads.discard(waits)

    async def subprocess_exec(self, *args: Any, **kwargs: Any) -> Any:
        """As asyncio's; time stands still while a process runs, for `grace_s` at least."""
        transport, protocol = await super().subprocess_exec(*args, **kwargs)
        self._processes.add(transport)
        return transport, protocol

    async def subprocess_shell(self, *args: Any, **kwargs: Any) -> Any:
        """As `subprocess_exec`."""
        transport, protocol = await super().subprocess_shell(*args, **kwargs)
        self._processes.add(transport)
        return transport, protocol

    def close(self) -> None:
        """As asyncio's."""
        super().close()
        while self._pending:
            self._pending.popitem()[1].cancel()

    def _put(self, handle: asyncio.TimerHandle, when_s: float) -> None:
        if when_s < _NEVER_S:
            self._pending[id(handle)] = self.timer.at(max(when_s, 0.0) * 1000, self._is_due, handle)

    def _move(self, handle: "VirtualHandle", delay_s: float) -> bool:
        own: Any = handle
        if handle.has_begun or own._cancelled or self.is_closed():
            return False
        when_s, was_ready = self.time() + delay_s, not own._scheduled
        self._timer_handle_cancelled(handle)
        self._put(handle, when_s)  # if the timer refuses it, one that is ready stays so
        handle.left += was_ready
        own._scheduled, own._when = True, when_s
        return True

    def _is_due(self, handle: Any) -> None:
        self._pending.pop(id(handle), None)
        handle._scheduled = False
        loop: Any = self
        loop._add_callback(handle)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        if task := self._pending.pop(id(handle), None):
            task.cancel()

    def _move_on(self) -> bool:
        """Move time to the next timer. `False` if there is none."""
        return self.timer.run_next()

    def _is_watching(self, files: int) -> bool:
        runs = any(transport.get_returncode() is None for transport in self._processes)
        own: Any = self
        return files > _OWN_FILES or runs or bool(self._in_threads or own._signal_handlers)

    def _deadlock(self) -> Deadlock:
        waiting = sorted(f"  {_shown(task)}" for task in asyncio.all_tasks(self))
        return Deadlock(
            "\n".join([f"nothing can happen any more at {self.time():g} s, and these tasks wait:", *waiting])
        )


class VirtualHandle(asyncio.TimerHandle):
    """A callback with its time on a `VirtualLoop`. It can be moved, as one in a wheel."""

    __slots__ = ("first_when", "has_begun", "left")

    def __init__(self, when: float, *rest: Any) -> None:
        super().__init__(when, *rest)
        leave_frame_out(self)
        self.first_when, self.has_begun = when, False
        self.left = 0  # how many places it has in the line of what is ready that it was moved away from

    def _run(self) -> None:
        if self.left:
            self.left -= 1
            return
        self.has_begun = True
        own: Any = super()
        own._run()

    def __hash__(self) -> int:
        return hash(self.first_when)  # so that it stays in a set

    def reschedule(self, delay: float | timedelta) -> bool:
        """As that of a handle in a wheel."""
        own: Any = self
        moved: bool = own._loop._move(self, _delay_s(delay))
        return moved


class _Selector(selectors.DefaultSelector):
    """Waits for nothing but what is real."""

    def __init__(self, loop: "ref[VirtualLoop]", grace_s: float) -> None:
        super().__init__()
        self._loop, self._grace_s = loop, grace_s

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        loop = self._loop()
        found = super().select(0)
        if found or timeout is not None or loop is None:  # something is ready, or the loop asks what is
            return found
        is_watching = loop._is_watching(len(self.get_map()))
        if is_watching and (found := super().select(self._grace_s)):
            return found
        if loop._move_on():
            return []
        may_come = is_watching or not loop._is_until_complete
        found = super().select(None if may_come else self._grace_s)
        if not found and not may_come:
            raise loop._deadlock()
        return found


def _shown(task: "asyncio.Task[Any]") -> str:
    [*stack] = task.get_stack(limit=1)
    where = f" at {stack[0].f_code.co_filename}:{stack[0].f_lineno}" if stack else ""
    return f"{task.get_name()}: {getattr(task.get_coro(), '__qualname__', task.get_coro())}{where}"
