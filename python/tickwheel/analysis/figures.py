"""The figures of an analysis (rule S6), each a statement in SQL that SQLite and Spark both run, with the same result.

Numbers that are no integers are written with an exponent: Spark takes others for decimals.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa

from tickwheel.delivery.model.summary import PERCENTILES
from tickwheel.delivery.report.lateness import BOUNDS_US

MESSAGES: Final = "tickwheel_messages"
"""The table with the columns `ledgers.MESSAGE`."""
KEYS: Final = 100
"""The most keys that a figure has."""
OUTCOMES: Final = ("delivered", "cancelled", "undeliverable", "waiting")
MINUTE_MS: Final = 60_000
UNITS_MS: Final = {"minute": MINUTE_MS, "hour": 60 * MINUTE_MS, "day": 1440 * MINUTE_MS}

_RANKS: Final = ", ".join(
    f"min(CASE WHEN through >= {q!r}e0 * every THEN lateness_us END) / 1e3 AS {name}_ms"
    for name, q in PERCENTILES.items()
)
_LATE: Final = f"FROM {MESSAGES} WHERE outcome = 'delivered' AND lateness_us IS NOT NULL"


class Figure(NamedTuple):
    """A statement, the order of its rows, and the columns whose type is not the usual one."""

    statement: str
    order: str = ""
    types: Mapping[str, Any] = {}


def counted(condition: str) -> str:
    """The number of rows for which the condition is true."""
    return f"count(CASE WHEN {condition} THEN 1 END)"


def start_of(column: str, step_ms: int) -> str:
    """The start of the time step that the column's time is in, also before 1970."""
    return f"{column} - (({column} % {step_ms}) + {step_ms}) % {step_ms}"


def percentiles(late: str, by: str = "") -> str:
    """`messages` and the percentiles of `lateness_us` by nearest rank, for each value of the column `by`, or of all.

    Equal values are counted first. Then they are numbered, and the ranks are looked up, in the same arithmetic as
    `tickwheel.delivery.model.summary.rank`. `late`: the statement that gives both columns.
    """
    name, group, groups = (f"{by}, ", f"PARTITION BY {by}", f"GROUP BY {by}") if by else ("", "", "")
    return f"""
        WITH alike AS (SELECT {name}lateness_us, count(*) AS alike FROM ({late}) AS late GROUP BY {name}lateness_us),
        ranked AS (
            SELECT *, sum(alike) OVER ({group} ORDER BY lateness_us) AS through, sum(alike) OVER ({group}) AS every
            FROM alike
        )
        SELECT {name}ifnull(sum(alike), 0) AS messages, {_RANKS} FROM ranked {groups}
    """


def _by_outcome(*names: str) -> str:
    return ", ".join(counted(f"outcome = '{name}'") + f" AS {name}" for name in names)


def _lateness_by_key(most: int) -> Figure:
    """Of the `most` busiest and the `most` latest keys, which may be the same."""
    busiest, latest = "messages DESC, key", "max_us DESC, key"
    late = f"SELECT key, lateness_us {_LATE} AND key IN (SELECT key FROM shown)"
    return Figure(
        f"""
        WITH keys AS (
            SELECT key, count(*) AS messages, max(lateness_us) AS max_us {_LATE} AND key IS NOT NULL GROUP BY key
        ),
        busy AS (
            SELECT key, row_number() OVER (ORDER BY {busiest}) AS busiest
            FROM (SELECT * FROM keys ORDER BY {busiest} LIMIT {most}) AS first_keys
        ),
        late_keys AS (
            SELECT key, row_number() OVER (ORDER BY {latest}) AS latest
            FROM (SELECT * FROM keys ORDER BY {latest} LIMIT {most}) AS first_keys
        ),
        shown AS (SELECT key FROM busy UNION SELECT key FROM late_keys),
        figures AS ({percentiles(late, "key")})
        SELECT figures.*, busiest, latest FROM figures LEFT JOIN busy USING (key) LEFT JOIN late_keys USING (key)
        """,
        "messages DESC, key",
    )


def _lateness_by_size() -> Figure:
    """A histogram. Bars end at 1, 2 or 5 times a power of ten, the end included; the last has the rest."""
    ends = " ".join(f"WHEN lateness_us <= {bound} THEN {bound}" for bound in BOUNDS_US[:-1])
    return Figure(
        f"SELECT (CASE {ends} ELSE {BOUNDS_US[-1]} END) / 1e3 AS up_to_ms, count(*) AS messages {_LATE} GROUP BY 1",
        "up_to_ms",
    )


