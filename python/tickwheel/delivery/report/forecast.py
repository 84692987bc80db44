"""Counts the messages due next, in few time steps."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tickwheel.pages.steps import MOST, step_ms

_FAR: Final = 20  # messages due this many times later than nine of ten are not drawn: they would squeeze the others


@dataclass(frozen=True, slots=True)
class Forecast:
    """The number of messages due in each step, by its start. `later` are due after the last step, up to `last_ms`.

    `is_past`: all messages are overdue, as after an outage or in a replay, and are counted. Else only those due from
    now on are counted.
    """

    step_ms: int
    due: Mapping[int, int]
    later: int
    last_ms: int
    is_past: bool


def steps_ahead(from_ms: int, most_ms: int, last_ms: int) -> tuple[int, int]:
    """The step, and the end of the last step. Nine of ten are due up to `most_ms`, all up to `last_ms`.

    >>> steps_ahead(0, 3_000, 9_000), steps_ahead(0, 3_000, 900_000)
    ((1000, 61000), (100, 6100))
    """
    is_near = last_ms - from_ms <= _FAR * (most_ms - from_ms)
    step = step_ms(from_ms, last_ms if is_near else most_ms)
    return step, (from_ms // step + MOST) * step
