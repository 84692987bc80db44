"""A plugin for other projects' pytest: every loop that asyncio or uvloop makes has its timers in a wheel."""

import asyncio
import os

import uvloop

from tickwheel import aio


class Loop(aio.WheelTimers, asyncio.SelectorEventLoop):
    pass


class UvLoop(aio.WheelTimers, uvloop.Loop):
    __module__ = "uvloop"  # by which anyio's tests know what uvloop can't do


if "asyncio" in os.environ["WHEEL_ON"]:
    asyncio.SelectorEventLoop = asyncio.unix_events.SelectorEventLoop = Loop
    asyncio.unix_events._UnixDefaultEventLoopPolicy._loop_factory = Loop
uvloop.new_event_loop = UvLoop


def pytest_report_header() -> str:
    for kind in Loop, UvLoop:
        loop = kind()
        assert loop._tickwheel_timers is not None
        loop.close()
    return "all timers are in a wheel"
