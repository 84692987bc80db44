"""The page's charts, as SVG to be put into HTML: text stays text, colours are the page's (light and dark).

Each is drawn twice, for wide and for narrow screens, as text that shrinks with its chart can't be read on a telephone.
matplotlib takes no CSS variables, so it draws in colours that stand for them. Names inside are made of the chart's own,
so that the same figures give the same bytes and no two charts of a page share one.
"""

import io
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from tickwheel.delivery.report.buckets import name_of_step
from tickwheel.delivery.report.lateness import BOUNDS_US, Lateness
from tickwheel.delivery.report.queries import Forecast
from tickwheel.delivery.times import MAX_DUE_MS, rfc_3339

SIZES: Final = {"wide": (7.2, 2.9), "narrow": (3.3, 2.7)}
"""In units of 100 CSS pixels at the size in which it is drawn."""

_INK, _GRID, _BAR = "#000001", "#000002", "#000003"
_LINES: Final = {
    "p50": ("#000004", "o", "-"),
    "p99": ("#000005", "s", "--"),
    "max": ("#000006", "^", ":"),
}
_COLOURS: Final = {
    _INK: "currentColor",
    _GRID: "var(--grid)",
    _BAR: "var(--bar)",
    "#000004": "var(--p50)",
    "#000005": "var(--p99)",
    "#000006": "var(--max)",
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
_LEAST_MS: Final = 0.001  # the ledger's unit; a logarithmic axis has no 0
_DAY_MS: Final = 86_400_000

_short: Final = EngFormatter(sep="")

Charts = Mapping[str, str]


def lateness_over_time(lateness: Lateness) -> Charts:
    """p50, p99 and max per step of time, on a logarithmic axis; a line is broken where nothing was delivered."""
    step = lateness.step_ms
    first, last = lateness.over_time[0].start_ms, lateness.over_time[-1].start_ms
    found = {late.start_ms: late.lateness_ms for late in lateness.over_time}
    starts = range(first, last + step, step)
    middles = [_time(start + step // 2) for start in starts]

    def draw(axes: Axes) -> None:
        for name, (colour, marker, line) in _LINES.items():
            values = [max(found[start][name], _LEAST_MS) if start in found else float("nan") for start in starts]
            axes.plot(middles, values, line, color=colour, marker=marker, markersize=3, linewidth=1.4, label=name)
        _time_axis(axes, first, last + step, "delivered at")
        _log_axis(axes, "y", "lateness (ms, log scale)")
        _figure(axes).legend(loc="outside upper left", ncols=3, frameon=False, borderpad=0)

    return _drawn("over-time", draw)


def lateness_by_size(lateness: Lateness) -> Charts:
    """A histogram with logarithmic axes, so that one message in a million is still seen."""
    used = [place for place, count in enumerate(lateness.by_size) if count]
    places = range(used[0], used[-1] + 1)
    edges = [BOUNDS_US[place - 1] / 1000 if place else _LEAST_MS for place in (*places, places.stop)]
    counts = [lateness.by_size[place] for place in places]

    def draw(axes: Axes) -> None:
        axes.stairs(counts, edges, baseline=0.1, fill=True, color=_BAR, linewidth=0)
        _log_axis(axes, "x", "lateness (ms, log scale)")
        _log_axis(axes, "y", "messages (log scale)")
        axes.set_xlim(min(edges[0], edges[-1] / 100), edges[-1])
        axes.set_ylim(0.7, max(10, *counts) * 2)

    return _drawn("by-size", draw)


def due_next(forecast: Forecast) -> Charts:
    """How many are due in each step of time."""
    step = forecast.step_ms
    first, last = min(forecast.due), max(forecast.due)

    def draw(axes: Axes) -> None:
        starts = [_time(start) for start in forecast.due]
        axes.bar(starts, list(forecast.due.values()), 0.9 * step / _DAY_MS, align="edge", color=_BAR)
        _time_axis(axes, first, last + step, "due at")
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.yaxis.set_major_formatter(FuncFormatter(_plain))
        axes.set_ylim(0, max(forecast.due.values()) * 1.05)
        axes.set_ylabel(f"messages per {name_of_step(step)}")
        axes.grid(visible=False, axis="x")

    return _drawn("due-next", draw)


def _drawn(name: str, draw: Callable[[Axes], None]) -> Charts:
    return {size: _svg(f"{name}-{size}", inches, draw) for size, inches in SIZES.items()}


def _svg(name: str, inches: Sequence[float], draw: Callable[[Axes], None]) -> str:
    with mpl.rc_context(), io.StringIO() as file:
        mpl.rcdefaults()  # whatever the user's matplotlibrc says
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


def _time_axis(axes: Axes, start_ms: int, end_ms: int, label: str) -> None:
    axes.set_xlim(_time(start_ms), _time(end_ms))
    locator = AutoDateLocator(minticks=2, maxticks=5 if _is_narrow(axes) else 8)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, show_offset=False))  # type: ignore[no-untyped-call]
    axes.set_xlabel(f"{label} (UTC, from {rfc_3339(start_ms)[:16]})")


def _log_axis(axes: Axes, which: str, label: str) -> None:
    axis = axes.xaxis if which == "x" else axes.yaxis
    axes.set(**{f"{which}scale": "log", f"{which}label": label})
    axis.set_major_locator(LogLocator(numticks=5 if _is_narrow(axes) else 8))
    axis.set_major_formatter(FuncFormatter(_plain))
    axis.set_minor_formatter(NullFormatter())


def _plain(value: float, _position: object) -> str:
    """0.01, 1,000 and 1M instead of powers."""
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
    """In matplotlib's days."""
    return min(epoch_ms, MAX_DUE_MS) / _DAY_MS
