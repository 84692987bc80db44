"""T10: a callback that fails stops nothing and loses nothing, and its exception is reported."""

import asyncio
import functools
import logging
import sys
import threading
import traceback
import types
import warnings
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import AsyncMock, MagicMock, Mock

import pytest

from borders.harness import run_script
from tickwheel import DelayedOperationPurgatory, SystemTimer, TimerRejected, TimerTask
from tickwheel.testing import ManualTimer
from timer.watching import refused, until, wait

Told = list[tuple[Any, BaseException]]


def fail(error: BaseException) -> None:
    raise error


class Log(logging.Handler):
    """What reaches the logger `tickwheel`, as (message, exception)."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[str, BaseException | None]] = []
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        assert (record.name, record.levelno) == ("tickwheel", logging.ERROR)
        assert record.exc_info
        self.told.append((record.getMessage(), record.exc_info[1]))
        self.texts.append(logging.Formatter().format(record))


@pytest.fixture
def log() -> Iterator[Log]:
    log, logger = Log(), logging.getLogger("tickwheel")
    logger.addHandler(log)
    logger.propagate = False
    yield log
    logger.removeHandler(log)
    logger.propagate = True


@pytest.fixture
def unraisable(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, BaseException | None]]:
    """What reaches `sys.unraisablehook`, as (object, exception)."""
    told: list[tuple[Any, BaseException | None]] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: told.append((args.object, args.exc_value)))
    return told


def test_what_a_callback_raises_goes_to_on_error_with_its_task__T10() -> None:
    told: Told = []
    timer = ManualTimer(on_error=lambda task, error: told.append((task, error)))
    error = ZeroDivisionError("by nought")
    task = timer.after(5, fail, error)
    timer.advance(5)
    assert told == [(task, error)]
    assert told[0][1] is error


class EndlessCommand:
    """Answers for its function with itself, as some proxies answer for every attribute."""

    @property
    def func(self) -> "EndlessCommand":
        return self

    def __call__(self) -> None:
        raise ValueError("boom")


@pytest.mark.parametrize("make", [Mock, MagicMock, EndlessCommand])
def test_a_callback_that_has_every_attribute_is_named_all_the_same__T10(make: Callable[..., Any], log: Log) -> None:
    callback = make() if make is EndlessCommand else make(side_effect=ValueError("boom"))
    timer = ManualTimer("mocks")
    timer.after(1, callback)
    assert timer.advance(1) == 1
    [(message, error)] = log.told
    assert (message, str(error)) == (f"timer 'mocks': callback {make.__name__} failed", "boom")


def test_what_a_mock_of_a_coroutine_function_returns_is_closed_and_is_an_error__T8() -> None:
    told: list[type[BaseException]] = []
    timer = ManualTimer(on_error=lambda _, error: told.append(type(error)))
    timer.after(1, AsyncMock())
    timer.advance(1)
    assert told == [TypeError]


def test_a_partial_that_holds_itself_may_be_added__T13() -> None:
    """To call it is CPython's affair."""
    ring: functools.partial[None] = functools.partial(print)
    ring.__setstate__((ring, (), {}, {}))
    assert ManualTimer().after(1, ring).cancel()
    ring.__setstate__((print, (), {}, {}))


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="to call such a ring crashes CPython 3.12 and 3.13 themselves")
@pytest.mark.parametrize("is_method", [False, True])
def test_a_partial_of_a_subclass_that_holds_itself_may_be_added_and_fails_in_its_call__T13(is_method: bool) -> None:
    """The `inspect` module goes through such a ring for ever."""

    class Ring(functools.partial[None]):
        pass

    told: Told = []
    timer = ManualTimer(on_error=lambda task, error: told.append((task, error)))
    ring = Ring(print)
    ring.__setstate__((ring, (), {}, {}))
    timer.after(1, types.MethodType(ring, 1) if is_method else ring)
    assert timer.advance(1) == 1
    assert [type(error) for _, error in told] == [RecursionError]
    ring.__setstate__((print, (), {}, {}))


