"""How a figure is written: three significant digits, commas, no exponent. A whole number stays whole."""

import math
import statistics
from collections.abc import Sequence


def figure(value: float) -> str:
    """The figure as text.

    >>> [figure(value) for value in (0, 48, 0.012345, 7.126, 38.04, 99.96, 1234567)]
    ['0', '48', '0.0123', '7.13', '38.0', '100', '1,230,000']
    """
    rounded = float(f"{value:.3g}")
    if value == int(value) or abs(rounded) >= 100:
        return f"{rounded:,.0f}"
    return f"{rounded:.{2 - math.floor(math.log10(abs(rounded)))}f}"


def percent(value: float) -> str:
    """The percentage as text.

    >>> [percent(value) for value in (0, 0.04, 6.12, 40.4, 1234)]
    ['0 %', '0.04 %', '6.1 %', '40 %', '1,234 %']
    """
    digits = 0 if value >= 10 or value == 0 else 1 if value >= 1 else 2
    return f"{value:,.{digits}f} %"


def spread_percent(values: Sequence[float]) -> float:
    """How far the values lie apart: from the lowest to the highest, in per cent of the median; 0 if the median is 0.

    >>> spread_percent([9, 10, 12])
    30.0
    """
    median = abs(statistics.median(values))
    return 100 * (max(values) - min(values)) / median if median else 0.0
