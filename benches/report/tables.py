"""The figures of a suite in Markdown: medians, targets, and the range of the repeats."""

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence

from .figures import figure, percent, spread_percent
from .machine import describe, versions
from .results import OURS, Conditions, Record, Suite, is_ours
from .targets import Answer, judge


def run(suite: Suite) -> str:
    """Machine, settings, noise, date, versions and command of the run."""
    settings = suite.conditions
    return "\n".join(
        [
            f"- Machine: {describe()}",
            f"- Settings: transparent huge pages: {settings.huge_pages}, CPU governor: {settings.governor}",
            f"- Noise: {_noise(suite.conditions)}",
            f"- Measured on {suite.measured_on}, {suite.repeats} repeats, medians",
            f"- Versions: {versions(suite)}",
            f"- Command: `{suite.command}`",
        ]
    )


def medians(suite: Suite) -> str:
    """All works and sides. The best of a row is bold, the last column names a peer that beats tickwheel."""
    sides = suite.sides
    rows = []
    for work, records in suite.works.items():
        unit = next(iter(records.values())).unit
        cells = [_cell(records, side) for side in sides]
        rows.append([f"{work} ({unit})" if unit else work, *cells, _behind(records)])
    return _table(
        ["", *(side.replace("_", "_<wbr>") for side in sides), "behind"], rows, numbers=range(1, len(sides) + 1)
    )


def by_side(suite: Suite) -> str:
    """All sides and works, a row for each side: for a suite of many sides. The best of a column is bold."""
    rows = [[side, *(_cell(records, side) for records in suite.works.values())] for side in suite.sides]
    units = [f"{work} ({next(iter(records.values())).unit})" for work, records in suite.works.items()]
    return _table(["", *units], rows, numbers=range(1, len(units) + 1))


def lost(suite: Suite) -> str:
    """The works at which a peer beats tickwheel, with both figures."""
    rows = []
    for work, records in suite.works.items():
        ours = records.get(OURS)
        for side, record in records.items():
            if ours and not is_ours(side) and record.is_better(ours):
                rows.append([f"{work} ({record.unit})", figure(ours.median), side, figure(record.median)])
    if not rows:
        return "tickwheel is ahead in every column of this run."
    return _table(["", "tickwheel", "ahead of it", ""], rows, numbers=(1, 3))


def targets(suite: Suite) -> str:
    """A sentence with the number of targets that are met, then each target. Empty for a suite without targets."""
    verdicts = judge(suite)
    if not verdicts:
        return ""
    count = Counter(verdict.answer for verdict in verdicts)
    summary = f"{count[Answer.MET]} of {len(verdicts)} targets are met, {count[Answer.MISSED]} missed"
    summary += f", {count[Answer.NOT_JUDGED]} not judged"
    summary += f", {count[Answer.NO_FIGURE]} without a figure." if count[Answer.NO_FIGURE] else "."
    rows = [[verdict.target.name, verdict.against, verdict.asked, verdict.found, verdict.text] for verdict in verdicts]
    return f"{summary}\n\n" + _table(["work", "against", "target", "measured", ""], rows, numbers=(2, 3))


def spread(suite: Suite) -> str:
    """All records: count, lowest repeat, median, highest repeat, and how far they lie apart."""
    records = [sides[side] for sides in suite.works.values() for side in suite.sides if side in sides]
    rows = [
        [
            record.work,
            record.side,
            f"{record.count:,}",
            *map(figure, (min(record.values), record.median, max(record.values))),
            percent(spread_percent(record.values)),
            record.unit,
        ]
        for record in records
    ]
    return _table(["work", "side", "count", "lowest", "median", "highest", "spread", "unit"], rows, numbers=range(2, 7))


def notes(suite: Suite) -> str:
    """The notes of the suite, each once, with the works that it is about if they are not all of that side."""
    about: dict[tuple[str, str], list[str]] = {}
    works_of = Counter(side for records in suite.works.values() for side in records)
    for work, records in suite.works.items():
        for record in records.values():
            if record.note:
                about.setdefault((record.side, record.note), []).append(work)
    return "\n".join(
        f"- {side}: {note}" if len(works) == works_of[side] else f"- {side}, {'; '.join(works)}: {note}"
        for (side, note), works in about.items()
    )


def _noise(conditions: Conditions) -> str:
    """What disturbed the run: other processes, the host, and how far the times of a fixed loop lie apart."""
    loop_ms = sorted(conditions.calibration_ms)
    lowest, median, highest = map(figure, (loop_ms[0], statistics.median(loop_ms), loop_ms[-1]))
    middle = loop_ms[len(loop_ms) // 4 : -(-3 * len(loop_ms) // 4)]
    spread, of_middle = percent(spread_percent(loop_ms)), percent(spread_percent(middle))
    return (
        f"other processes used {percent(conditions.others_percent)} of the processors' time, the host took "
        f"{percent(conditions.stolen_percent)}; a fixed loop before each measurement took "
        f"{lowest} / {median} / {highest} ms: it spreads by {spread}, the middle half by {of_middle}"
    )


def _cell(records: dict[str, Record], side: str) -> str:
    if side not in records:
        return "—"
    record, others = records[side], [record for name, record in records.items() if name != side]
    is_best = any(map(record.is_better, others)) and not any(other.is_better(record) for other in others)
    return f"**{figure(record.median)}**" if is_best else figure(record.median)


def _behind(records: dict[str, Record]) -> str:
    """The peer that beats tickwheel the most, and how many times. Empty if no peer does."""
    ours = records.get(OURS)
    if ours is None:
        return ""
    better = [record for side, record in records.items() if not is_ours(side) and record.is_better(ours)]
    if not better:
        return ""
    best = (max if ours.better == "higher" else min)(better, key=lambda record: record.median)
    times = best.times_better(ours)
    return f"▼ {best.side}" + (f", {figure(times)} times" if times else "")


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], numbers: Iterable[int]) -> str:
    """The table in Markdown. The columns in `numbers` are aligned to the right."""
    right = set(numbers)
    rules = ["---:" if column in right else "---" for column in range(len(header))]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in (header, rules, *rows)
    )
