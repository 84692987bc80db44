"""A sink that is a coroutine function (rule D10): an event loop runs a task for each message, many at a time.

- At most 256 tasks run at a time, or `concurrency` tasks, and at most one for each key (D4).
- The tasks of an `AsyncDeliveryQueue` run on its loop. All other tasks run on a loop in a thread of the sink.
- A task that takes longer than the time-out of the sink is cancelled (D6). If it ignores that, it keeps its place until
  it ends. A task that other code cancels has no answer.
- An exception means the same as in a function. On the loop of a program, the loop gets `KeyboardInterrupt` and
  `SystemExit` too, as from any task.
- The loop in the sink's thread continues after `loop.stop()`, and after `SystemExit` of another task. All tasks remain.
  If the loop was closed, the sink makes a new one: calls in progress have no answer, and later calls run on the new
  loop. If no loop can be made, the run ends.
- If a coroutine forks, the child process ends where the coroutine ends: the loop belongs to the parent.

The other half is `crates/python/src/delivery/sinks/coroutine_sink.rs`: it gives the loop its calls.
"""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final, TypeAlias

from tickwheel._native import CoroutineCall, CoroutineCalls, Delivery, Destination
from tickwheel.delivery.base.errors import DeliveryFailed, Unanswered
from tickwheel.delivery.observe.log import logger
from tickwheel.delivery.observe.tracing import traced_coroutine
from tickwheel.delivery.sinks.returned import problem_with

_STARTED_AT_ONCE: Final = 256  # then the loop has its turn

Function: TypeAlias = Callable[[Delivery], Awaitable[object]]


class CoroutineFunction:
    """A coroutine function as a destination, before it is known on which loop its tasks run."""

    def __init__(self, function: Function) -> None:
        self._function = traced_coroutine(function)

    def on(self, loop: asyncio.AbstractEventLoop | None) -> Destination:
        """The destination whose tasks run on this loop. `None`: on a loop in a thread of the sink."""
        tasks = partial(_Tasks, self._function, self.takes)
        return self._called(partial(_start_thread if loop is None else partial(_start, loop), tasks))

    def takes(self, call: CoroutineCall, calls: CoroutineCalls) -> bool:  # noqa: ARG002
        """Whether this call is made elsewhere, so that it has no task."""
        return False

    def _called(self, start: Callable[[CoroutineCalls], object]) -> Destination:
        return Destination.coroutines(start)


def _start(loop: asyncio.AbstractEventLoop, tasks: "Callable[[CoroutineCalls], _Tasks]", calls: CoroutineCalls) -> None:
    """Let the loop make these calls. Called in another thread."""
    try:
        loop.call_soon_threadsafe(tasks(calls).watch, loop)
    except RuntimeError as error:
        raise DeliveryFailed("the event loop of the queue is closed: open the queue in one that runs") from error


def _start_thread(tasks: "Callable[..., _Tasks]", calls: CoroutineCalls) -> None:
    """Start a thread that makes these calls. It is a daemon, because a coroutine may hang."""
    runner = _runner()
    try:
        runner.get_loop()
        args = (tasks(calls, has_own_thread=True), runner)
        threading.Thread(target=_run, args=args, name="coroutines-deliver", daemon=True).start()
    except (OSError, RuntimeError) as error:
        runner.close()
        raise DeliveryFailed(_no_loop(error)) from error


def _runner() -> asyncio.Runner:
    """A runner that leaves the thread's own loop as it is, because the thread that opens the sink may have one."""
    return asyncio.Runner(loop_factory=asyncio.new_event_loop)


def _run(tasks: "_Tasks", runner: asyncio.Runner) -> None:
    tasks.have_this_thread()
    try:
        while True:
            _run_loop(tasks, runner.get_loop())
            if tasks.is_over:
                with suppress(BaseException):  # tasks may raise anything when they are cancelled
                    runner.close()
                return
            tasks.leave()
            with suppress(Exception):
                runner.get_loop().close()
            runner = _runner()
    except BaseException as error:
        tasks.fail(_no_loop(error))


def _no_loop(error: BaseException) -> str:
    return f"no thread with an event loop can be made for the coroutine function: {type(error).__name__}: {error}"


