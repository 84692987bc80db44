"""Durations on the command line: a number and its unit, as `30s` or `1.5h`."""

import re
from typing import Any, Final

import click

_MS: Final = {"ms": 1.0, "s": 1_000.0, "m": 60_000.0, "h": 3_600_000.0, "d": 86_400_000.0}
_NAMES: Final = {"ms": "milliseconds", "s": "seconds", "d": "days"}


def duration_of(text: str, unit: str = "s") -> float:
    """A duration as a number of `unit`, which is also the unit of a number alone. Errors: `ValueError`."""
    number, given = re.fullmatch(r"(.*?) ?(ms|[smhd]?)", text.strip(), re.DOTALL).groups()  # type: ignore[union-attr]
    try:
        return float(number) * _MS[given] / _MS[unit] if given else float(number)
    except ValueError:
        raise ValueError(f"{text.strip()!r} is no duration: write a number with ms, s, m, h or d, as 30s") from None


def text_of(value: float, unit: str = "s") -> str:
    """A duration with the largest unit of which it is a whole number, for help."""
    for name, ms in reversed(_MS.items()):
        if (number := value * _MS[unit] / ms).is_integer():
            return f"{number:.0f}{name}"
    return f"{value:g}{unit}"


class Duration(click.types.FloatParamType):
    """A number of `unit`, from a text that may have another unit; from `least` to `most`, where these are given."""

    name = "duration"

    def __init__(self, unit: str = "s", least: float | None = None, most: float | None = None) -> None:
        self.unit_name = _NAMES[unit]
        self._unit, self._least, self._most = unit, least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number. Errors: `BadParameter`."""
        try:
            number = duration_of(value, self._unit) if isinstance(value, str) else float(value)
        except ValueError as error:
            self.fail(f"{error}; a number alone is {self.unit_name}.", param, ctx)
        if self._least is not None and self._most is not None and not self._least <= number <= self._most:
            least, most = text_of(self._least, self._unit), text_of(self._most, self._unit)
            self.fail(f"{value} is not in the range {least} to {most}.", param, ctx)
        return number
