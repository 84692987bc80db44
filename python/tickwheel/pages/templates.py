"""Fills in templates, with everything escaped but the charts (rule D12), and writes the page as one file.

A page needs no other file: it fetches no script, font or image, and its content security policy forbids that too.
Templates are named by their path in the package: `{% extends "pages/page.html" %}`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from tickwheel import __version__
from tickwheel.delivery.base.errors import DeliveryFailed
from tickwheel.pages.plots import Charts
from tickwheel.pages.steps import name_of_step
from tickwheel.pages.text import shown_text, utc

_TEMPLATES: Final = Environment(
    loader=FileSystemLoader(Path(__file__).parents[1]),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.globals["version"] = __version__
_TEMPLATES.filters |= {
    "utc": utc,
    "count": "{:,}".format,
    "ms": "{:,.3f} ms".format,
    "bare_ms": "{:,.3f}".format,
    "share": lambda part: f"{100 * part:.1f} %" if part >= 0.001 else "< 0.1 %",
    "step": name_of_step,
    "short": shown_text,
}


def render(template: str, **values: Any) -> str:
    """The whole page. Every value that a template names must be given, `None` too."""
    return _TEMPLATES.get_template(template).render(values)


def markup(charts: Charts) -> Mapping[str, Markup]:
    """Charts as markup for a template. They need no escaping: they are drawn from numbers, without outside text."""
    return {size: Markup(svg) for size, svg in charts.items()}  # noqa: S704


def save(page: Path, text: str) -> None:
    """Write the page. Errors: `DeliveryFailed`."""
    try:
        page.write_bytes(text.encode("utf-8", "replace"))
    except OSError as error:
        raise DeliveryFailed(f"the report can't be written to {page}: {error.strerror}") from error
