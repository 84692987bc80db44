"""The results: a record for each work and side, as JSON for `benches.report`, and as a table of medians."""

import json
import platform
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, Literal

from rich.table import Table

Conditions = dict[str, object]
"""What `conditions.Conditions.noted` returns."""

TOO_LATE: Final = 75
"""The exit code of a process for `TooLateError`: the suite starts it again."""


class TooLateError(Exception):
    """The timers were due before all were added, as on a machine that is busy for a moment: nothing is measured."""


@dataclass(frozen=True)
class Figure:
    """One measured value."""

    name: str
    unit: str
    better: Literal["lower", "higher"] = "lower"


@dataclass
class Record:
    """The figures of one side at one work, one for each repeat that did not fail."""

    work: str
    side: str
    unit: str
    better: str
    count: int
    values: list[float] = field(default_factory=list)
    note: str = ""


class Results:
    """All records of a run, in the order of the works."""

    def __init__(self) -> None:
        self._records: dict[tuple[str, str], Record] = {}

    def expect(self, figure: Figure, side: str, count: int) -> None:
        """Add a record without figures. If it gets none, it is left out."""
        record = Record(figure.name, side, figure.unit, figure.better, count)
        self._records[figure.name, side] = record

    def put(self, work: str, side: str, value: float, note: str) -> None:
        """Add the figure of one repeat."""
        record = self._records[work, side]
        record.values.append(value)
        record.note = note

    @property
    def records(self) -> list[Record]:
        """The records that have a figure."""
        return [record for record in self._records.values() if record.values]

    def spread(self, work: str, side: str) -> str:
        """The last figure of a record, and what its repeats were so far: lowest, median, highest."""
        record = self._records[work, side]
        lowest, highest = min(record.values), max(record.values)
        median = statistics.median(record.values)
        percent = 100 * (highest - lowest) / abs(median) if median else 0
        of_all = f"{_shown(lowest)} / {_shown(median)} / {_shown(highest)}, spread {percent:.0f} %"
        return f"{work}: {side} {_shown(record.values[-1])} {record.unit}; {of_all}"

    def write(
        self, path: Path, suite: str, command: str, versions: dict[str, str], conditions: Conditions, repeats: int
    ) -> None:
        """Write one JSON file."""
        content = {
            "suite": suite,
            "command": command,
            "versions": versions,
            "conditions": conditions,
            "repeats": repeats,
            "records": [asdict(record) for record in self.records],
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    def table(self) -> Table:
        """The medians: a row for each work, a column for each side, a dash if a side cannot do it or failed."""
        sides = list(dict.fromkeys(record.side for record in self.records))
        cells = {(record.work, record.side): _shown(statistics.median(record.values)) for record in self.records}
        units = {record.work: record.unit for record in self.records}
        table = Table(title="Medians")
        table.add_column("work")
        table.add_column("unit")
        for side in sides:
            table.add_column(side, justify="right")
        for work, unit in units.items():
            table.add_row(work, unit, *(cells.get((work, side), "-") for side in sides))
        return table


def versions(packages: Iterable[str]) -> dict[str, str]:
    """The versions of Python, and of those packages that are installed."""
    found = {"python": platform.python_version()}
    for package in dict.fromkeys(packages):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _shown(figure: float) -> str:
    """With five digits, and never as a power of ten."""
    return f"{figure:,.0f}" if abs(figure) >= 10_000 else f"{figure:,.5g}"
