"""Runs a coroutine of a test on a loop of each kind, without a wait that has no end."""

import asyncio
import importlib
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

T = TypeVar("T")
LONG_S = 20.0


def run(main: Coroutine[Any, Any, T], kind: str = "asyncio") -> T:
    """On a new loop of asyncio or uvloop."""
    make: Callable[[], asyncio.AbstractEventLoop] = (
        asyncio.new_event_loop if kind == "asyncio" else importlib.import_module("uvloop").new_event_loop
    )
    with asyncio.Runner(loop_factory=make) as runner:
        return runner.run(asyncio.wait_for(main, LONG_S))


@pytest.fixture(params=["asyncio", "uvloop"])
def loop_kind(request: pytest.FixtureRequest) -> str:
    pytest.importorskip(str(request.param))
    return str(request.param)


async def until(holds: Callable[[], bool]) -> None:
    """Returns when it holds; lets other tasks run meanwhile."""
    while not holds():
        await asyncio.sleep(0.001)
