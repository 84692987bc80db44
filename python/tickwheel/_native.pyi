"""The timer, in Rust. Import these names from `tickwheel` and `tickwheel.testing`, not from here.

All times are milliseconds on the timer's own monotonic clock (never the wall clock), and names say so. A delay is an
int or a finite float; inside, instants are kept to the microsecond. Rules in brackets: see `docs/guarantees.md`.
"""

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Iterable, Sequence
from concurrent.futures import Executor
from contextvars import Context
from types import TracebackType
from typing import Any, Literal, Protocol, Self, TypeAlias, TypedDict, final, type_check_only

from typing_extensions import Buffer, disjoint_base

__version__: str

class _ArrowArray(Protocol):
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...

class _ArrowStream(Protocol):
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

_Int64s: TypeAlias = Buffer | _ArrowArray | _ArrowStream
"""Many int64: a buffer, an Arrow array, or an Arrow stream such as a chunked array; sliced or unaligned too."""

class _Lock(Protocol):
    def acquire(self, blocking: bool = ..., /) -> bool: ...
    def release(self) -> None: ...

class TickwheelError(Exception):
    """The root of every error that only tickwheel raises."""

class TimerClosed(TickwheelError, RuntimeError):
    """The timer was shut down: it takes no more tasks."""

class TimerForked(TickwheelError, RuntimeError):
    """The timer belongs to the parent process, its threads did not survive the fork: make a new one in the child."""

class TimerFull(TickwheelError, RuntimeError):
    """The add would pass `max_pending`; nothing was added."""

class TimerRejected(TickwheelError, RuntimeError):
    """The executor refused a task, or timers of a batch, those with these `indices`: they did not run."""

    indices: Sequence[int] = ()

class OperationCancelled(TickwheelError, RuntimeError):
    """The operation was taken out of its purgatory before it was complete. Waiters of the operation get this."""

@type_check_only
class BucketSnapshot(TypedDict):
    """One bucket: when it expires (-1: not armed) and the names of its tasks, in order of add."""

    expiration_ms: int
    tasks: list[Any]

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
    """What has left the wheel and waits for its exact instant."""

    due_ms: float
    task: Any

@type_check_only
class Snapshot(TypedDict):
    """The whole timer at one moment, as plain data."""

    levels: list[LevelSnapshot]
    queue: list[ArmedBucket]
    size: int
    front: list[FrontEntry]

