"""The figures of `tickwheel.spark.analytics` for ledgers that one machine can read, in SQL, without Java (rule S6).

The messages are copied to a temporary database of this process, on disk where memory is short, and each figure is a
statement on it. Columns, types and order are those of `tickwheel.spark.analytics.schemas`.
"""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from tickwheel.analysis.ledgers import MESSAGE
from tickwheel.delivery.model.summary import PERCENTILES
from tickwheel.delivery.report.lateness import BOUNDS_US

KEYS: Final = 100
"""The most keys that a figure has."""
OUTCOMES: Final = ("delivered", "cancelled", "undeliverable", "waiting")
MINUTE_MS: Final = 60_000
UNITS_MS: Final = {"minute": MINUTE_MS, "hour": 60 * MINUTE_MS, "day": 1440 * MINUTE_MS}

_TYPES: Final = {
    **dict.fromkeys(("key", "outcome", "unit"), pa.string()),
    **dict.fromkeys(("ledger", "busiest", "latest"), pa.int32()),
    **dict.fromkeys((*(f"{name}_ms" for name in PERCENTILES), "up_to_ms", "share"), pa.float64()),
}
_LATE: Final = "SELECT *, {start} AS start_ms FROM messages WHERE outcome = 'delivered' AND lateness_us IS NOT NULL"
_RANKS: Final = ", ".join(
    f"min(CASE WHEN through >= {q!r} * every THEN lateness_us END) / 1000.0 AS {name}_ms"
    for name, q in PERCENTILES.items()
)
_BY_OUTCOME: Final = ", ".join(f"sum(outcome = '{one}') AS {one}" for one in OUTCOMES)


class Figure(NamedTuple):
    """A statement, and the columns whose type is not the usual one."""

    statement: str
    types: Mapping[str, Any] = {}


class Messages:
    """The messages of ledgers, in a temporary database."""

    def __init__(self, slices: Iterable[Sequence[tuple[Any, ...]]]) -> None:
        self._db = sqlite3.connect("")  # SQLite's own name for a temporary file
        self._db.execute(f"CREATE TABLE messages ({', '.join(MESSAGE)})")
        places = ", ".join("?" * len(MESSAGE))
        for rows in slices:
            self._db.executemany(f"INSERT INTO messages VALUES ({places})", rows)

    def table(self, figure: Figure) -> Any:
        """The rows as an Arrow table."""
        found = self._db.execute(figure.statement)
        names = [column for column, *_ in found.description]
        schema = pa.schema([(name, figure.types.get(name) or _TYPES.get(name, pa.int64())) for name in names])
        return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in found], schema)

    def rows(self, figure: Figure) -> Sequence[Mapping[str, Any]]:
        """The rows."""
        found: list[Mapping[str, Any]] = self.table(figure).to_pylist()
        return found

    def close(self) -> None:
        """Remove the database."""
        self._db.close()


def start_of(column: str, step_ms: int) -> str:
    """The start of the time step that the column's time is in, also before 1970."""
    return f"{column} - (({column} % {step_ms}) + {step_ms}) % {step_ms}"


def lateness(by: str = "", *, step_ms: int = MINUTE_MS, source: str = "late") -> str:
    """`messages` and the percentiles of `lateness_us` by nearest rank, for each value of the column `by`, or of all.

    Equal values are counted first. Then they are numbered, and the ranks are looked up.
    """
    name, group = (f"{by}, ", f"PARTITION BY {by}") if by else ("", "")
    groups = f"GROUP BY {by} ORDER BY {by}" if by else ""
    return f"""
        WITH late AS ({_LATE.format(start=start_of("at_ms", step_ms))}),
        alike AS (SELECT {name}lateness_us, count(*) AS alike FROM {source} GROUP BY {name}lateness_us),
        ranked AS (
            SELECT *, sum(alike) OVER ({group} ORDER BY lateness_us) AS through, sum(alike) OVER ({group}) AS every
            FROM alike
        )
        SELECT {name}ifnull(sum(alike), 0) AS messages, {_RANKS} FROM ranked {groups}
    """


def _lateness_by_key(most: int) -> str:
    shown = f"late JOIN (SELECT key FROM placed WHERE busiest <= {most} OR latest <= {most}) USING (key)"
    return f"""
        WITH keys AS (
            SELECT key, count(*) AS messages, max(lateness_us) AS max_us FROM messages
            WHERE outcome = 'delivered' AND lateness_us IS NOT NULL AND key IS NOT NULL GROUP BY key
        ),
        placed AS (
            SELECT key, row_number() OVER (ORDER BY messages DESC, key) AS busiest,
            row_number() OVER (ORDER BY max_us DESC, key) AS latest FROM keys
        )
        SELECT it.*, CASE WHEN busiest <= {most} THEN busiest END AS busiest,
        CASE WHEN latest <= {most} THEN latest END AS latest
        FROM ({lateness("key", source=shown)}) AS it JOIN placed USING (key)
        ORDER BY it.messages DESC, key
    """


