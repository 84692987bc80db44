"""P8: `KeyboardInterrupt` and `SystemExit` reach the caller, once everything is in a sound state."""

import threading
from typing import Any

import pytest

from purgatory.operations import EMPTY, HOUR, Op, counts
from tickwheel import DelayedOperationPurgatory, SystemTimer
from tickwheel.testing import ManualTimer
from timer.watching import until

EXITS = [KeyboardInterrupt, SystemExit]
Told = list[tuple[Any, BaseException]]


class Exits(Op):
    def __init__(self, where: str, exit_: type[BaseException], delay_ms: float = HOUR) -> None:
        super().__init__(delay_ms)
        self.where, self.exit = where, exit_

    def leave(self, where: str) -> None:
        if where == self.where:
            raise self.exit(where)

    def try_complete(self) -> bool:
        done = super().try_complete()
        if self.is_ready:
            self.leave("try")
        return done

    def on_complete(self) -> None:
        super().on_complete()
        self.leave("complete")

    def on_expiration(self) -> None:
        super().on_expiration()
        self.leave("expire")


@pytest.fixture
def told() -> Told:
    return []


@pytest.fixture
def timer(told: Told) -> ManualTimer:
    return ManualTimer(on_error=lambda *error: told.append(error))


@pytest.fixture
def purgatory(timer: ManualTimer) -> DelayedOperationPurgatory:
    return DelayedOperationPurgatory("exits", timer)


@pytest.mark.parametrize("exit_", EXITS)
@pytest.mark.parametrize("where", ["try", "complete"])
def test_in_a_check_the_rest_of_the_key_is_tried_first__P8(
    purgatory: DelayedOperationPurgatory, told: Told, where: str, exit_: type[BaseException]
) -> None:
    operations = [Op(), Exits(where, exit_), Op(), Op()]
    for operation in operations:
        purgatory.try_complete_else_watch(operation, ["key"])
        operation.is_ready = True
    with pytest.raises(exit_, match=where):
        purgatory.check_and_complete("key")
    assert [operation.log for operation in operations] == [["complete"]] * 4
    assert (counts(purgatory), told) == (EMPTY, [])
    after = Op(ready=True)
    assert purgatory.try_complete_else_watch(after, ["key"]) is True, "it still works"


@pytest.mark.parametrize("exit_", EXITS)
@pytest.mark.parametrize("where", ["try", "complete"])
def test_in_a_watching_call_nothing_is_left__P8(
    purgatory: DelayedOperationPurgatory, timer: ManualTimer, told: Told, where: str, exit_: type[BaseException]
) -> None:
    class NotReady(Exits):
        def try_complete(self) -> bool:
            self.leave("try")
            return self.force_complete()

    operation = NotReady(where, exit_)
    with pytest.raises(exit_, match=where):
        purgatory.try_complete_else_watch(operation, ["a", "b"])
    assert operation.is_completed == (where == "complete")
    assert (counts(purgatory), len(timer), told) == (EMPTY, 0, [])


@pytest.mark.parametrize("exit_", EXITS)
def test_in_force_complete_it_is_complete__P8(
    purgatory: DelayedOperationPurgatory, timer: ManualTimer, exit_: type[BaseException]
) -> None:
    operation = Exits("complete", exit_)
    purgatory.try_complete_else_watch(operation, ["a"])
    with pytest.raises(exit_):
        operation.force_complete()
    assert (operation.is_completed, operation.force_complete(), operation.log) == (True, False, ["complete"])
    assert (counts(purgatory), len(timer)) == (EMPTY, 0)