def test_the_exception_still_knows_where_it_was_raised__T10() -> None:
    told: Told = []
    timer = ManualTimer(on_error=lambda task, error: told.append((task, error)))
    timer.after(5, fail, ValueError())
    timer.advance(5)
    assert [frame.name for frame in traceback.extract_tb(told[0][1].__traceback__)] == ["fail"]


def test_a_failure_loses_no_other_task__T10() -> None:
    told: Told = []
    ran: list[int] = []
    timer = ManualTimer(on_error=lambda task, error: told.append((task, error)))
    for number in range(10):
        timer.after(5, fail if number % 2 else ran.append, ValueError() if number % 2 else number)
    assert timer.advance(5) == 10
    assert (ran, len(told), len(timer)) == ([0, 2, 4, 6, 8], 5, 0)


def test_a_subclass_and_a_batch_are_told_of_as_what_was_added__T10() -> None:
    class Failing(TimerTask):
        def run(self) -> None:
            raise KeyError(self.name)

    told: Told = []
    timer = ManualTimer(on_error=lambda task, error: told.append((task, error)))
    task = Failing(5, name="x")
    timer.add(task)
    batch = timer.add_many(array("q", [6, 6]), lambda indices: fail(ValueError(indices.tolist())))
    timer.advance(6)
    assert [(task, type(error), error.args) for task, error in told] == [
        (task, KeyError, ("x",)),
        (batch, ValueError, ([0, 1],)),
    ]


class Failing(TimerTask):
    def run(self) -> None:
        raise ValueError


class Nameless:
    """Called, it fails; it has no name, and asked for one it fails too."""

    def __call__(self, *_: object) -> None:
        raise ValueError

    def __getattr__(self, name: str) -> Any:
        raise OSError(name)


NAMED: list[tuple[Callable[[ManualTimer], object], str]] = [
    (lambda timer: timer.after(5, fail, ValueError()), "callback fail failed"),
    (lambda timer: timer.at(5, functools.partial(fail, ValueError())), "callback fail failed"),
    (lambda timer: timer.after(5, [].pop), "callback list.pop failed"),
    (lambda timer: timer.after(5, Nameless()), "callback Nameless failed"),
    (lambda timer: timer.add(TimerTask(5, fail, ValueError())), "callback fail failed"),
    (
        lambda timer: timer.add(TimerTask(5, fail, ValueError(), name="poll")),
        "callback fail of task 'poll' failed",
    ),
    (lambda timer: timer.add(Failing(5)), "callback Failing.run failed"),
    (lambda timer: timer.add(Failing(5, name="poll")), "callback Failing.run of task 'poll' failed"),
    (lambda timer: timer.add_many(array("q", [5, 5]), Nameless()), "callback Nameless of a batch failed"),
]


@pytest.mark.parametrize(("add", "what"), NAMED)
def test_by_default_it_is_logged_with_the_names_of_timer_and_callback__T10(
    log: Log, add: Callable[[ManualTimer], object], what: str
) -> None:
    timer = ManualTimer("requests")
    add(timer)
    timer.advance(5)
    assert [message for message, _ in log.told] == [f"timer 'requests': {what}"]


def test_by_default_it_is_logged_with_its_traceback_from_the_timers_thread_too__T10(log: Log) -> None:
    error, after = ValueError("by nought"), threading.Event()
    with SystemTimer("requests") as timer:
        timer.after(0, fail, error)
        timer.after(1, after.set)
        wait(after)
    assert log.told == [("timer 'requests': callback fail failed", error)]
    assert "in fail\n    raise error\nValueError: by nought" in log.texts[0]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_an_exit_on_the_timers_own_thread_is_logged_too__T10(log: Log, error: BaseException) -> None:
    after = threading.Event()
    with SystemTimer("requests") as timer:
        timer.after(0, fail, error)
        timer.after(1, after.set)
        wait(after)
    assert log.told == [("timer 'requests': callback fail failed", error)]


