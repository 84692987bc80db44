"""`AsyncDeliveryQueue`: durable delayed delivery inside an asyncio program (rule D11).

Each method is made from a method of `DeliveryQueue`, and has the same arguments, answers and errors: `_awaited` calls
that method for a queue whose `_ask` returns a coroutine function. This way no list of arguments is written twice.

Nothing here blocks the loop. An answer comes by a future, which the engine's thread for answers completes. Opening,
closing, looking at the store and reading messages run in threads of the queue's own. The loop's default executor is
not used, because the program may let all its threads wait for this queue.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial, wraps
from inspect import getdoc, signature
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

from tickwheel._native import Receipt
from tickwheel.delivery.base.threads import start
from tickwheel.delivery.engine.running import Running
from tickwheel.delivery.model.summary import Summary
from tickwheel.delivery.queue.queue import DeliveryQueue
from tickwheel.delivery.queue.submitting import Submitter
from tickwheel.delivery.sight import Action, StoreView

_P = ParamSpec("_P")
_T = TypeVar("_T")
_F = TypeVar("_F", bound=Callable[..., object])

_LOOKS: Final = 8  # at the store, at a time


class _GivenUp(Exception):
    """The task that opens the queue was cancelled, or the process ends."""


class _QueueOnLoop(DeliveryQueue):
    """A queue for one event loop: its methods return a coroutine function, which gives the answer."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, is_given_up: threading.Event, *args: Any, **options: Any
    ) -> None:
        self.loop = loop
        self._is_given_up = is_given_up
        super().__init__(*args, **options)
        self._submitter = Submitter(self._running)
        self._looking = ThreadPoolExecutor(_LOOKS, thread_name_prefix="looks-at-delivery")

    def _run(self, *given: Any, **options: Any) -> Running:
        return super()._run(*given, check=self._check_wanted, loop=self.loop, **options)

    def _check_wanted(self) -> None:
        if self._is_given_up.is_set() or not threading.main_thread().is_alive():  # the process ends
            raise _GivenUp
        self._wait.check()

    def _ask(self, parts: Sequence[object], read: Callable[[list[Receipt]], _T], **options: Any) -> _T:
        # A coroutine that a cancelled task leaves would warn that no task has awaited it.
        return partial(self._asked, parts, read, **options)  # type: ignore[return-value]

    async def _asked(self, parts: Sequence[object], read: Callable[[list[Receipt]], _T], **options: Any) -> _T:
        futures = [await self._submitter.submit(part, **options) for part in parts]
        return read([await future for future in futures])

    def check_process(self) -> None:
        """Errors: `WrongUsage` in a forked child."""
        self._running.engine.check_may_wait()

    async def look(self, function: Callable[[], _T]) -> _T:
        """Calls it in a thread. Errors: its own; `WrongUsage` in a forked child."""
        self.check_process()
        return await asyncio.get_running_loop().run_in_executor(self._looking, function)


def _documented_as(method: Callable[..., object]) -> Callable[[_F], _F]:
    """Name, arguments and text of the method that blocks, for `help`."""

    def documented(own: _F) -> _F:
        wraps(method)(own)
        own.__doc__ = f"`{method.__qualname__}`, to be awaited.\n\n{getdoc(method)}"
        return own

    return documented


def _awaited(
    method: Callable[Concatenate[DeliveryQueue, _P], _T],
) -> "Callable[Concatenate[AsyncDeliveryQueue, _P], Coroutine[object, object, _T]]":
    """Makes a method of `AsyncDeliveryQueue` from a method of `DeliveryQueue`."""

    @_documented_as(method)
    async def ask(queue: "AsyncDeliveryQueue", /, *args: _P.args, **options: _P.kwargs) -> _T:
        asked: Any = method(queue._opened(), *args, **options)
        answer: _T = await asked()
        return answer

    return ask


