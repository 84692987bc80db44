"""The limit on the rate of sending (rule D18): at most N messages in a period."""

import re
from dataclasses import dataclass
from fractions import Fraction

from tickwheel.delivery.base.errors import WrongUsage, quoted

_FORM = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)/(s|min|h)", flags=re.ASCII)
_UNITS_US = {"s": 1_000_000, "min": 60_000_000, "h": 3_600_000_000}
_LEAST, _MOST = Fraction(1, 86_400_000_000), Fraction(1)  # messages in a microsecond


@dataclass(frozen=True, slots=True)
class Rate:
    """An exact rate: `messages` in `per_us` microseconds.

    >>> Rate.of("90/min"), Rate.of("0.5/s")
    (Rate(messages=3, per_us=2000000), Rate(messages=1, per_us=2000000))
    """

    messages: int
    per_us: int

    @property
    def per_s(self) -> float:
        """Messages in a second."""
        return self.messages * 1_000_000 / self.per_us

    @classmethod
    def of(cls, given: object, name: str = "rate") -> "Rate":
        """From a text as `100/s`, `30/min` or `0.5/h`. Errors: `WrongUsage`, which says the `name`."""
        found = _FORM.fullmatch(given) if isinstance(given, str) else None
        if found is None:
            raise WrongUsage(f"{name} is {quoted(given)}: write N/s, N/min or N/h, as 100/s or 0.5/min")
        rate = Fraction(found[1]) / _UNITS_US[found[2]]
        if not _LEAST <= rate <= _MOST:
            raise WrongUsage(f"{name} is {given}: it may be one a day to 1000000/s")
        return cls(rate.numerator, rate.denominator)
