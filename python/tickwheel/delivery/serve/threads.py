"""Threads for requests that take long, so that they hold up no others (rules D11, D14).

Pages of a store, single messages, metrics and bodies of many lines have threads of their own each. If no thread is
free, a request waits in order. Each kind has a limit, so that requests of these kinds leave room for a `POST`. All
threads start with the server and stay: a system that gives no more threads later fails no request.

Example: 200 requests for pages come at once. Two are read, 126 wait, and 72 get 503. A message is accepted meanwhile.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from tickwheel.delivery.base.threads import started_pool
from tickwheel.delivery.serve.problems import AGAIN, problem

_T = TypeVar("_T")


class Threads:
    """`count` threads for one kind of request; at most `most` such requests at a time. Errors: `DeliveryFailed` if the
    system does not give the threads.
    """

    def __init__(self, kind: str, count: int, most: int) -> None:
        self._kind = kind
        self._threads = started_pool(count, f"http-{kind}")
        self._left = most

    async def run(self, function: Callable[[], _T]) -> _T:
        """The result of the function. Errors: its own; 503 if there are too many requests already."""
        with self.place():
            return await self.call(function)

    @contextmanager
    def place(self) -> Iterator[None]:
        """A place for a request that calls several functions. Errors: 503 if there are too many requests already."""
        if not self._left:
            raise problem(503, f"too many requests for {self._kind} at a time", AGAIN, {"retry-after": "1"})
        self._left -= 1
        try:
            yield
        finally:
            self._left += 1

    async def call(self, function: Callable[[], _T]) -> _T:
        """The result of the function, for a request that has a place. Errors: its own."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, function)
