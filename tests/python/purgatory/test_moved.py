"""An operation that was taken out of one purgatory and is watched in another."""

from collections.abc import Callable

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


class Moved:
    """A check was put off in `before`, on `old`; then the operation was taken out, and waits in `after`, on `new`."""

    def __init__(self, kind: type[Waits] = Waits) -> None:
        self.told: list[str] = []
        self.lock = Lock()
        self.operation = kind(10**9, self.lock)
        self.old = ManualTimer("old", on_error=self.tell("before"))
        self.new = ManualTimer("new", on_error=self.tell("after"))
        self.before = DelayedOperationPurgatory("before", self.old)
        self.after = DelayedOperationPurgatory("after", self.new)
        self.before.try_complete_else_watch(self.operation, ["a"])
        self.lock.is_free = False
        self.before.check_and_complete("a")
        assert self.operation.cancel()
        self.lock.is_free = True
        self.after.try_complete_else_watch(self.operation, ["b"])

    def tell(self, where: str) -> Callable[[object, BaseException], None]:
        return lambda _, error: self.told.append(f"{where}: {error}")


def test_a_check_that_was_put_off_before_stands_in_for_none_after__P6() -> None:
    """The old check comes due on the old timer, and is put off again: on the timer of where it waits now."""
    moved = Moved()
    moved.lock.is_free = False
    moved.old.advance(1)
    moved.operation.is_ready = True
    moved.after.check_and_complete("b")
    moved.lock.is_free = True
    moved.before.shutdown()
    moved.old.shutdown()
    moved.new.advance(20)
    assert moved.operation.is_completed


def test_the_old_check_reports_to_where_the_operation_waits_now__P8() -> None:
    class Raises(Waits):
        def on_complete(self) -> None:
            raise ValueError("told")

    moved = Moved(Raises)
    moved.operation.is_ready = True
    moved.old.advance(1)
    assert moved.told == ["after: told"]
