"""The room for bodies that come in parts, and who gives way where there is none (rules D8, D12)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, cast

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request

from delivery.serve.conftest import Room
from tickwheel.delivery.serve import bodies
from tickwheel.delivery.serve.bodies import Bodies

pytestmark = pytest.mark.timeout(20)


class Asked:
    """A request whose body comes as the test wants it."""

    def __init__(self) -> None:
        self.headers = {"expect": "100-continue"}
        self.parts: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.waits = asyncio.Event()

    async def stream(self) -> AsyncIterator[bytes]:
        while True:
            self.waits.set()
            part = await self.parts.get()
            if part is None:
                return
            yield part

    @property
    def request(self) -> Request:
        return cast("Request", self)


async def keep(_part: bytes) -> int:
    return 90


def passed_on(room: Bodies, asked: Asked, take: Callable[[bytes], Awaitable[int]] = keep) -> "asyncio.Task[int]":
    """Its status; what is kept of it are 90 bytes, whatever comes."""

    async def run() -> int:
        try:
            await room.pass_on(asked.request, 10_000, take)
        except HTTPException as refused:
            return refused.status_code
        return 200

    return asyncio.create_task(run())


async def received(room: Bodies, size: int) -> int:
    """The status of a body that is there as a whole."""
    asked = Asked()
    asked.parts.put_nowait(b"x" * size)
    asked.parts.put_nowait(None)
    try:
        async with room.receive(asked.request, 10_000):
            return 200
    except HTTPException as refused:
        return refused.status_code


def left(room: Bodies) -> int:
    return room._take_bytes.__self__.left  # type: ignore[attr-defined, no-any-return]  # of its `Room`


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[[Coroutine[Any, Any, None]], None]:
    """Runs a scenario in which a body is slow at once."""
    monkeypatch.setattr(bodies, "_SLOW_S", 0)
    return asyncio.run


Run = Callable[[Coroutine[Any, Any, None]], None]


def test_one_that_is_passed_on_counts_by_what_is_kept_of_it__D8(run: Run) -> None:
    kept = iter([50, 80, 0])

    async def take(_part: bytes) -> int:
        return next(kept)

    async def scenario() -> None:
        room, asked = Bodies(Room(100).take), Asked()
        status = passed_on(room, asked, take)
        for expected in (50, 20, 100):
            asked.waits.clear()
            asked.parts.put_nowait(b"x" * 20)
            await asked.waits.wait()
            assert left(room) == expected
        asked.parts.put_nowait(None)
        assert (await status, left(room)) == (200, 100)

    run(scenario())


def test_the_one_that_is_on_its_way_for_longest_gives_way_however_its_parts_trickle__D12(run: Run) -> None:
    async def scenario() -> None:
        room, trickles, later = Bodies(Room(100).take), Asked(), Asked()
        first = passed_on(room, trickles)
        trickles.parts.put_nowait(b"x")
        await trickles.waits.wait()
        await asyncio.sleep(0.001)  # so that the clock of the loop goes on
        second = passed_on(room, later)
        await later.waits.wait()
        trickles.waits.clear()
        trickles.parts.put_nowait(b"x")
        await trickles.waits.wait()
        assert await received(room, 50) == 200
        assert await first == 408
        later.parts.put_nowait(None)
        assert await second == 200
        assert left(room) == 100

    run(scenario())


@pytest.mark.parametrize("is_last", [False, True])
def test_one_gives_way_whose_next_part_comes_in_that_moment__D12(is_last: bool, run: Run) -> None:
    async def scenario() -> None:
        room, asked = Bodies(Room(100).take), Asked()
        status = passed_on(room, asked)
        asked.parts.put_nowait(b"x")
        await asyncio.sleep(0.001)
        await asked.waits.wait()
        asked.parts.put_nowait(None if is_last else b"x")
        assert await received(room, 50) == 200
        assert await status == (200 if is_last else 408)
        assert left(room) == 100

    run(scenario())


def test_one_is_not_given_up_while_a_part_of_it_is_taken__D12(run: Run) -> None:
    async def scenario() -> None:
        room, asked, may_end, begins = Bodies(Room(100).take), Asked(), asyncio.Event(), asyncio.Event()

        async def take(_part: bytes) -> int:
            begins.set()
            await may_end.wait()
            return 0

        status = passed_on(room, asked, take)
        asked.parts.put_nowait(b"x" * 90)
        await begins.wait()
        assert await received(room, 50) == 503
        may_end.set()
        asked.parts.put_nowait(None)
        assert await status == 200
        assert await received(room, 50) == 200

    run(scenario())


def test_the_time_of_a_body_stands_still_while_a_part_is_taken__D12(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "_WITHIN_S", 0.05)

    async def scenario() -> None:
        room, asked = Bodies(Room(100).take), Asked()

        async def take(_part: bytes) -> int:
            await asyncio.sleep(0.1)
            return 0

        status = passed_on(room, asked, take)
        for part in (b"x", b"x", None):
            await asked.waits.wait()
            asked.waits.clear()
            await asyncio.sleep(0)  # with a deadline that is over it would end now
            asked.parts.put_nowait(part)
        assert await status == 200
        assert await passed_on(room, Asked(), take) == 408

    run(scenario())


def test_one_whose_part_is_being_taken_at_the_end_of_the_server_has_a_moment_left__D9(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "_END_WITHIN_S", 0.02)

    async def scenario() -> None:
        room, asked, may_end, begins = Bodies(Room(100).take), Asked(), asyncio.Event(), asyncio.Event()

        async def take(_part: bytes) -> int:
            begins.set()
            await may_end.wait()
            return 0

        status = passed_on(room, asked, take)
        asked.parts.put_nowait(b"x")
        await begins.wait()
        room.end()
        await asyncio.sleep(0.05)
        assert not status.done(), "it waits for its part to be taken"
        may_end.set()
        assert await status == 503

    run(scenario())
