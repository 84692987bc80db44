"""Fills `page.html` with figures and charts (rules D11, D12)."""

from collections.abc import Sequence

from tickwheel.delivery.model.summary import Summary
from tickwheel.delivery.report import plots
from tickwheel.delivery.report.queries import ATTEMPTS, Figures
from tickwheel.pages import templates
from tickwheel.pages.templates import markup


def render(figures: Figures, title: str, summary: Summary | None = None) -> str:
    """The whole page."""
    late, forecast = figures.lateness, figures.forecast
    return templates.render(
        "delivery/report/page.html",
        title=title,
        figures=figures,
        counts=_counts(figures, summary),
        has_run=summary is not None,
        most_attempts=ATTEMPTS,
        over_time=markup(plots.lateness_over_time(late)) if late else None,
        by_size=markup(plots.lateness_by_size(late)) if late else None,
        due=markup(plots.due_next(forecast)) if forecast and forecast.due else None,
    )


def _counts(figures: Figures, summary: Summary | None) -> Sequence[tuple[str, int | None, int | None]]:
    """Name, count in the store, count in this run; `None`: not known there."""
    counts, run = figures.counts, summary or Summary()
    return [
        ("accepted", counts.accepted, run.accepted),
        ("delivered", counts.delivered, run.delivered),
        ("duplicates", None, run.duplicates),
        ("cancelled", counts.cancelled, run.cancelled),
        ("dead letters", counts.dead_letters, run.dead_letters),
        ("given up after the last attempt", counts.undeliverable, run.undeliverable),
        ("waiting", counts.waiting, None),
    ]
