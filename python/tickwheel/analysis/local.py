"""An analysis of ledgers in this process, without Java: the files and the page of one on Spark (rule S6).

The messages are read once, in slices, and copied to a temporary database: some 200 bytes of disk for each.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from tickwheel.analysis.figures import Figure, Messages, due, figures, lateness_over_time, throughput
from tickwheel.analysis.ledgers import SLICE, look, of_ledgers, read_slice
from tickwheel.analysis.output import PAGE, replacing
from tickwheel.analysis.shown import SHORT, Row, Shown, lateness_of
from tickwheel.analysis.written import COMMAND, WRITTEN, WRITTEN_OF_EVENTS
from tickwheel.delivery.report.forecast import Forecast, steps_ahead
from tickwheel.pages import need_report
from tickwheel.pages.steps import step_ms

_AFTER_ALL: Final = 2**62


def analyze(
    ledgers: Sequence[Path],
    out: Path,
    *,
    say: Callable[[str], object],
    slice_rows: int = SLICE,
    wall_ns: Callable[[], int] = time.time_ns,
) -> Path:
    """Write every figure and the page to the folder `out`, and return the page's path. `say` is called with a line for
    each step.

    Ledgers may be in use, and are not changed. An earlier analysis in `out` is replaced when everything is made.
    Errors: `WrongUsage`, also if libraries of the page are missing; `StoreFailed`, `DeliveryFailed` if `out` can't be
    written.
    """
    from tickwheel.analysis.page import render
    from tickwheel.pages.templates import save

    need_report(COMMAND)
    as_of_ms = wall_ns() // 1_000_000
    found = look(ledgers, slice_rows)
    slices = [part for ledger in found for part in ledger.slices]
    with replacing(out, WRITTEN | WRITTEN_OF_EVENTS, COMMAND) as new:
        say(f"Reading {len(slices):,} slices of up to {slice_rows:,} messages.")
        messages = Messages(rows for part in slices for rows in read_slice(part))
        try:
            tables = {"ledgers": of_ledgers(found, as_of_ms)}
            for name, figure in figures().items():
                say(f"Making {name}.parquet.")
                tables[name] = messages.table(figure)
            for name, table in tables.items():
                (new / f"{name}.parquet").mkdir()
                pq.write_table(table, new / f"{name}.parquet" / "part-0.parquet")
            say(f"Making {PAGE}.")
            save(new / PAGE, render(_shown(messages, tables, as_of_ms), WRITTEN))
        finally:
            messages.close()
    return out / PAGE


def _shown(messages: Messages, tables: dict[str, Any], as_of_ms: int) -> Shown:
    short: dict[str, Sequence[Row]] = {name: tables[name].to_pylist() for name in SHORT}
    [span] = messages.rows(
        Figure(
            "SELECT min(at_ms) AS first_ms, max(at_ms) AS last_ms, ifnull(sum(outcome = 'waiting'), 0) AS waiting, "
            f"ifnull(sum(outcome = 'waiting' AND due_ms >= {as_of_ms}), 0) AS coming FROM messages"
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
        timer=None,
    )


def _forecast(messages: Messages, as_of_ms: int, waiting: int, coming: int) -> Forecast:
    """The messages due from now on; if all are overdue, as after an outage, those."""
    count, shown = (
        (coming, f"outcome = 'waiting' AND due_ms >= {as_of_ms}") if coming else (waiting, "outcome = 'waiting'")
    )
    [ends] = messages.rows(
        Figure(
            f"SELECT min(due_ms) AS first_ms, max(due_ms) AS last_ms, (SELECT due_ms FROM messages WHERE {shown} "
            f"ORDER BY due_ms LIMIT 1 OFFSET {int(0.9 * (count - 1))}) AS most_ms FROM messages WHERE {shown}"
        )
    )
    from_ms = as_of_ms if coming else ends["first_ms"]
    step, end_ms = steps_ahead(from_ms, ends["most_ms"], ends["last_ms"])
    rows = messages.rows(due(step, from_ms, min(end_ms, _AFTER_ALL)))
    found = {row["start_ms"]: row["messages"] for row in rows}
    return Forecast(step, found, count - sum(found.values()), ends["last_ms"], not coming)
