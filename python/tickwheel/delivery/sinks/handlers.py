"""Functions of the program as destinations that messages name (rule D23), beside webhooks.

A coroutine function is called as `coroutine.py` says. Ordinary functions have as many threads as they have calls at a
time, so that one that hangs holds up no other.
"""

import os
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextvars import copy_context
from queue import SimpleQueue
from typing import Final, TypeAlias, cast

from tickwheel._native import CoroutineCall, CoroutineCalls, Delivery, Destination
from tickwheel.delivery.base.errors import Unavailable, WrongUsage
from tickwheel.delivery.observe.tracing import traced
from tickwheel.delivery.sinks.coroutine import CoroutineFunction
from tickwheel.delivery.sinks.python import Function, Unavailables, checked_function
from tickwheel.delivery.sinks.returned import problem_with

_FUNCTION_LIMITS: Final = {"concurrency": 8, "spare": 64}  # as of a function that is the queue's `to`


class Handlers(CoroutineFunction):
    """`own`: for messages that name no destination; or a webhook is. Errors: `WrongUsage` for what can't be called."""

    def __init__(
        self, handlers: Mapping[str, Function], own: Function | Destination | None, unavailable: Unavailables
    ) -> None:
        if not isinstance(handlers, Mapping):
            raise WrongUsage(f"handlers is {handlers!r:.200}: give a dict of a function for each name of a destination")
        self._webhook = own if isinstance(own, Destination) else None
        named = {**cast("Mapping[str | None, Function]", handlers)}
        if callable(own):
            named[None] = own
        self._handlers = {name: checked_function(function, unavailable) for name, function in named.items()}
        self._functions = {name: traced(it) for name, (it, is_coroutine) in self._handlers.items() if not is_coroutine}
        self._threads = _Threads()
        super().__init__(self._handle)

    def limits(self, name: str) -> Mapping[str, int]:
        """The limits of this destination where its settings have none. Errors: `WrongUsage` if it is no function."""
        if name not in self._handlers:
            raise WrongUsage(f"{name!r} is not in handlers=, and has no url: give it an address")
        _, is_coroutine = self._handlers[name]
        return {} if is_coroutine else _FUNCTION_LIMITS

    @property
    def names(self) -> list[str]:
        """Of the destinations that are functions."""
        return [name for name in self._handlers if name is not None]

    def _called(self, start: Callable[[CoroutineCalls], object]) -> Destination:
        return Destination.handlers(start, None in self._handlers, self._webhook)

    async def _handle(self, delivery: Delivery) -> object:
        name = delivery.message.destination
        if name not in self._handlers:
            raise Unavailable(f"handlers= has no {name!r}")
        handler, _ = self._handlers[name]
        return await cast("Callable[[Delivery], Awaitable[object]]", handler)(delivery)

    def takes(self, call: CoroutineCall, calls: CoroutineCalls) -> bool:
        """Makes the call in a thread if it is of an ordinary function."""
        function = self._functions.get(call.delivery.message.destination)
        if function is not None:
            self._threads.make(function, call, calls.have_this_thread)
        return function is not None


_Called: TypeAlias = tuple[Function, CoroutineCall, Callable[[], None]]


class _Threads:
    """As many as there are calls at a time. Nobody waits for them at the end of the process."""

    def __init__(self) -> None:
        self._calls = SimpleQueue[_Called | None]()
        self._idle: deque[None] = deque()  # an item for each thread without a call
        self._count = 0

    def make(self, function: Function, call: CoroutineCall, have_this_thread: Callable[[], None]) -> None:
        """Make this call, which answers by itself: a time-out can't end it. Called by the loop alone."""
        try:
            self._idle.pop()
        except IndexError:
            try:
                args = (self._calls, self._idle)
                threading.Thread(target=_work, args=args, name="handler-deliver", daemon=True).start()
            except (MemoryError, RuntimeError) as error:
                call.failed(Unavailable(f"no thread can be started for it: {error}"))
                return
            self._count += 1
        self._calls.put((function, call, have_this_thread))

    def __del__(self) -> None:
        for _ in range(self._count):
            self._calls.put(None)


def _work(calls: SimpleQueue[_Called | None], idle: deque[None]) -> None:
    while (called := calls.get()) is not None:
        copy_context().run(_answer, *called)
        del called  # nothing of it is kept until the next call
        idle.append(None)


def _answer(function: Function, call: CoroutineCall, have_this_thread: Callable[[], None]) -> None:
    process = os.getpid()
    have_this_thread()  # so the queue can't be closed in it, as the close would wait for the call
    try:
        problem = problem_with(function(call.delivery))
    except BaseException as error:  # SystemExit too is an answer, as in a coroutine
        call.failed(error)
    else:
        if problem is None:
            call.arrived()
        else:
            call.refused(problem)
    finally:
        if os.getpid() != process:
            os._exit(0)  # it forked: the threads belong to the parent
