"""Deadlines that nest: one inside another is no later, and code inside can ask how long is left."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from contextvars import Context, ContextVar, copy_context
from datetime import timedelta
from typing import Final

from tickwheel._native import _delay_s
from tickwheel.aio.beside import clock_of_loop, timeout_at, timers

_deadline: Final[ContextVar[tuple[float, object] | None]] = ContextVar("deadline", default=None)


@asynccontextmanager
async def deadline(delay: float | timedelta) -> AsyncIterator[None]:
    """Cancel what is inside after `delay` seconds, or at an earlier deadline around it, with `TimeoutError`.

    >>> import asyncio
    >>> async def ask():
    ...     async with deadline(3600):
    ...         print("an hour" if remaining() > 60 else "less than a minute")
    >>> async def main():
    ...     async with deadline(30):
    ...         await ask()
    >>> asyncio.run(main())
    less than a minute
    """
    clock, own = timers().time(), clock_of_loop()
    when = clock + _delay_s(delay)
    outer = _left(own)
    token = _deadline.set((when if outer is None else min(when, outer), own))
    try:
        async with timeout_at(_left(own)):
            yield
    finally:
        with suppress(ValueError):  # the end of a generator that was left may run elsewhere
            _deadline.reset(token)


def remaining() -> float | None:
    """How many seconds are left until the deadline around this code; `None` if there is none."""
    when = _left(clock_of_loop())
    return None if when is None else max(0.0, when - timers().time())


def context_without_deadline() -> Context:
    """A copy of the current context, for a call that comes when the deadline around this code may have passed."""
    context = copy_context()
    context.run(_deadline.set, None)
    return context


def _left(clock: object) -> float | None:
    """The deadline around this code by this clock; one by another clock says nothing here."""
    when = _deadline.get()
    return when[0] if when is not None and when[1] == clock else None
