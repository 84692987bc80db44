"""Reads an outbox in PostgreSQL: `postgresql://...?table=T`.

- `enqueue` notifies the channel `tickwheel_outbox` in its transaction, so rows are read as soon as they are committed.
  Rows that were inserted by hand are found by a look every `_LOOK_EVERY_S`.
- The reader's connection has an advisory lock of the table's name. Because of this lock only one process reads, also if
  the table is dropped and made again meanwhile. A pooler in transaction mode between reader and server is refused.
- Reading and deleting are transactions of their own. No transaction is open while the engine commits.
"""

import math
import os
import time
from collections.abc import Sequence
from typing import Any, Final

import psycopg
from psycopg import sql

from tickwheel._event import Event
from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.delivery.outbox.source import Row, Source, SourceOpener
from tickwheel.delivery.outbox.tables import BATCH_BYTES, BATCH_ROWS, CHANNEL
from tickwheel.delivery.sinks.addresses import secrets_of, without, without_user
from tickwheel.delivery.sinks.poolers import backend_of
from tickwheel.delivery.sinks.postgresql import read_address

_LOOK_EVERY_S: Final = 1.0
_STOP_WITHIN_S: Final = 0.25
_WITHIN_S: Final = 30
_POOLER_WITHIN_S: Final = 5.0

_DEFAULTS: Final = {
    "connect_timeout": 10,
    "tcp_user_timeout": 1_000 * _WITHIN_S,
    "keepalives_idle": 10,  # a server that vanished is noticed
    "keepalives_interval": 5,
    "keepalives_count": 2,
    "fallback_application_name": "tickwheel",
}
_SETTINGS: Final = """
    SELECT set_config('statement_timeout', %(timeout_ms)s, false),
    set_config('lock_timeout', %(lock_timeout_ms)s, false),
    set_config('plan_cache_mode', 'force_custom_plan', false),
    set_config('tcp_keepalives_idle', '10', false),
    set_config('tcp_keepalives_interval', '5', false),
    set_config('tcp_keepalives_count', '2', false),
    set_config('synchronous_commit', CASE s WHEN 'off' THEN 'on' ELSE s END, false)
    FROM current_setting('synchronous_commit') AS s
"""  # the server notices a reader that vanished, and gives its lock to the next
_LOCK_TIMEOUT_MS: Final = 10  # a locked row is tried again later
_LOCK: Final = """
    SELECT pg_try_advisory_lock(
        hashtextextended('tickwheel outbox ' || quote_ident(nspname) || '.' || quote_ident(relname), 0)
    )
    FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE pg_class.oid = CAST(%s AS regclass)
"""
_BATCH: Final = """
    SELECT n, written_ms, CASE WHEN size <= {max_record} THEN record END, size
    FROM (
        SELECT n, written_ms, record, size, sum(read_size) OVER (ORDER BY n) - read_size AS size_before
        FROM (
            SELECT n, written_ms, record, size, CASE WHEN size <= {max_record} THEN size ELSE 0 END AS read_size
            FROM (
                SELECT n, written_ms, record, octet_length(record) AS size
                FROM {table} WHERE {which} AND n IS NOT NULL ORDER BY n LIMIT {rows}
            ) AS first_rows
        ) AS sized_rows
    ) AS summed_rows
    WHERE size_before < {bytes} ORDER BY n
"""
"""Reads the first rows, up to a number of rows and of bytes. A record that is too long is left out."""
_PASSED: Final = sql.SQL("n <> ALL(%s::bigint[])")
_THESE: Final = sql.SQL("n = ANY(%s::bigint[])")
_LIMIT: Final = "SELECT set_config('statement_timeout', %s::text, true)"
_DELETE: Final = "DELETE FROM {table} WHERE {which} RETURNING n"
_UNLOCKED: Final = "n IN (SELECT n FROM {table} WHERE n = ANY(%s::bigint[]) FOR UPDATE SKIP LOCKED)"
_NO_INTEGER: Final = """
    SELECT format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = CAST(%s AS regclass) AND attname = 'n'
    AND atttypid NOT IN ('bigint'::regtype, 'integer'::regtype, 'smallint'::regtype)
"""

_MAY_LOCK: Final = """
    SELECT has_table_privilege(CAST(%(table)s AS regclass), 'UPDATE') AND NOT row_security_active(%(table)s)
"""


