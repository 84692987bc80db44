"""What is due next, in few steps of time."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tickwheel.pages.steps import MOST, step_ms

_FAR: Final = 20  # what is due so many times later than nine of ten is not drawn: it would squeeze all others


@dataclass(frozen=True, slots=True)
class Forecast:
    """How many are due in each step, by its start; `later` are due after the last of them, up to `last_ms`.

    `is_past`: all is overdue, as after an outage or in a replay, so this is of that; else of what is due from now on.
    """

    step_ms: int
    due: Mapping[int, int]
    later: int
    last_ms: int
    is_past: bool


def steps_ahead(from_ms: int, most_ms: int, last_ms: int) -> tuple[int, int]:
    """The step, and the end of the last one; nine of ten are due up to `most_ms`, all up to `last_ms`.

    >>> steps_ahead(0, 3_000, 9_000), steps_ahead(0, 3_000, 900_000)
    ((1000, 61000), (100, 6100))
    """
    is_near = last_ms - from_ms <= _FAR * (most_ms - from_ms)
    step = step_ms(from_ms, last_ms if is_near else most_ms)
    return step, (from_ms // step + MOST) * step
