"""The page itself: figures and charts put into `page.html`, where everything is escaped (rules D11, D12).

One file that needs no other: no script, font or image is fetched, and a content security policy in it forbids that too.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from tickwheel import __version__
from tickwheel.delivery.errors import DeliveryFailed
from tickwheel.delivery.report import plots
from tickwheel.delivery.report.buckets import name_of_step
from tickwheel.delivery.report.queries import ATTEMPTS, Figures
from tickwheel.delivery.summary import Summary
from tickwheel.delivery.times import rfc_3339

_PAGES: Final = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_PAGES.filters["utc"] = rfc_3339
_PAGES.filters["count"] = "{:,}".format
_PAGES.filters["ms"] = "{:,.3f} ms".format
_PAGES.filters["step"] = name_of_step


def render(figures: Figures, title: str, summary: Summary | None = None) -> str:
    """The whole page."""
    late, forecast = figures.lateness, figures.forecast
    return _PAGES.get_template("page.html").render(
        title=title,
        version=__version__,
        figures=figures,
        counts=_counts(figures, summary),
        has_run=summary is not None,
        most_attempts=ATTEMPTS,
        over_time=_markup(plots.lateness_over_time(late)) if late else None,
        by_size=_markup(plots.lateness_by_size(late)) if late else None,
        due_next=_markup(plots.due_next(forecast)) if forecast and forecast.due else None,
    )


def save(page: Path, text: str) -> None:
    """Errors: `DeliveryFailed`."""
    try:
        page.write_bytes(text.encode("utf-8", "replace"))
    except OSError as error:
        raise DeliveryFailed(f"the report can't be written to {page}: {error.strerror}") from error


def _counts(figures: Figures, summary: Summary | None) -> Sequence[tuple[str, int | None, int | None]]:
    """Name, in the store, in this run; `None`: it is not known there."""
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


def _markup(charts: plots.Charts) -> Mapping[str, Markup]:
    """Drawn by us from numbers alone: no text from a message is in it."""
    return {size: Markup(svg) for size, svg in charts.items()}  # noqa: S704
