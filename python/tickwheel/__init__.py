"""tickwheel: a timer for very many deadlines.

A hierarchical timing wheel in Rust (the design of Apache Kafka's request timer), used from Python:

>>> from tickwheel import SystemTimer
>>> with SystemTimer("demo") as timer:
...     task = timer.after(20, print, "20 ms have passed")
...     _ = task.cancel()
"""

from tickwheel._native import (
    DelayedOperation,
    DelayedOperationPurgatory,
    OperationCancelled,
    PeriodicTask,
    SystemTimer,
    TaskBatch,
    TickwheelError,
    Timer,
    TimerClosed,
    TimerForked,
    TimerFull,
    TimerRejected,
    TimerTask,
    __version__,
)
from tickwheel.weak import weak_method

weak_method.__module__ = __name__  # where people find it

__all__ = [
    "DelayedOperation",
    "DelayedOperationPurgatory",
    "OperationCancelled",
    "PeriodicTask",
    "SystemTimer",
    "TaskBatch",
    "TickwheelError",
    "Timer",
    "TimerClosed",
    "TimerForked",
    "TimerFull",
    "TimerRejected",
    "TimerTask",
    "__version__",
    "weak_method",
]
