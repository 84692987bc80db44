"""Draws charts as SVG for HTML: text stays text, and the colours are the page's (light and dark).

Each chart is drawn twice, for wide and for narrow screens: text that shrinks with its chart is not readable on a phone.
matplotlib takes no CSS variables, so it draws in placeholder colours, which are replaced. The names inside an SVG are
made from the chart's name, so that the same figures give the same bytes and two charts of a page share no name: give
each chart of a page its own name.

Each kind of chart is a function of plain numbers. For a new kind use `drawn`, `time_axis`, `count_axis` and `log_axis`.
"""

import io
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from tickwheel._native import MAX_DUE_MS, rfc_3339
from tickwheel.pages.steps import name_of_step

SIZES: Final = {"wide": (7.2, 2.9), "narrow": (3.3, 2.7)}
"""Width and height as drawn, in units of 100 CSS pixels."""

BAR: Final = "#000003"
"""The colour of bars."""

_INK, _GRID = "#000001", "#000002"
_LINES: Final = (("#000004", "o", "-"), ("#000005", "s", "--"), ("#000006", "^", ":"))
_COLOURS: Final = {
    _INK: "currentColor",
    _GRID: "var(--grid)",
    BAR: "var(--bar)",
    "#000004": "var(--line1)",
    "#000005": "var(--line2)",
    "#000006": "var(--line3)",
}
_STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 8.5,  # points: 11.8 of the pixels above
    "text.color": _INK, "axes.labelcolor": _INK, "axes.edgecolor": _INK, "xtick.color": _INK, "ytick.color": _INK,
    "grid.color": _GRID, "axes.grid": True, "axes.axisbelow": True,
    "axes.spines.top": False, "axes.spines.right": False,
    "figure.facecolor": "none", "axes.facecolor": "none", "figure.dpi": 72,
    "axes.unicode_minus": False, "timezone": "UTC",
}  # fmt: skip
_DAY_MS: Final = 86_400_000

_OF_DAY, _TO_MINUTE, _TO_SECOND, _TO_TENTH = (5, 10), (11, 16), (11, 19), (11, 21)
_TICK_STEPS: Final = {
    **dict.fromkeys((100, 200, 500), _TO_TENTH),
    **{1_000 * seconds: _TO_SECOND for seconds in (1, 2, 5, 10, 15, 30)},
    **{60_000 * minutes: _TO_MINUTE for minutes in (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720)},
    **{_DAY_MS * days: _OF_DAY for days in (1, 2, 5, 10)},
}
"""Milliseconds between two ticks, and the part of RFC 3339 that is their label."""

_short: Final = EngFormatter(sep="")

Charts = Mapping[str, str]
"""One chart in each of `SIZES`."""


def bars_over_time(name: str, counts: Mapping[int, int], step_ms: int, when: str, of: str = "messages") -> Charts:
    """The number of things in each time step: `counts` by the step's start. `when` is the label of time: "due at"."""

    def draw(axes: Axes) -> None:
        starts = [_time(start) for start in counts]
        axes.bar(starts, list(counts.values()), 0.9 * step_ms / _DAY_MS, align="edge", color=BAR)
        time_axis(axes, min(counts), max(counts) + step_ms, when)
        count_axis(axes, max(counts.values()), f"{of} per {name_of_step(step_ms)}")

    return drawn(name, draw)


