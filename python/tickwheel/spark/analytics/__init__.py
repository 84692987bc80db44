"""Analytics (rule S6): a batch job over ledgers of delivery and recorded timer events, to Parquet and one HTML page.

    stores --slices--> LEDGER_MESSAGES --figures--> Parquet --> page
    recordings --------> their events ----events--------^

`schemas` has the columns of the input and of every figure. `ledgers` reads the stores. `figures` and `events` are
functions from DataFrame to DataFrame. `page` shows the figures. `tickwheel analyze LEDGER... --out DIR` calls `analyze`
in a session of its own.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
from pyspark import StorageLevel
from pyspark.sql import SparkSession

from tickwheel.analysis.ledgers import SLICE, check_ledgers, look, of_ledgers
from tickwheel.analysis.output import PAGE, check_out, replacing
from tickwheel.analysis.written import COMMAND, WRITTEN, WRITTEN_OF_EVENTS
from tickwheel.pages import need_report
from tickwheel.spark.analytics.events import EVENT_FIGURES, read_events
from tickwheel.spark.analytics.figures import FIGURES
from tickwheel.spark.analytics.ledgers import read_ledgers
from tickwheel.spark.recordings import look_at

__all__ = ["FIGURES", "WRITTEN", "analyze", "check", "look", "read_ledgers"]


def check(ledgers: Sequence[Path], out: Path, recordings: Sequence[Path] = ()) -> None:
    """Check the arguments before anything is read. Errors: `WrongUsage`, also if libraries of the page are missing."""
    need_report(COMMAND)
    check_ledgers(ledgers)
    look_at(recordings)
    check_out(out, WRITTEN | WRITTEN_OF_EVENTS, COMMAND)


def analyze(
    session: SparkSession,
    ledgers: Sequence[Path],
    out: Path,
    *,
    recordings: Sequence[Path] = (),
    say: Callable[[str], object] | None = None,
    slice_rows: int = SLICE,
    wall_ns: Callable[[], int] = time.time_ns,
) -> Path:
    """Write every figure and the page to the folder `out`, and return the page's path. `say` is called with a line
    for each step. A task reads `slice_rows` messages.

    `recordings` are files of `tickwheel.recording`. Ledgers may be in use, and are not changed. They are read once, and
    kept on Spark's local disk until the end. An earlier analysis in `out` is replaced when everything is made.
    Errors: `WrongUsage`, `StoreFailed`, `DeliveryFailed` if `out` can't be written, and Spark's own.
    """
    from tickwheel.analysis.page import render
    from tickwheel.pages.templates import save
    from tickwheel.spark.analytics.shown import collect

    say = say or _say_nothing
    check(ledgers, out, recordings)
    events = read_events(session, look_at(recordings)) if recordings else None
    as_of_ms = wall_ns() // 1_000_000
    found = look(ledgers, slice_rows)
    messages = read_ledgers(session, found).persist(StorageLevel.DISK_ONLY)
    try:
        with replacing(out, WRITTEN | WRITTEN_OF_EVENTS, COMMAND) as new:
            say(f"Reading {sum(len(it.slices) for it in found):,} slices of up to {slice_rows:,} messages.")
            (new / "ledgers.parquet").mkdir()
            pq.write_table(of_ledgers(found, as_of_ms), new / "ledgers.parquet" / "part-0.parquet")
            made = {name: partial(figure, messages) for name, figure in FIGURES.items()}
            if events is not None:
                made |= {name: partial(figure, events) for name, figure in EVENT_FIGURES.items()}
            for name, figure in made.items():
                say(f"Making {name}.parquet.")
                figure().write.parquet(f"file://{new.resolve()}/{name}.parquet")
            say(f"Making {PAGE}.")
            files = WRITTEN if events is None else WRITTEN | WRITTEN_OF_EVENTS
            save(new / PAGE, render(collect(messages, new, as_of_ms, events), files))
    finally:
        with suppress(Exception):  # the JVM may have gone, and the result is what counts
            messages.unpersist()
    return out / PAGE


def _say_nothing(_line: str) -> None: ...
