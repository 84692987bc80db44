"""Makes the files of an analysis (rule S6): figures as Parquet, and the page. SQLite or Spark runs the statements."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

import pyarrow.parquet as pq

from tickwheel.analysis.figures import (
    MESSAGES,
    MINUTE_MS,
    Figure,
    counted,
    due,
    figures,
    lateness_over_time,
    start_of,
    throughput,
)
from tickwheel.analysis.ledgers import Ledger, of_ledgers
from tickwheel.analysis.output import PAGE
from tickwheel.analysis.shown import SHORT, Row, Shown, Timer, lateness_of
from tickwheel.analysis.written import WRITTEN, WRITTEN_OF_EVENTS
from tickwheel.delivery.report.forecast import Forecast, steps_ahead
from tickwheel.pages.steps import step_ms

_AFTER_ALL: Final = 2**62


class Tables(Protocol):
    """Runs statements on the messages."""

    def rows(self, figure: Figure) -> Sequence[Row]:
        """The rows of a figure, in order."""

    def write(self, figure: Figure, path: Path) -> None:
        """Write a figure to a new Parquet folder."""


def make(
    new: Path,
    messages: Tables,
    ledgers: Sequence[Ledger],
    as_of_ms: int,
    say: Callable[[str], object],
    timer: Callable[[], Timer] | None = None,
) -> None:
    """Write the figures and the page to the folder `new`. `timer` makes those of recorded events, and returns what the
    page shows of them. `say` is called with a line for each step.
    """
    from tickwheel.analysis.page import render
    from tickwheel.pages.templates import save

    (new / "ledgers.parquet").mkdir()
    pq.write_table(of_ledgers(ledgers, as_of_ms), new / "ledgers.parquet" / "part-0.parquet")
    for name, figure in figures().items():
        say(f"Making {name}.parquet.")
        messages.write(figure, new / f"{name}.parquet")
    timed = timer() if timer is not None else None
    say(f"Making {PAGE}.")
    files = WRITTEN if timed is None else WRITTEN | WRITTEN_OF_EVENTS
    save(new / PAGE, render(_shown(messages, new, as_of_ms, timed), files))


def _shown(messages: Tables, new: Path, as_of_ms: int, timer: Timer | None) -> Shown:
    short: dict[str, Sequence[Row]] = {name: pq.read_table(new / f"{name}.parquet").to_pylist() for name in SHORT}
    waiting, coming = counted("outcome = 'waiting'"), counted(f"outcome = 'waiting' AND due_ms >= {as_of_ms}")
    [span] = messages.rows(
        Figure(
            f"SELECT min(at_ms) AS first_ms, max(at_ms) AS last_ms, {waiting} AS waiting, {coming} AS coming "
            f"FROM {MESSAGES}"
        )
    )
    step = 0 if span["first_ms"] is None else step_ms(span["first_ms"], span["last_ms"])
    has_lateness = short["lateness"][0]["messages"]
    return Shown(
        as_of_ms=as_of_ms,
        short=short,
        step_ms=step,
        throughput=messages.rows(throughput(step)) if step else [],
        lateness=lateness_of(short, step, messages.rows(lateness_over_time(step))) if has_lateness else None,
        forecast=_forecast(messages, as_of_ms, span["waiting"], span["coming"]) if span["waiting"] else None,
        waiting=span["waiting"],
        overdue=span["waiting"] - span["coming"],
        timer=timer,
    )


def _forecast(messages: Tables, as_of_ms: int, waiting: int, coming: int) -> Forecast:
    """The messages due from now on; if all are overdue, as after an outage, those. Nine of ten are due by the end of
    the minute that decides the size of a step.
    """
    count, shown = (coming, f"AND due_ms >= {as_of_ms}") if coming else (waiting, "")
    [ends] = messages.rows(
        Figure(
            f"""
            WITH minutes AS (
                SELECT min(due_ms) AS first_ms, max(due_ms) AS last_ms, count(*) AS messages FROM {MESSAGES}
                WHERE outcome = 'waiting' {shown} GROUP BY {start_of("due_ms", MINUTE_MS)}
            ),
            counted AS (SELECT *, sum(messages) OVER (ORDER BY first_ms) AS through FROM minutes)
            SELECT min(first_ms) AS first_ms, max(last_ms) AS last_ms,
            min(CASE WHEN through >= 0.9e0 * {count} THEN last_ms END) AS most_ms FROM counted
            """
        )
    )
    from_ms = as_of_ms if coming else ends["first_ms"]
    step, end_ms = steps_ahead(from_ms, ends["most_ms"], ends["last_ms"])
    rows = messages.rows(due(step, from_ms, min(end_ms, _AFTER_ALL)))
    found = {row["start_ms"]: row["messages"] for row in rows}
    return Forecast(step, found, count - sum(found.values()), ends["last_ms"], not coming)
