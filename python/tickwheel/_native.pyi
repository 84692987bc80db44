"""The timer, in Rust. Import these names from `tickwheel` and `tickwheel.testing`, not from here.

All times are milliseconds on the timer's own monotonic clock (never the wall clock), and names say so. A delay is an
int, a finite float or a `timedelta`. Inside the timer, instants are exact to the microsecond.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextvars import Context
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from traceback import StackSummary
from types import GenericAlias, TracebackType
from typing import (
    Any,
    Final,
    Generic,
    Literal,
    Never,
    Protocol,
    Self,
    TypeAlias,
    TypedDict,
    TypeVarTuple,
    Unpack,
    final,
    overload,
    type_check_only,
)

from typing_extensions import Buffer, TypeVar, disjoint_base

from tickwheel.delivery.base.errors import BadRecord
from tickwheel.delivery.model.entries import Event, Reschedule
from tickwheel.delivery.model.message import Cancel, Message
from tickwheel.histogram import Histogram

__version__: str

class _ArrowArray(Protocol):
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...

class _ArrowStream(Protocol):
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

_Int64s: TypeAlias = Buffer | _ArrowArray | _ArrowStream
"""Many int64: a buffer, an Arrow array, or an Arrow stream such as a chunked array; sliced or unaligned too."""

_Ts = TypeVarTuple("_Ts")
_Operation = TypeVar("_Operation", bound=DelayedOperation, default=DelayedOperation)

_Listed: TypeAlias = TimerTask | tuple[TaskBatch, int]

class _Lock(Protocol):
    def acquire(self, blocking: bool = ..., /) -> bool: ...
    def release(self) -> None: ...

class TickwheelError(Exception):
    """The base class of the errors that only tickwheel raises."""

class TimerClosed(TickwheelError, RuntimeError):
    """The timer was shut down: it takes no more tasks."""

class TimerForked(TickwheelError, RuntimeError):
    """The timer belongs to the parent process, its threads did not survive the fork: make a new one in the child."""

class TimerFull(TickwheelError, RuntimeError):
    """The add would exceed `max_pending`; nothing was added."""

class TimerRejected(TickwheelError, RuntimeError):
    """The executor refused a task, or the timers of a batch with these `indices`: they did not run."""

    indices: Sequence[int] = ()

class OperationCancelled(TickwheelError, RuntimeError):
    """The operation was taken out of its purgatory before it was complete. Waiters of the operation get this."""

@type_check_only
class BucketSnapshot(TypedDict):
    """One bucket: when it expires (-1: not armed) and the names of its tasks, in order of add."""

    expiration_ms: int
    tasks: list[str | tuple[TaskBatch, int]]

@type_check_only
class LevelSnapshot(TypedDict):
    """One level of the wheel, level 1 being the finest; `covers_ms` is half open."""

    level: int
    tick_ms: int
    interval_ms: int
    start_ms: int
    current_time_ms: int
    covers_ms: list[int]
    buckets: list[BucketSnapshot]

@type_check_only
class ArmedBucket(TypedDict):
    """A bucket in the bucket queue."""

    expiration_ms: int
    level: int
    bucket: int

@type_check_only
class FrontEntry(TypedDict):
    """A task that has left the wheel and waits for its exact instant."""

    due_ms: float
    task: str | tuple[TaskBatch, int]

@type_check_only
class Snapshot(TypedDict):
    """The whole timer at one moment, as plain data."""

    levels: list[LevelSnapshot]
    queue: list[ArmedBucket]
    size: int
    front: list[FrontEntry]

@type_check_only
class LevelOccupancy(TypedDict):
    """One level of the wheel, level 1 being the finest: `tasks` is the number of tasks of each bucket."""

    level: int
    tick_ms: int
    interval_ms: int
    current_time_ms: int
    tasks: list[int]

@type_check_only
class Occupancy(TypedDict):
    """How full a timer is at `now_ms`. `front`: tasks that have left the wheel and wait for their exact instant."""

    now_ms: float
    levels: list[LevelOccupancy]
    front: int
    size: int

@type_check_only
class Stats(TypedDict):
    """Counts since the timer was made.

    `cascaded[k]` counts entries that left level `k + 1` for a lower one or for the front; of buckets with more than 64,
    cancelled ones too. A task that was moved leaves a level when its old instant comes. `lateness_us` is a histogram:
    pairs of (upper bound in microseconds, calls); empty classes are omitted.
    """

    added: int
    moved: int
    cancelled: int
    expired: int
    cascaded: list[int]
    wake_ups: int
    pending: int
    executor_depth: int
    running: int
    lateness_us: Histogram

@disjoint_base
class TimerTask:
    """Something to run after a delay: a callable with arguments, or a subclass with `run()`.

    `delay_ms`: milliseconds after `add`, or a `timedelta`; zero or less is due at once. `name` appears in
    snapshots and error messages. A task may be added again, also from its own callback; adding a pending task moves it.
    A coroutine function needs a timer whose executor is an asyncio loop; in a `partial` it is found when it is called.
    Errors: `ValueError` and `TypeError` for a bad delay or callback. After Kafka's `TimerTask`.
    """

    def __init__(
        self,
        delay_ms: float | timedelta,
        callback: Callable[[*_Ts], object] | None = None,
        *args: *_Ts,
        name: str | None = None,
    ) -> None: ...
    @property
    def delay_ms(self) -> float: ...
    @property
    def name(self) -> str | None: ...
    @property
    def due_ms(self) -> float | None:
        """When it is due, on its timer's clock; `None` if it is on no timer. A past one waits for the executor."""

    @property
    def is_pending(self) -> bool:
        """Whether it is on a timer, and its call has not begun."""

    def cancelled(self) -> bool:
        """Whether it was cancelled, and not added since."""

    @property
    def timer(self) -> Timer | None:
        """The timer that it is on; `None` if it is on none, or that object is gone."""

    @property
    def callback(self) -> Callable[..., object] | None:
        """What it calls; `None` for a class with a `run` of its own, and once a task of `after` or `at` has ended."""

    @property
    def args(self) -> tuple[object, ...]:
        """The arguments of the callback."""

    def reschedule(self, delay_ms: float | timedelta) -> bool:
        """Move it to `delay_ms` from now, if its call has not begun: `True` exactly then. O(levels).

        Errors: as `Timer.add`. `False` also for a task that was never added, was cancelled, or has run.
        """

    def run(self) -> object:
        """Call `callback(*args)`. The timer calls this when the task is due. Override it in a subclass."""

    def cancel(self) -> bool:
        """Take the task off its timer. `True` exactly if it is certain that the task will not run. O(1).

        `False` for a task that was never added, was cancelled before, is running or has run. The timer drops its
        reference to the task at once. Errors: `TimerForked`.
        """

    def __await__(self) -> Generator[object, object, bool]:
        """Wait from a loop until its call has ended: `True`; `False` if there is none, as after a cancel or a shutdown.

        At once if it is on no timer. What the callback raises goes to `on_error` alone. If a task goes on, as one of
        `every` does, the next call counts. Errors: `RuntimeError` without a running loop.
        """

    def _watch(self, waiter: Callable[[bool], object]) -> bool | None: ...
    def _unwatch(self, waiter: Callable[[bool], object]) -> None: ...