def _lateness_by_size() -> str:
    ends = " ".join(f"WHEN lateness_us <= {bound} THEN {bound / 1000!r}" for bound in BOUNDS_US[:-1])
    return f"""
        SELECT CASE {ends} ELSE {BOUNDS_US[-1] / 1000!r} END AS up_to_ms, count(*) AS messages FROM messages
        WHERE outcome = 'delivered' AND lateness_us IS NOT NULL GROUP BY 1 ORDER BY 1
    """


def _hot_keys(most: int) -> str:
    return f"""
        SELECT key, count(*) AS messages, count(*) * 1.0 / (SELECT count(*) FROM messages) AS share,
        count(CASE WHEN attempts > 1 THEN 1 END) AS retried, {_BY_OUTCOME} FROM messages
        WHERE key IS NOT NULL GROUP BY key ORDER BY messages DESC, key LIMIT {most}
    """


def throughput(step_ms: int) -> Figure:
    """The messages that ended, by the time of their outcome."""
    counts = ", ".join(f"sum(outcome = '{one}') AS {one}" for one in OUTCOMES[:-1])
    return Figure(
        f"SELECT {start_of('at_ms', step_ms)} AS start_ms, {counts}, sum(attempts) AS attempts FROM messages "
        "WHERE at_ms IS NOT NULL GROUP BY 1 ORDER BY 1"
    )


def lateness_over_time(step_ms: int) -> Figure:
    """The lateness by time of delivery."""
    return Figure(lateness("start_ms", step_ms=step_ms))


def due(step_ms: int, from_ms: int, until_ms: int) -> Figure:
    """The waiting messages that are due in this time, by due time."""
    return Figure(
        f"SELECT {start_of('due_ms', step_ms)} AS start_ms, count(*) AS messages FROM messages "
        f"WHERE outcome = 'waiting' AND due_ms >= {from_ms} AND due_ms < {until_ms} GROUP BY 1 ORDER BY 1"
    )


def _due_forecast() -> str:
    units = " UNION ALL ".join(
        f"SELECT '{unit}' AS unit, {step} AS step_ms, {start_of('due_ms', step)} AS start_ms, count(*) AS messages "
        "FROM messages WHERE outcome = 'waiting' GROUP BY 3"
        for unit, step in UNITS_MS.items()
    )
    return f"SELECT unit, start_ms, messages FROM ({units}) ORDER BY step_ms, start_ms"


def figures(most_keys: int = KEYS) -> Mapping[str, Figure]:
    """Each figure, by the name of its file."""
    return {
        "outcomes": Figure(
            "SELECT ledger, outcome, count(*) AS messages, sum(redelivered) AS redelivered, min(at_ms) AS first_ms, "
            "max(at_ms) AS last_ms FROM messages GROUP BY 1, 2 ORDER BY 1, 2"
        ),
        "lateness": Figure(lateness()),
        "lateness_by_minute": lateness_over_time(MINUTE_MS),
        "lateness_by_key": Figure(_lateness_by_key(most_keys)),
        "lateness_by_size": Figure(_lateness_by_size()),
        "hot_keys": Figure(_hot_keys(most_keys)),
        "attempts": Figure(
            "SELECT attempts, outcome, count(*) AS messages, sum(redelivered) AS redelivered FROM messages "
            "WHERE attempts IS NOT NULL GROUP BY 1, 2 ORDER BY 1, 2",
            {"attempts": pa.int32()},
        ),
        "repeats": Figure(
            """
            WITH names AS (
                SELECT count(DISTINCT ledger) AS ledgers,
                count(DISTINCT CASE WHEN outcome = 'delivered' THEN ledger END) AS delivered,
                sum(outcome = 'delivered' AND redelivered) AS redelivered,
                sum(outcome = 'waiting' AND redelivered) AS may_have_arrived FROM messages GROUP BY key, id
            )
            SELECT ifnull(sum(redelivered), 0) AS redelivered, ifnull(sum(may_have_arrived), 0) AS may_have_arrived,
            count(CASE WHEN ledgers > 1 THEN 1 END) AS in_several_ledgers,
            count(CASE WHEN delivered > 1 THEN 1 END) AS delivered_by_several FROM names
            """
        ),
        "throughput": throughput(MINUTE_MS),
        "due_forecast": Figure(_due_forecast()),
    }
