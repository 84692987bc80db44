"""Analytics (rule S6): a batch job over ledgers of delivery and recorded timer events, to Parquet and one HTML page.

    stores --slices--> LEDGER_MESSAGES --figures--> Parquet --> page
    recordings --------> their events ----events--------^

`schemas` has the columns of the input. `ledgers` reads the stores, `events` the recordings, and `tables` runs the
statements of `tickwheel.analysis.figures`. `tickwheel analyze LEDGER... --out DIR` calls `analyze` in a session of its
own.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from pyspark import StorageLevel
from pyspark.sql import SparkSession

from tickwheel.analysis.figures import MESSAGES
from tickwheel.analysis.ledgers import SLICE, check_ledgers, look
from tickwheel.analysis.making import make
from tickwheel.analysis.output import PAGE, check_out, replacing
from tickwheel.analysis.written import COMMAND, WRITTEN, WRITTEN_OF_EVENTS
from tickwheel.pages import need_report
from tickwheel.spark.analytics.events import EVENTS_TABLE, read_events, timer_of
from tickwheel.spark.analytics.ledgers import read_ledgers
from tickwheel.spark.analytics.tables import named
from tickwheel.spark.recordings import look_at

__all__ = ["WRITTEN", "analyze", "check", "look", "read_ledgers"]


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
    say = say or (lambda _line: None)
    check(ledgers, out, recordings)
    as_of_ms = wall_ns() // 1_000_000
    found = look(ledgers, slice_rows)
    messages = read_ledgers(session, found).persist(StorageLevel.DISK_ONLY)
    try:
        with ExitStack() as tables, replacing(out, WRITTEN | WRITTEN_OF_EVENTS, COMMAND) as new:
            say(f"Reading {sum(len(it.slices) for it in found):,} slices of up to {slice_rows:,} messages.")
            timer = None
            if recordings:
                events = tables.enter_context(named(read_events(session, look_at(recordings)), EVENTS_TABLE))
                timer = lambda: timer_of(events, new, say)  # noqa: E731
            make(new, tables.enter_context(named(messages, MESSAGES)), found, as_of_ms, say, timer)
    finally:
        with suppress(Exception):  # the JVM may have gone, and the result is what counts
            messages.unpersist()
    return out / PAGE
