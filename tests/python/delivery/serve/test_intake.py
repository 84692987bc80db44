"""Requests that share a commit, each with its own answer (rule D11)."""

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import Future

import pytest

from tickwheel.delivery import DeliveryFailed
from tickwheel.delivery.model.entries import Answer, Item, Look
from tickwheel.delivery.serve.intake import Intake

pytestmark = pytest.mark.timeout(20)
STATES = {"a": Answer.WAITING, "b": Answer.DELIVERED, "c": Answer.DEAD, "d": Answer.UNKNOWN}


class Counter:
    """A writer that takes items and answers them only when the test says so."""

    def __init__(self) -> None:
        self.is_open = threading.Event()
        self.taken: list[tuple[Sequence[Item], Future[list[Answer]]]] = []

    def submit(self, items: Sequence[Item]) -> "Future[list[Answer]]":
        assert self.is_open.wait(10)
        ticket: Future[list[Answer]] = Future()
        self.taken.append((items, ticket))
        return ticket

    def answer(self) -> None:
        for items, ticket in self.taken:
            if not ticket.done():
                ticket.set_result([STATES[item.id] for item in items if isinstance(item, Look)])

    async def has_taken(self, groups: int) -> None:
        while len(self.taken) < groups:
            await asyncio.sleep(0)


def looks(intake: Intake, names: str) -> "list[asyncio.Task[Answer]]":
    return [asyncio.create_task(intake.ask(Look(name, None))) for name in names]


def test_what_comes_while_something_is_handed_in_goes_in_together__D11() -> None:
    async def scene() -> None:
        counter = Counter()
        intake = Intake(counter.submit)
        first = looks(intake, "a")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        others = looks(intake, "bcd")
        await asyncio.sleep(0)
        counter.is_open.set()
        await counter.has_taken(2)
        assert [[item.id for item in items if isinstance(item, Look)] for items, _ in counter.taken] == [
            ["a"],
            [*"bcd"],
        ]
        assert not any(task.done() for task in first + others)
        counter.answer()
        assert await asyncio.gather(*first, *others) == [*STATES.values()]
        again = looks(intake, "d")
        await counter.has_taken(3)
        counter.answer()
        assert await again[0] is Answer.UNKNOWN

    asyncio.run(scene())


def test_one_that_hung_up_does_not_take_the_others_answers_away__D11() -> None:
    async def scene() -> None:
        counter = Counter()
        counter.is_open.set()
        tasks = looks(Intake(counter.submit), "abc")
        await counter.has_taken(1)
        tasks[1].cancel()
        counter.answer()
        assert await asyncio.gather(tasks[0], tasks[2]) == [Answer.WAITING, Answer.DEAD]

    asyncio.run(scene())


def test_a_commit_that_fails_is_an_error_for_each_of_its_requests_and_no_later_one__D11() -> None:
    async def scene() -> None:
        counter = Counter()
        counter.is_open.set()
        intake = Intake(counter.submit)
        tasks = looks(intake, "ab")
        await counter.has_taken(1)
        counter.taken[0][1].set_exception(DeliveryFailed("the disk is full"))
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert [str(error) for error in found] == ["the disk is full"] * 2
        later = looks(intake, "c")
        await counter.has_taken(2)
        counter.answer()
        assert await later[0] is Answer.DEAD

    asyncio.run(scene())


def test_a_writer_that_takes_no_more_is_an_error_for_each_that_asks__D11() -> None:
    def submit(_items: Sequence[Item]) -> "Future[list[Answer]]":
        raise DeliveryFailed("the queue is closed")

    async def scene() -> None:
        intake = Intake(submit)
        for _ in range(2):
            async with asyncio.timeout(10):
                found = await asyncio.gather(*looks(intake, "ab"), return_exceptions=True)
            assert [str(error) for error in found] == ["the queue is closed"] * 2

    asyncio.run(scene())
