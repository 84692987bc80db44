"""Items that tasks of an event loop submit: order, room, and each its own answer (rules D8, D11)."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from delivery.loops import LONG_S, loop_kind, run, until  # noqa: F401, a fixture
from delivery.receipts import Told
from tickwheel.delivery import Answer, DeliveryFailed
from tickwheel.delivery.engine.running import Running
from tickwheel.delivery.model.entries import Look
from tickwheel.delivery.queue import submitting
from tickwheel.delivery.queue.submitting import Submitter

pytestmark = pytest.mark.timeout(60)
STATES = {"a": Answer.WAITING, "b": Answer.DELIVERED, "c": Answer.DEAD, "d": Answer.UNKNOWN}


class Engine:
    """An engine that takes tickets while it has room, and answers them when the test says so, in a thread."""

    def __init__(self) -> None:
        self.has_room = True
        self.refused = 0
        self.taken: list[tuple[list[str], Callable[[Any], object]]] = []

    def try_submit(self, given: Sequence[Look], told: Callable[[Any], object]) -> Sequence[Look] | None:
        if not self.has_room:
            self.refused += 1
            return given
        self.taken.append(([item.id for item in given], told))
        return None

    @property
    def names(self) -> str:
        return "".join("".join(names) for names, _ in self.taken)

    def answer(self, error: BaseException | None = None) -> None:
        taken, self.taken = self.taken, []

        def give() -> None:
            for names, told in taken:
                told(Told(*(STATES[name] for name in names)) if error is None else error)

        thread = threading.Thread(target=give)
        thread.start()
        thread.join(LONG_S)


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def submitter(engine: Engine) -> Submitter:
    return Submitter(cast(Running, engine))


def looks(submitter: Submitter, *parts: str) -> "list[asyncio.Task[list[Answer]]]":
    async def ask(part: str) -> Any:
        return (await submitter.ask([Look(name, None) for name in part])).answers()

    return [asyncio.create_task(ask(part)) for part in parts]


def test_tasks_get_each_their_own_answers__D11(engine: Engine, submitter: Submitter, loop_kind: str) -> None:  # noqa: F811
    async def main() -> None:
        tasks = looks(submitter, "a", "bc", "d")
        await until(lambda: engine.names == "abcd")
        assert not any(task.done() for task in tasks), "nothing is on disk"
        engine.answer()
        assert await asyncio.gather(*tasks) == [
            [Answer.WAITING],
            [Answer.DELIVERED, Answer.DEAD],
            [Answer.UNKNOWN],
        ]

    run(main(), loop_kind)


def test_the_loop_is_woken_once_for_all_answers_that_have_come__D11(
    engine: Engine, submitter: Submitter, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        tasks = looks(submitter, *"abcd")
        await until(lambda: engine.names == "abcd")
        loop, woken = asyncio.get_running_loop(), []
        wake = loop.call_soon_threadsafe

        def count(callback: Callable[..., object], *given: Any, **more: Any) -> Any:
            woken.append(callback)
            return wake(callback, *given, **more)

        monkeypatch.setattr(loop, "call_soon_threadsafe", count)
        engine.answer()
        assert await asyncio.gather(*tasks) == [[state] for state in STATES.values()]
        assert len(woken) == 1
        again = looks(submitter, "a")
        await until(lambda: engine.names == "a")
        engine.answer()
        assert await again[0] == [Answer.WAITING]
        assert len(woken) == 2

    run(main())


def test_tasks_that_wait_for_room_submit_in_their_order_once_there_are_answers__D8(
    engine: Engine, submitter: Submitter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submitting, "_LOOK_FOR_ROOM_EVERY_S", 2 * LONG_S)

    async def main() -> None:
        [first] = looks(submitter, "a")
        await until(lambda: engine.names == "a")
        engine.has_room = False
        others = looks(submitter, *"bc")
        await until(lambda: engine.refused > 0)
        engine.has_room = True
        others += looks(submitter, "d")  # finds room at once
        for _ in range(3):
            await asyncio.sleep(0)
        engine.answer()
        assert await first == [Answer.WAITING]
        await until(lambda: engine.names == "bcd")
        engine.answer()
        await asyncio.gather(*others)

    run(main())


def test_a_task_that_is_cancelled_before_there_is_room_submits_nothing_and_holds_up_no_other__D11(
    engine: Engine, submitter: Submitter
) -> None:
    async def main() -> None:
        engine.has_room = False
        tasks = looks(submitter, *"ab")
        await until(lambda: engine.refused > 0)
        tasks[0].cancel()
        engine.has_room = True
        await until(lambda: engine.names == "b")
        engine.answer()
        assert await tasks[1] == [Answer.DELIVERED]
        assert tasks[0].cancelled()

    run(main())


def test_a_task_that_is_cancelled_later_does_not_take_the_answers_of_others_away__D11(
    engine: Engine, submitter: Submitter
) -> None:
    async def main() -> None:
        tasks = looks(submitter, *"abc")
        await until(lambda: engine.names == "abc")
        tasks[1].cancel()
        engine.answer()
        assert await asyncio.gather(tasks[0], tasks[2]) == [[Answer.WAITING], [Answer.DEAD]]

    run(main())


def test_a_commit_that_fails_is_an_error_for_each_of_its_tasks_and_no_later_one__D11(
    engine: Engine, submitter: Submitter
) -> None:
    async def main() -> None:
        tasks = looks(submitter, *"ab")
        await until(lambda: engine.names == "ab")
        engine.answer(DeliveryFailed("the disk is full"))
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert [str(error) for error in found] == ["the disk is full"] * 2
        later = looks(submitter, "c")
        await until(lambda: engine.names == "c")
        engine.answer()
        assert await later[0] == [Answer.DEAD]

    run(main())


def test_an_engine_that_takes_no_more_is_an_error_for_each_task__D11(
    engine: Engine, submitter: Submitter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> bool:
        raise DeliveryFailed("the queue is closed")

    monkeypatch.setattr(engine, "try_submit", refuse)

    async def main() -> None:
        found = await asyncio.gather(*looks(submitter, *"ab"), return_exceptions=True)
        assert [str(error) for error in found] == ["the queue is closed"] * 2

    run(main())


def test_answers_for_a_loop_that_is_closed_are_dropped__D6(engine: Engine, submitter: Submitter) -> None:
    async def main() -> Any:
        return await submitter.submit([Look("a", None)])

    future = asyncio.run(main())
    _, told = engine.taken[0]
    told(Told(Answer.ACCEPTED))
    told(DeliveryFailed("the power is off"))
    assert not future.done()
