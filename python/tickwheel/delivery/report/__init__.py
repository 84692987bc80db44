"""One HTML page about a store: counts, lateness, what is due next, dead letters (rule D11, `--report`).

Data goes one way: `queries` and `lateness` read the store, `plots` draws, `page` puts it into `page.html`. What it has
in common with every other page is in `tickwheel.pages`. `tickwheel analyze` tells of lateness and of what is due next
too: `lateness`, `forecast`, `plots` and `macros.html` are for both.
"""

import time
from collections.abc import Callable
from pathlib import Path

from tickwheel.delivery.summary import Summary
from tickwheel.pages import need_report

__all__ = ["need_report", "write_report"]


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
    need_report("the report")
    from tickwheel.delivery.report.page import render
    from tickwheel.delivery.report.queries import look
    from tickwheel.pages.templates import save

    save(page, render(look(store, wall_ns() // 1_000_000), title, summary))
