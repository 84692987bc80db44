"""The page of an analysis: fills `page.html` with figures and charts (rules S6, D12)."""

from collections.abc import Mapping
from typing import Any

from tickwheel.analysis.figures import OUTCOMES
from tickwheel.analysis.shown import LEDGERS, Shown, Timer
from tickwheel.delivery.report import plots
from tickwheel.delivery.report.lateness import BOUNDS_US
from tickwheel.delivery.report.queries import ATTEMPTS
from tickwheel.pages import templates
from tickwheel.pages.plots import bars_over_time
from tickwheel.pages.templates import markup


def render(shown: Shown, files: Mapping[str, str]) -> str:
    """The whole page. `files` maps the names of the figures' files to what a row of each stands for."""
    late, forecast, ledgers = shown.lateness, shown.forecast, len(shown.short["ledgers"])
    ended = {row["start_ms"]: sum(row[name] for name in OUTCOMES if name in row) for row in shown.throughput}
    return templates.render(
        "analysis/page.html",
        title=f"Analysis of {ledgers:,} {'ledger' if ledgers == 1 else 'ledgers'}",
        shown=shown,
        counts=shown.counts(),
        outcomes=OUTCOMES,
        files=files,
        most_attempts=ATTEMPTS,
        most_ledgers=LEDGERS,
        last_bar_ms=BOUNDS_US[-1] / 1000,
        ended=markup(bars_over_time("ended", ended, shown.step_ms, "ended at")) if ended else None,
        over_time=markup(plots.lateness_over_time(late)) if late else None,
        by_size=markup(plots.lateness_by_size(late)) if late else None,
        wake_ups=_wake_ups(shown.timer) if shown.timer and shown.timer.step_ms else None,
        due=markup(plots.due_next(forecast)) if forecast and forecast.due else None,
    )


def _wake_ups(timer: Timer) -> Mapping[str, Any]:
    counts = {row["start_ms"]: row["wake_ups"] for row in timer.over_time}
    return markup(bars_over_time("wake-ups", counts, timer.step_ms, "woken at", of="wake-ups"))
