"""An operation that was taken out of one purgatory and is watched in another."""

from tickwheel import DelayedOperation, DelayedOperationPurgatory
from tickwheel.testing import ManualTimer


class Lock:
    is_free = True

    def acquire(self, blocking: bool = True) -> bool:
        return self.is_free

    def release(self) -> None:
        pass


class Waits(DelayedOperation):
    is_ready = False

    def try_complete(self) -> bool:
        return self.is_ready and self.force_complete()


def test_a_check_that_was_put_off_before_stands_in_for_none_after__P6() -> None:
    """The old check comes due on the old timer, and is put off again: on the timer of where it waits now."""
    old, new = ManualTimer("old"), ManualTimer("new")
    before, after = DelayedOperationPurgatory("before", old), DelayedOperationPurgatory("after", new)
    lock = Lock()
    operation = Waits(10**9, lock)
    before.try_complete_else_watch(operation, ["a"])
    lock.is_free = False
    before.check_and_complete("a")
    assert operation.cancel()
    lock.is_free = True
    after.try_complete_else_watch(operation, ["b"])
    lock.is_free = False
    old.advance(1)
    operation.is_ready = True
    after.check_and_complete("b")
    lock.is_free = True
    before.shutdown()
    old.shutdown()
    new.advance(20)
    assert operation.is_completed


def test_the_old_check_reports_to_where_the_operation_waits_now__P8() -> None:
    told: list[str] = []

    class Raises(Waits):
        def on_complete(self) -> None:
            raise ValueError("told")

    old, new = ManualTimer("old"), ManualTimer("new")
    before = DelayedOperationPurgatory("before", old, on_error=lambda _, error: told.append(f"before: {error}"))
    after = DelayedOperationPurgatory("after", new, on_error=lambda _, error: told.append(f"after: {error}"))
    lock = Lock()
    operation = Raises(10**9, lock)
    before.try_complete_else_watch(operation, ["a"])
    lock.is_free = False
    before.check_and_complete("a")
    assert operation.cancel()
    lock.is_free = True
    after.try_complete_else_watch(operation, ["b"])
    operation.is_ready = True
    old.advance(1)
    assert told == ["after: told"]
