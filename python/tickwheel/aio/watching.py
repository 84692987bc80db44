"""How a loop watches the descriptor of its wheel."""

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any

from tickwheel._native import LoopTimers


def watch(loop: asyncio.AbstractEventLoop, timers: LoopTimers) -> None:
    """The loop calls `timers._run_due` when something is due, also if a callback turns it again, as nest_asyncio does.

    asyncio runs a reader in the context of `add_reader`, and no context can be entered twice. So the reader gets an
    object that makes an empty context each time. uvloop cannot be turned again, and has no such attribute.
    """
    Context().run(loop.add_reader, timers.fileno(), timers._run_due)
    selector: Any = getattr(loop, "_selector", None)
    if selector is not None and isinstance(loop, asyncio.BaseEventLoop):
        reader, _writer = selector.get_key(timers.fileno()).data
        reader._context = _EmptyContext


class _EmptyContext:
    @staticmethod
    def run(callback: Callable[..., object], *args: object) -> object:
        return Context().run(callback, *args)
