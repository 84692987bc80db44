"""Chooses round time steps: a span is cut into at most `MOST` steps, counted from 1970.

Example: 3 s are 30 steps of 100 ms, an hour is 60 of a minute, seven days are 56 of three hours.
"""

from collections.abc import Mapping
from typing import Final

MOST: Final = 61

_NAMES: Final[Mapping[int, str]] = {
    10: "10 ms",
    100: "100 ms",
    1_000: "second",
    10_000: "10 seconds",
    60_000: "minute",
    600_000: "10 minutes",
    3_600_000: "hour",
    10_800_000: "3 hours",
    86_400_000: "day",
    604_800_000: "7 days",
    31_536_000_000: "365 days",
}


def step_ms(first_ms: int, last_ms: int) -> int:
    """The smallest step that cuts the span, both ends included, into at most `MOST` steps.

    >>> step_ms(0, 2_999), step_ms(0, 3_600_000), step_ms(5, 5)
    (100, 60000, 10)
    """
    step = next((step for step in _NAMES if last_ms // step - first_ms // step < MOST), max(_NAMES))
    while last_ms // step - first_ms // step >= MOST:
        step *= 2
    return step


def name_of_step(step: int) -> str:
    """The name of a step, as in "messages per minute".

    >>> name_of_step(60_000), name_of_step(2 * 31_536_000_000)
    ('minute', '730 days')
    """
    return _NAMES.get(step) or f"{step // 86_400_000} days"
