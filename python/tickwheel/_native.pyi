"""The timer, in Rust. Import these names from `tickwheel` and `tickwheel.testing`, not from here.

All times are milliseconds on the timer's own monotonic clock (never the wall clock), and names say so. A delay is an
int or a finite float; inside, instants are kept to the microsecond. Rules in brackets: see `docs/guarantees.md`.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from types import TracebackType
from typing import Any, Literal, Protocol, Self, TypeAlias, TypedDict

from typing_extensions import Buffer

__version__: str

class _ArrowArray(Protocol):
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...

Int64s: TypeAlias = Buffer | _ArrowArray

class TickwheelError(Exception):
    """The root of every error that only tickwheel raises."""

class TimerClosed(TickwheelError, RuntimeError):
    """The timer was shut down: it takes no more tasks."""

class TimerForked(TickwheelError, RuntimeError):
    """The timer belongs to the parent process, its threads did not survive the fork: make a new one in the child."""

class TimerFull(TickwheelError, RuntimeError):
    """The add would pass `max_pending`; nothing was added."""

class TimerRejected(TickwheelError, RuntimeError):
    """The executor refused a task that was due: it did not run and may be added again."""

class BucketSnapshot(TypedDict):
    """One bucket: when it expires (-1: not armed) and the names of its tasks, in order of add."""

    expiration_ms: int
    tasks: list[Any]

class LevelSnapshot(TypedDict):
    """One level of the wheel, level 1 being the finest; `covers_ms` is half open."""

    level: int
    tick_ms: int
    interval_ms: int
    start_ms: int
    current_time_ms: int
    covers_ms: list[int]
    buckets: list[BucketSnapshot]

class ArmedBucket(TypedDict):
    """A bucket in the bucket queue."""

    expiration_ms: int
    level: int
    bucket: int

class FrontEntry(TypedDict):
    """What has left the wheel and waits for its exact instant."""

    due_ms: float
    task: Any

class Snapshot(TypedDict):
    """The whole timer at one moment, as plain data."""

    levels: list[LevelSnapshot]
    queue: list[ArmedBucket]
    size: int
    front: list[FrontEntry]

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

class TimerTask:
    """Something to run after a delay: a callable with arguments, or a subclass with `run()`.

    `delay_ms`: milliseconds from the moment of `add`, int or finite float; zero or less is due at once.
    `name` is for people: snapshots and error messages show it. A task may be added again, also from its own
    callback; adding one that is pending moves it. Errors: `ValueError` and `TypeError` for a bad delay or callback.
    After Kafka's `TimerTask`.
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

class TaskBatch:
    """What `add_many` returns: many deadlines with one callback and no Python object each."""

    def __len__(self) -> int:
        """How many of the batch are still to run."""

    def cancel(self, index: int) -> bool:
        """Cancel the timer with this index; as `TimerTask.cancel`. `IndexError` outside the batch."""

    def cancel_many(self, indices: Iterable[int] | Int64s) -> int:
        """Cancel these; returns how many will certainly not run."""

    def cancel_all(self) -> int:
        """Cancel all that is left; returns how many will certainly not run."""

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

    def add(self, task: TimerTask) -> None:
        """Schedule `task` in `task.delay_ms`; one that is pending here is moved. O(levels), never runs a callback.

        Errors: `TimerClosed`, `TimerForked`, `TimerFull`, `ValueError` if it is pending on another timer.
        """

    def after(self, delay_ms: float, callback: Callable[..., object], *args: Any) -> TimerTask:
        """Run `callback(*args)` once, in `delay_ms` milliseconds; returns the task, for `cancel()`.

        The task lets go of its callback once it can never run again. Errors: as `add`, and as `TimerTask`.
        """

    def at(self, due_ms: float, callback: Callable[..., object], *args: Any) -> TimerTask:
        """As `after`, at an instant of the timer's own clock (see `now_ms`); an instant in the past is due at once."""

    def add_many(self, delays_ms: Int64s, callback: Callable[[memoryview], object]) -> TaskBatch:
        """Add one timer per int64 of a buffer or Arrow array, at one Python call per group that expires together.

        `callback(indices)` gets a memoryview of int64 in order of expiry. All or nothing: `ValueError` for nulls and
        delays out of range, `TimerFull` where `max_pending` would be passed. About 50 bytes a timer.
        """

    def cancel_many(self, tasks: Iterable[TimerTask]) -> int:
        """Cancel these tasks; returns how many will certainly not run."""

    def pending(self, *, before_ms: float | None = None, limit: int | None = None) -> list[tuple[float, Any]]:
        """What is to come, in order, as `(due_ms, task)`, `due_ms` on the timer's clock; of a batch `(batch, index)`.

        Each was pending at some moment of the call. O(pending), in short steps.
        """

    def snapshot(self) -> Snapshot:
        """Levels, buckets, queue, size and front at one moment, for debugging: holds the timer's lock, O(pending)."""

    def stats(self) -> Stats:
        """Counters and the lateness histogram."""

    def shutdown(self, timeout_ms: float | None = None) -> list[Any]:
        """Stop: accept no more, run what is due by now, and return the tasks still pending, in order [T11].

        `timeout_ms` bounds the wait for callbacks; what has not started by then counts as pending. Inside one of the
        timer's own callbacks it waits for nothing. The list stays in `unfinished`; calling twice is fine.
        """

    def __enter__(self) -> Self: ...
    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...

class SystemTimer(Timer):
    """A timer for very many deadlines, on a hierarchical timing wheel; O(1) add and cancel.

    `tick_ms`: the finest tick. `wheel_size`: buckets per level, or a sequence with one size per level, the last one
    repeating. `start_ms`: what its clock reads at the start; by default the system's monotonic clock. `reaper`: a
    native thread drives the clock; with `False` call `advance_clock`. `executor`: where callbacks run: by default one
    thread, `executor-<name>`; or a `concurrent.futures.Executor` of threads; or an asyncio loop. `precision`: `"exact"`
    to the microsecond, or `"tick"`, as in Kafka: up to one tick early, fewest wake-ups. `slack_us`: the least time
    between two wake-ups. `max_pending`: a bound, passed by no add (`TimerFull`). `on_error(task, exception)` gets what
    a callback raises; by default `sys.unraisablehook`. After Kafka's `SystemTimer`.

    >>> with SystemTimer("demo") as timer:
    ...     task = timer.after(60_000, print, "a minute has passed")
    ...     task.cancel()
    True
    """

    def __new__(
        cls,
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
    ) -> Self: ...
    def advance_clock(self, timeout_ms: float) -> bool:
        """Only with `reaper=False`: wait at most so long for something to do, and do it.

        Returns whether any bucket was due or any task was released: `while timer.advance_clock(2000): pass` drains it.
        Errors: `RuntimeError` with a reaper, `TimerClosed`, `TimerForked`.
        """

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

    def __new__(
        cls,
        name: str = "manual",
        *,
        tick_ms: int = 1,
        wheel_size: int | Sequence[int] = 20,
        start_ms: int = 0,
        precision: Literal["exact", "tick"] = "exact",
        max_pending: int | None = None,
        on_error: Callable[[Any, BaseException], object] | None = None,
    ) -> Self: ...
    def advance(self, ms: float) -> int:
        """Move the clock by `ms`, running what comes due on the way; returns how many tasks ran.

        Errors: `ValueError` for a negative time, `RuntimeError` for an advance inside an advance.
        """

    def advance_to(self, now_ms: float) -> int:
        """Move the clock to this instant; as `advance`."""

    def run_next(self) -> bool:
        """Move the clock to the next bucket or instant, a cascade included; `False` if nothing is pending."""