def test_without_any_logging_of_the_programs_own_it_is_printed__T10() -> None:
    run_script(
        """
assert "logging" not in sys.modules
timer = ManualTimer("requests")
timer.after(5, lambda: 1 / 0)
timer.advance(4)
assert "logging" not in sys.modules
with contextlib.redirect_stderr(io.StringIO()) as said:
    timer.advance(1)
lines = said.getvalue().splitlines()
assert lines[0] == "timer 'requests': callback <lambda> failed", lines
assert lines[-1] == "ZeroDivisionError: division by zero", lines
""",
        prelude="import contextlib, io, sys\nfrom tickwheel.testing import ManualTimer\n",
    )


def test_a_failing_on_error_is_logged_with_both_tracebacks__T10(log: Log) -> None:
    def on_error(task: object, error: BaseException) -> None:
        raise OSError("the disk is full")

    ran: list[int] = []
    timer = ManualTimer(on_error=on_error)
    timer.after(5, fail, ValueError("by nought"))
    timer.after(5, ran.append, 1)
    assert timer.advance(5) == 2
    assert ran == [1]
    assert [(message, str(error)) for message, error in log.told] == [
        ("timer 'manual': on_error failed", "the disk is full")
    ]
    first, between, second = log.texts[0].partition(
        "During handling of the above exception, another exception occurred"
    )
    assert between
    assert "in fail\n" in first
    assert "ValueError: by nought" in first
    assert "in on_error\n" in second
    assert second.endswith("OSError: the disk is full")


def test_an_on_error_that_raises_what_it_got_is_logged_once__T10(log: Log) -> None:
    def again(task: object, error: BaseException) -> None:
        raise error

    def wrapped(task: object, error: BaseException) -> None:
        try:
            raise error
        except ValueError as caught:
            raise OSError from caught

    first, second = ValueError(), ValueError()
    for on_error, error in ((again, first), (wrapped, second)):
        timer = ManualTimer(on_error=on_error)
        timer.after(5, fail, error)
        timer.advance(5)
    assert log.told[0] == ("timer 'manual': on_error failed", first)
    assert first.__context__ is None
    assert log.told[1][1] is not None
    assert log.told[1][1].__context__ is second
    assert second.__context__ is None
    assert [text.count("Traceback") for text in log.texts] == [1, 2]


