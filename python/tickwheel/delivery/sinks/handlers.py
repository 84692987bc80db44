"""Functions of the program as destinations that messages name (rule D23), beside webhooks.

One coroutine calls the handler that the message names: `coroutine.py` says on which loop, and what a time-out does. An
ordinary function has threads of its own, so that one that hangs holds up no other.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from typing import Final, cast

from tickwheel._native import CoroutineCalls, Delivery, Destination
from tickwheel.delivery.base.errors import Unavailable, WrongUsage
from tickwheel.delivery.sinks.coroutine import CoroutineFunction
from tickwheel.delivery.sinks.python import Function, Unavailables, checked_function

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
        self._threads = {name: _Threads() for name, (_, is_coroutine) in self._handlers.items() if not is_coroutine}
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
        handler, is_coroutine = self._handlers[name]
        if is_coroutine:
            return await cast("Callable[[Delivery], Awaitable[object]]", handler)(delivery)
        return await self._threads[name].call(partial(copy_context().run, handler, delivery))


class _Threads:
    """Calls in threads, as many as there are calls at a time. Nobody waits for them at the end of the process."""

    def __init__(self) -> None:
        self._calls = SimpleQueue[Callable[[], object] | None]()
        self._threads = self._open = 0  # both change on the loop alone

    async def call(self, function: Callable[[], object]) -> object:
        """What it returns or raises. A task that is cancelled ends with the call: until then it keeps its place."""
        loop = asyncio.get_running_loop()
        ended = loop.create_future()

        def run() -> None:
            try:
                returned, error = function(), None
            except BaseException as raised:  # SystemExit too is an answer, as in a coroutine
                returned, error = None, raised
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(give, (returned, error))

        def give(what: tuple[object, BaseException | None]) -> None:
            if not ended.done():  # a task that is cancelled twice waits no more
                ended.set_result(what)

        self._open += 1
        try:
            if self._open > self._threads:
                threading.Thread(target=_work, args=(self._calls,), name="handler-deliver", daemon=True).start()
                self._threads += 1
            self._calls.put(run)
            try:
                returned, error = await asyncio.shield(ended)
            except asyncio.CancelledError:
                await ended
                raise
        finally:
            self._open -= 1
        if error is not None:
            raise error
        return returned

    def __del__(self) -> None:
        for _ in range(self._threads):
            self._calls.put(None)


def _work(calls: "SimpleQueue[Callable[[], object] | None]") -> None:
    while (call := calls.get()) is not None:
        call()
