"""An analysis of ledgers in this process, without Java: the files and the page of one on Spark (rule S6).

The messages are read once, in slices, and copied to a temporary database of this process, which is on disk where memory
is short: some 200 bytes for each.
"""

import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tickwheel.analysis.figures import MESSAGES, Figure
from tickwheel.analysis.ledgers import MESSAGE, SLICE, look, read_slice
from tickwheel.analysis.making import make
from tickwheel.analysis.output import PAGE, replacing
from tickwheel.analysis.shown import Row
from tickwheel.analysis.written import COMMAND, WRITTEN, WRITTEN_OF_EVENTS
from tickwheel.delivery.model.summary import PERCENTILES
from tickwheel.pages import need_report

_TYPES: Final = {
    **dict.fromkeys(("key", "outcome", "unit"), pa.string()),
    **dict.fromkeys(("ledger", "busiest", "latest"), pa.int32()),
    **dict.fromkeys((*(f"{name}_ms" for name in PERCENTILES), "up_to_ms", "share"), pa.float64()),
}


class Messages:
    """The messages of ledgers, in a temporary database, as `making.Tables`."""

    def __init__(self, slices: Iterable[Sequence[tuple[Any, ...]]]) -> None:
        self._db = sqlite3.connect("")  # SQLite's own name for a temporary file
        self._db.execute(f"CREATE TABLE {MESSAGES} ({', '.join(MESSAGE)})")
        places = ", ".join("?" * len(MESSAGE))
        for rows in slices:
            self._db.executemany(f"INSERT INTO {MESSAGES} VALUES ({places})", rows)

    def table(self, figure: Figure) -> Any:
        """The rows as an Arrow table."""
        order = f" ORDER BY {figure.order}" if figure.order else ""
        found = self._db.execute(f"SELECT * FROM ({figure.statement}){order}")
        names = [column for column, *_ in found.description]
        schema = pa.schema([(name, figure.types.get(name) or _TYPES.get(name, pa.int64())) for name in names])
        return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in found], schema)

    def rows(self, figure: Figure) -> Sequence[Row]:
        """The rows."""
        found: list[Row] = self.table(figure).to_pylist()
        return found

    def write(self, figure: Figure, path: Path) -> None:
        """Write the rows."""
        path.mkdir()
        pq.write_table(self.table(figure), path / "part-0.parquet")

    def close(self) -> None:
        """Remove the database."""
        self._db.close()


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
    need_report(COMMAND)
    as_of_ms = wall_ns() // 1_000_000
    found = look(ledgers, slice_rows)
    slices = [part for ledger in found for part in ledger.slices]
    with replacing(out, WRITTEN | WRITTEN_OF_EVENTS, COMMAND) as new:
        say(f"Reading {len(slices):,} slices of up to {slice_rows:,} messages.")
        with closing(Messages(rows for part in slices for rows in read_slice(part))) as messages:
            make(new, messages, found, as_of_ms, say)
    return out / PAGE