@final
class PeriodicTask(TimerTask):
    """A callback that is called again and again. Get it from `Timer.every`."""

    def __new__(cls, *args: object, **kwargs: object) -> Never: ...
    def run(self) -> object:
        """Call `callback(*args)` once, unless the series has ended. The calls of the timer come as before."""

    def cancel(self) -> bool:
        """End it. `True` for the first cancel of one that goes on: no call begins after it. O(1)."""

    def pause(self) -> bool:
        """Stop the calls until `resume`. `True` if they went on: no call begins after this. O(1).

        Meanwhile the task is not pending, and it does not keep its timer alive.
        """

    def resume(self) -> bool:
        """End a pause. `True` if there was one, and calls come: at the instants from now on, or in a gap from now.

        Those that were due during the pause are left out. `False` also if no call is left until its end. O(levels).
        Errors: `TimerClosed`, `TimerForked`.
        """

    @property
    def is_paused(self) -> bool:
        """Whether it is paused."""

@final
class _Series:
    def __new__(
        cls,
        period: float | timedelta | None,
        gap: float | timedelta | None,
        start: float | None,
        first: str | None,
        jitter: float | timedelta | None,
        missed: str | None,
        times: int | None,
        until: float | None,
    ) -> Self: ...
    def begin(self, now_s: float) -> _Instant: ...

@final
class _Instant:
    @property
    def when(self) -> float: ...
    @property
    def due(self) -> float: ...
    def next(self, now_s: float) -> _Instant | None: ...
    def given_up(self) -> _Instant: ...

@final
class TaskBatch:
    """Many timers with one callback and no Python object each: the result of `add_many`."""

    def __len__(self) -> int:
        """How many timers of the batch are still to run."""

    def due_ms(self, index: int) -> float | None:
        """When the timer with this index is due, as `TimerTask.due_ms`. Errors: `IndexError` outside the batch."""

    def cancel(self, index: int) -> bool:
        """Cancel the timer with this index, as `TimerTask.cancel`. Errors: `IndexError` outside the batch."""

    def cancel_many(self, indices: Iterable[int] | _Int64s) -> int:
        """Cancel the timers with these indices. Returns how many will certainly not run."""

    def cancel_all(self) -> int:
        """Cancel all remaining timers. Returns how many will certainly not run."""

