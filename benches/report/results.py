"""The files of the suites: one file is one run of one suite, and only figures of one run are compared.

A file in the results' folder:

    {"suite": "python", "command": "...", "versions": {"python": "3.11.7"}, "repeats": 3, "conditions": {
      "huge_pages": "madvise", "governor": "none seen", "others_percent": 1.5, "stolen_percent": 0.1,
      "calibration_ms": [4.1, 4.0]}, "records": [
      {"work": "add", "side": "tickwheel", "unit": "ns", "better": "lower", "count": 1000000,
       "values": [70.1, 69.8, 71.0], "note": ""}]}

`values` has one figure for each repeat that did not fail, and the page has their median. Sides whose name begins with
"tickwheel" are ours: the others are compared with "tickwheel" itself, and "tickwheel, no lock" is a variant of it.
"""

import statistics
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from .errors import ReportError

SUITES: Final = ("rust", "python", "asyncio", "kafka", "queues")
OURS: Final = "tickwheel"


class Record(msgspec.Struct, frozen=True):
    """The figures of one side at one work."""

    work: str
    side: str
    unit: str
    better: Literal["lower", "higher"]
    count: int
    values: Annotated[list[float], msgspec.Meta(min_length=1)]
    note: str = ""

    @property
    def median(self) -> float:
        """The figure on the page."""
        return statistics.median(self.values)

    def times_better(self, other: "Record") -> float | None:
        """How many times better this is than the other; below 1 it is worse. None if one of them is not above 0."""
        if min(self.median, other.median) <= 0:
            return None
        ratio = self.median / other.median
        return ratio if self.better == "higher" else 1 / ratio

    def is_better(self, other: "Record") -> bool:
        """Compares the medians, which differ a little from run to run."""
        return self.median > other.median if self.better == "higher" else self.median < other.median


class Conditions(msgspec.Struct, frozen=True):
    """The machine during the run. `benches/python/conditions.py` and `benches/peers/src/conditions.rs` note them."""

    huge_pages: str
    governor: str
    others_percent: float
    """What other processes used of the time of all processors; `stolen_percent` is what the host took."""
    stolen_percent: float
    calibration_ms: Annotated[list[float], msgspec.Meta(min_length=1)]
    """Times of a fixed loop, one before each measurement."""


class File(msgspec.Struct, frozen=True):
    """The content of a result file."""

    suite: Literal["rust", "python", "asyncio", "kafka", "queues"]
    command: str
    versions: dict[str, str]
    conditions: Conditions
    repeats: int
    records: list[Record]


@dataclass(frozen=True)
class Suite:
    """A run of a suite: `works[work][side]`. The works are in the order of the file, our sides come first."""

    name: str
    command: str
    versions: dict[str, str]
    conditions: Conditions
    repeats: int
    measured_on: date
    works: dict[str, dict[str, Record]]

    @property
    def sides(self) -> list[str]:
        """The sides of all works, ours first, in order of appearance."""
        every = dict.fromkeys(side for records in self.works.values() for side in records)
        return sorted(every, key=rank)

    def find(self, work: str, side: str = OURS) -> Record | None:
        """The record of a side at a work, if there is one."""
        return self.works.get(work, {}).get(side)


def is_ours(side: str) -> bool:
    return side.startswith(OURS)


def rank(side: str) -> int:
    """Sorts tickwheel before its variants, and those before the others."""
    return 0 if side == OURS else 1 if is_ours(side) else 2


def read(folder: Path) -> dict[str, Suite]:
    """The suites that have a file in the folder, by name."""
    suites: dict[str, Suite] = {}
    for path in sorted(folder.glob("*.json")):
        try:
            file = msgspec.json.decode(path.read_bytes(), type=File)
        except msgspec.DecodeError as error:
            raise ReportError(f"{path} is not a result file: {error}: measure again with make bench") from error
        if file.suite in suites:
            raise ReportError(f"{folder} has more than one file of suite {file.suite!r}: remove all but one")
        works = _by_work(path, file.records)
        suites[file.suite] = Suite(
            file.suite, file.command, file.versions, file.conditions, file.repeats, _day(path), works
        )
    if not suites:
        raise ReportError(f"no results in {folder}: measure first, with make bench")
    return suites


def _by_work(path: Path, records: list[Record]) -> dict[str, dict[str, Record]]:
    works: dict[str, dict[str, Record]] = {}
    for record in sorted(records, key=lambda record: rank(record.side)):
        sides = works.setdefault(record.work, {})
        if record.side in sides:
            raise ReportError(f"{path}: work {record.work!r} has two records of {record.side!r}: leave one")
        first = next(iter(sides.values()), record)
        if (first.unit, first.better) != (record.unit, record.better):
            raise ReportError(
                f"{path}: work {record.work!r} is in {first.unit!r}, {first.better} is better, for {first.side!r}, "
                f"but in {record.unit!r}, {record.better} is better, for {record.side!r}: make them the same"
            )
        sides[record.side] = record
    return {record.work: works[record.work] for record in records}


def _day(path: Path) -> date:
    """The day on which the file was written: the end of the run."""
    return datetime.fromtimestamp(path.stat().st_mtime, UTC).date()
