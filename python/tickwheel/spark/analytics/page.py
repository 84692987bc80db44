"""The page of an analysis: figures and charts put into `page.html`, where everything is escaped (rules S6, D12)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from jinja2 import ChoiceLoader, DictLoader, Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from tickwheel import __version__
from tickwheel.delivery.report import plots
from tickwheel.delivery.report.buckets import name_of_step
from tickwheel.delivery.report.lateness import BOUNDS_US
from tickwheel.delivery.times import MAX_DUE_MS, rfc_3339
from tickwheel.spark.analytics.figures import OUTCOMES
from tickwheel.spark.analytics.parts import Charts, ended_over_time, shown_text, templates
from tickwheel.spark.analytics.shown import ATTEMPTS, LEDGERS, Shown

_DAY_MS: Final = 86_400_000


def _time(epoch_ms: int, step: int = 1) -> str:
    """RFC 3339 in UTC, no longer than steps of that size need."""
    text = rfc_3339(min(epoch_ms, MAX_DUE_MS))
    if step % _DAY_MS == 0:
        return text[:10]
    if step % 60_000 == 0:
        return text[:16] + "Z"
    return text[:19] + "Z" if step % 1_000 == 0 else text


_PAGES: Final = Environment(
    loader=ChoiceLoader([FileSystemLoader(Path(__file__).parent), DictLoader(templates())]),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_PAGES.filters["utc"] = _time
_PAGES.filters["count"] = "{:,}".format
_PAGES.filters["ms"] = "{:,.3f} ms".format
_PAGES.filters["late"] = "{:,.3f}".format
_PAGES.filters["share"] = lambda part: f"{100 * part:.1f} %" if part >= 0.001 else "< 0.1 %"
_PAGES.filters["step"] = name_of_step
_PAGES.filters["short"] = shown_text


def render(shown: Shown, files: Mapping[str, str]) -> str:
    """The whole page; `files` are the names of the figures' files, and what each holds."""
    late, forecast = shown.lateness, shown.forecast
    ended = {row["start_ms"]: sum(row[name] for name in OUTCOMES if name in row) for row in shown.throughput}
    return _PAGES.get_template("page.html").render(
        version=__version__,
        shown=shown,
        counts=shown.counts(),
        outcomes=OUTCOMES,
        files=files,
        most_attempts=ATTEMPTS,
        most_ledgers=LEDGERS,
        last_bar_ms=BOUNDS_US[-1] / 1000,
        ended=_markup(ended_over_time(ended, shown.step_ms)) if ended else None,
        over_time=_markup(plots.lateness_over_time(late)) if late else None,
        by_size=_markup(plots.lateness_by_size(late)) if late else None,
        due_next=_markup(plots.due_next(forecast)) if forecast and forecast.due else None,
    )


def _markup(charts: Charts) -> Mapping[str, Markup]:
    """Drawn by us from numbers alone: no text from a message is in it."""
    return {size: Markup(svg) for size, svg in charts.items()}  # noqa: S704