def _read_in_thread(
    method: Callable[Concatenate[DeliveryQueue, _P], _T],
) -> "Callable[Concatenate[AsyncDeliveryQueue, _P], Coroutine[object, object, _T]]":
    """As `_awaited`, for a method that may have much to read before it asks. Each call has its own thread, because the
    iterable that it reads may wait for anything, also for another call. If the task is cancelled, no further message is
    read: the thread, and with it the process, could otherwise go on for ever.
    """

    @_documented_as(method)
    async def ask(queue: "AsyncDeliveryQueue", /, *args: _P.args, **options: _P.kwargs) -> _T:
        is_given_up = threading.Event()
        given: Any = [_until(is_given_up, it) for it in args]
        named: Any = {name: _until(is_given_up, it) for name, it in options.items()}
        read = partial(copy_context().run, method, queue._opened(), *given, **named)
        try:
            asked: Any = await asyncio.wrap_future(_in_own_thread(read, "reads-messages"))
        except asyncio.CancelledError:
            is_given_up.set()
            raise
        answer: _T = await asked()
        return answer

    return ask


def _until(is_given_up: threading.Event, given: object) -> object:
    """The same value. An iterable ends with the message that it waits for."""
    return _messages_until(is_given_up, given) if isinstance(given, Iterable) else given


def _messages_until(is_given_up: threading.Event, messages: Iterable[_T]) -> Iterator[_T]:
    for message in messages:
        if is_given_up.is_set():
            return
        yield message


def _in_thread(
    method: Callable[Concatenate[StoreView, _P], _T],
) -> "Callable[Concatenate[AsyncStoreView, _P], Coroutine[object, object, _T]]":
    """Makes a method of `AsyncStoreView` from a method of `StoreView`."""

    @_documented_as(method)
    async def look(view: "AsyncStoreView", /, *args: _P.args, **options: _P.kwargs) -> _T:
        return await view._queue.look(partial(method, view._queue.view, *args, **options))

    return look


def _with_arguments_of(
    init: Callable[Concatenate[DeliveryQueue, _P], None],
) -> "Callable[[Callable[..., None]], Callable[Concatenate[AsyncDeliveryQueue, _P], None]]":
    """The arguments of `DeliveryQueue`, for a checker and for `help`."""

    def typed(own: Callable[..., None]) -> "Callable[Concatenate[AsyncDeliveryQueue, _P], None]":
        @wraps(init)
        def checked(queue: "AsyncDeliveryQueue", /, *args: _P.args, **options: _P.kwargs) -> None:
            signature(init).bind(queue, *args, **options)  # a TypeError comes here, not when it is opened
            own(queue, *args, **options)

        return checked

    return typed


class AsyncStoreView:
    """`StoreView` for a loop: each call looks at the store in a thread of the queue."""

    def __init__(self, queue: _QueueOnLoop) -> None:
        self._queue = queue

    list = _in_thread(StoreView.list)
    show = _in_thread(StoreView.show)
    dead = _in_thread(StoreView.dead)
    actions = _in_thread(StoreView.actions)
    destinations = _in_thread(StoreView.destinations)
    destination = _in_thread(StoreView.destination)
    tenants = _in_thread(StoreView.tenants)
    tenant = _in_thread(StoreView.tenant)
    status = _in_thread(StoreView.status)