@disjoint_base
class Timer:
    """The base of `SystemTimer` and `tickwheel.testing.ManualTimer`. It cannot be used by itself."""

    @property
    def name(self) -> str: ...
    @property
    def is_shut_down(self) -> bool:
        """Whether it was shut down: it accepts nothing more."""

    @property
    def unfinished(self) -> list[_Listed]:
        """The tasks that `shutdown` found pending, in order; empty before `shutdown`."""

    def now_ms(self) -> int:
        """The time of the timer's clock, rounded down to a millisecond."""

    def now_us(self) -> int:
        """The time of the timer's clock, rounded down to a microsecond."""

    def __len__(self) -> int:
        """How many tasks are not yet released to the executor."""

    def add(self, task: TimerTask, *, context: Context | Literal["copy"] | None = None) -> None:
        """Schedule `task` to run in `task.delay_ms`; a task that is pending here is moved. O(levels); runs no callback.

        `context`: as for `after`. Errors: `TimerClosed`; `TimerForked`; `TimerFull`; `ValueError` if the task is
        pending on another timer; `TypeError` if it runs a coroutine function and the executor is not an asyncio loop.
        """

    @overload
    def after(
        self,
        delay_ms: float | timedelta,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        kwargs: None = None,
        context: Context | Literal["copy"] | None = None,
        name: str | None = None,
    ) -> TimerTask:
        """Run `callback(*args, **kwargs)` once, in `delay_ms` milliseconds. Returns the task, which can be cancelled.

        The task drops its callback when it can never run again; with `kwargs` that is a `functools.partial`. If the
        executor is an asyncio loop, `callback` may be a coroutine function. It runs in `context`: by default in a copy
        of the current one on a loop, and elsewhere in that of the thread that calls it; `"copy"` copies the current
        one for any executor, and it stays in memory until then. `name`: as for `TimerTask`. Errors: as `add`, and as
        `TimerTask`.
        """

    @overload
    def after(
        self,
        delay_ms: float | timedelta,
        callback: Callable[..., object],
        *args: object,
        kwargs: Mapping[str, object],
        context: Context | Literal["copy"] | None = None,
        name: str | None = None,
    ) -> TimerTask: ...
    def call_later(
        self,
        delay: float | timedelta,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: Context | Literal["copy"] | None = None,
        name: str | None = None,
    ) -> TimerTask:
        """As `after`, in seconds: the name and the unit of asyncio's loops."""

    def at(
        self,
        due_ms: float,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: Context | Literal["copy"] | None = None,
        name: str | None = None,
    ) -> TimerTask:
        """As `after`, at an instant of the timer's own clock (see `now_ms`). An instant in the past is due at once."""

    def every(
        self,
        period_ms: float | timedelta | None,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        gap_ms: float | timedelta | None = None,
        start_ms: float | None = None,
        first: Literal["now"] | None = None,
        jitter_ms: float | timedelta | None = None,
        missed: Literal["skip", "all", "last"] | None = None,
        times: int | None = None,
        until_ms: float | None = None,
        context: Context | Literal["copy"] | None = None,
        name: str | None = None,
    ) -> PeriodicTask:
        """Call `callback(*args)` again and again, at `start_ms + n * period_ms` of the timer's clock, without drift.

        `start_ms`: by default one period from now; the instants go on from one that is past. `first="now"`: from now
        on. With `period_ms=None` and `gap_ms`, the next call comes so long after the end of the one before.
        `jitter_ms`: each call is later by a random time up to this one, shorter than the period. `missed` decides
        about instants that pass while a call runs or waits. They are left out (`"skip"`), made up for one by one
        (`"all"`), or one call stands for all (`"last"`). The series ends after so many calls (`times`), or with the
        last one that is due at `until_ms` or before. A coroutine runs as one of `after` does: until it has ended the
        call runs, and the task is not pending. An exception goes to `on_error`, and the calls go on. Returns the task;
        `cancel` ends it, `pause` stops it until `resume`, and a call that has begun goes on. `name`: as for
        `TimerTask`. Errors: as `after`.
        """

    def add_many(
        self,
        delays_ms: _Int64s,
        callback: Callable[[memoryview], object],
        *,
        context: Context | Literal["copy"] | None = None,
    ) -> TaskBatch:
        """Add one timer for each int64 of a buffer, Arrow array or Arrow stream. Timers that expire together share one
        call.

        `callback(indices)` gets a memoryview of int64, in order of expiry. The call adds all timers or none:
        `ValueError` for nulls and for delays out of range, `TimerFull` if `max_pending` would be exceeded. `context`:
        as for `after`, one for the whole batch. About 50 bytes for each timer.
        """

    def cancel_many(self, tasks: Iterable[TimerTask]) -> int:
        """Cancel these tasks. Returns how many will certainly not run.

        A `DelayedOperation` that waits in a purgatory loses its deadline only, and still waits for its events.
        """

    def pending(self, *, before_ms: float | None = None, limit: int | None = None) -> list[tuple[float, _Listed]]:
        """List the pending tasks in order, as `(due_ms, task)`. A timer of a batch is `(batch, index)`.

        `due_ms` is an instant of the timer's clock. Each task was pending at some moment of the call. A task that was
        pending all the while is listed, moved or not. Internal tasks of the library are not listed, but `len` counts
        them. O(pending), in short steps.
        """

    def snapshot(self) -> Snapshot:
        """Levels, buckets, queue, size and front, for debugging. O(pending log pending), in short steps.

        A task that comes, leaves or moves meanwhile is shown as before or as after, or is missing.
        """

    def occupancy(self) -> Occupancy:
        """How many tasks each bucket has. O(pending), in steps, without the GIL.

        A task that was moved counts where it is due, as in `snapshot`. A task that comes, leaves or moves meanwhile may
        count as before or as after.
        """

    def stats(self) -> Stats:
        """Counters, and a histogram of the lateness."""

    def shutdown(self, timeout_ms: float | timedelta | None = None, *, wait_pending: bool = False) -> list[_Listed]:
        """Accept no more tasks, run what is due by now, and return the tasks that are still pending, in order.

        `timeout_ms` limits the wait for callbacks; a task that has not started by then counts as pending. With
        `wait_pending=True` it first waits until nothing is pending, as a pool of the standard library does; a periodic
        task is pending until it is cancelled, but not while a coroutine of it runs: the wait may end then, and the
        series with it. A series whose call runs at a shutdown ends with that call, and is in no list. Inside a callback
        of this timer the call waits for nothing, nor in a signal handler or a destructor that interrupts a shutdown of
        the same thread, nor on the thread of an executor's loop: `await timer.aclose()` there; `wait_pending=True`
        is a `RuntimeError`. The list stays in `unfinished`. A second call is allowed.
        """

    def aclose(
        self, timeout_ms: float | timedelta | None = None, *, wait_pending: bool = False
    ) -> Coroutine[object, object, list[_Listed]]:
        """As `shutdown`, for a coroutine: the loop goes on meanwhile, and runs what is due if it is the executor.

        Arguments and result: as those of `shutdown`. If the wait is cancelled, the timer is shut down at once.
        """

    def _record(self, bound: int) -> bool: ...
    def _take_recorded(self, limit: int) -> tuple[int, list[bytes], int]: ...
    def _stop_recording(self) -> tuple[int, list[bytes], int]: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...

@disjoint_base
class SystemTimer(Timer):
    """A timer for very many deadlines, on a hierarchical timing wheel; O(1) add and cancel.

    `tick_ms`: the tick of the finest level. `wheel_size`: buckets per level, or a sequence with one size per level; the
    last one repeats. `start_ms`: the first reading of the clock; by default that of the system's monotonic clock.
    `reaper`: threads of the timer drive the clock; with `False` the program calls `advance_clock`. `executor`: where
    callbacks run. The default is one thread, `executor-<name>`. It may be a `concurrent.futures.Executor` of threads,
    or an asyncio loop, which also runs coroutine functions, as tasks of the loop (the timer counts one as running only
    during the call). `precision`: `"exact"` to the microsecond, or `"tick"`, as in Kafka: up to one tick early, fewest
    wake-ups. `slack_us`: the minimum time between two wake-ups, by which a task may be late. A given number always
    holds. The default is 100; above 2,000 wake-ups in a second it grows to at most 1,000, until there are fewer than
    500. `max_pending`: the maximum number of pending tasks; an add that would exceed it raises `TimerFull`.
    `on_error(task, exception)`: called with the `TimerTask`, or the `TaskBatch` of `add_many`, and what its callback
    raised: an `Exception`, on a thread of the timer also `KeyboardInterrupt` and `SystemExit`. By default that goes
    to the exception handler of the loop, or to the logger `tickwheel`, which tells of repeats within a minute by
    their count. `clock`: `"boottime"` goes on while the machine is suspended, so that what came due meanwhile runs as
    soon as the machine is awake; only on Linux. After Kafka's `SystemTimer`.

    >>> with SystemTimer("demo") as timer:
    ...     task = timer.after(60_000, print, "a minute has passed")
    ...     task.cancel()
    True
    """

    def __init__(
        self,
        name: str,
        tick_ms: int = 1,
        wheel_size: int | Sequence[int] = 20,
        start_ms: int | None = None,
        *,
        reaper: bool = True,
        executor: Executor | asyncio.AbstractEventLoop | None = None,
        precision: Literal["exact", "tick"] = "exact",
        slack_us: int = 100,
        max_pending: int | None = None,
        on_error: Callable[[TimerTask, Exception], object] | None = None,
        clock: Literal["monotonic", "boottime"] = "monotonic",
    ) -> None: ...
    def advance_clock(self, timeout_ms: float | timedelta) -> bool:
        """Wait at most `timeout_ms` until something is due, and advance the clock. Only with `reaper=False`.

        Returns whether a bucket was due or a task was released: `while timer.advance_clock(2000): pass` drains the
        timer. Errors: `RuntimeError` with a reaper, `TimerClosed`, `TimerForked`.
        """