@pytest.mark.parametrize("exit_", EXITS)
@pytest.mark.parametrize("where", ["complete", "expire"])
def test_at_the_deadline_on_a_manual_timer_it_reaches_who_advances__P8_T15(
    purgatory: DelayedOperationPurgatory, timer: ManualTimer, told: Told, where: str, exit_: type[BaseException]
) -> None:
    operations = [Exits(where, exit_, 5), Op(5)]
    for operation in operations:
        purgatory.try_complete_else_watch(operation, ["a"])
    with pytest.raises(exit_, match=where):
        timer.advance(5)
    assert operations[0].log == ["complete", "expire"]
    timer.advance(0)
    assert (operations[1].log, counts(purgatory), told) == (["complete", "expire"], EMPTY, [])


@pytest.mark.parametrize("exit_", EXITS)
@pytest.mark.parametrize("where", ["complete", "expire"])
def test_on_the_timers_thread_on_error_is_told_for_no_caller_sees_it__P8_T10(
    told: Told, where: str, exit_: type[BaseException]
) -> None:
    with SystemTimer("exits", on_error=lambda *error: told.append(error)) as timer:
        purgatory = DelayedOperationPurgatory("exits", timer)
        operations = [Exits(where, exit_, 1), Op(2)]
        for operation in operations:
            purgatory.try_complete_else_watch(operation, ["a"])
        until(lambda: operations[1].log == ["complete", "expire"])
    assert [(found, type(error)) for found, error in told] == [(operations[0], exit_)], "it is reported"


@pytest.mark.parametrize("exit_", EXITS)
def test_in_a_check_that_was_put_off_it_is_told_with_the_operation__P8_T10(
    told: Told, exit_: type[BaseException]
) -> None:
    with SystemTimer("exits", on_error=lambda *error: told.append(error)) as timer:
        purgatory = DelayedOperationPurgatory("exits", timer)
        lock = threading.Lock()
        operation = Exits("try", exit_)
        Op.__init__(operation, HOUR, lock)
        purgatory.try_complete_else_watch(operation, ["a"])
        operation.is_ready = True
        with lock:
            purgatory.check_and_complete("a")
        until(lambda: told != [])
    assert [(found, type(error)) for found, error in told] == [(operation, exit_)]


@pytest.mark.parametrize("exit_", EXITS)
def test_in_a_check_that_was_put_off_it_reaches_who_advances_a_manual_timer__P8_T15(
    purgatory: DelayedOperationPurgatory, timer: ManualTimer, told: Told, exit_: type[BaseException]
) -> None:
    lock = threading.Lock()
    operation = Exits("try", exit_)
    Op.__init__(operation, HOUR, lock, ready=True)
    with lock:
        purgatory.try_complete_else_watch(operation, ["a"])
    with pytest.raises(exit_, match="try"):
        timer.advance(1)
    assert (operation.log, counts(purgatory), told) == (["complete"], EMPTY, [])


def test_of_two_exits_in_one_check_the_other_is_not_lost__P8(purgatory: DelayedOperationPurgatory, told: Told) -> None:
    operations = [Exits("try", exit_) for exit_ in EXITS]
    for operation in operations:
        purgatory.try_complete_else_watch(operation, ["key"])
        operation.is_ready = True
    seen: list[BaseException | None] = [error for _, error in told]
    try:
        purgatory.check_and_complete("key")
    except (KeyboardInterrupt, SystemExit) as error:
        seen += [error, error.__context__]
    seen += [error for _, error in told]
    assert {type(error) for error in seen if error} == set(EXITS)


def test_an_exit_out_of_another_operations_ending_leaves_this_one_watched_nowhere__P2_P8(
    purgatory: DelayedOperationPurgatory, timer: ManualTimer
) -> None:
    """Who gets an exception from the watching call has nothing to cancel."""

    class CompletesOther(Op):
        def try_complete(self) -> bool:
            other.force_complete()
            return False

    other = Exits("complete", KeyboardInterrupt)
    operation = CompletesOther()
    with pytest.raises(KeyboardInterrupt):
        purgatory.try_complete_else_watch(operation, ["a"])
    assert other.log == ["complete"]
    assert (counts(purgatory), len(timer)) == (EMPTY, 0)
