"""A histogram of whole numbers, as `Timer.stats` gives that of the lateness."""

import math


class Histogram(list[tuple[int, int]]):
    """Pairs of (upper bound, count) in ascending order, without empty classes.

    >>> Histogram([(1, 2), (4, 1), (8, 1)]).percentile(50)
    1
    """

    def percentile(self, percent: float) -> int | None:
        """The upper bound of the class below or in which so many percent of the values are; `None` without values.

        Errors: `ValueError` if it is not from 0 to 100.
        """
        if not 0 <= percent <= 100:
            raise ValueError(f"a percentile is from 0 to 100, got {percent}: pass 99 for p99")
        left = max(1, math.ceil(sum(count for _, count in self) * percent / 100))
        for bound, count in self:
            left -= count
            if left <= 0:
                return bound
        return None
