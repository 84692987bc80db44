"""Outcomes of messages as `async for`: what is told, when, and what a slow, wrong or forgotten reader does."""

import asyncio
import gc
import time
import weakref
from pathlib import Path

import pytest

from delivery.loops import loop_kind, run, until  # noqa: F401, a fixture
from tickwheel.delivery import Answer, AsyncDeliveryQueue, Delivery, DeliveryFailed, MessageOutcome
from tickwheel.delivery.engine.outcomes import Outcomes
from tickwheel.delivery.model.entries import Outcome

pytestmark = pytest.mark.timeout(60)
OVERDUE_MS = 1_700_000_000_000


async def picky(delivery: Delivery) -> None:
    if delivery.message.id == "bad":
        raise ValueError("no such customer")


async def ignore(_: Delivery) -> None: ...


def test_each_message_that_ends_is_told_once_with_how_it_ended__D5_D6_D17(
    tmp_path: Path,
    loop_kind: str,  # noqa: F811
) -> None:
    async def main() -> list[MessageOutcome]:
        queue = AsyncDeliveryQueue(tmp_path / "store.db", to=picky, max_attempts=1, on_dead_letter=lambda _: None)
        async with queue:
            before_ms = time.time_ns() // 1_000_000
            outcomes = queue.outcomes()
            await queue.put("good", 1, delay_ms=0, key="k")
            told = [await anext(outcomes)]
            await queue.put("bad", 1, delay_ms=0, key="k")
            told.append(await anext(outcomes))
            await queue.put("cancelled", 1, delay_ms=3_600_000)
            await queue.cancel("cancelled")
            await queue.pause()
            await queue.put("expired", 1, delay_ms=0, expires=time.time_ns() // 1_000_000 + 20)
            await asyncio.sleep(0.05)
            await queue.resume()
            told.append(await anext(outcomes))
            assert all(before_ms <= it.ended_at_ms <= time.time_ns() // 1_000_000 for it in told)
            assert await queue.state("good", "k") is Answer.DELIVERED
        assert [it async for it in outcomes] == []
        return told

    good, bad, expired = run(main(), loop_kind)
    assert (good.id, good.key, good.state, good.attempts, good.redelivered) == ("good", "k", Answer.DELIVERED, 1, False)
    assert good.lateness_ms is not None
    assert good.due_ms <= good.ended_at_ms
    assert (bad.id, bad.state, bad.reason, bad.lateness_ms) == (
        "bad",
        Answer.DEAD,
        "ValueError: no such customer",
        None,
    )
    assert (expired.id, expired.key, expired.state, expired.attempts) == ("expired", None, Answer.EXPIRED, 0)
    assert {it.missed_before for it in (good, bad, expired)} == {0}


def test_an_outcome_is_on_disk_when_it_is_told_and_a_key_is_in_order__D4_D5(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncDeliveryQueue(tmp_path / "store.db", to=ignore) as queue:
            outcomes = queue.outcomes()
            await queue.put_many([(str(number), OVERDUE_MS + number, 1, "k") for number in range(50)])
            for number in range(50):
                outcome = await anext(outcomes)
                assert outcome.id == str(number)
                if number % 10 == 0:
                    found = await queue.view.show(outcome.id, "k")
                    assert found is not None
                    assert found.state == "delivered"

    run(main())


def test_a_reader_that_does_not_read_stops_nothing_and_is_told_how_many_it_lost__D8(tmp_path: Path) -> None:
    count = 12_000

    async def main() -> None:
        async with AsyncDeliveryQueue(tmp_path / "store.db", to=f"file:{tmp_path / 'out.ndjson'}") as queue:
            slow, quick = queue.outcomes(), queue.outcomes()
            seen = 0

            async def read() -> None:
                nonlocal seen
                async for outcome in quick:
                    seen += 1 + outcome.missed_before

            reading = asyncio.create_task(read())
            for at in range(0, count, 1_000):
                await queue.put_many([(str(number), OVERDUE_MS, 1) for number in range(at, at + 1_000)])
            await until(lambda: seen == count and len(queue) == 0)
        await reading
        told = [outcome async for outcome in slow]
        assert (len(told), told[0].missed_before) == (10_000, count - 10_000)
        assert {outcome.missed_before for outcome in told[1:]} == {0}

    run(main())


class AlwaysMore:
    """Stands for a reader that is behind: each call gives as many outcomes as it is asked for."""

    def read(self, most: int) -> tuple[int, list[tuple[object, ...]], bool]:
        return 0, [("a", None, 0, Outcome.DELIVERED, 0, 0, 1, False, None)] * most, False


def test_a_reader_that_is_always_behind_lets_other_tasks_run__D11() -> None:
    async def main() -> None:
        stopped = asyncio.Event()
        other = asyncio.create_task(asyncio.sleep(0))
        other.add_done_callback(lambda _: stopped.set())
        seen = 0
        async for _ in Outcomes(AlwaysMore(), lambda: None):  # type: ignore[arg-type]
            seen += 1
            if stopped.is_set():
                break
            assert seen < 10_000, "no other task had its turn"

    run(main())


def test_an_exception_of_the_reader_is_its_own_and_delivery_goes_on(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncDeliveryQueue(tmp_path / "store.db", to=ignore) as queue:
            outcomes = queue.outcomes()
            await queue.put("a", delay_ms=0)

            async def read() -> None:
                async for _ in outcomes:
                    raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await read()
            await queue.put("b", delay_ms=0)
            assert (await anext(outcomes)).id == "b"

    run(main())


def test_a_reader_that_is_cancelled_loses_nothing_and_reads_on(tmp_path: Path, loop_kind: str) -> None:  # noqa: F811
    async def main() -> None:
        async with AsyncDeliveryQueue(tmp_path / "store.db", to=ignore) as queue:
            outcomes = queue.outcomes()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(outcomes), 0.02)
            await queue.put("a", delay_ms=0)
            assert (await anext(outcomes)).id == "a"

    run(main(), loop_kind)


def test_two_tasks_can_not_wait_on_one_reader(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncDeliveryQueue(tmp_path / "store.db", to=ignore) as queue:
            outcomes = queue.outcomes()
            first = asyncio.ensure_future(anext(outcomes))
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="another task"):
                await anext(outcomes)
            await queue.put("a", delay_ms=0)
            assert (await first).id == "a"

    run(main())


def test_a_reader_that_is_dropped_is_gone_and_costs_nothing_more__D8(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncDeliveryQueue(tmp_path / "store.db", to=ignore) as queue:
            outcomes = queue.outcomes()
            gone = weakref.ref(outcomes)
            await queue.put("a", delay_ms=0)
            assert (await anext(outcomes)).id == "a"
            del outcomes
            gc.collect()
            assert gone() is None
            await queue.put("b", delay_ms=0)
            await until(lambda: len(queue) == 0)

    run(main())


def test_a_reader_is_told_of_the_failure_after_what_is_on_disk__D6(tmp_path: Path) -> None:
    async def main() -> None:
        queue = await AsyncDeliveryQueue(tmp_path / "store.db", to=ignore).__aenter__()
        outcomes = queue.outcomes()
        await queue.put("a", delay_ms=0)
        await until(lambda: len(queue) == 0)
        assert queue._queue is not None
        queue._queue._running.fail(DeliveryFailed("the power is off"))
        assert (await anext(outcomes)).id == "a"
        with pytest.raises(DeliveryFailed, match="the power is off"):
            await anext(outcomes)
        with pytest.raises(DeliveryFailed, match="the power is off"):
            await queue.close()

    run(main())


def test_a_reader_is_watched_by_the_loop_only_while_a_task_waits(tmp_path: Path, loop_kind: str) -> None:  # noqa: F811
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with AsyncDeliveryQueue(tmp_path / "store.db", to=ignore) as queue:
            outcomes = queue.outcomes()
            waiting = asyncio.ensure_future(anext(outcomes))
            await queue.put("a", delay_ms=0)
            assert (await waiting).id == "a"
            assert not loop.remove_reader(outcomes._reader.fileno())

    run(main(), loop_kind)


def test_a_reader_whose_loop_was_closed_while_a_task_waited_raises_nothing(tmp_path: Path) -> None:
    async def main() -> AsyncDeliveryQueue:
        queue = await AsyncDeliveryQueue(tmp_path / "store.db", to=ignore).__aenter__()
        waiting.append(asyncio.ensure_future(anext(queue.outcomes())))
        await asyncio.sleep(0)
        return queue

    waiting: list[asyncio.Future[MessageOutcome]] = []
    loop = asyncio.new_event_loop()
    kept = loop.run_until_complete(main())._queue
    assert kept is not None
    loop.close()
    waiting.clear()
    gc.collect()  # an exception that nobody sees is an error of this test
    kept.close()
