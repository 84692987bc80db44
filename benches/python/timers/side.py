"""A timer as the works see it: a record of its own functions, so that a measured call is the call that a user makes.

A work is a generator that runs inside the timer's event loop, if it has one. Where it yields a number, it goes on after
so many seconds; 0 stands for one turn of the loop, in which loops take timers in and clean up after cancels. To a timer
with a thread of its own that is nothing at all.
"""

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from tickwheel import SystemTimer

Figures: TypeAlias = dict[str, float]
Steps: TypeAlias = Generator[float, None, Figures]
"""A work on its way: yields how long to wait, returns its figures by name."""


def nothing(*_arguments: object) -> None:
    """Stand for a callback that is never due."""


def drive_by_sleeping(work: Iterator[float]) -> None:
    """For a timer with a thread of its own."""
    for seconds in work:
        if seconds > 0:
            time.sleep(seconds)


@dataclass(frozen=True)
class Side:
    """A timer that is measured.

    `add(delay, callback, *args)` returns a handle, and `cancel(handle)` takes the callback back; both are the timer's
    own functions. `at(due_s, callback, *args)` is for an instant of `clock()`, in seconds; it is never timed.
    """

    add: Callable[..., Any]
    cancel: Callable[[Any], object]
    at: Callable[..., object]
    clock: Callable[[], float] = time.monotonic
    drive: Callable[[Iterator[float]], None] = drive_by_sleeping
    """Runs a work to its end."""

    delay_unit: Literal["ms", "s"] = "s"
    hand_over: Callable[..., object] | None = None
    """`hand_over(function, *args)` has the loop call it; None if any thread may add."""

    lets_go: Literal["at once", "in a turn", "when due"] = "at once"
    """When a cancelled timer's callback and arguments are released; *cancel* holds the side to it."""

    after_cancel: str = ""
    """What else stays behind after a cancel, for the record."""

    keeps_order: bool = False
    """Whether callbacks for the same instant run in the order in which they were added; *burst fire* checks it."""

    wants_functions: bool = False
    """Whether a callback has to be a function in Python that returns None; C functions that count will do otherwise."""

    wheel: "SystemTimer | None" = None
    """tickwheel itself, for what only it has."""
