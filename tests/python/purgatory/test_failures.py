"""P8: what the three methods raise goes to on_error or to the caller, and stops nothing else."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from purgatory.operations import EMPTY, Op, counts
from tickwheel import DelayedOperation, DelayedOperationPurgatory, SystemTimer
from tickwheel.testing import ManualTimer
from timer.watching import until

Told = list[tuple[Any, BaseException]]


class Fails(Op):
    """Raises in the methods that are named."""

    def __init__(self, delay_ms: float = 1000, *, fails: tuple[str, ...] = ()) -> None:
        super().__init__(delay_ms)
        self.fails = fails

    def fail(self, where: str) -> None:
        if where in self.fails:
            raise ValueError(where)

    def try_complete(self) -> bool:
        done = super().try_complete()
        self.fail("try")
        return done

    def on_complete(self) -> None:
        super().on_complete()
        self.fail("complete")

    def on_expiration(self) -> None:
        super().on_expiration()
        self.fail("expire")


@pytest.fixture
def told() -> Told:
    return []


@pytest.fixture
def timer(told: Told) -> ManualTimer:
    return ManualTimer(on_error=lambda *error: told.append(error))


@pytest.fixture
def purgatory(timer: ManualTimer) -> DelayedOperationPurgatory:
    return DelayedOperationPurgatory("failures", timer)


def texts(told: Told) -> list[tuple[Any, str]]:
    return [(operation, str(error)) for operation, error in told]


def test_in_a_check_it_goes_to_on_error_and_the_rest_of_the_key_goes_on__P8(
    purgatory: DelayedOperationPurgatory, told: Told
) -> None:
    operations = [Fails() for _ in range(5)]
    for operation in operations:
        purgatory.try_complete_else_watch(operation, ["key"])
        operation.is_ready = True
    operations[1].fails = operations[3].fails = ("try",)
    operations[3].is_ready = False
    assert purgatory.check_and_complete("key") == 4
    assert texts(told) == [(operations[1], "try"), (operations[3], "try")]
    assert told[0][1].__traceback__ is not None
    assert [operation.log for operation in operations] == [["complete"]] * 3 + [[]] + [["complete"]]
    assert counts(purgatory) == (1, 1, 1, 1)
    operations[3].fails, operations[3].is_ready = (), True
    assert purgatory.check_and_complete("key") == 1


@pytest.mark.parametrize("at", [1, 2])
def test_in_a_watching_call_it_reaches_the_caller_and_it_is_watched_nowhere__P8(
    purgatory: DelayedOperationPurgatory, timer: ManualTimer, told: Told, at: int
) -> None:
    class FailsAt(Op):
        def try_complete(self) -> bool:
            super().try_complete()
            if self.tries == at:
                raise ValueError("mine")
            return False

    operation = FailsAt()
    with pytest.raises(ValueError, match="mine"):
        purgatory.try_complete_else_watch(operation, ["a", "b"])
    assert (counts(purgatory), len(timer), told, operation.tries) == (EMPTY, 0, [], at)
    assert not operation.is_completed
    assert purgatory.try_complete_else_watch(operation, ["a"]) is False, "it may be watched again"
    assert counts(purgatory) == (1, 1, 1, 1)


def test_one_that_completed_and_then_raised_is_complete_and_the_caller_is_told__P1_P8(
    purgatory: DelayedOperationPurgatory, timer: ManualTimer
) -> None:
    operation = Fails(fails=("try",))
    operation.is_ready = True
    with pytest.raises(ValueError, match="try"):
        purgatory.try_complete_else_watch(operation, ["a"])
    assert (operation.is_completed, operation.log) == (True, ["complete"])
    assert (counts(purgatory), len(timer)) == (EMPTY, 0)


@pytest.mark.parametrize("fails", [("complete",), ("expire",), ("complete", "expire")])
def test_on_expiration_runs_even_if_on_complete_raised__P8(
    purgatory: DelayedOperationPurgatory, timer: ManualTimer, told: Told, fails: tuple[str, ...]
) -> None:
    operation = Fails(5, fails=fails)
    purgatory.try_complete_else_watch(operation, ["a"])
    other = Op(5)
    purgatory.try_complete_else_watch(other, ["a"])
    timer.advance(5)
    assert operation.log == other.log == ["complete", "expire"]
    assert texts(told) == [(operation, where) for where in fails]
    assert counts(purgatory) == EMPTY


@pytest.mark.parametrize("how", ["check", "force", "watch"])
def test_on_complete_that_raises_goes_to_on_error_and_the_operation_is_complete__P8(
    purgatory: DelayedOperationPurgatory, timer: ManualTimer, told: Told, how: str
) -> None:
    operation = Fails(fails=("complete",))
    operation.is_ready = how == "watch"
    assert purgatory.try_complete_else_watch(operation, ["a"]) is (how == "watch")
    operation.is_ready = True
    if how == "check":
        assert purgatory.check_and_complete("a") == 1
    elif how == "force":
        assert operation.force_complete() is True
    assert texts(told) == [(operation, "complete")]
    assert (counts(purgatory), len(timer)) == (EMPTY, 0)


def test_on_error_that_raises_stops_nothing__P8(caplog: pytest.LogCaptureFixture) -> None:
    told: list[object] = []

    def on_error(operation: object, error: BaseException) -> None:
        told.append(operation)
        raise OSError("the log is full")

    timer = ManualTimer(on_error=on_error)
    purgatory = DelayedOperationPurgatory("failures", timer)
    operations = [Fails(5) for _ in range(3)]
    for operation in operations:
        purgatory.try_complete_else_watch(operation, ["key"])
        operation.fails = ("try", "complete", "expire")
    assert purgatory.check_and_complete("key") == 0
    assert told == operations
    timer.advance(5)
    assert [operation.log for operation in operations] == [["complete", "expire"]] * 3
    assert len(told) == 9
    assert logged(caplog) == [("timer 'manual': on_error failed", "the log is full")], "repeats are counted"


def test_the_timers_on_error_is_told__P8(timer: ManualTimer, purgatory: DelayedOperationPurgatory, told: Told) -> None:
    operation = Fails(5, fails=("complete", "expire"))
    purgatory.try_complete_else_watch(operation, ["a"])
    timer.advance(5)
    assert texts(told) == [(operation, "complete"), (operation, "expire")]


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """What reached the logger `tickwheel`, as (message, exception)."""
    records = [record for record in caplog.records if record.name == "tickwheel"]
    return [(record.getMessage(), str(record.exc_info and record.exc_info[1])) for record in records]


def test_without_any_it_is_logged__P8_T10(caplog: pytest.LogCaptureFixture) -> None:
    with DelayedOperationPurgatory("failures") as purgatory:
        operation = Fails(1, fails=("complete", "expire"))
        purgatory.try_complete_else_watch(operation, ["a"])
        until(lambda: len(logged(caplog)) == 2)
    where = "timer 'failures': purgatory 'failures': operation Fails"
    assert logged(caplog) == [(f"{where}.on_complete failed", "complete"), (f"{where}.on_expiration failed", "expire")]


def test_the_log_names_purgatory_method_and_operation__P8_T10(caplog: pytest.LogCaptureFixture) -> None:
    purgatory = DelayedOperationPurgatory("orders", ManualTimer("clock"))
    operation = Fails()
    DelayedOperation.__init__(operation, 5, name="order 7")
    purgatory.try_complete_else_watch(operation, ["a"])
    operation.fails = ("try",)
    purgatory.check_and_complete("a")
    message = "timer 'clock': purgatory 'orders': operation Fails.try_complete of task 'order 7' failed"
    assert logged(caplog) == [(message, "try")]


def test_without_a_purgatory_the_timer_of_the_add_is_told__P8_T10(told: Told, caplog: pytest.LogCaptureFixture) -> None:
    timer, logs = ManualTimer(on_error=lambda *error: told.append(error)), ManualTimer("logs")
    expires, completes = (Fails(5, fails=("complete", "expire")) for _ in range(2))
    for operation in (expires, completes):
        timer.add(operation)
    completes.force_complete()
    timer.advance(5)
    assert texts(told) == [(completes, "complete"), (expires, "complete"), (expires, "expire")]
    logs.add(Fails(5, fails=("expire",)))
    logs.advance(5)
    assert logged(caplog) == [("timer 'logs': operation Fails.on_expiration failed", "expire")]


def test_one_that_expires_inside_a_try_is_told_of_by_its_own_timer__P8_T10(told: Told) -> None:
    timer = ManualTimer(on_error=lambda *error: told.append(error))
    expires = Fails(5, fails=("expire",))
    timer.add(expires)

    class Advances(Op):
        def try_complete(self) -> bool:
            timer.advance(5)
            return False

    DelayedOperationPurgatory("other", ManualTimer()).try_complete_else_watch(Advances(), ["a"])
    assert texts(told) == [(expires, "expire")]


METHODS = ["try_complete", "on_complete", "on_expiration"]


async def coroutine(operation: Any) -> bool:
    raise AssertionError("never run")


@pytest.mark.parametrize("method", METHODS)
def test_a_coroutine_function_as_a_method_is_refused__T8_P8(method: str) -> None:
    kind = type("Async", (Op,), {method: coroutine})
    text = f"Async.{method} is a coroutine function, which an operation does not run: make it a plain one"
    with pytest.raises(TypeError, match=text):
        kind()


@pytest.mark.parametrize("method", METHODS)
def test_a_method_that_returns_a_coroutine_is_told_of_and_the_coroutine_is_closed__T8_P8(
    purgatory: DelayedOperationPurgatory, timer: ManualTimer, told: Told, method: str
) -> None:
    operation = Op(5)
    purgatory.try_complete_else_watch(operation, ["a"])
    setattr(operation, method, lambda: coroutine(operation))
    purgatory.check_and_complete("a")
    timer.advance(5)
    assert [(found, type(error), str(error)) for found, error in told] == [
        (
            operation,
            TypeError,
            f"{method} returned a coroutine, which is not run: have it call loop.call_soon_threadsafe or "
            "asyncio.run_coroutine_threadsafe",
        )
    ]
    assert operation.is_expired


def test_a_purgatory_of_its_own_timer_passes_on_error_to_it__P8(told: Told) -> None:
    with DelayedOperationPurgatory("failures", on_error=lambda *error: told.append(error)) as purgatory:
        task = purgatory.timer.after(0, lambda: 1 / 0)
        until(lambda: told != [])
    assert [(found, type(error)) for found, error in told] == [(task, ZeroDivisionError)]


@pytest.mark.parametrize("answer", [True, 1, "yes"])
def test_to_say_that_it_is_complete_when_it_is_not_is_an_error__P8(
    purgatory: DelayedOperationPurgatory, told: Told, answer: object
) -> None:
    class Lies(Op):
        def try_complete(self) -> Any:
            return answer if self.is_ready else None

    text = f"try_complete returned {answer!r}, but the operation is not complete: return self.force_complete()"
    operation = Lies()
    purgatory.try_complete_else_watch(operation, ["a"])
    operation.is_ready = True
    assert purgatory.check_and_complete("a") == 0
    assert texts(told) == [(operation, text)]
    assert type(told[0][1]) is RuntimeError
    other = Lies()
    other.is_ready = True
    with pytest.raises(RuntimeError) as caught:
        purgatory.try_complete_else_watch(other, ["b"])
    assert str(caught.value) == text
    assert counts(purgatory) == (1, 1, 1, 1)


def test_a_check_that_was_put_off_tells_of_its_failure_too__P6_P8(
    purgatory: DelayedOperationPurgatory, timer: ManualTimer, told: Told
) -> None:
    lock = threading.Lock()
    operation = Fails()
    Op.__init__(operation, 1000, lock)
    purgatory.try_complete_else_watch(operation, ["a"])
    operation.fails = ("try",)
    with lock:
        purgatory.check_and_complete("a")
    timer.advance(1)
    assert texts(told) == [(operation, "try")]
    assert counts(purgatory) == (1, 1, 1, 1)


def test_failures_on_the_timers_thread_do_not_end_it__P8(told: Told) -> None:
    with SystemTimer("failures", on_error=lambda *error: told.append(error)) as timer:
        purgatory = DelayedOperationPurgatory("failures", timer)
        operations = [Fails(number / 10, fails=("complete", "expire")) for number in range(50)]
        for operation in operations:
            purgatory.try_complete_else_watch(operation, ["a"])
        until(lambda: len(told) == 100)
        ran = threading.Event()
        timer.after(0, ran.set)
        assert ran.wait(20)
    assert all(operation.log == ["complete", "expire"] for operation in operations)


def test_what_nobody_waits_for_may_fail_too__P8_T10(caplog: pytest.LogCaptureFixture) -> None:
    """It never was in a purgatory, so there is no `on_error`."""
    operation = Fails(fails=("complete",))
    call: Callable[[], bool] = operation.force_complete
    assert (call(), call(), logged(caplog)) == (True, False, [("operation Fails.on_complete failed", "complete")])


def test_a_try_and_a_release_that_both_fail_are_both_told__P8() -> None:
    class Fails(DelayedOperation):
        is_watched = False

        def try_complete(self) -> bool:
            if self.is_watched:
                raise ValueError("tried")
            return False

    class FailsAtTheThird:
        releases = 0

        def acquire(self, blocking: bool) -> bool:
            return True

        def release(self) -> None:
            self.releases += 1
            if self.releases == 3:  # the watching call tries twice
                raise RuntimeError("released")

    told: list[BaseException] = []
    purgatory = DelayedOperationPurgatory("p", ManualTimer(on_error=lambda _, error: told.append(error)))
    operation = Fails(10, FailsAtTheThird())
    purgatory.try_complete_else_watch(operation, ["a"])
    operation.is_watched = True
    purgatory.check_and_complete("a")
    assert [str(error) for error in told] == ["released"]
    assert str(told[0].__context__) == "tried"
