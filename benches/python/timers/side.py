"""A timer as the works see it: a record of its own functions, so that a measured call is the call of a user.

A work is a generator that runs inside the timer's event loop, if it has one. When it yields a number, it continues
after that many seconds. 0 is one turn of the loop, in which loops take new timers and clean up after cancels. For a
timer with a thread of its own, 0 means nothing.
"""

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from tickwheel import SystemTimer

Figures: TypeAlias = dict[str, float]
Steps: TypeAlias = Generator[float, None, Figures]
"""A running work: yields how long to wait in seconds, returns its figures by name."""


def nothing(*_arguments: object) -> None:
    """Is the callback of timers that are never due."""


def drive_by_sleeping(work: Iterator[float]) -> None:
    """Run a work on a timer with a thread of its own."""
    for seconds in work:
        if seconds > 0:
            time.sleep(seconds)


@dataclass(frozen=True)
class Side:
    """A timer that is measured.

    `add(delay, callback, *args)` returns a handle, and `cancel(handle)` cancels the callback; both are the timer's own
    functions. `at(due_s, callback, *args)` is for an instant of `clock()` in seconds; it is never timed.
    """

    add: Callable[..., Any]
    cancel: Callable[[Any], object]
    at: Callable[..., object]
    clock: Callable[[], float] = time.monotonic
    drive: Callable[[Iterator[float]], None] = drive_by_sleeping
    """Runs a work to its end."""

    delay_unit: Literal["ms", "s"] = "s"
    call_in_loop: Callable[..., object] | None = None
    """`call_in_loop(function, *args)` makes the loop call it; None if any thread may add."""

    freed: Literal["at once", "in a turn", "when due"] = "at once"
    """When the callback and arguments of a cancelled timer are released. The work *cancel* asserts it."""

    after_cancel: str = ""
    """What else remains after a cancel: the note of the record."""

    keeps_order: bool = False
    """Whether callbacks for the same instant run in the order in which they were added. *burst fire* asserts it."""

    wants_functions: bool = False
    """Whether a callback must be a Python function that returns None. Otherwise it is a C function that counts."""

    wheel: "SystemTimer | None" = None
    """The timer itself, if it is tickwheel's: for works that only it can do."""