class AsyncDeliveryQueue:
    """A `DeliveryQueue` for asyncio: nothing blocks the loop, and calls that need the disk are awaited.

    It takes the arguments of `DeliveryQueue`. `async with` opens it on the running loop (asyncio's or uvloop's); use it
    on this loop only. `to` may be a coroutine function: its calls are tasks of this loop, up to 256 at a time, or
    `concurrency`; one at a time for a key. `on_dead_letter` is called in a thread of its own. Errors: when it is
    opened, the errors of `DeliveryQueue`; on another loop, or when it is not open, `RuntimeError`. If the opening is
    cancelled, a thread gives up or closes the store soon after.

    If a task is cancelled while it waits for an answer, nothing is taken back: the message may be accepted. The same
    call again answers `DUPLICATE` then. `state` tells whether it is accepted, and `cancel` works in both cases. If many
    tasks put messages at a time, they share commits. `put_many` reads its messages in a thread of its own. If its task
    is cancelled, it reads no further message. Interpreter exit waits for an iterable that blocks.

    >>> import asyncio, tempfile
    >>> async def main(folder):
    ...     arrived = asyncio.Queue()
    ...     async with AsyncDeliveryQueue(f"{folder}/reminders.db", to=arrived.put) as queue:
    ...         print(await queue.put("tea", {"text": "the tea is ready"}, delay_ms=20))
    ...         delivery = await asyncio.wait_for(arrived.get(), 10)
    ...         print(delivery.message.id, bytes(delivery.message.payload).decode())
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     asyncio.run(main(folder))
    accepted
    tea {"text":"the tea is ready"}
    """

    @_with_arguments_of(DeliveryQueue.__init__)
    def __init__(self, *args: Any, **options: Any) -> None:
        self._open: Callable[[asyncio.AbstractEventLoop, threading.Event], _QueueOnLoop]
        self._open = lambda loop, is_given_up: _QueueOnLoop(loop, is_given_up, *args, **options)
        self._was_opened = False
        self._queue: _QueueOnLoop | None = None

    put = _awaited(DeliveryQueue.put)
    put_many = _read_in_thread(DeliveryQueue.put_many)
    cancel = _awaited(DeliveryQueue.cancel)
    reschedule = _awaited(DeliveryQueue.reschedule)
    event = _awaited(DeliveryQueue.event)
    forget_event = _awaited(DeliveryQueue.forget_event)
    requeue = _awaited(DeliveryQueue.requeue)
    again = _awaited(DeliveryQueue.again)
    cancel_many = _awaited(DeliveryQueue.cancel_many)
    requeue_many = _awaited(DeliveryQueue.requeue_many)
    set_destination = _awaited(DeliveryQueue.set_destination)
    remove_destination = _awaited(DeliveryQueue.remove_destination)
    set_tenant = _awaited(DeliveryQueue.set_tenant)
    remove_tenant = _awaited(DeliveryQueue.remove_tenant)
    pause = _awaited(DeliveryQueue.pause)
    resume = _awaited(DeliveryQueue.resume)
    state = _awaited(DeliveryQueue.state)

    async def action(self, id: str) -> Action | None:  # noqa: A002
        """As `DeliveryQueue.action`."""
        queue = self._opened()
        return await queue.look(partial(queue.action, id))

    @property
    def view(self) -> AsyncStoreView:
        """Looks at this queue's store: `await queue.view.list(key="k")`, and `show`, `dead`, `status`."""
        return AsyncStoreView(self._opened())

    @property
    def is_paused(self) -> bool:
        """Whether sending is paused, of all keys."""
        return self._opened().is_paused

    @property
    def summary(self) -> Summary:
        """The present counts; lateness only once the queue is closed."""
        return self._opened().summary

    def __len__(self) -> int:
        """The number of waiting messages."""
        return len(self._opened())

    async def close(self) -> None:
        """As `DeliveryQueue.close`, in a thread: the loop goes on, and so do the tasks of a coroutine function.

        If the task is cancelled meanwhile, closing goes on. Do not await it in a call of the destination, because
        closing waits for this call.
        """
        if self._queue is not None:
            await asyncio.wrap_future(_in_own_thread(self._queue.close, "closes-delivery"))

    async def __aenter__(self) -> Self:
        if self._was_opened:
            raise RuntimeError("this queue was opened before: make another one")
        self._was_opened = True
        loop, is_given_up = asyncio.get_running_loop(), threading.Event()
        opening = _in_own_thread(lambda: self._open(loop, is_given_up), "opens-delivery")
        try:
            self._queue = await asyncio.wrap_future(opening)
        except asyncio.CancelledError:
            is_given_up.set()
            _in_own_thread(lambda: _close_opened(opening), "opens-delivery-cancelled")
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _opened(self) -> _QueueOnLoop:
        """Errors: `RuntimeError`; `WrongUsage` in a forked child."""
        if self._queue is None:
            raise RuntimeError("the queue is not open: use it inside `async with`")
        self._queue.check_process()
        if asyncio.get_running_loop() is not self._queue.loop:
            raise RuntimeError(
                "the queue was opened on another event loop: use it there, or by asyncio.run_coroutine_threadsafe"
            )
        return self._queue


def _close_opened(opening: "Future[_QueueOnLoop]") -> None:
    with suppress(Exception):  # a failed or cancelled opening leaves nothing to close
        opening.result().close()


def _in_own_thread(function: Callable[[], _T], name: str) -> "Future[_T]":
    """Call it in a thread that takes none of the loop's. The interpreter waits for it at its end."""
    future: Future[_T] = Future()
    future.set_running_or_notify_cancel()

    def call() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    start(threading.Thread(target=call, name=name))
    return future
