"""The loops that are measured, by name. Only what is measured is imported."""

import asyncio
from typing import Any, Final

TICKWHEEL: Final = "tickwheel"
ASYNCIO: Final = "asyncio"
UVLOOP: Final = "uvloop"
SIDES: Final = (TICKWHEEL, ASYNCIO, UVLOOP)


def make(side: str, base: str, slack_us: int) -> asyncio.AbstractEventLoop:
    """A new loop: that of the base, or with its timers in a wheel, with this slack."""
    kind: Any = asyncio.SelectorEventLoop
    if base == UVLOOP:
        import uvloop

        kind = uvloop.Loop
    if side == TICKWHEEL:
        from tickwheel import aio

        return aio.new_event_loop(kind, slack_us=slack_us)
    made: asyncio.AbstractEventLoop = kind()
    return made