class PostgresqlSource(Source):
    """The table `names`, its name with or without a schema. `options`: for libpq, with the password."""

    _connection: psycopg.Connection | None = None  # a fork may come before `__init__` has ended

    def __init__(self, name: str, options: dict[str, Any], names: Sequence[str], max_payload: int) -> None:
        super().__init__(name, max_payload)
        self._options = options
        self._table = sql.Identifier(*names)
        fields = {"max_record": 2 * max_payload, "rows": BATCH_ROWS, "bytes": BATCH_BYTES}
        literals = {name: sql.Literal(value) for name, value in fields.items()}
        self._batch = sql.SQL(_BATCH).format(table=self._table, which=_PASSED, **literals)
        self._one = sql.SQL(_BATCH).format(table=self._table, which=_THESE, **literals)
        self._delete = sql.SQL(_DELETE).format(table=self._table, which=_THESE)

    def open(self) -> bool:
        """Connect, and lock the outbox."""
        if self._connection is not None:
            return True
        self._connection = self._connect()
        backend_of(self._connection, self._connect, _POOLER_WITHIN_S)
        limits = {"timeout_ms": str(1_000 * _WITHIN_S), "lock_timeout_ms": str(_LOCK_TIMEOUT_MS)}
        self._connection.execute(_SETTINGS, limits)
        table = self._table.as_string(self._connection)
        for (type_,) in self._connection.execute(_NO_INTEGER, (table,)):
            raise WrongUsage(f"n is of the type {type_}: make it bigint")
        if self._connection.info.parameter_status("server_encoding") == "SQL_ASCII":
            self._connection.execute("SET client_encoding = 'SQL_ASCII'")  # else a byte outside UTF-8 fails the look
        if self._connection.execute(_LOCK, (table,)).fetchone() != (True,):
            self.close()
            return False
        if self._connection.execute(_MAY_LOCK, {"table": table}).fetchone() == (True,):
            unlocked = sql.SQL(_UNLOCKED).format(table=self._table)
            self._delete = sql.SQL(_DELETE).format(table=self._table, which=unlocked)
        self._connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(CHANNEL)))
        return True

    def _connect(self) -> psycopg.Connection:
        try:
            return psycopg.connect(**{**_DEFAULTS, **self._options, "client_encoding": "utf8"}, autocommit=True)
        except psycopg.Error as error:  # its text may quote the password
            raise psycopg.OperationalError(without(secrets_of(self._options), str(error))) from None

    def read(self, passed: Sequence[int] = ()) -> Sequence[Row]:
        """One statement."""
        for _ in self._opened.notifies(timeout=0):
            pass  # the rows are read now; psycopg would keep the notices for the next `wait`, without a bound
        return self._rows(self._batch, passed)

    def fetch(self, n: int) -> Row | None:
        """One statement."""
        return next(iter(self._rows(self._one, [n])), None)

    def delete(self, numbers: Sequence[int], within_s: float) -> Sequence[int]:
        """One transaction. A locked row is left out, if the user has the right to lock rows, which is that to update.
        What a deferred trigger does has the time limit too.
        """
        with self._opened.transaction():
            self._opened.execute(_LIMIT, (math.ceil(within_s * 1_000),))
            deleted = [n for (n,) in self._opened.execute(self._delete, ([*numbers],))]
            self._opened.execute("SET CONSTRAINTS ALL IMMEDIATE")  # no `statement_timeout` ends them at the commit
        return deleted

    def wait(self, stopping: Event, at_most_s: float) -> None:
        """Wait until something was notified."""
        until_s = time.monotonic() + min(_LOOK_EVERY_S, at_most_s)
        while not stopping.is_set() and time.monotonic() < until_s:
            if [*self._opened.notifies(timeout=_STOP_WITHIN_S, stop_after=1)]:
                return

    def has_lost_connection(self) -> bool:
        """As psycopg knows."""
        return self._connection is not None and self._connection.broken

    def close(self) -> None:
        """Close the connection, which frees the lock."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def leave_to_parent(self) -> None:
        """Close the descriptor: the connection, which has the lock, is the parent's."""
        if self._connection is not None and not self._connection.closed:
            os.close(self._connection.fileno())

    def _rows(self, select: sql.Composed, numbers: Sequence[int]) -> Sequence[Row]:
        return [
            Row(n, ms or 0, record.encode() if isinstance(record, str) else record, size)
            for n, ms, record, size in self._opened.execute(select, ([*numbers],))
        ]

    @property
    def _opened(self) -> psycopg.Connection:
        assert self._connection is not None, "it is open"
        return self._connection


def opener_of(address: str, max_payload: int) -> SourceOpener:
    """Reads the address; nothing is connected yet. Errors: `WrongUsage`, without the password."""
    options, names = read_address(address)
    name = without_user(address)
    return lambda: PostgresqlSource(name, options, names, max_payload)
