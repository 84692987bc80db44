"""One timer of a batch, as it stands in a list."""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tickwheel._native import TaskBatch


class BatchTimer(NamedTuple):
    """One timer of a `TaskBatch`, where `Timer.pending` and `Timer.shutdown` list a task: the batch, and its index.

    >>> from array import array
    >>> from tickwheel.testing import ManualTimer
    >>> timer = ManualTimer()
    >>> batch = timer.add_many(array("q", [30, 5]), print)
    >>> [(due_ms, task.index) for due_ms, task in timer.pending()]
    [(5.0, 1), (30.0, 0)]
    >>> [task.cancel() for _, task in timer.pending()]
    [True, True]
    """

    batch: "TaskBatch"
    index: int  # type: ignore[assignment]  # and no method of a tuple

    @property
    def due_ms(self) -> float | None:
        """When it is due, on its timer's clock; `None` if it is on no timer. A past one waits for the executor."""
        return self.batch.due_ms(self.index)

    @property
    def is_pending(self) -> bool:
        """Whether it is on its timer, and its call has not begun."""
        return self.due_ms is not None

    def cancel(self) -> bool:
        """Take it off its timer. `True` exactly if it is certain that it will not run. O(1). Errors: `TimerForked`."""
        return self.batch.cancel(self.index)


BatchTimer.__module__ = "tickwheel"  # where people find it
