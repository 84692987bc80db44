"""The table of an outbox: its columns, the statements of both databases, and what its name may be.

    n           the number of the row, in the order of insertion; never used again
    written_ms  when the row was written, in milliseconds since 1970; a `delay_ms` counts from here
    record      the record (D1), as a line of NDJSON has it

A statement is one round trip, and atomic also where the caller has no transaction open.
"""

from typing import Final

from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.delivery.sinks.tables import table_of

TABLE: Final = "tickwheel_outbox"
"""The name of the table, if no other is given."""

CHANNEL: Final = "tickwheel_outbox"
"""The channel on which PostgreSQL tells that rows have come."""

_CREATE: Final = {
    "sqlite": """CREATE TABLE IF NOT EXISTS {table} (
    n INTEGER PRIMARY KEY AUTOINCREMENT,
    written_ms INTEGER NOT NULL,
    record TEXT NOT NULL
)""",
    "postgresql": """CREATE TABLE IF NOT EXISTS {table} (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    written_ms bigint NOT NULL,
    record text NOT NULL
)""",
}

_INSERT: Final = {
    "sqlite": """
        INSERT INTO {table} (written_ms, record) SELECT {written_ms}, value FROM json_each({records}) ORDER BY key
    """,
    "postgresql": """
        WITH written AS (
            INSERT INTO {table} (written_ms, record)
            SELECT {written_ms}, given.record
            FROM unnest(CAST({records} AS text[])) WITH ORDINALITY AS given (record, place) ORDER BY given.place
        )
        SELECT pg_notify('tickwheel_outbox', '')
    """,
}

BATCH_ROWS: Final = 4_096
"""Rows that are read together: with more, no rate is gained."""

BATCH_BYTES: Final = 4 << 20
"""Bytes of records that are read together; one row at least."""


def create_statement(dialect: str, table: str = TABLE) -> str:
    """The statement that makes the table, for a migration: "postgresql" or "sqlite". Errors: `WrongUsage`.

    >>> print(create_statement("sqlite"))
    CREATE TABLE IF NOT EXISTS "tickwheel_outbox" (
        n INTEGER PRIMARY KEY AUTOINCREMENT,
        written_ms INTEGER NOT NULL,
        record TEXT NOT NULL
    )
    """
    return _CREATE[checked(dialect)].format(table=quoted(dialect, table))


def insert_statement(dialect: str, table: str, written_ms: str, records: str) -> str:
    """The statement that inserts records, in their order; the last two are how a driver writes its parameters."""
    return _INSERT[checked(dialect)].format(table=quoted(dialect, table), written_ms=written_ms, records=records)


def quoted(dialect: str, table: str) -> str:
    """The name of the table in a statement. Errors: `WrongUsage`."""
    if not isinstance(table, str):
        raise WrongUsage(f"the table is {table!r:.100}: give its name, a text")
    names = table_of(f"table={table}", "?table=T", schema=checked(dialect) == "postgresql")
    return ".".join(f'"{name}"' for name in names)


def checked(dialect: str) -> str:
    """Errors: `WrongUsage` if the dialect is not supported."""
    if dialect not in _CREATE:
        raise WrongUsage(f"an outbox can't be in {dialect!r:.100}: it may be in postgresql or sqlite")
    return dialect
