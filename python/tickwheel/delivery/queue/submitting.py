"""Submits items for an event loop, and gives the answers on it (rules D8, D11).

Nothing here blocks the loop. While much is queued, tasks wait for room, and submit in the order in which they came.
Tasks share commits, because the engine commits what is queued together.

The engine's thread for answers wakes the loop once for all answers that have come, and not for each answer.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, TypeAlias

from tickwheel.delivery.engine.running import Running
from tickwheel.delivery.model.entries import Answer, Item

_LOOK_FOR_ROOM_EVERY_S: Final = 0.02

_Future: TypeAlias = "asyncio.Future[list[Answer]]"


class Submitter:
    """For one event loop. It may be made in any thread."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._turn = asyncio.Lock()
        self._has_room = asyncio.Event()
        self._given: deque[tuple[_Future, list[Answer] | BaseException]] = deque()
        self._is_loop_woken = False

    async def ask(self, items: Sequence[Item]) -> list[Answer]:
        """The answers, once all are on disk. Errors: those of `submit`; `DeliveryFailed`."""
        return await (await self.submit(items))

    async def submit(self, items: Sequence[Item]) -> _Future:
        """Wait while much is queued, and submit. The future gets the answers once all are on disk. If its task was
        cancelled, the items may be accepted. Errors: `BadRecord`, `DeliveryFailed`; `RuntimeError` after `close`.
        """
        future: _Future = asyncio.get_running_loop().create_future()
        answers = _Answers(self, future)
        async with self._turn:
            while not self._running.try_submit(items, answers):
                self._has_room.clear()
                with suppress(TimeoutError):  # an outbox may fill the queue, and its answers do not set `_has_room`
                    async with asyncio.timeout(_LOOK_FOR_ROOM_EVERY_S):
                        await self._has_room.wait()
        return future

    def give(self, future: _Future, given: list[Answer] | BaseException) -> None:
        """In the engine's thread for answers."""
        self._given.append((future, given))
        if self._is_loop_woken:
            return  # `_take_all` clears this before it looks into `_given`
        self._is_loop_woken = True
        try:
            future.get_loop().call_soon_threadsafe(self._take_all)
        except RuntimeError:  # the loop is closed: no task waits any more
            self._is_loop_woken = False
            self._given.clear()

    def _take_all(self) -> None:
        self._is_loop_woken = False
        self._has_room.set()
        while self._given:
            future, given = self._given.popleft()
            if future.done():
                continue  # its task was cancelled
            if isinstance(given, BaseException):
                future.set_exception(given)
                future.exception()  # marks it as retrieved: if several parts fail, only one error is raised
            else:
                future.set_result(given)


class _Answers:
    """Stands for the future of a ticket in the engine's thread for answers."""

    __slots__ = ("_future", "_submitter")

    def __init__(self, submitter: Submitter, future: _Future) -> None:
        self._submitter, self._future = submitter, future

    def set_result(self, answers: list[Answer]) -> None:
        self._submitter.give(self._future, answers)

    def set_exception(self, error: BaseException) -> None:
        self._submitter.give(self._future, error)
