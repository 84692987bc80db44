"""One HTML page about a store: counts, lateness, what is due next, dead letters (rule D11, `--report`).

Data goes one way: `queries` and `lateness` read the store, `plots` draws, `page` puts it into `page.html`. matplotlib
and jinja2 are loaded when a page is asked for: `pip install 'tickwheel[report]'`.
"""

import time
from collections.abc import Callable
from pathlib import Path

from tickwheel.delivery.errors import WrongUsage
from tickwheel.delivery.summary import Summary

__all__ = ["need_report", "write_report"]


def need_report() -> None:
    """Errors: `WrongUsage` if matplotlib or jinja2 can't be loaded, before anything is read."""
    try:
        import jinja2  # noqa: F401
        import matplotlib.backends.backend_svg  # noqa: F401
    except ImportError as error:
        library = (error.name or "a library").split(".")[0]
        raise WrongUsage(f"--report: {library} is not installed: run pip install 'tickwheel[report]'") from error


def write_report(
    store: Path,
    page: Path,
    *,
    title: str,
    summary: Summary | None = None,
    wall_ns: Callable[[], int] = time.time_ns,
) -> None:
    """Write the page about a store to `page`; the store may be in use, and is not changed.

    `summary` are the counts of the run that has just ended, where there was one; they alone know the duplicates. The
    same store at the same time gives the same bytes. Costs a few seconds for a ledger of a million rows, and memory
    that does not grow with it. Errors: `WrongUsage`, `StoreFailed`, `DeliveryFailed` if `page` can't be written.
    """
    need_report()
    from tickwheel.delivery.report.page import render, save
    from tickwheel.delivery.report.queries import look

    save(page, render(look(store, wall_ns() // 1_000_000), title, summary))
