"""What the page of one-process delivery has and this one uses too: style, macros, ways to draw and to shorten.

Taken from where they are, so that the two pages look the same and stay so.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from tickwheel.delivery import report
from tickwheel.delivery.report import plots
from tickwheel.delivery.report.buckets import name_of_step
from tickwheel.delivery.report.queries import _text

Charts = plots.Charts

_PAGE: Final = Path(report.__file__).with_name("page.html")


def templates() -> Mapping[str, str]:
    """`style.css` and `macros.html` of the other page."""
    page = _PAGE.read_text(encoding="utf-8")
    found = re.search(r"<style>\n(.*?)</style>\n</head>\n(.*?)<body>", page, flags=re.DOTALL)
    assert found
    return {"style.css": found[1], "macros.html": found[2]}


def shown_text(text: str) -> str:
    """At most 120 characters, with signs for those that can't be seen."""
    return _text(text.encode())


def ended_over_time(counts: Mapping[int, int], step: int) -> Charts:
    """How many messages had their outcome in each step of time; `counts` by the step's start."""
    first, last = min(counts), max(counts)

    def draw(axes: Axes) -> None:
        starts = [plots._time(start) for start in counts]
        axes.bar(starts, list(counts.values()), 0.9 * step / plots._DAY_MS, align="edge", color=plots._BAR)
        plots._time_axis(axes, first, last + step, "ended at")
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.yaxis.set_major_formatter(FuncFormatter(plots._plain))
        axes.set_ylim(0, max(counts.values()) * 1.05)
        axes.set_ylabel(f"messages per {name_of_step(step)}")
        axes.grid(visible=False, axis="x")

    return plots._drawn("ended", draw)
