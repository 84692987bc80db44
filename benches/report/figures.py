"""How a figure is written: three significant digits, commas, no exponent. A whole number stays whole."""

import math


def figure(value: float) -> str:
    """The figure as text.

    >>> [figure(value) for value in (0, 48, 0.012345, 7.126, 38.04, 99.96, 1234567)]
    ['0', '48', '0.0123', '7.13', '38.0', '100', '1,230,000']
    """
    rounded = float(f"{value:.3g}")
    if value == int(value) or abs(rounded) >= 100:
        return f"{rounded:,.0f}"
    return f"{rounded:.{2 - math.floor(math.log10(abs(rounded)))}f}"
