"""A histogram of the lateness of sent messages, for the metrics of rule D11: fixed bounds from 0.5 ms to 60 s.

Example: messages 0.4 ms, 0.5 ms and 3 ms late count as 2 up to 0.5 ms, 2 up to 1 and 2 ms, and 3 up to 5 ms and above.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

BOUNDS_US: Final = (
    500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000,
    1_000_000, 2_000_000, 5_000_000, 10_000_000, 30_000_000, 60_000_000,
)  # fmt: skip
"""The upper ends of the buckets in microseconds, ends included; one more bucket has the rest."""


class Lateness:
    """One thread adds, any thread reads. A message costs some 0.2 µs. The size is constant."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_US) + 1)
        self._sum_us = 0

    def add(self, lateness_us: Sequence[int]) -> None:
        """Add the lateness of delivered messages."""
        counts = self._counts
        for one_us in lateness_us:
            counts[bisect_left(BOUNDS_US, one_us)] += 1
        self._sum_us += sum(lateness_us)

    def read(self) -> tuple[Sequence[int], int]:
        """For each bound the number of messages at most that late, then the number of all; and the sum in microseconds.

        >>> lateness = Lateness()
        >>> lateness.add([400, 500, 3_000])
        >>> counts, sum_us = lateness.read()
        >>> counts[0], counts[1], counts[2], counts[3], counts[-1], sum_us
        (2, 2, 2, 3, 3, 3900)
        """
        sum_us = self._sum_us
        return [*accumulate(self._counts)], sum_us
