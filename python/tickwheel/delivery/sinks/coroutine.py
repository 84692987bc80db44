"""A sink that is a coroutine function (rule D10): an event loop runs a task for each message, many at a time.

- There are up to 256 tasks at a time, or as many as `concurrency` says; one at a time for a key (D4).
- With `AsyncDeliveryQueue` they run on its loop, otherwise on a loop in a thread of their own.
- A task that takes longer than the time-out of the sink is cancelled (D6). One that goes on all the same keeps its
  place until it ends. A task that is cancelled for another reason is a failed attempt.
- Exceptions mean the same as of a function. In the thread of their own not even `SystemExit` ends anything; on the loop
  of a program `KeyboardInterrupt` and `SystemExit` are a failed attempt too, and then the program's, as of any task.
- A child that it forks may not go on with the loop, which is the parent's: it ends where the coroutine ends.

`crates/python/src/delivery/sinks/coroutine_sink.rs` is the other half: how the engine reaches the loop.
"""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeAlias

from tickwheel._native import CoroutineCall, CoroutineCalls, Delivery, Destination
from tickwheel.delivery.base.errors import DeliveryFailed
from tickwheel.delivery.observe.tracing import traced_coroutine
from tickwheel.delivery.sinks.returned import problem_with

_STARTED_AT_ONCE: Final = 256  # then the loop has its turn

Function: TypeAlias = Callable[[Delivery], Awaitable[object]]


class CoroutineFunction:
    """A coroutine function as a destination, before it is known on which loop its tasks run."""

    def __init__(self, function: Function) -> None:
        self._function = traced_coroutine(function)

    def on(self, loop: asyncio.AbstractEventLoop | None) -> Destination:
        """The destination whose tasks run on this loop; `None`: on one in a thread of its own."""
        return Destination.coroutines(partial(_start_thread if loop is None else partial(_start, loop), self._function))


def _start(loop: asyncio.AbstractEventLoop, function: Function, calls: CoroutineCalls) -> None:
    """From now on the loop makes these calls. Called in another thread."""
    try:
        loop.call_soon_threadsafe(_Tasks(loop, function, calls).watch)
    except RuntimeError as error:
        raise DeliveryFailed("the event loop of the queue is closed: open the queue in one that runs") from error


def _start_thread(function: Function, calls: CoroutineCalls) -> None:
    """From now on a thread makes these calls. It is a daemon, as a coroutine may hang; the end of the queue ends it."""
    try:
        threading.Thread(target=_run, args=(function, calls), name="coroutines-deliver", daemon=True).start()
    except RuntimeError as error:
        raise DeliveryFailed(f"the system gives no thread: {error}") from error


def _run(function: Function, calls: CoroutineCalls) -> None:
    async def until_over() -> None:
        over = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.call_soon(_Tasks(loop, function, calls, over).watch)
        await over.wait()

    asyncio.run(until_over())


class _Tasks:
    """The tasks of one sink. `over` is set at the end: then its thread ends.

    The loop alone refers to this, as the reader of a descriptor. So it is gone with a loop that is closed, and with it
    `calls`, by which the engine knows that the destination is down.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        function: Function,
        calls: CoroutineCalls,
        over: asyncio.Event | None = None,
    ) -> None:
        self._loop, self._function, self._calls, self._over = loop, function, calls, over
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def watch(self) -> None:
        self._loop.add_reader(self._calls.fileno(), self._take)

    def _take(self) -> None:
        started, aborted, is_over = self._calls.take(_STARTED_AT_ONCE)
        for call in started:
            task = self._loop.create_task(_call(self._function, call, has_own_thread=self._over is not None))
            self._tasks[call.number] = task
            task.add_done_callback(partial(_forget, self._tasks, call.number))
        for number in aborted:
            if number in self._tasks:
                self._tasks[number].cancel()
        if is_over:
            self._loop.remove_reader(self._calls.fileno())
            for task in self._tasks.values():
                task.cancel()
            if self._over is not None:
                self._over.set()


async def _call(function: Function, call: CoroutineCall, *, has_own_thread: bool) -> None:
    process = os.getpid()
    try:
        problem = problem_with(await function(call.delivery))
    except BaseException as error:
        call.failed(error)
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
            os._exit(0)  # it forked: the loop, what it watches and its other tasks are the parent's


def _forget(tasks: dict[int, asyncio.Task[None]], number: int, task: asyncio.Task[None]) -> None:
    del tasks[number]
    if not task.cancelled():
        task.exception()  # marks it as retrieved: the message has its outcome