def _run_loop(tasks: "_Tasks", loop: asyncio.AbstractEventLoop) -> None:
    """Returns when the sink is closed, or when the loop can't run any more."""
    process = os.getpid()
    tasks.watch(loop)
    while not tasks.is_over and not loop.is_closed():
        try:
            loop.run_forever()  # returns after `loop.stop()`
        except (KeyboardInterrupt, SystemExit) as error:  # asyncio raises these for any task
            logger.error("a task on the loop of the coroutine function raised %r: the loop continues", error)
        except BaseException:
            logger.exception("the loop of the coroutine function failed: a new one is made")
            return
        finally:
            if os.getpid() != process:
                os._exit(0)  # a task forked: the loop belongs to the parent


class _Tasks:
    """The tasks of one sink.

    On the loop of a program, the loop has the only reference to this, as the reader of a descriptor. If that loop is
    closed, `_calls` is dropped, and so the engine knows that the destination can't be reached.
    """

    def __init__(
        self,
        function: Function,
        is_taken: Callable[[CoroutineCall, CoroutineCalls], bool],
        calls: CoroutineCalls,
        *,
        has_own_thread: bool = False,
    ) -> None:
        self._function, self._is_taken, self._has_own_thread = function, is_taken, has_own_thread
        self._calls: CoroutineCalls | None = calls
        self._running: dict[int, tuple[asyncio.Task[None], CoroutineCall]] = {}

    @property
    def is_over(self) -> bool:
        """Whether the sink is closed."""
        return self._calls is None

    def have_this_thread(self) -> None:
        """The queue can't be closed in this thread, as the close would wait for it."""
        if self._calls is not None:
            self._calls.have_this_thread()

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take calls on this loop."""
        if self._calls is not None:
            loop.add_reader(self._calls.fileno(), self._take, loop, self._calls)

    def _take(self, loop: asyncio.AbstractEventLoop, calls: CoroutineCalls) -> None:
        started, aborted, is_over = calls.take(_STARTED_AT_ONCE)
        for call in started:
            if self._is_taken(call, calls):
                continue
            made = _call(self._function, call, has_own_thread=self._has_own_thread)
            try:
                task = loop.create_task(made)
                task.add_done_callback(partial(_forget, self._running, call.number))
            except Exception as error:  # of the loop's task factory; the other calls of this loop are made
                made.close()
                call.failed(Unanswered(f"no task can be made: {type(error).__name__}: {error}"))
                continue
            self._running[call.number] = task, call
        for number in aborted:
            if number in self._running:
                self._running[number][0].cancel()
        if is_over:
            loop.remove_reader(calls.fileno())
            self._calls = None  # the engine waits for this
            for task, _ in self._running.values():
                task.cancel()
            if self._has_own_thread:
                loop.stop()

    def leave(self) -> None:
        """The loop is gone: its calls have no answer."""
        for _, call in self._running.values():
            call.failed(Unanswered("the event loop was closed during the call"))
        self._running = {}

    def fail(self, reason: str) -> None:
        """No more calls can be made: the next one ends the run."""
        if self._calls is not None:
            self._calls.fail(reason)


async def _call(function: Function, call: CoroutineCall, *, has_own_thread: bool) -> None:
    process = os.getpid()
    try:
        problem = problem_with(await function(call.delivery))
    except BaseException as error:
        call.failed(Unanswered("the task was cancelled") if _is_from_outside(error) else error)
        is_kept = has_own_thread and isinstance(error, KeyboardInterrupt | SystemExit)
        if not isinstance(error, Exception) and not is_kept:
            raise
    else:
        if problem is None:
            call.arrived()
        else:
            call.refused(problem)
    finally:
        if os.getpid() != process:
            os._exit(0)  # it forked: the loop with its tasks belongs to the parent


def _is_from_outside(error: BaseException) -> bool:
    """Whether other code has cancelled the task, or its loop was closed and dropped it."""
    if isinstance(error, GeneratorExit):
        return True
    task = asyncio.current_task() if isinstance(error, asyncio.CancelledError) else None
    return task is not None and task.cancelling() > 0


def _forget(
    running: dict[int, tuple[asyncio.Task[None], CoroutineCall]], number: int, task: asyncio.Task[None]
) -> None:
    running.pop(number, None)
    if not task.cancelled():
        task.exception()  # marks it as retrieved: the message has its outcome