def test_a_log_that_fails_stops_nothing_and_all_are_told_to_sys_unraisablehook__T10(
    log: Log, unraisable: list[tuple[Any, BaseException | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, error, ran = RuntimeError("no log"), ValueError(), list[int]()

    def emit(record: object) -> None:
        raise broken

    monkeypatch.setattr(log, "emit", emit)
    timer = ManualTimer()
    task = timer.after(5, fail, error)
    timer.after(5, ran.append, 1)
    assert (timer.advance(5), ran) == (2, [1])
    assert unraisable == [(task, broken), (task, error)]
    assert broken.__context__ is error


def test_an_on_error_and_a_log_that_fail_hide_nothing__T10(
    log: Log, unraisable: list[tuple[Any, BaseException | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = ValueError("first"), RuntimeError("second"), OSError("third")
    monkeypatch.setattr(log, "emit", lambda _: fail(third))
    timer = ManualTimer(on_error=lambda *_: fail(second))
    task = timer.after(5, fail, first)
    timer.advance(5)
    assert unraisable == [(task, third), (task, second), (task, first)]


def test_ctrl_c_in_on_error_brings_the_first_failure_along__T10_T15() -> None:
    first = ValueError("first")
    timer = ManualTimer(on_error=lambda *_: fail(KeyboardInterrupt()))
    timer.after(5, fail, first)
    with pytest.raises(KeyboardInterrupt) as caught:
        timer.advance(5)
    assert caught.value.__context__ is first


@pytest.mark.parametrize("what", ["on_error", "log"])
def test_ctrl_c_while_a_failure_is_reported_reaches_who_drives_a_manual_timer__T10_T15(
    log: Log, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Where there is a caller Ctrl-C is not swallowed; the rest runs at the next advance."""
    ran: list[int] = []
    monkeypatch.setattr(log, "emit", lambda _: fail(KeyboardInterrupt()))
    timer = ManualTimer(on_error=(lambda *_: fail(KeyboardInterrupt())) if what == "on_error" else None)
    timer.after(5, fail, ValueError())
    timer.after(5, ran.append, 1)
    with pytest.raises(KeyboardInterrupt):
        timer.advance(5)
    assert (timer.advance(0), ran) == (1, [1])


def test_a_loop_is_told_by_its_exception_handler__T10(log: Log) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        told: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, context: told.append(context))
        error = ValueError()
        with SystemTimer("x", executor=loop) as timer:
            task = timer.after(0, fail, error)
            while not told:
                await asyncio.sleep(0.001)
        message = "timer 'x': callback fail failed"
        assert told == [{"message": message, "exception": error, "timer_task": task}]

    asyncio.run(asyncio.wait_for(main(), 20))
    assert log.told == []


def test_a_handler_of_a_loop_that_fails_is_the_loops_affair_and_stops_nothing__T10(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda *_: 1 / 0)
        ran: list[int] = []
        with SystemTimer("x", executor=loop) as timer:
            timer.after(0, fail, ValueError())
            timer.after(0, ran.append, 1)
            while not ran:
                await asyncio.sleep(0.001)

    asyncio.run(asyncio.wait_for(main(), 20))
    assert log.told == []
    assert [record.name for record in caplog.records if record.levelno == logging.ERROR] == ["asyncio"]


def test_what_a_loop_that_is_closed_refuses_is_logged__T10(log: Log) -> None:
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: pytest.fail("it is closed"))
    loop.close()
    with SystemTimer("x", executor=loop) as timer:
        timer.add(TimerTask(0, print, name="late"))
        until(lambda: log.told != [])
    (message, error), *rest = log.told
    assert (message, rest) == ("timer 'x': callback print of task 'late' was refused by the executor", [])
    assert isinstance(error, TimerRejected)
    assert str(error.__cause__) == "Event loop is closed"


def test_a_batch_that_is_refused_is_named_by_its_callback__T10(log: Log) -> None:
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    with SystemTimer("x", executor=pool) as timer:
        timer.add_many(array("q", [0]), print)
        until(lambda: log.told != [])
    ((message, error),) = log.told
    assert message == "timer 'x': callback print of a batch was refused by the executor"
    assert error is not None
    assert str(error.__cause__) == "cannot schedule new futures after shutdown"


def test_a_batch_that_is_refused_says_which_of_its_timers__T10_T18() -> None:
    told: list[tuple[object, BaseException]] = []
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    with SystemTimer("x", executor=pool, on_error=lambda task, error: told.append((task, error))) as timer:
        batch = timer.add_many(array("q", [60_000, *[0] * 9, 40, 60_000]), print)
        until(lambda: len(batch) == 2)
        timer.after(0, print)
        until(lambda: {type(task).__name__ for task, _ in told} == {"TaskBatch", "TimerTask"})
        batch.cancel_all()
    *of_batch, (_, of_task) = told
    assert {task for task, _ in of_batch} == {batch}
    found = [index for _, error in of_batch if isinstance(error, TimerRejected) for index in error.indices]
    assert sorted(found) == list(range(1, 11))
    assert isinstance(of_task, TimerRejected)
    assert list(of_task.indices) == []
    assert "refused a task that was due (" in str(of_task)
    assert str(of_batch[-1][1]).startswith(
        "the executor of timer 'x' refused 1 timer of a batch, with the index 10 (RuntimeError: cannot schedule new "
        "futures after shutdown): they did not run; add these deadlines again on a timer"
    )


def test_the_text_of_a_refused_batch_names_a_few_and_its_indices_name_all__T10_T18() -> None:
    class Refuses:
        def submit(self, function: object) -> None:
            raise RuntimeError("full")

    told: list[BaseException] = []
    with SystemTimer("x", executor=Refuses(), on_error=lambda _, error: told.append(error)) as timer:  # type: ignore[arg-type]
        timer.add_many(array("q", [-1] * 700), print)
        until(lambda: sum(len(getattr(error, "indices", ())) for error in told) == 700)
    for error in told:
        assert isinstance(error, TimerRejected)
        assert len(str(error)) < 300
        assert str(len(error.indices)) in str(error)


async def async_on_error(task: object, error: BaseException) -> None:
    raise AssertionError("never run")


@pytest.mark.parametrize("kind", [SystemTimer, ManualTimer, DelayedOperationPurgatory])
def test_an_on_error_that_is_a_coroutine_function_is_refused__T10_T13(kind: Callable[..., object]) -> None:
    message = (
        "on_error must be a plain function, got the coroutine function async_on_error: use a plain function "
        "that passes the exception to a loop"
    )
    refused(TypeError, message, lambda: kind("x", on_error=async_on_error))


def test_an_on_error_that_could_be_cleared_unseen_is_refused__T10_T13() -> None:
    """The collector clears a garbage cycle, and a `staticmethod` that was cleared crashes when it is called."""

    class Handler:
        __slots__ = ()

        def __call__(self, task: TimerTask, error: BaseException) -> None:
            heard.append(str(error))

    heard: list[str] = []
    with pytest.raises(TypeError, match=r"^on_error must be .* got staticmethod: pass the function itself$"):
        ManualTimer(on_error=staticmethod(lambda task, error: None))
    timer = ManualTimer(on_error=Handler())  # of a class of the user's: no weak reference either, and no crash
    timer.after(0, [].pop)
    timer.advance(1)
    assert heard == ["pop from empty list"]


def test_an_on_error_that_returns_a_coroutine_is_an_error_with_both_tracebacks__T10(log: Log) -> None:
    timer = ManualTimer(on_error=lambda task, error: async_on_error(task, error))
    error = ValueError()
    timer.after(5, fail, error)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        timer.advance(5)
    ((message, told),) = log.told
    assert (message, type(told), warned) == ("timer 'manual': on_error failed", TypeError, [])
    assert told is not None
    assert told.__context__ is error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), GeneratorExit(), Exception(), BaseException()])
def test_nothing_that_is_raised_ends_the_timers_own_thread__T10(error: BaseException) -> None:
    told: Told = []
    threads: list[str] = []
    after = threading.Event()
    with SystemTimer("survivor", on_error=lambda task, error: told.append((task, error))) as timer:
        task = timer.after(0, fail, error)
        timer.after(0, lambda: threads.append(threading.current_thread().name))
        timer.after(1, after.set)
        wait(after)
    assert told == [(task, error)]
    assert threads == ["executor-survivor"]


def test_an_on_error_that_is_interrupted_does_not_end_the_timers_thread__T10(log: Log) -> None:
    after = threading.Event()
    interrupt = KeyboardInterrupt()
    with SystemTimer("survivor", on_error=lambda *_: fail(interrupt)) as timer:
        timer.after(0, fail, ValueError())
        timer.after(1, after.set)
        wait(after)
    assert log.told == [("timer 'survivor': on_error failed", interrupt)]


def test_a_task_that_failed_has_run__T10() -> None:
    timer = ManualTimer(on_error=lambda *_: None)
    task = TimerTask(5, fail, ValueError())
    timer.add(task)
    timer.advance(5)
    assert task.cancel() is False
    timer.add(task)
    assert (timer.advance(5), timer.stats()["expired"]) == (1, 2)


def test_on_error_may_add_the_task_again__T10() -> None:
    timer = ManualTimer(on_error=lambda task, _: timer.add(task))
    attempts: list[int] = []

    def flaky() -> None:
        attempts.append(timer.now_ms())
        if len(attempts) < 3:
            raise ConnectionError

    timer.add(TimerTask(10, flaky))
    timer.advance(1000)
    assert attempts == [10, 20, 30]