@disjoint_base
class ManualTimer(Timer):
    """The same wheel on a clock that only the caller moves: deterministic, no threads.

    Callbacks run in the calling thread, while the clock shows the moment of their release. Their exceptions go to
    `on_error`. With `strict=True` they come out of `advance`, so an assertion in a callback fails the test.
    `KeyboardInterrupt` and `SystemExit` always do. The remaining tasks run at the next advance. After Kafka's
    `MockTimer`.

    >>> timer = ManualTimer()
    >>> _ = timer.after(5, print, "five")
    >>> timer.advance(4), len(timer)
    (0, 1)
    >>> timer.advance(1)
    five
    1
    """

    def __init__(
        self,
        name: str = "manual",
        *,
        tick_ms: int = 1,
        wheel_size: int | Sequence[int] = 20,
        start_ms: int = 0,
        precision: Literal["exact", "tick"] = "exact",
        max_pending: int | None = None,
        on_error: Callable[[TimerTask, Exception], object] | None = None,
        strict: bool = False,
    ) -> None: ...
    def advance(self, ms: float | timedelta) -> int:
        """Move the clock by `ms` and run the tasks that become due on the way. Returns how many ran.

        Errors: `ValueError` for a negative time, `RuntimeError` if another advance is in progress.
        """

    def advance_to(self, now_ms: float) -> int:
        """Move the clock to this instant, as `advance`."""

    def run_next(self) -> bool:
        """Move the clock to the next bucket or instant, including cascades. `False` if nothing is pending."""

@final
class TimerHandle(asyncio.TimerHandle):
    """A callback with its time on an event loop. It counts as an `asyncio.TimerHandle`, and has its methods."""

    _source_traceback: StackSummary | None
    def cancel(self) -> None:
        """It will not run. Once it has run, this does nothing more than say so. O(1)."""

    def reschedule(self, delay: float | timedelta) -> bool:
        """Move it to `delay` seconds from now, if it has not run and was not cancelled: `True` exactly then. O(levels).

        `delay`: a number or a `timedelta`. Errors: as `LoopTimers.call_later`.
        """

    def cancelled(self) -> bool:
        """Whether it was cancelled."""

    def when(self) -> float:
        """When it is due, on the loop's clock, in seconds."""

    def get_context(self) -> Context:
        """The context that the callback runs in; `None` once it has run."""

    def __lt__(self, other: object, /) -> bool: ...
    def __le__(self, other: object, /) -> bool: ...
    def __gt__(self, other: object, /) -> bool: ...
    def __ge__(self, other: object, /) -> bool: ...
    def __eq__(self, other: object, /) -> bool: ...

