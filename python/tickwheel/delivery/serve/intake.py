"""Lets single requests share commits: requests that come during a `submit` are submitted together (rule D11).

Everything runs in the event loop but `submit`, which blocks while much is queued. Example: of eight simultaneous
requests the first is submitted alone; meanwhile the other seven come, and share the next commit.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TypeAlias

from tickwheel.delivery.model.entries import Answer, Item

Submit: TypeAlias = Callable[[Sequence[Item]], "Future[list[Answer]]"]
_Asked: TypeAlias = list[tuple[Item, "asyncio.Future[Answer]"]]


class Intake:
    """`submit` is the writer's."""

    def __init__(self, submit: Submit) -> None:
        self._submit = submit
        self._asked: _Asked = []
        self._handing_in: asyncio.Task[None] | None = None

    async def ask(self, item: Item) -> Answer:
        """The answer to a message, a cancel or a look, once it is on disk. Errors: of `submit`, and of the commit."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._asked.append((item, answer))
        if self._handing_in is None:
            self._handing_in = asyncio.create_task(self._hand_in())
        return await answer

    async def _hand_in(self) -> None:
        while self._asked:
            asked, self._asked = self._asked, []
            try:
                ticket = await asyncio.to_thread(self._submit, [item for item, _ in asked])
            except Exception as error:
                _fail(asked, error)
            else:
                asyncio.wrap_future(ticket).add_done_callback(partial(_answer, asked))
        self._handing_in = None


def _answer(asked: _Asked, ticket: "asyncio.Future[list[Answer]]") -> None:
    error = ticket.exception()
    if error is not None:
        _fail(asked, error)
        return
    for (_, waiting), answer in zip(asked, ticket.result(), strict=True):
        if not waiting.done():  # the client may have disconnected
            waiting.set_result(answer)


def _fail(asked: _Asked, error: BaseException) -> None:
    for _, waiting in asked:
        if not waiting.done():
            waiting.set_exception(error)
