"""How late messages went out, as counts by size (rule D11's metrics): a histogram with fixed bounds, 0.5 ms to 60 s.

Example: 0.4 ms, 0.5 ms and 3 ms late are 2 up to 0.5 ms, none more up to 1 and 2 ms, and 3 in all from 5 ms on.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

BOUNDS_US: Final = (
    500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000,
    1_000_000, 2_000_000, 5_000_000, 10_000_000, 30_000_000, 60_000_000,
)  # fmt: skip
"""Microseconds, each of them part of its bucket; one more bucket has all above."""


class Lateness:
    """One thread adds, any thread reads. Costs some 0.2 µs a message, and never grows."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_US) + 1)
        self._sum_us = 0

    def add(self, lateness_us: Sequence[int]) -> None:
        """Messages were delivered so late."""
        counts = self._counts
        for one_us in lateness_us:
            counts[bisect_left(BOUNDS_US, one_us)] += 1
        self._sum_us += sum(lateness_us)

    def read(self) -> tuple[Sequence[int], int]:
        """How many were at most so late, for each bound and for none at all; and the sum in microseconds.

        >>> lateness = Lateness()
        >>> lateness.add([400, 500, 3_000])
        >>> counts, sum_us = lateness.read()
        >>> counts[0], counts[1], counts[2], counts[3], counts[-1], sum_us
        (2, 2, 2, 3, 3, 3900)
        """
        sum_us = self._sum_us
        return [*accumulate(self._counts)], sum_us