def _hot_keys(most: int) -> Figure:
    """The keys with most messages, the outcomes of these messages, and their share of all."""
    return Figure(
        f"""
        SELECT key, count(*) AS messages, count(*) * 1e0 / (SELECT count(*) FROM {MESSAGES}) AS share,
        {counted("attempts > 1")} AS retried, {_by_outcome(*OUTCOMES)} FROM {MESSAGES}
        WHERE key IS NOT NULL GROUP BY key ORDER BY messages DESC, key LIMIT {most}
        """,
        "messages DESC, key",
    )


def throughput(step_ms: int) -> Figure:
    """The messages that ended, by the time of their outcome."""
    return Figure(
        f"SELECT {start_of('at_ms', step_ms)} AS start_ms, {_by_outcome(*OUTCOMES[:-1])}, sum(attempts) AS attempts "
        f"FROM {MESSAGES} WHERE at_ms IS NOT NULL GROUP BY 1",
        "start_ms",
    )


def lateness_over_time(step_ms: int) -> Figure:
    """The lateness by time of delivery."""
    late = f"SELECT {start_of('at_ms', step_ms)} AS start_ms, lateness_us {_LATE}"
    return Figure(percentiles(late, "start_ms"), "start_ms")


def due(step_ms: int, from_ms: int, until_ms: int) -> Figure:
    """The waiting messages that are due in this time, by due time."""
    return Figure(
        f"SELECT {start_of('due_ms', step_ms)} AS start_ms, count(*) AS messages FROM {MESSAGES} "
        f"WHERE outcome = 'waiting' AND due_ms >= {from_ms} AND due_ms < {until_ms} GROUP BY 1",
        "start_ms",
    )


def _due_forecast() -> Figure:
    """The waiting messages by minute, hour and day of their due time: each is counted in one row of each unit."""
    units = " UNION ALL ".join(
        f"SELECT '{unit}' AS unit, {start_of('due_ms', step)} AS start_ms, count(*) AS messages FROM {MESSAGES} "
        "WHERE outcome = 'waiting' GROUP BY 2"
        for unit, step in UNITS_MS.items()
    )
    return Figure(units, "unit = 'day', unit = 'hour', start_ms")


def figures(most_keys: int = KEYS) -> Mapping[str, Figure]:
    """Each figure, by the name of its file."""
    redelivered = f"{counted('redelivered')} AS redelivered"
    return {
        "outcomes": Figure(
            f"SELECT ledger, outcome, count(*) AS messages, {redelivered}, min(at_ms) AS first_ms, "
            f"max(at_ms) AS last_ms FROM {MESSAGES} GROUP BY 1, 2",
            "ledger, outcome",
        ),
        "lateness": Figure(percentiles(f"SELECT lateness_us {_LATE}")),
        "lateness_by_minute": lateness_over_time(MINUTE_MS),
        "lateness_by_key": _lateness_by_key(most_keys),
        "lateness_by_size": _lateness_by_size(),
        "hot_keys": _hot_keys(most_keys),
        "attempts": Figure(
            f"SELECT attempts, outcome, count(*) AS messages, {redelivered} FROM {MESSAGES} "
            "WHERE attempts IS NOT NULL GROUP BY 1, 2",
            "attempts, outcome",
            {"attempts": pa.int32()},
        ),
        "repeats": Figure(
            f"""
            WITH names AS (
                SELECT count(DISTINCT ledger) AS ledgers,
                count(DISTINCT CASE WHEN outcome = 'delivered' THEN ledger END) AS delivered,
                {counted("outcome = 'delivered' AND redelivered")} AS redelivered,
                {counted("outcome = 'waiting' AND redelivered")} AS may_have_arrived FROM {MESSAGES} GROUP BY key, id
            )
            SELECT ifnull(sum(redelivered), 0) AS redelivered, ifnull(sum(may_have_arrived), 0) AS may_have_arrived,
            {counted("ledgers > 1")} AS in_several_ledgers, {counted("delivered > 1")} AS delivered_by_several
            FROM names
            """
        ),
        "throughput": throughput(MINUTE_MS),
        "due_forecast": _due_forecast(),
    }
