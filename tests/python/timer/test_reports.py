"""T10: a report names the callback, also of a series; and the log tells of repeats by counts."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from tickwheel import DelayedOperation, DelayedOperationPurgatory, PeriodicTask, SystemTimer, aio, weak_method
from tickwheel.testing import ManualTimer
from timer.watching import until

pytestmark = pytest.mark.timeout(30)


def poll(*_: object) -> None:
    raise ValueError


async def poll_async() -> None:
    raise ValueError


class Session:
    def beat(self) -> None:
        raise ValueError


@pytest.fixture
def texts(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """The messages of errors so far."""
    caplog.set_level(logging.ERROR)
    return lambda: [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("kind", ["own thread", "pool"])
def test_a_failing_series_is_reported_by_its_callback_from_threads__T10_T20(kind: str, texts: Any) -> None:
    with ThreadPoolExecutor(1) as pool, SystemTimer("jobs", executor=pool if kind == "pool" else None) as timer:
        series = timer.every(1, poll, "pump 7")
        until(lambda: bool(texts()))
        series.cancel()
    assert texts()[0] == "timer 'jobs': callback poll failed"


@pytest.mark.parametrize("function", [poll, poll_async])
@pytest.mark.parametrize("has_handler", [True, False])
@pytest.mark.parametrize("factory", [asyncio.SelectorEventLoop, aio.new_event_loop])
def test_a_failing_series_is_reported_by_its_callback_from_a_loop__T10_T20(
    function: Any, has_handler: bool, factory: Any, texts: Any
) -> None:
    told: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        if has_handler:
            loop.set_exception_handler(lambda _, context: told.append(context["message"]))
        with SystemTimer("jobs", executor=loop) as timer:
            series = timer.every(1, function, name="pump 7")
            while not (told or texts()):
                await asyncio.sleep(0.001)
            series.cancel()

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main())
    message = f"timer 'jobs': callback {function.__name__} of task 'pump 7' failed"
    assert (told or [text.partition("\n")[0] for text in texts()])[0] == message


def test_a_series_has_a_name_as_a_task_has__T20_T22(texts: Any) -> None:
    timer = ManualTimer()
    series = timer.every(10, poll, name="pump 7")
    assert isinstance(series, PeriodicTask)
    assert (series.name, repr(series)) == ("pump 7", "<PeriodicTask 'pump 7' pending>")
    assert [name for bucket in timer.snapshot()["levels"][0]["buckets"] for name in bucket["tasks"]] == ["pump 7"]
    timer.advance(10)
    assert texts() == ["timer 'manual': callback poll of task 'pump 7' failed"]
    with pytest.raises(TypeError, match="name must be"):
        timer.every(10, poll, name=7)  # type: ignore[arg-type]
    assert len(timer) == 1


def test_the_function_inside_a_partial_or_a_weak_method_is_named__T10(texts: Any) -> None:
    timer, session = ManualTimer(), Session()
    timer.every(10, partial(poll, 7))
    timer.every(10, weak_method(session.beat))
    timer.after(10, weak_method(session.beat))
    timer.advance(10)
    assert texts() == [
        "timer 'manual': callback poll failed",
        "timer 'manual': callback Session.beat failed",
    ], "the third is a repeat of the second"


class Refuses:
    def submit(self, *_: object) -> None:
        raise RuntimeError("closed")


def test_a_series_that_the_executor_refuses_is_reported_by_its_callback__T10_T20(texts: Any) -> None:
    with SystemTimer("jobs", executor=Refuses()) as timer:  # type: ignore[arg-type]
        timer.every(1, poll)
        until(lambda: bool(texts()))
    assert texts() == ["timer 'jobs': callback poll was refused by the executor"]


@pytest.mark.parametrize("decorator", [aio.debounce(0.001), aio.throttle(0.001)])
def test_a_function_that_is_put_off_is_reported_by_its_own_name__T10(decorator: Any, texts: Any) -> None:
    put_off = decorator(poll)

    async def main() -> None:
        told: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["message"]))
        for _ in range(2):
            with contextlib.suppress(ValueError):  # `throttle` makes the first call at once
                put_off()
        while not told:
            await asyncio.sleep(0.001)
        assert told[0].startswith("Exception in callback poll("), told

    asyncio.run(main())


def test_ten_thousand_failures_of_one_callback_are_a_few_lines_and_on_error_gets_each__T10(
    caplog: pytest.LogCaptureFixture,
) -> None:
    timer = ManualTimer()
    for number in range(10_000):
        timer.after(1, poll, name=f"pump {number}")
    timer.advance(1)
    rest = f"with ValueError at {__file__}, line {poll.__code__.co_firstlineno + 1}: repeats are only counted"
    assert [record.getMessage() for record in caplog.records] == [
        "timer 'manual': callback poll of task 'pump 0' failed",
        *(
            f"timer 'manual': callback poll failed {count} times within a minute, {rest}"
            for count in (10, 100, 1_000, 10_000)
        ),
    ]
    assert [record.exc_info is not None for record in caplog.records] == [True, False, False, False, False]
    told: list[object] = []
    timer = ManualTimer(on_error=lambda task, _: told.append(task))
    tasks = [timer.after(1, poll) for _ in range(10_000)]
    timer.advance(1)
    assert told == tasks
    assert len(caplog.records) == 5


def test_a_minute_later_a_failure_is_logged_in_full_again_with_the_repeats__T10(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1_000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    timer = ManualTimer()
    timer.every(1, poll)
    for at_s, count in [(1_000.0, 5), (1_059.9, 1), (1_060.0, 1), (1_200.0, 1)]:
        now[0] = at_s
        timer.advance(count)
    message = "timer 'manual': callback poll failed"
    assert [record.getMessage() for record in caplog.records] == [
        message,
        f"{message}; 5 repeats before were only counted",
        message,
    ]
    assert all(record.exc_info for record in caplog.records)


def test_another_callback_another_error_another_line_and_another_timer_are_reported__T10(texts: Any) -> None:
    def jumps(error: type[Exception]) -> None:
        raise error

    def falls(error: type[Exception], where: int) -> None:
        if where:
            raise error
        raise error

    timer, other = ManualTimer(), ManualTimer()
    for _ in range(3):
        timer.after(1, jumps, ValueError)
        timer.after(1, jumps, KeyError)
        timer.after(1, falls, ValueError, 0)
        timer.after(1, falls, ValueError, 1)
        other.after(1, jumps, ValueError)
    timer.advance(1)
    other.advance(1)
    assert len(texts()) == 5


def test_the_callback_of_a_batch_and_a_failing_on_error_are_counted_too__T10_T18(texts: Any) -> None:
    def fails(*_: object) -> None:
        raise OSError

    timer, told = ManualTimer(), ManualTimer(name="told", on_error=fails)
    for number in range(30):
        batch = memoryview(bytes(8)).cast("q")
        timer.add_many(batch, poll)
        told.after(1 + number, poll)
    timer.advance(1)
    told.advance(40)
    whole = [text for text in texts() if " times within a minute" not in text]
    assert whole == ["timer 'manual': callback poll of a batch failed", "timer 'told': on_error failed"]
    assert len(texts()) == 4


class Reply(DelayedOperation):
    def try_complete(self) -> bool:
        return False

    def on_complete(self) -> None:
        raise ValueError


def test_the_operations_of_a_purgatory_are_counted_too__P8_T10(texts: Any) -> None:
    with DelayedOperationPurgatory("calls") as calls:
        for _ in range(30):
            calls.try_complete_else_watch(Reply(0), ["key"])
        until(lambda: calls.stats()["expired"] == 30)
    assert [text.partition(" 10 times")[0] for text in texts()] == [
        "timer 'calls': purgatory 'calls': operation Reply.on_complete failed"
    ] * 2


@pytest.mark.parametrize("function", [poll, poll_async])
def test_a_loop_without_a_handler_logs_a_few_lines_and_a_handler_gets_each__T8_T10(
    function: Any, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[dict[str, Any]] = []

    async def main(has_handler: bool) -> None:
        loop = asyncio.get_running_loop()
        if has_handler:
            loop.set_exception_handler(lambda _, context: told.append(context))
        timer = SystemTimer("jobs", executor=loop)
        tasks = [timer.after(1, function) for _ in range(200)]
        for task in tasks:
            await task
        await asyncio.sleep(0)
        await asyncio.to_thread(timer.shutdown)

    asyncio.run(main(False))
    assert [record.getMessage().partition(", with")[0].partition("\n")[0] for record in caplog.records] == [
        f"timer 'jobs': callback {function.__name__} failed{times}"
        for times in ("", " 10 times within a minute", " 100 times within a minute")
    ]
    asyncio.run(main(True))
    assert len(told) == 200
    assert all(isinstance(context["exception"], ValueError) for context in told)
    assert len(caplog.records) == 3
