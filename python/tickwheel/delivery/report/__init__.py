"""An HTML page about a store: counts, lateness, the messages due next, dead letters (rule D11, `--report`).

Data flows one way: `queries` and `lateness` read the store, `plots` draws, `page` fills `page.html`. The common parts
of every page are in `tickwheel.pages`. `tickwheel analyze` also shows lateness and the messages due next, and uses
`lateness`, `forecast`, `plots` and `macros.html` too.
"""

import time
from collections.abc import Callable
from pathlib import Path

from tickwheel.delivery.model.summary import Summary
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
    """Write the page about a store to `page`. The store may be in use, and is not changed.

    `summary`: the counts of a run that just ended, if there was a run; only they include duplicates. The same store
    at the same time gives the same bytes. A ledger of a million rows takes a few seconds; the memory does not depend on
    the ledger's size. Errors: `WrongUsage`, `StoreFailed`, `DeliveryFailed` if `page` can't be written.
    """
    need_report("the report")
    from tickwheel.delivery.report.page import render
    from tickwheel.delivery.report.queries import look
    from tickwheel.pages.templates import save

    save(page, render(look(store, wall_ns() // 1_000_000), title, summary))