@type_check_only
class Stats(TypedDict):
    """Counts since the timer was made.

    `cascaded[k]` counts entries that left level `k + 1` for a lower one or for the front. `lateness_us` is a
    histogram: pairs of (upper bound in microseconds, calls), empty classes left out.
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
    lateness_us: list[tuple[int, int]]

@disjoint_base
class TimerTask:
    """Something to run after a delay: a callable with arguments, or a subclass with `run()`.

    `delay_ms`: milliseconds from the moment of `add`, int or finite float; zero or less is due at once.
    `name` is for people: snapshots and error messages show it. A task may be added again, also from its own
    callback; adding one that is pending moves it. A coroutine function needs a timer whose executor is an asyncio loop.
    Errors: `ValueError` and `TypeError` for a bad delay or callback. After Kafka's `TimerTask`.
    """

    def __init__(
        self, delay_ms: float, callback: Callable[..., object] | None = None, *args: Any, name: str | None = None
    ) -> None: ...
    @property
    def delay_ms(self) -> float: ...
    @property
    def name(self) -> str | None: ...
    def run(self) -> object:
        """Called when the task is due; by default `callback(*args)`. Override it in a subclass."""

    def cancel(self) -> bool:
        """Take the task off its timer; `True` exactly when it is certain that it will not run [T9]. O(1).

        `False` for a task that was never added, was cancelled before, is running or has run. The timer's reference
        to the task is dropped at once. Errors: `TimerForked`.
        """

@final
class TaskBatch:
    """What `add_many` returns: many deadlines with one callback and no Python object each."""

    def __len__(self) -> int:
        """How many of the batch are still to run."""

    def cancel(self, index: int) -> bool:
        """Cancel the timer with this index; as `TimerTask.cancel`. `IndexError` outside the batch."""

    def cancel_many(self, indices: Iterable[int] | _Int64s) -> int:
        """Cancel these; returns how many will certainly not run."""

    def cancel_all(self) -> int:
        """Cancel all that is left; returns how many will certainly not run."""

@disjoint_base
class Timer:
    """What `SystemTimer` and `tickwheel.testing.ManualTimer` have in common; not made by itself."""

    @property
    def name(self) -> str: ...
    @property
    def unfinished(self) -> list[Any]:
        """What `shutdown` found pending, in order; empty before it."""

    def now_ms(self) -> int:
        """The timer's clock, rounded down to a millisecond."""

    def now_us(self) -> int:
        """The timer's clock, rounded down to a microsecond."""

    def __len__(self) -> int:
        """How many tasks are not yet released to the executor."""

    def add(self, task: TimerTask, *, context: Context | None = None) -> None:
        """Schedule `task` in `task.delay_ms`; one that is pending here is moved. O(levels), never runs a callback.

        `context`: as for `after`. Errors: `TimerClosed`, `TimerForked`, `TimerFull`, `ValueError` if it is pending on
        another timer, `TypeError` if it runs a coroutine function and the executor is no asyncio loop.
        """

    def after(
        self, delay_ms: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> TimerTask:
        """Run `callback(*args)` once, in `delay_ms` milliseconds; returns the task, for `cancel()`.

        The task lets go of its callback once it can never run again. Where the executor is an asyncio loop, `callback`
        may be a coroutine function, and runs in `context`, by default a copy of the current one. Errors: as `add`, and
        as `TimerTask`.
        """

    def at(
        self, due_ms: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> TimerTask:
        """As `after`, at an instant of the timer's own clock (see `now_ms`); an instant in the past is due at once."""

    def add_many(
        self, delays_ms: _Int64s, callback: Callable[[memoryview], object], *, context: Context | None = None
    ) -> TaskBatch:
        """Add one timer per int64 of a buffer, Arrow array or Arrow stream, at one Python call per group that expires
        together.

        `callback(indices)` gets a memoryview of int64 in order of expiry. All or nothing: `ValueError` for nulls and
        delays out of range, `TimerFull` where `max_pending` would be passed. `context`: as for `after`, one for the
        whole batch. About 50 bytes a timer.
        """

    def cancel_many(self, tasks: Iterable[TimerTask]) -> int:
        """Cancel these tasks; returns how many will certainly not run.

        A `DelayedOperation` that waits in a purgatory loses its deadline only, and goes on waiting for its events.
        """

    def pending(self, *, before_ms: float | None = None, limit: int | None = None) -> list[tuple[float, Any]]:
        """What is to come, in order, as `(due_ms, task)`, `due_ms` on the timer's clock; of a batch `(batch, index)`.

        Each was pending at some moment of the call. What the library itself has put on the timer is not listed, but
        `len` counts it. O(pending), in short steps.
        """

    def snapshot(self) -> Snapshot:
        """Levels, buckets, queue, size and front at one moment, for debugging: holds the timer's lock, O(pending)."""

    def stats(self) -> Stats:
        """Counters and the lateness histogram."""

    def shutdown(self, timeout_ms: float | None = None) -> list[Any]:
        """Stop: accept no more, run what is due by now, and return the tasks still pending, in order [T11].

        `timeout_ms` bounds the wait for callbacks; what has not started by then counts as pending. Inside one of the
        timer's own callbacks, and in a signal handler or a destructor that interrupts a shutdown of the same thread,
        it waits for nothing. The list stays in `unfinished`; calling twice is fine.
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

    `tick_ms`: the finest tick. `wheel_size`: buckets per level, or a sequence with one size per level, the last one
    repeating. `start_ms`: what its clock reads at the start; by default the system's monotonic clock. `reaper`: a
    native thread drives the clock; with `False` call `advance_clock`. `executor`: where callbacks run: by default one
    thread, `executor-<name>`; or a `concurrent.futures.Executor` of threads; or an asyncio loop, which runs coroutine
    functions too, as tasks of its own: the timer counts one as running while it is called only. `precision`: `"exact"`
    to the microsecond, or `"tick"`, as in Kafka: up to one tick early, fewest wake-ups. `slack_us`: the least time
    between two wake-ups. `max_pending`: a bound, passed by no add (`TimerFull`). `on_error(task, exception)` gets what
    a callback raises; by default the loop's exception handler gets it, or the logger `tickwheel`. After Kafka's
    `SystemTimer`.

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
        on_error: Callable[[Any, BaseException], object] | None = None,
    ) -> None: ...
    def advance_clock(self, timeout_ms: float) -> bool:
        """Only with `reaper=False`: wait at most so long for something to do, and do it.

        Returns whether any bucket was due or any task was released: `while timer.advance_clock(2000): pass` drains it.
        Errors: `RuntimeError` with a reaper, `TimerClosed`, `TimerForked`.
        """

@disjoint_base
class ManualTimer(Timer):
    """The same wheel on a clock that moves only when told: deterministic, no threads.

    Callbacks run in the calling thread while the clock stands at the moment of their release. What they raise goes to
    `on_error`; `KeyboardInterrupt` and `SystemExit` reach the caller, and the rest runs at the next advance. After
    Kafka's `MockTimer`.

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
        on_error: Callable[[Any, BaseException], object] | None = None,
    ) -> None: ...
    def advance(self, ms: float) -> int:
        """Move the clock by `ms`, running what comes due on the way; returns how many tasks ran.

        Errors: `ValueError` for a negative time, `RuntimeError` for an advance while another one goes on.
        """

    def advance_to(self, now_ms: float) -> int:
        """Move the clock to this instant; as `advance`."""

    def run_next(self) -> bool:
        """Move the clock to the next bucket or instant, a cascade included; `False` if nothing is pending."""

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
    """Something that waits for an event or for its deadline, whichever comes first. Subclass it.

    `delay_ms`: when to give up, counted from the call that watches it, int or finite float. `lock`: an object with
    `acquire(blocking)` and `release()`, best a `threading.RLock`, to be held around `try_complete`; nobody ever
    waits for it: while a stranger holds it, the check is put off by a few milliseconds. `name` is for people. A
    subclass gives `try_complete()`, and `on_complete()` and `on_expiration()` as it needs them. They run in the
    thread that checks or completes it, and for an expiry where the timer's callbacks run. An operation is completed
    once; make one for each wait. After Kafka's `DelayedOperation`.

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

    def __init__(self, delay_ms: float, lock: _Lock | None = None, *, name: str | None = None) -> None: ...
    @property
    def is_completed(self) -> bool:
        """Whether it is complete, in time or not."""

    @property
    def is_expired(self) -> bool:
        """Whether it is complete because its time ran out; `on_complete` may ask already."""

    def try_complete(self) -> bool:
        """Check whether what it waits for is there, and if so return `self.force_complete()`. Override it.

        Called by one thread at a time, with the operation's `lock` held if it has one, and by no lock of the
        purgatory.
        """

    def on_complete(self) -> None:
        """Called once when it is complete, in time or not. Override it.

        What it raises goes to `on_error`.
        """

    def on_expiration(self) -> None:
        """Called after `on_complete` when its time ran out, also if that raised. Override it."""

    def force_complete(self) -> bool:
        """Complete it, unless it is complete; `True` for exactly one caller ever [P1].

        Takes it off the timer and off every key, then calls `on_complete`; called from inside `try_complete`, that
        runs right after it, when its lock has been let go. Errors: `TimerForked`.
        """

    def cancel(self) -> bool:
        """Take it off its timer and off every key; `True` exactly when the purgatory will neither complete nor expire
        it.

        It may be completed by hand then, watched again, or added to a timer. Errors: `TimerForked`.
        """

    def run(self) -> None:
        """Called when its time has run out. Not to be overridden."""

@disjoint_base
class DelayedOperationPurgatory:
    """Where operations wait for an event on a key, or for their deadline, whichever comes first.

    `timer`: where the deadlines are put, a `SystemTimer` or a `ManualTimer`; by default one of its own.
    `timer_enabled`: with `False` no deadline is set, and operations wait until an event. `on_error(operation,
    exception)` gets what their methods raise where no caller sees it; by default the timer's. Keys are any hashable
    value. `len` is the number of operations that wait. After Kafka's `DelayedOperationPurgatory`; see
    `DelayedOperation` for an example.
    """

    def __init__(
        self,
        name: str,
        timer: Timer | None = None,
        timer_enabled: bool = True,
        *,
        on_error: Callable[[Any, BaseException], object] | None = None,
    ) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def timer(self) -> Timer:
        """The timer that its deadlines are on."""

    @property
    def watched(self) -> int:
        """Places on the lists of all keys: an operation under three keys has three [P4]."""

    @property
    def num_delayed(self) -> int:
        """Operations on the timer [P4]."""

    @property
    def unfinished(self) -> list[Any]:
        """What `shutdown` found waiting, in order of arrival; empty before it."""

    def __len__(self) -> int: ...
    def __bool__(self) -> Literal[True]: ...
    def try_complete_else_watch(self, operation: DelayedOperation, keys: Iterable[Hashable]) -> bool:
        """Try `operation`; if it is not complete, watch it under every key, try it once more, and set its deadline
        [P2].

        Returns `True` only if this call completed it. `keys` is a collection: for one key that is a tuple pass `[key]`.
        Equal keys count once. Errors: `ValueError` without a key, or for an operation that waits already; `TypeError`
        for a key that is not hashable; `TimerClosed` after `shutdown`; as `add` of the timer: it is then on the timer
        that it was on before, if any. What its `try_complete` raises: then it is on none. In all cases it is watched
        nowhere.
        """

    def check_and_complete(self, key: Hashable) -> int:
        """Try every operation that watches `key`; returns how many this call completed [P3]. An unknown key is 0.

        What one raises goes to `on_error`, and the rest is tried all the same. O(operations under the key). Inside a
        `try_complete` it returns 0: the outermost call of this thread makes the check when its own tries have returned,
        and before it returns itself. Where such checks ask for each other without end, the timer makes the rest a
        little later, after 1 ms and up to 1 s.
        """

    def _watch(
        self, operation: DelayedOperation, keys: Iterable[Hashable], waiter: Callable[[bool | None], object]
    ) -> int | None:
        """As `try_complete_else_watch`; has `waiter` called with how this wait ends: `True` in time, `False` expired,
        `None` taken out. Returns the number of the wait, for `_cancel_wait`; `None` if it was complete before.
        """

    def _cancel_wait(self, operation: DelayedOperation, number: int) -> bool:
        """Take `operation` out, if it is still in the wait of that number; whether it was."""

    def cancel_for_key(self, key: Hashable) -> list[Any]:
        """Take out the key's operations that are neither complete nor being completed, and return them in order [P4].

        They are off the timer and off all their keys; the caller may complete them, or watch them again.
        """

    def wait(self, operation: DelayedOperation, keys: Iterable[Hashable]) -> Coroutine[Any, Any, bool]:
        """Watch `operation` and wait for it, from asyncio: `True` if it completed in time, `False` if it expired.

        Cancelled, it takes the operation out. Errors: `OperationCancelled` if somebody else takes it out; as
        `try_complete_else_watch`. The operation's own methods run in the loop's thread only if the timer's executor is
        the loop and all checks are made there.
        """

    def stats(self) -> PurgatoryStats:
        """Counters: `waiting`, `delayed`, `watched`, `keys`, `completed`, `expired`, `cancelled`, and `waited_ms`: how
        long those that completed or expired have waited, taken together.
        """

    def shutdown(self, timeout_ms: float | None = None) -> list[Any]:
        """Stop: let nobody in any more, and return the operations that still wait, in order of arrival.

        They are off the timer and off all keys, and stay in `unfinished`. A timer of its own is shut down first, as
        its `shutdown` says, so what is due by now expires; a timer that was given goes on. Calling twice is fine.
        """

    def __enter__(self) -> Self: ...
    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...

@type_check_only
class ReplayCounts(TypedDict):
    """What came of a replay: the counters of `Stats`, and more (see `tickwheel.recording.replay`)."""

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
    """Recorded adds, moves and cancels once more, on a wheel of these settings, in virtual time.

    `tick_ms`, `wheel_size`, `precision`, `slack_us`: as for `SystemTimer`. It is the timer itself, with a reaper that
    needs no time to wake up.
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
        """Go through more events: arrays of one length, `kind` from 0 to 5 as in `recording.KINDS`; O(levels) each.

        All or nothing. Errors: `ValueError` for lengths that differ, an unknown kind, a negative number or one that is
        added twice; the replay can go on then.
        """

    def finish(self, until_us: int) -> ReplayCounts:
        """Let the time go on to the end of `until_us`, and say what came of it all; it takes no more events then.

        Errors: `ValueError` and `TypeError` for an instant that is no clock's.
        """
