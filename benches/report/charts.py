"""A suite as a picture.

`svg`: how many times better tickwheel's figure is than that of each peer, one row for each work. `lateness_svg`: the
lateness of each queue by the rate.

The page may be light or dark, so the picture has a white background. Text stays text. The same figures give the same
bytes, so that a new run changes only what differs.
"""

import io
import math
import re
from collections.abc import Mapping
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from .results import OURS, Suite, is_ours

Rows = Mapping[str, Mapping[str, float]]
"""`rows[work][side]`: how many times better tickwheel's figure is. Below 1 it is worse."""

WIDTH_INCHES: Final = 8.5
"""816 CSS pixels: the width of a page on GitHub, so that text of 9 points is readable."""

ROW_INCHES: Final = 0.28
MARKS: Final = "osD^vPXp<>hd"
COLOURS: Final = ("#0b62c4", "#d1495b", "#2a9d4e", "#e08e0b", "#7b4fbf", "#11a3ad", "#a0522d", "#e377c2", "#4d4d4d")
INK, GRID, OUR_COLOUR = "#24292f", "#d8dee4", "#6e7781"
STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none", "svg.hashsalt": "tickwheel",
    "font.family": "sans-serif", "font.size": 9,
    "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": GRID, "xtick.color": INK, "ytick.color": INK,
    "grid.color": GRID, "axes.axisbelow": True,
    "figure.facecolor": "white", "axes.facecolor": "white",
}  # fmt: skip


def compare(suite: Suite) -> Rows:
    """The works for which a peer has a figure too. Figures of 0 have no ratio and are left out."""
    rows: dict[str, dict[str, float]] = {}
    for work, records in suite.works.items():
        ours = records.get(OURS)
        if ours is None or not any(not is_ours(side) for side in records):
            continue
        ratios = {side: ours.times_better(record) for side, record in records.items() if side != OURS}
        rows[work] = {side: ratio for side, ratio in ratios.items() if ratio is not None}
    return {work: ratios for work, ratios in rows.items() if ratios}


def svg(rows: Rows) -> bytes:
    """The picture of the rows of `compare`."""
    sides = list(dict.fromkeys(side for ratios in rows.values() for side in ratios))
    with mpl.rc_context(), io.BytesIO() as file:
        mpl.rcdefaults()  # not the user's matplotlibrc
        mpl.rcParams.update(STYLE)
        height_inches = 1.0 + 0.22 * -(-len(sides) // 4) + ROW_INCHES * len(rows)
        chart = Figure(figsize=(WIDTH_INCHES, height_inches), layout="constrained")
        axes = chart.add_subplot()
        _axis(axes, rows)
        _points(axes, rows, [side for side in sides if not is_ours(side)])
        _points(axes, rows, [side for side in sides if is_ours(side)])
        chart.legend(loc="outside upper left", ncols=4, frameon=False, columnspacing=1.4, handletextpad=0.2)
        chart.savefig(file, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
        return file.getvalue()


LATENESS: Final = re.compile(r"([\d,]+)/s, p99")
"""The works of the second picture."""


def lateness(suite: Suite) -> dict[str, dict[int, float]]:
    """`[side][rate]`: the lateness at p99 in milliseconds, ours first."""
    rates = {work: int(found[1].replace(",", "")) for work in suite.works if (found := LATENESS.fullmatch(work))}
    lines: dict[str, dict[int, float]] = {}
    for side in suite.sides:
        line = {rate: record.median for work, rate in rates.items() if (record := suite.find(work, side))}
        if line:
            lines[side] = line
    return lines


def lateness_svg(lines: Mapping[str, Mapping[int, float]]) -> bytes:
    """The picture of the lines of `lateness`. Both axes are logarithmic."""
    with mpl.rc_context(), io.BytesIO() as file:
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        chart = Figure(figsize=(WIDTH_INCHES, 5.2), layout="constrained")
        axes = chart.add_subplot()
        for number, (side, found) in enumerate(lines.items()):
            look = {"color": INK, "linewidth": 2.4} if is_ours(side) else {"color": COLOURS[number % len(COLOURS)]}
            axes.plot(list(found), list(found.values()), marker=MARKS[number % len(MARKS)], label=side, **look)
        rates = sorted({rate for found in lines.values() for rate in found})
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(rates)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}/s"))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g} ms"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.tick_params(which="both", length=0)
        axes.grid(axis="both", linewidth=0.7)
        axes.spines[:].set_visible(False)
        axes.set_xlabel("jobs due a second")
        axes.set_ylabel("late at p99 (lower is better)")
        chart.legend(loc="outside upper left", ncols=4, frameon=False, columnspacing=1.4)
        chart.savefig(file, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
        return file.getvalue()


def _points(axes: Axes, rows: Rows, sides: list[str]) -> None:
    for number, side in enumerate(sides):
        # Variants of tickwheel are hollow and grey, so that they do not look like peers.
        look: dict[str, Any] = (
            {"facecolor": "none", "edgecolor": OUR_COLOUR, "linewidth": 1.2}
            if is_ours(side)
            else {"facecolor": COLOURS[number % len(COLOURS)], "edgecolor": "white", "linewidth": 0.6}
        )
        ratios = [row[side] for row in rows.values() if side in row]
        places = [place for place, row in enumerate(rows.values()) if side in row]
        axes.scatter(ratios, places, s=46, marker=MARKS[number % len(MARKS)], alpha=0.9, zorder=3, label=side, **look)


def _axis(axes: Axes, rows: Rows) -> None:
    every = [ratio for ratios in rows.values() for ratio in ratios.values()]
    least, most = min(0.5, *every) / 1.3, max(2, *every) * 1.3
    axes.set_xscale("log")
    axes.set_xlim(least, most)
    decades = range(math.floor(math.log10(least)), math.ceil(math.log10(most)))
    ticks = [step * 10.0**decade for decade in decades for step in ((1, 2, 5) if len(decades) <= 5 else (1,))]
    axes.set_xticks([tick for tick in ticks if least <= tick <= most])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_yticks(range(len(rows)), list(rows))
    axes.tick_params(which="both", length=0)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}x"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="both", linewidth=0.7)
    axes.spines[:].set_visible(False)
    axes.axvspan(least, 1, color="#f6f1e4", linewidth=0, zorder=0)
    axes.axvline(1, color=INK, linewidth=1.4, zorder=2)
    axes.set_xlabel("how many times better tickwheel is (1x is tickwheel, log scale; shaded: the peer is better)")
