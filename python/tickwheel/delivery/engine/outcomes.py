"""The outcomes of messages, one after another, for an event loop: `async for outcome in queue.outcomes()`."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, Self

from tickwheel._native import OutcomeReader
from tickwheel.delivery.model.entries import Answer, Outcome

_READ_AT_ONCE: Final = 256


class MessageOutcome(NamedTuple):
    """The outcome of a message, after it is on disk.

    `state`: `DELIVERED`, `DEAD` or `EXPIRED`. `ended_at_ms`: milliseconds since 1970, like `due_ms`; for a delivered
    message the time of its send. `lateness_ms`: only for a delivered message. `attempts`: how often it was tried.
    `redelivered`: it may have arrived before. `reason`: the last error of a `DEAD` message. `missed_before`: how many
    outcomes the reader lost right before this one, because it was too slow.
    """

    id: str
    key: str | None
    due_ms: int
    state: Answer
    ended_at_ms: int
    lateness_ms: float | None
    attempts: int
    redelivered: bool
    reason: str | None = None
    missed_before: int = 0


class Outcomes:
    """The outcomes of messages from now on, in order of their commits; see `AsyncDeliveryQueue.outcomes`."""

    def __init__(self, reader: OutcomeReader, check: Callable[[], object]) -> None:
        self._reader = reader
        self._check = check
        self._read: deque[MessageOutcome] = deque()
        self._is_waiting = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> MessageOutcome:
        while not self._read:
            missed, read, is_over = self._reader.read(_READ_AT_ONCE)
            self._read.extend(map(_outcome_of, read))
            if missed:
                self._read[0] = self._read[0]._replace(missed_before=missed)
            if not read and is_over:
                self._check()
                raise StopAsyncIteration
            if read:
                await asyncio.sleep(0)  # lets other tasks run, also if this reader never catches up
            else:
                await self._until_readable()
        return self._read.popleft()

    async def _until_readable(self) -> None:
        if self._is_waiting:
            raise RuntimeError("another task waits for the next outcome here: call outcomes() once for each task")
        loop, fd = asyncio.get_running_loop(), self._reader.fileno()
        readable = asyncio.Event()
        self._is_waiting = True
        loop.add_reader(fd, readable.set)
        try:
            await readable.wait()
        finally:
            self._is_waiting = False
            loop.remove_reader(fd)


def _outcome_of(
    read: tuple[str, str | None, int, int, int, int | None, int, bool, str | None],
) -> MessageOutcome:
    id_, key, due_ms, outcome, ended_at_ms, lateness_us, attempts, redelivered, reason = read
    lateness_ms = None if lateness_us is None else lateness_us / 1000
    state = Answer[Outcome(outcome).name]
    return MessageOutcome(id_, key, due_ms, state, ended_at_ms, lateness_ms, attempts, redelivered, reason)