@final
class LoopTimers:
    """A wheel for the timers of one event loop. Get it from `tickwheel.aio.timers()`."""

    def __new__(
        cls,
        event_loop: asyncio.AbstractEventLoop,
        *,
        is_beside: bool = False,
        slack_us: int | None = None,
        clock: str | None = None,
    ) -> Self: ...
    @property
    def slack_us(self) -> int:
        """The shortest time between two wake-ups, in microseconds."""

    @property
    def clock(self) -> Literal["monotonic", "boottime"]:
        """The clock: `"monotonic"` or `"boottime"`."""

    def call_later(
        self,
        delay: float | timedelta,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> TimerHandle:
        """Call `callback(*args)` on the loop in `delay` seconds, a number or a `timedelta`. Returns its handle.

        Never early; O(levels). `context`: by default a copy of the current one. What the callback raises goes to the
        loop's exception handler. Errors: `ValueError`, `TypeError`; `RuntimeError` on a closed loop; `TimerForked`.
        """

    def call_at(
        self,
        when: float,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> TimerHandle:
        """As `call_later`, at a time of the loop's clock."""

    def time(self) -> float:
        """The time in seconds: that of `time.monotonic`, or of `CLOCK_BOOTTIME`."""

    def fileno(self) -> int:
        """The descriptor that the loop watches for reading."""

    def __len__(self) -> int:
        """How many callbacks are pending."""

    def _run_due(self) -> None: ...
    def _close(self) -> None: ...
    def _prepare_collections(self) -> None: ...

@type_check_only
class PurgatoryStats(TypedDict):
    """Counters of a purgatory."""

    waiting: int
    delayed: int
    watched: int
    keys: int
    completed: int
    expired: int
    cancelled: int
    waited_ms: float

@disjoint_base
class DelayedOperation(TimerTask):
    """An operation that waits for an event or for its deadline, whichever comes first. Subclass it.

    `delay_ms`: the deadline, counted from the call that watches the operation, as for `TimerTask`. `lock`: an
    object with `acquire(blocking)` and `release()`, best a `threading.RLock`, which is held during `try_complete`. No
    thread waits for this lock: while another thread holds it, the check is postponed by a few milliseconds. `name`
    appears in error messages. A subclass defines `try_complete()`, and `on_complete()` and `on_expiration()` if it
    needs them. They run in the thread that checks or completes the operation; after an expiry they run where the
    timer's callbacks run. An operation completes once: make a new one for each wait. After Kafka's `DelayedOperation`.

    >>> class Reply(DelayedOperation):
    ...     text = None
    ...     def try_complete(self):
    ...         return self.text is not None and self.force_complete()
    ...     def on_complete(self):
    ...         print("reply:", self.text)
    >>> reply = Reply(500)
    >>> with DelayedOperationPurgatory("calls") as calls:
    ...     _ = calls.try_complete_else_watch(reply, ["call 1"])
    ...     reply.text = "pong"
    ...     calls.check_and_complete("call 1")
    reply: pong
    1
    """

    def __init__(self, delay_ms: float | timedelta, lock: _Lock | None = None, *, name: str | None = None) -> None: ...
    @property
    def is_completed(self) -> bool:
        """Whether it is complete, in time or not."""

    @property
    def is_expired(self) -> bool:
        """Whether it is complete because its deadline passed. Already set when `on_complete` runs."""

    def try_complete(self) -> bool:
        """Check whether the event has happened, and if so return `self.force_complete()`. Override it.

        It is called by one thread at a time, under the operation's `lock` if there is one, and under no lock of the
        purgatory.
        """

    def on_complete(self) -> None:
        """Called once when the operation is complete, in time or not. Override it.

        What it raises goes to `on_error`.
        """

    def on_expiration(self) -> None:
        """Called after `on_complete` if the deadline passed, even if `on_complete` raised. Override it."""

    def force_complete(self) -> bool:
        """Complete the operation if it is not complete. `True` for exactly one call ever.

        Takes it off the timer and off every key, then calls `on_complete`. Called inside `try_complete`, it leaves
        `on_complete` for right after that, when the operation's lock has been released. Errors: `TimerForked`.
        """

    def cancel(self) -> bool:
        """Take it off its timer and off every key. `True` exactly if the purgatory will neither complete nor expire it.

        After that it may be completed by `force_complete`, watched again, or added to a timer. Errors: `TimerForked`.
        """

    def run(self) -> None:
        """Called when its deadline has passed. Do not override it."""

@disjoint_base
class DelayedOperationPurgatory(Generic[_Operation]):
    """Operations wait here for an event on a key, or for their deadline, whichever comes first.

    `timer`: the timer of the deadlines, a `SystemTimer` or a `ManualTimer`; by default one of its own. `timer_enabled`:
    with `False` no deadlines are set, and operations wait until an event. `on_error(operation, exception)`: for a timer
    of its own; it, or that of the given timer, is called with what the methods of an operation raise if no caller sees
    it. A key is any hashable value. `len` is the number of waiting operations. `DelayedOperation` has an example. After
    Kafka's `DelayedOperationPurgatory`.
    """

    def __init__(
        self,
        name: str,
        timer: Timer | None = None,
        timer_enabled: bool = True,
        *,
        on_error: Callable[[_Operation, Exception], object] | None = None,
    ) -> None: ...
    @classmethod
    def __class_getitem__(cls, operation: object) -> GenericAlias:
        """For annotations, as in `DelayedOperationPurgatory[Fetch]`."""

    @property
    def name(self) -> str: ...
    @property
    def timer(self) -> Timer:
        """The timer of its deadlines."""

    @property
    def watched(self) -> int:
        """How many entries the lists of all keys have: an operation under three keys has three."""

    @property
    def num_delayed(self) -> int:
        """How many operations are on the timer."""

    @property
    def unfinished(self) -> list[_Operation]:
        """The operations that `shutdown` found waiting, in order of arrival; empty before `shutdown`."""

    def __len__(self) -> int: ...
    def __bool__(self) -> Literal[True]: ...
    def try_complete_else_watch(self, operation: _Operation, keys: Iterable[Hashable]) -> bool:
        """Try `operation`; if it is not complete, watch it under every key, try it again and set its deadline.

        Returns `True` only if this call completed it. `keys` is a collection; for a single key that is a tuple pass
        `[key]`. Equal keys count once. Errors: `ValueError` without a key, or if the operation waits already;
        `TypeError` if a key is not hashable; `TimerClosed` after `shutdown`. Also the errors of the timer's `add`.
        After these the operation is on the timer that it was on before, if any. The call also raises what
        `try_complete` raises; after that the operation is on no timer. After every error it is watched under no key.
        """

    def check_and_complete(self, key: Hashable) -> int:
        """Try every operation under `key`. Returns how many this call completed; 0 for an unknown key.

        What a method raises goes to `on_error`, and the other operations are tried all the same. O(operations under the
        key). Inside a `try_complete` it returns 0: the outermost call of this thread makes the check after its own
        tries have returned, and before it returns itself. If such checks request each other without end, the timer
        makes the remaining ones 1 ms to 1 s later.
        """

    def _watch(
        self, operation: _Operation, keys: Iterable[Hashable], waiter: Callable[[bool | None], object]
    ) -> int | None:
        """As `try_complete_else_watch`, and call `waiter` with the end of this wait: `True` in time, `False` expired,
        `None` taken out.

        Returns the number of the wait, for `_cancel_wait`; `None` if the operation was complete before.
        """

    def _cancel_wait(self, operation: _Operation, number: int) -> bool:
        """Take `operation` out if it is still in the wait of this number. Returns whether it was."""

    def cancel_for_key(self, key: Hashable) -> list[_Operation]:
        """Take out the operations under `key` that are neither complete nor being completed. Returns them in order.

        They are off the timer and off all their keys. The caller may complete them, or watch them again.
        """

    def wait(self, operation: _Operation, keys: Iterable[Hashable]) -> Coroutine[object, object, bool]:
        """Watch `operation` and wait for it, from asyncio. `True` if it completed in time, `False` if it expired.

        A wait that is cancelled takes the operation out. Errors: `OperationCancelled` if another caller takes it out;
        as `try_complete_else_watch`. The operation's methods run in the thread of the loop only if the timer's executor
        is that loop and all checks are made there.
        """

    def stats(self) -> PurgatoryStats:
        """Counters: `waiting`, `delayed`, `watched`, `keys`, `completed`, `expired`, `cancelled` and `waited_ms`.

        `waited_ms` is the total time that completed and expired operations have waited.
        """

    def shutdown(self, timeout_ms: float | timedelta | None = None) -> list[_Operation]:
        """Accept no more operations, and return those that still wait, in order of arrival.

        They are off the timer and off all keys, and stay in `unfinished`. If the purgatory made its timer, that is shut
        down first, as by the timer's `shutdown`, and operations that are due by now expire. A timer that was passed in
        keeps running. A second call is allowed.
        """

    def __enter__(self) -> Self: ...
    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...

@type_check_only
class ReplayCounts(TypedDict):
    """The results of a replay: the counters of `Stats`, and more (see `tickwheel.recording.replay`)."""

    added: int
    moved: int
    cancelled: int
    expired: int
    pending: int
    cascaded: list[int]
    flushed: list[int]
    wake_ups: int
    early_us: list[tuple[int, int]]
    max_early_us: int
    peak_pending: int
    peak_bytes: int
    unknown: int

@final
class Replay:
    """Replays recorded adds, moves and cancels on a wheel with these settings, in virtual time.

    `tick_ms`, `wheel_size`, `precision`, `slack_us`: as for `SystemTimer`. It is the timer itself, with a reaper that
    wakes up without delay.
    """

    def __new__(
        cls,
        tick_ms: int = 1,
        wheel_size: int | Sequence[int] = 20,
        *,
        precision: Literal["exact", "tick"] = "exact",
        slack_us: int = 100,
    ) -> Self: ...
    def feed(self, at_us: _Int64s, kind: _Int64s, number: _Int64s, due_us: _Int64s, other: _Int64s) -> None:
        """Replay more events: arrays of one length, `kind` from 0 to 5 as in `recording.KINDS`; O(levels) each.

        The call takes all events or none. Errors: `ValueError` for different lengths, an unknown kind, a negative
        number, or a number that is added twice. The replay can continue after an error.
        """

    def finish(self, until_us: int) -> ReplayCounts:
        """Advance the time to the end of `until_us` and return the results. The replay takes no more events after that.

        Errors: `ValueError` and `TypeError` for an instant that no clock can show.
        """

@type_check_only
class _Options(TypedDict, total=False):
    """How a call reads what it is given.

    `format`: an item, which is a message or a request; many of them; many messages; the bytes of one JSON object, of
    lines of NDJSON, or of CSV. `replace`: messages take the place of those of their names; with `at_latest_ms` they are
    due at most so long after the first call of a series. `limits`, of `destinations` and `tenants`: anything but a new
    message within these, which does not recur, is a bad record. `trace`: the `traceparent` of messages without one.
    With more than `most_bad` bad records none is taken.
    """

    format: Literal["item", "items", "messages", "object", "lines", "csv"]
    replace: bool
    at_latest_ms: int | None
    limits: Mapping[str, Sequence[str]] | None
    trace: str | None
    max_payload: int
    most_bad: int

@final
class Delivery:
    """One attempt to send a message, with the wall time of the send and its lateness in whole microseconds.

    `seq` numbers the messages of one store in order of acceptance, and stays the same when a message is sent again.
    `attempt` counts from 1. `redelivered`: it may have arrived before, as a send had no answer or a run crashed (D5).
    `digest`: 128 bits by which a destination knows the message, whatever store it comes from. `first_seq`: the lowest
    `seq` that the message may have been sent with; 0 if another store may have sent it. A digest that came with a lower
    one is of an earlier message, whose name the store has forgotten. `cause`: of a message with `until_event`,
    `"event"` or `"deadline"`; `event`: name, id and payload of the event that has let it go. `owner`: of a replicated
    store, its id, which is another one after a restore, and the number of the take-over by the process that sends. A
    destination that has seen a higher one from this store refuses the message: an earlier owner sends it.
    """

    def __new__(
        cls,
        seq: int,
        message: Message,
        delivered_at_ms: int,
        lateness_us: int,
        attempt: int = 1,
        redelivered: bool = False,
    ) -> Self: ...
    @property
    def seq(self) -> int: ...
    @property
    def message(self) -> Message: ...
    @property
    def delivered_at_ms(self) -> int: ...
    @property
    def lateness_us(self) -> int: ...
    @property
    def lateness_ms(self) -> float: ...
    @property
    def attempt(self) -> int: ...
    @property
    def redelivered(self) -> bool: ...
    @property
    def cause(self) -> str | None: ...
    @property
    def event(self) -> dict[str, Any] | None: ...
    @property
    def digest(self) -> bytes: ...
    @property
    def first_seq(self) -> int: ...
    @property
    def owner(self) -> tuple[str, int] | None: ...
    @property
    def line(self) -> bytes: ...
    def json(self) -> Any:
        """The payload, decoded from JSON. Errors: `ValueError` for bytes that are no JSON."""

_Names: TypeAlias = tuple[
    str | None, str | None, str | None, str | None, str | None, str | None, str | None
]  # of `Columns`

MAX_DUE_MS: Final[int]

MOST_PAUSED_KEYS: Final[int]

OTHER_CONTENT: Final[tuple[str, str]]
"""The fault of a message whose name is known with other content, and the allowed form."""

class Answer(StrEnum):
    """A word. `OPERATIONS` has those that each operation may have."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"
    CANCELLED = "cancelled"
    DELIVERED = "delivered"
    DELIVERING = "delivering"
    DEAD = "dead"
    EXPIRED = "expired"
    UNKNOWN = "unknown"
    WAITING = "waiting"
    RECURRING = "recurring"
    RESCHEDULED = "rescheduled"
    REPLACED = "replaced"
    REQUEUED = "requeued"
    PAUSED = "paused"
    RESUMED = "resumed"
    TRIED = "tried"
    REFUSED = "refused"
    REMOVED = "removed"
    FULL = "full"
    LET_GO = "let_go"

OPERATIONS: Final[dict[str, tuple[list[str], dict[Answer, tuple[int, int, str]]]]]
"""By name: its requests over HTTP, and for each answer the HTTP status, the exit code and a sentence."""

SETTINGS: Final[dict[str, tuple[str, bool, float, float, float | None]]]
"""By name: the unit of a setting that is a number, whether it is a count, the least, the most, and its default."""

PARTITIONS: Final[int]

def _leave_timers_to_parent() -> list[str]: ...
def _delay_s(delay: float | timedelta, what: str = "delay") -> float: ...
def _time_s(when: float | timedelta, what: str = "when") -> float: ...
def _is_clock_replaced() -> bool: ...
def due_of(text: str, name: str) -> int: ...
def due_ms_of(due: object, delay_ms: object) -> int: ...
def rate_per_s(rate: str) -> float: ...
def record_fields(value: object) -> dict[str, Any]:
    """The fields of a dict or a tuple as plain values that JSON can hold; the payload as bytes or `msgspec.Raw`."""

def read_records(given: object, **options: Unpack[_Options]) -> list[Records]:
    """Read as `DeliveryEngine.submit` does, and submit nothing. Messages come in parts of 1,000."""

def rfc_3339(epoch_ms: int) -> str: ...

@final
class Records:
    """The read records, in order. They do not change. `DeliveryEngine.submit` takes the object among its items."""

    @staticmethod
    def bad(source: str, line: int, reason: str, allowed: str, record: bytes) -> Records: ...
    def __len__(self) -> int: ...
    bad_count: Final[int]
    """How many can't be used."""

    def to_list(self) -> list[Message | Cancel | Reschedule | Event | BadRecord]: ...
    def places(self) -> list[tuple[str, int, bytes | None] | None]: ...
    def message_records(self) -> list[bytes | None]: ...
    def to_hand_off(self) -> bytes: ...

@final
class Receipt:
    """What became of the records of one call, in order."""

    name: Final[tuple[str, str | None, str | None] | None]
    """Id, key and due time of a single record that is not bad. The due time is that on disk, as text, if it waits."""

    def answers(self) -> list[Answer | BadRecord]: ...
    def rows(self) -> list[tuple[int, str, Answer | BadRecord, int | None]]:
        """The same, each with its line, its operation, and how many messages it has let go if it is an event."""

@final
class NdjsonLines:
    """How the lines of one input are read."""

    def __new__(cls, source: str, columns: _Names, max_payload: int, *, after: int = 0) -> Self: ...
    def read(self, data: bytes, *, first_line: int = 1, left_out: int = 0, now_ns: int | None = None) -> Records: ...
    def read_values(self, values: list[tuple[bytes | None, str | None, int | None, int]]) -> Records: ...

@final
class CsvRows:
    """How the rows of one CSV file are read."""

    def __new__(cls, source: str, columns: _Names, max_payload: int, *, after: int = 0) -> Self: ...
    def read(self, data: bytes, *, left_out: int = 0, now_ns: int | None = None) -> tuple[Records, int, bool]: ...

@final
class ArrowRows:
    """How rows of Arrow batches are read: as messages, or as those of a hand-off."""

    def __new__(cls, source: str, columns: _Names, max_payload: int, *, letters: bool = True) -> Self: ...
    @staticmethod
    def hand_off(max_payload: int) -> ArrowRows: ...
    def check(self, names: list[str]) -> None: ...
    def read(
        self,
        stream: bytes,
        *,
        first_line: int = 1,
        now_ns: int | None = None,
        as_bytes: list[str] = ...,
        fault: tuple[str, str] | None = None,
    ) -> Iterator[Records]: ...
    def body(self) -> ArrowBody: ...

@final
class ArrowBody:
    """The body of a request, an Arrow IPC stream, as its parts come."""

    rows: Final[int]
    """How many there were in the batches that have come."""

    kept_bytes: Final[int]
    """How many bytes it keeps, about: of the batch that has not come as a whole, and of dictionaries."""

    decoded_bytes: Final[int]
    """How many bytes the records take that were read by now. Rows may share a value of a dictionary: each has it."""

    def add(self, part: bytes, *, now_ns: int | None = None) -> Iterator[Records]: ...
    def end(self) -> None: ...

@final
class Destination:
    """A destination of the engine's own. Nothing is opened yet."""

    @staticmethod
    def standard_output() -> Destination: ...
    @staticmethod
    def file(path: str | os.PathLike[str]) -> Destination: ...
    @staticmethod
    def http(url: str, *, headers: Sequence[tuple[str, str]] = ..., secrets: Sequence[str] = ...) -> Destination: ...
    @staticmethod
    def named() -> Destination: ...
    @staticmethod
    def function(function: Callable[[Delivery], object]) -> Destination: ...
    @staticmethod
    def coroutines(start: Callable[[CoroutineCalls], object]) -> Destination: ...
    @staticmethod
    def handlers(start: Callable[[CoroutineCalls], object], has_own: bool, to: Destination | None) -> Destination: ...

@final
class CoroutineCalls:
    """The calls that a loop has to make. While there is something to take, its descriptor is readable."""

    def fileno(self) -> int: ...
    def have_this_thread(self) -> None:
        """Say that this thread does nothing but make these calls: the end of the engine waits for it."""

    def take(self, most: int) -> tuple[list[CoroutineCall], list[int], bool]:
        """At most so many calls, the numbers of those to be cancelled, and whether the sink is closed."""

    def fail(self, reason: str) -> None:
        """No loop can take calls any more: the next one ends the run, for this reason."""

@final
class CoroutineCall:
    """A call of a coroutine function. If it is dropped without an answer, it counts as unanswered."""

    number: Final[int]
    delivery: Final[Delivery]
    def arrived(self) -> None: ...
    def refused(self, reason: str) -> None: ...
    def failed(self, error: BaseException) -> None: ...

def refuse_open_store(path: str | os.PathLike[str]) -> None: ...
def check_store(path: str | os.PathLike[str]) -> tuple[int, int, list[str]]: ...
def compact_store(path: str | os.PathLike[str]) -> tuple[int, int]: ...
def backup_store(path: str | os.PathLike[str], to: str | os.PathLike[str]) -> tuple[int, int, list[str]]: ...
def store_owner(path: str | os.PathLike[str]) -> tuple[bool, int | None] | None: ...
def restore_store(backup: str | os.PathLike[str], store: str | os.PathLike[str], is_forced: bool) -> Path | None: ...
def restore_replicated(address: str, store: str | os.PathLike[str]) -> None: ...
def leave_replication(store: str | os.PathLike[str], address: str) -> None: ...
def replication_script() -> str: ...

@final
class StoreSnapshot:
    """A store as it is now, for as long as the block runs."""

    def __new__(cls, path: str | os.PathLike[str]) -> Self: ...
    def status(self, due_before_ms: Sequence[int]) -> dict[str, Any]: ...
    def destination_figures(
        self, names: Sequence[str] | None, limit: int, now_ms: int
    ) -> tuple[dict[str, Any], list[dict[str, Any]]]: ...
    def paused_until_ms(self) -> int | None: ...
    def paused_keys(self) -> int: ...
    def dead_letters(self) -> int: ...
    def longest_in_doubt(self, most: int) -> tuple[list[dict[str, Any]], bool]: ...
    def waiting(
        self, of: tuple[Any, ...], looked_at: int, after: tuple[int, int] | None
    ) -> tuple[list[dict[str, Any]], tuple[int, int] | None]: ...
    def remembered(
        self, of: tuple[Any, ...], looked_at: int, after: tuple[int, int] | None
    ) -> tuple[list[dict[str, Any]], tuple[int, int] | None]: ...
    def recurring(
        self, of: tuple[Any, ...], looked_at: int, after_seq: int | None
    ) -> tuple[list[dict[str, Any]], int | None]: ...
    def ended(
        self, outcome: int, of: tuple[Any, ...], looked_at: int, before_n: int | None
    ) -> tuple[list[dict[str, Any]], int | None]: ...
    def show(self, id: str, key: str | None) -> dict[str, Any] | None: ...  # noqa: A002
    def letters(
        self,
        before_n: int,
        destination: str | None,
        tenant: str | None,
        limit: int,
        bytes: int,  # noqa: A002
    ) -> list[tuple[int, int, str, int, str, str, bytes, str | None, str | None, str | None]]: ...
    def unwritten_letters(self) -> int: ...
    def actions(self, id: str | None) -> list[dict[str, Any]]: ...  # noqa: A002
    def destinations(self, first: str, limit: int) -> list[tuple[str, str]]: ...
    def tenants(self, first: str, limit: int) -> list[tuple[str, str]]: ...
    def counts(self, now_ms: int, most_attempts: int) -> dict[str, Any]: ...
    def ahead(self, now_ms: int) -> dict[str, Any] | None: ...
    def due_by_step(self, from_ms: int, end_ms: int, step_ms: int) -> list[tuple[int, int]]: ...
    def busy_keys(self, limit: int) -> list[tuple[str, int, int]]: ...
    def arrivals(self) -> tuple[int, int, int] | None: ...
    def lateness_by_step(self, step_ms: int) -> list[tuple[int, int, list[int]]]: ...
    def lateness_by_size(self, bounds_us: Sequence[int]) -> list[int]: ...
    def extent(self) -> dict[str, Any]: ...
    def open_after(self, after: tuple[int, int], messages: int) -> tuple[int, int] | None: ...
    def ended_slice(self, after_n: int, through_n: int) -> list[tuple[Any, ...]]: ...
    def open_slice(
        self, after: tuple[int, int], through: tuple[int, int], until: tuple[int, int]
    ) -> list[tuple[Any, ...]]: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, raised: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...

@final
class DeliveryEngine:
    """A store that is being delivered, until `close`; see `tickwheel.delivery.engine.running`."""

    def __new__(
        cls,
        path: str | os.PathLike[str],
        settings: object,
        sink: Destination | Callable[[str], object],
        *,
        put_letters: Callable[[list[Any]], object],
        put_events: Callable[[list[Any]], object],
        waiting: Callable[[str], object],
        standing_by: Callable[[str], object],
        check: Callable[[], object] | None = None,
    ) -> Self: ...
    def start(self) -> None: ...
    def start_replay(self, speed: float, from_ms: int, head_start_ms: float) -> None: ...
    def submit(self, parts: Sequence[object], **options: Unpack[_Options]) -> list[Receipt]:
        """Submit each part, as the options say what it is, and return the receipts once all are on disk."""

    def queue(
        self,
        given: object,
        told: Callable[[Receipt | BaseException], object],
        *,
        waits: bool = True,
        follows: bool = False,
        **options: Unpack[_Options],
    ) -> Records | None:
        """Submit without waiting for the disk; `told` is called with the receipt. If much is queued and `waits` is
        false, it submits nothing, and returns what was read, to be given again. If it `follows`, it is refused if one
        before it was, as the store could not be written.
        """

    @property
    def history_id(self) -> str:
        """The id of the store's history. It changes if the disk is lost, or a backup is restored."""

    @property
    def inputs(self) -> dict[str, Any]:
        """How far each input was read by earlier runs, by name."""

    @property
    def first_due_ms(self) -> int | None:
        """The earliest due time of the waiting messages, before the start."""

    def why_refused(self, url: str) -> str | None:
        """Why each send to this address of a named destination is refused, if that is known before."""

    def test_destination(self, name: str) -> tuple[str, str | None, float] | None: ...
    @property
    def down(self) -> str | None:
        """Why the destination is down, if it is."""

    def replication(self) -> dict[str, Any] | None:
        """The figures of a replicated store; `None`: it is not replicated."""

    @property
    def waits_for_store(self) -> str | None:
        """Why the store can't be written now, if it can't."""

    @property
    def is_paused(self) -> bool:
        """Whether sending is paused."""

    @property
    def waiting(self) -> int:
        """Messages without an outcome."""

    @property
    def has_open_sinks(self) -> bool:
        """After `close`: whether a sink did not end in time."""

    @property
    def left_letters(self) -> bool:
        """After `close`: whether it left dead letters unwritten. The next opening of the store writes them."""

    def check_may_wait(self) -> None: ...
    def counts(self) -> dict[str, int]: ...
    def percentiles(self) -> list[float | None]: ...
    def measures(self) -> EngineMeasures:
        """The engine's measurements of its own work. Reading them takes some milliseconds, and blocks nothing."""

    def _record(self, bound: int) -> bool: ...
    def _take_recorded(self, limit: int) -> tuple[int, list[bytes], int]: ...
    def _stop_recording(self) -> tuple[int, list[bytes], int]: ...
    def now_us(self) -> int: ...
    @property
    def name(self) -> str: ...
    def destination_figures(
        self, names: Sequence[str] | None, limit: int
    ) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """How many named destinations there are, and those with these names, or `limit` of them: those that are down,
        then those whose messages are overdue for longest, then the others by name (D23).
        """

    def destination_measures(self, most: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """How many there are, and the first `most` of them that were sent to; at last the sums of the others."""

    def tenant_figures(self, limit: int, first: Sequence[str]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """At most `limit` tenants with messages in memory, or with an answer: those of `first`, then those with most
        that is due, then those that most was delivered for (D24). At last the sums of all others.
        """

    @property
    def destinations_down(self) -> int: ...
    def census(self, until_ms: Sequence[int], most: int) -> tuple[int | None, list[int]]:
        """The earliest due time of waiting messages; and how many are due by each time, counted up to `most`."""

    def marks(self) -> tuple[int, list[int]]:
        """The time now; and for each partition, up to which time all outcomes are on disk. In ms since 1970 (S4).

        Takes up to some milliseconds, and waits for no commit. Errors: `DeliveryFailed`; `RuntimeError`
        after `close`.
        """

    def openings(self) -> tuple[list[tuple[str, int]], int]:
        """The last openings of the store, each with the number of groups committed before it; and the number of all
        groups on disk. They tell whether the store went back to an older copy of itself (S4).
        """

    def occupancy(self) -> Occupancy:
        """How full the wheel is. A task on the wheel is one millisecond with due messages, or a wait of the engine."""

    def take_bytes(self, size: int) -> bool:
        """Take so many bytes of the budget for a body on its way, or give them back: whether there was room."""

    def in_memory(self) -> tuple[int, int]:
        """Messages and bytes in memory."""

    def check(self) -> None: ...
    def fail(self, error: BaseException) -> None: ...
    def wait_until_empty(self, timeout_s: float) -> bool: ...
    def close(self, timeout_s: float | None = None) -> None: ...

_Buckets: TypeAlias = tuple[list[int], list[int], int]

@final
class EngineMeasures:
    """The measurements of an engine since it was opened. The figures about waiting messages are of this moment.

    Buckets are upper bounds in microseconds, the count of each with one more for the rest, and the sum in microseconds.
    """

    attempts: Final[int]
    failures: Final[list[tuple[str, int]]]
    redelivered: Final[int]
    cut_off_sends: Final[int]
    hanging_senders: Final[int]
    lateness: Final[_Buckets]
    send_durations: Final[_Buckets]
    commit_durations: Final[_Buckets]
    last_commit_ms: Final[int]
    commit_running_us: Final[int]
    destination_changed_ms: Final[int | None]
    states: Final[list[tuple[str, int]]]
    blocked_keys: Final[list[tuple[str, int]]]
    keys_in_doubt: Final[int]
    spare_places: Final[tuple[int, int]]