def lines_over_time(
    name: str, lines: Mapping[str, Mapping[int, float]], step_ms: int, when: str, label: str, least: float
) -> Charts:
    """Up to three named lines on a logarithmic axis: values by the step's start. A value below `least` is drawn as
    `least`. A line is interrupted where a step has no value.
    """
    every = {start for values in lines.values() for start in values}
    first, last = min(every), max(every)
    starts = range(first, last + step_ms, step_ms)
    middles = [_time(start + step_ms // 2) for start in starts]

    def draw(axes: Axes) -> None:
        for (line, values), (colour, marker, style) in zip(lines.items(), _LINES, strict=False):
            shown = [max(values[start], least) if start in values else float("nan") for start in starts]
            axes.plot(middles, shown, style, color=colour, marker=marker, markersize=3, linewidth=1.4, label=line)
        time_axis(axes, first, last + step_ms, when)
        log_axis(axes, "y", label)
        _figure(axes).legend(loc="outside upper left", ncols=3, frameon=False, borderpad=0)

    return drawn(name, draw)


def log_bars(name: str, counts: Sequence[int], edges: Sequence[float], label: str, of: str = "messages") -> Charts:
    """A histogram with logarithmic axes: one in a million is still visible. `edges` has one more than `counts`."""

    def draw(axes: Axes) -> None:
        axes.stairs(counts, edges, baseline=0.1, fill=True, color=BAR, linewidth=0)
        log_axis(axes, "x", label)
        log_axis(axes, "y", f"{of} (log scale)")
        axes.set_xlim(min(edges[0], edges[-1] / 100), edges[-1])
        axes.set_ylim(0.7, max(10, *counts) * 2)

    return drawn(name, draw)


def squares(
    name: str,
    values: Sequence[Sequence[float]],
    rows: Sequence[str],
    columns: Sequence[str],
    labels: tuple[str, str],
    write: Callable[[float], str],
) -> Charts:
    """A table as squares. The larger a value among all, the darker its square. `write` formats the value.

    `values[row][column]`, the first row on top. `labels` name the rows and the columns.
    """
    most = max((value for row in values for value in row), default=0) or 1

    def draw(axes: Axes) -> None:
        for y, row in enumerate(values):
            for x, value in enumerate(row):
                axes.add_patch(Rectangle((x, y), 0.96, 0.96, facecolor=BAR, alpha=0.06 + 0.54 * value / most))
                axes.text(x + 0.48, y + 0.48, write(value), ha="center", va="center")
        axes.set_xlim(0, len(columns))
        axes.set_ylim(len(rows), 0)
        axes.set_xticks([x + 0.48 for x in range(len(columns))], columns)
        axes.set_yticks([y + 0.48 for y in range(len(rows))], rows)
        axes.set(ylabel=labels[0], xlabel=labels[1])
        axes.tick_params(length=0)
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)

    return drawn(name, draw)


def drawn(name: str, draw: Callable[[Axes], None]) -> Charts:
    """The chart that `draw` draws, in each size."""
    return {size: _svg(f"{name}-{size}", inches, draw) for size, inches in SIZES.items()}


def time_axis(axes: Axes, start_ms: int, end_ms: int, when: str) -> None:
    """Set up the horizontal axis, from the start of the first step to the end of the last."""
    axes.set_xlim(_time(start_ms), _time(end_ms))
    most = 5 if _is_narrow(axes) else 8
    ticks, labels = time_ticks(start_ms, end_ms, most - 1)
    if ticks:
        axes.set_xticks([_time(tick) for tick in ticks], labels)
    else:
        locator = AutoDateLocator(minticks=2, maxticks=most)  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, show_offset=False))  # type: ignore[no-untyped-call]
    axes.set_xlabel(f"{when} (UTC, from {rfc_3339(start_ms)[:16]})")


def time_ticks(start_ms: int, end_ms: int, most: int) -> tuple[Sequence[int], Sequence[str]]:
    """At most so many ticks at round times, and their labels: a time of day, or a day; none in more than some weeks.

    >>> time_ticks(59_000, 130_000, 3)
    ([60000, 90000, 120000], ['00:01:00', '00:01:30', '00:02:00'])
    >>> time_ticks(0, 3 * 86_400_000, 4)[1]
    ['01-01', '01-02', '01-03', '01-04']
    """
    for step, (first, last) in _TICK_STEPS.items():
        ticks = range(-(-start_ms // step) * step, end_ms + 1, step)
        if len(ticks) <= most:
            return list(ticks), [rfc_3339(tick)[first:last] for tick in ticks]
    return (), ()


def count_axis(axes: Axes, most: int, label: str) -> None:
    """Set up the vertical axis of bars, from 0 to a little above the highest."""
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(_plain))
    axes.set_ylim(0, max(most, 1) * 1.05)
    axes.set_ylabel(label)
    axes.grid(visible=False, axis="x")


def log_axis(axes: Axes, which: Literal["x", "y"], label: str) -> None:
    """Set up a logarithmic axis."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    axes.set(**{f"{which}scale": "log", f"{which}label": label})
    axis.set_major_locator(LogLocator(numticks=5 if _is_narrow(axes) else 8))
    axis.set_major_formatter(FuncFormatter(_plain))
    axis.set_minor_formatter(NullFormatter())


def _svg(name: str, inches: Sequence[float], draw: Callable[[Axes], None]) -> str:
    with mpl.rc_context(), io.StringIO() as file:
        mpl.rcdefaults()  # ignores the user's matplotlibrc
        mpl.rcParams.update(_STYLE | {"svg.hashsalt": name})
        figure = Figure(figsize=(inches[0], inches[1]), layout="constrained")
        draw(figure.add_subplot())
        figure.savefig(file, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
        text = file.getvalue()
    view = re.search(r"<svg [^>]*?(viewBox=\"[^\"]*\")[^>]*>", text)
    assert view
    text = f"<svg {view[1]}>{text[view.end() :].strip()}"
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\1{name}-", text)
    for colour, of_page in _COLOURS.items():
        text = text.replace(colour, of_page)
    return text


def _plain(value: float, _position: object) -> str:
    """A tick label such as 0.01, 1,000 or 1M instead of a power."""
    if value >= 100_000:
        return _short(value)
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def _figure(axes: Axes) -> Figure:
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure


def _is_narrow(axes: Axes) -> bool:
    return _figure(axes).get_figwidth() < SIZES["wide"][0]


def _time(epoch_ms: int) -> float:
    """The time in matplotlib's unit, days."""
    return min(epoch_ms, MAX_DUE_MS) / _DAY_MS
