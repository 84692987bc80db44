"""Fixtures for pytest, which finds them by itself where tickwheel is installed: time that a test moves.

    def test_a_session_ends(manual_timer):
        session = Session(manual_timer)
        manual_timer.advance(30 * 60_000)
        assert session.is_over

    def test_a_client_gives_up(virtual_runner):
        with pytest.raises(TimeoutError):
            virtual_runner.run(client_of(silent_server))  # at once, however long its time-out is

Each test has its own.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import asyncio

    from tickwheel.testing import ManualTimer


@pytest.fixture
def manual_timer() -> "Iterator[ManualTimer]":
    """A `ManualTimer` with `strict=True`: what a callback raises fails the test."""
    from tickwheel.testing import ManualTimer

    timer = ManualTimer(strict=True)
    yield timer
    timer.shutdown()


@pytest.fixture
def virtual_runner() -> "Iterator[asyncio.Runner]":
    """An `asyncio.Runner` on a `VirtualLoop`: what sleeps is done at once, and a deadlock is an error."""
    import asyncio  # pytest loads this file everywhere: what no test asks for costs the import of tickwheel alone

    from tickwheel.testing import VirtualLoop

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        yield runner
