"""Not run: what type checkers say of it is compared with its marks by `tests/python/test_types.py`."""

import asyncio
from collections.abc import Hashable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import assert_type

from tickwheel import (
    DelayedOperation,
    DelayedOperationPurgatory,
    PeriodicTask,
    SystemTimer,
    TaskBatch,
    Timer,
    TimerTask,
    aio,
    weak_method,
)
from tickwheel.delivery import Answer, AsyncDeliveryQueue, Delivery, StoreView
from tickwheel.delivery.sight import Page
from tickwheel.testing import ManualTimer, VirtualLoop


def greet(name: str, times: int) -> None: ...


def report(task: TimerTask | TaskBatch, error: BaseException) -> None: ...


def report_error(task: TimerTask, exception: Exception) -> None: ...


def report_any(task: object, exception: BaseException) -> None: ...


def report_batch(batch: TaskBatch, exception: Exception) -> None: ...


class Session:
    ping: asyncio.TimerHandle | None = None
    pong: aio.TimerHandle | None = None
    wheel: aio.LoopTimers | None = None

    def arm(self) -> None:
        self.wheel = aio.timers()
        self.ping = self.wheel.call_later(5, print)
        self.pong = aio.timers().call_at(5, print)
        assert_type(self.pong.reschedule(5), bool)
        assert_type(len(self.wheel), int)

    def end(self, code: int) -> str:
        return ""


class Ping(TimerTask):
    def __init__(self) -> None:
        super().__init__(timedelta(seconds=1))

    def run(self) -> None: ...


class Fetch(DelayedOperation):
    def try_complete(self) -> bool:
        return self.force_complete()

    def on_complete(self) -> None: ...


def report_failed(operation: DelayedOperation, exception: Exception) -> None: ...


async def timers() -> None:
    with SystemTimer("x", on_error=report) as timer:
        assert_type(timer.after(5, greet, "a", 2), TimerTask)
        timer.after(timedelta(seconds=5), greet, "a", 2)
        timer.call_later(0.5, greet, "a", 2)
        timer.after(5, greet, 2, "a")  # wrong
        timer.after("5", greet, "a", 2)  # wrong
        timer.at(5, greet, "a")  # wrong
        timer.add(Ping())
        timer.add(greet)  # wrong
        TimerTask(5, greet, "a")  # wrong
        assert_type(timer.every(250, greet, "a", 2), PeriodicTask)
        assert_type(timer.every(250, greet, "a", 2, name="greetings").name, str | None)
        timer.every(250, greet, "a", 2, missed="never")  # wrong
        task = TimerTask(5, greet, "a", 2, name="greet")
        assert_type(await task, bool)
        assert_type(task.timer, Timer | None)
        assert_type(task.reschedule(5), bool)
        assert_type(timer.stats()["lateness_us"].percentile(99), int | None)
        assert_type(timer.shutdown(wait_pending=True), list[TimerTask | tuple[TaskBatch, int]])
        assert_type(await timer.aclose(5, wait_pending=True), list[TimerTask | tuple[TaskBatch, int]])
        for left in timer.unfinished:
            left.reschedule(5)  # wrong
    SystemTimer("x", on_error=report_error)
    ManualTimer(on_error=report_any)
    ManualTimer(on_error=lambda task, error: print(task.name, error))
    SystemTimer("x", on_error=report_batch)  # wrong
    assert_type(ManualTimer(strict=True).advance(5), int)
    ended = weak_method(Session().end)
    assert_type(ended(5), str | None)
    ended("a")  # wrong


async def purgatory(key: Hashable) -> None:
    with DelayedOperationPurgatory("fetches", on_error=report_any) as fetches:
        DelayedOperationPurgatory("x", on_error=report_failed)
        assert_type(await fetches.wait(Fetch(5), [key]), bool)
        assert_type(fetches.cancel_for_key(key), list[DelayedOperation])
        assert_type(fetches.check_and_complete(key), int)


async def loops() -> None:
    aio.timers().call_later(1, greet, "a", 3)
    aio.timers().call_later(1, greet, 3)  # wrong
    async with aio.timeout(5), aio.RateLimiter(100, burst=10):
        await aio.sleep(1)
        assert_type(await aio.sleep(1, "late"), str)
    limit: AbstractAsyncContextManager[object] = aio.timeout(timedelta(seconds=5))
    async with limit:
        pass

    @aio.debounce(0.3)
    def save(name: str) -> None: ...

    save("a")
    save(3)  # wrong
    async for when in aio.every(0.1):
        assert_type(when, float)


def runs() -> None:
    with asyncio.Runner(loop_factory=aio.new_event_loop) as runner:
        runner.run(loops())
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(loops())


async def send(delivery: Delivery) -> None: ...


async def delivery() -> None:
    AsyncDeliveryQueue("x.db", send, max_attempts="5")  # wrong
    async with AsyncDeliveryQueue("x.db", to=send, concurrency=5) as queue:
        assert_type(await queue.put("a", {"x": 1}, delay_ms=5), Answer)
        await queue.put("a", delay=5)  # wrong
        await queue.put(5)  # wrong
        assert_type(await queue.put_many([("a", 1, 2)]), list[Answer])
        assert_type(await queue.cancel_many(key="k"), str)
        assert_type(await queue.pause(), None)
        assert_type(await queue.view.list(key="k"), Page)
        assert_type(StoreView("x.db").list(key="k"), Page)
