"""The charts of delivered and waiting messages, for every page with charts. `tickwheel.pages.plots` draws them."""

from typing import Final

from tickwheel.delivery.report.forecast import Forecast
from tickwheel.delivery.report.lateness import BOUNDS_US, Lateness
from tickwheel.pages.plots import Charts, bars_over_time, lines_over_time, log_bars

_LEAST_MS: Final = 0.001  # the ledger's unit; a logarithmic axis has no 0
_LATENESS: Final = "lateness (ms, log scale)"


def lateness_over_time(lateness: Lateness) -> Charts:
    """Lateness per time step: p50, p99 and max, on a logarithmic axis. A line has a gap where nothing was delivered."""
    lines = {
        name: {late.start_ms: late.lateness_ms[name] for late in lateness.over_time} for name in ("p50", "p99", "max")
    }
    return lines_over_time("over-time", lines, lateness.step_ms, "delivered at", _LATENESS, _LEAST_MS)


def lateness_by_size(lateness: Lateness) -> Charts:
    """The number of messages by lateness, in bars that end at `BOUNDS_US`, without empty bars at both ends."""
    used = [place for place, count in enumerate(lateness.by_size) if count]
    places = range(used[0], used[-1] + 1)
    edges = [BOUNDS_US[place - 1] / 1000 if place else _LEAST_MS for place in (*places, places.stop)]
    return log_bars("by-size", [lateness.by_size[place] for place in places], edges, _LATENESS)


def due_next(forecast: Forecast) -> Charts:
    """The number of messages due in each time step."""
    return bars_over_time("due-next", forecast.due, forecast.step_ms, "due at")
