"""Submits items for an event loop, and gives the receipts on it (rules D8, D11).

Nothing here blocks the loop. While much is queued, tasks wait for room, and submit in the order in which they came.
Tasks share commits, because the engine commits what is queued together.

The engine's thread for answers wakes the loop once for all answers that have come, and not for each answer.
"""

import asyncio
from collections import deque
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeAlias

from tickwheel._native import Receipt
from tickwheel.delivery.engine.running import Running

_LOOK_FOR_ROOM_EVERY_S: Final = 0.02

_Future: TypeAlias = "asyncio.Future[Receipt]"


class Submitter:
    """For one event loop. It may be made in any thread."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._turn = asyncio.Lock()
        self._has_room = asyncio.Event()
        self._told: deque[tuple[_Future, Receipt | BaseException]] = deque()
        self._is_loop_woken = False

    async def ask(self, given: object, **options: Any) -> Receipt:
        """The receipt, once all is on disk. Errors: those of `submit`; `DeliveryFailed`."""
        return await (await self.submit(given, **options))

    async def submit(self, given: object, **options: Any) -> _Future:
        """Wait while much is queued, and submit. The future gets the receipt once all is on disk. If its task was
        cancelled, the items may be accepted. Errors: `BadRecord`, `DeliveryFailed`; `RuntimeError` after `close`.
        """
        future: _Future = asyncio.get_running_loop().create_future()
        told = partial(self.give, future)
        async with self._turn:
            left = self._running.try_submit(given, told, **options)
            while left is not None:
                self._has_room.clear()
                with suppress(TimeoutError):  # an outbox may fill the queue, and its answers do not set `_has_room`
                    async with asyncio.timeout(_LOOK_FOR_ROOM_EVERY_S):
                        await self._has_room.wait()
                left = self._running.try_submit(left, told)
        return future

    def give(self, future: _Future, told: Receipt | BaseException) -> None:
        """In the engine's thread for answers."""
        self._told.append((future, told))
        if self._is_loop_woken:
            return  # `_take_all` clears this before it looks into `_told`
        self._is_loop_woken = True
        try:
            future.get_loop().call_soon_threadsafe(self._take_all)
        except RuntimeError:  # the loop is closed: no task waits any more
            self._is_loop_woken = False
            self._told.clear()

    def _take_all(self) -> None:
        self._is_loop_woken = False
        self._has_room.set()
        while self._told:
            future, told = self._told.popleft()
            if future.done():
                continue  # its task was cancelled
            if isinstance(told, BaseException):
                future.set_exception(told)
                future.exception()  # marks it as retrieved: if several parts fail, only one error is raised
            else:
                future.set_result(told)
