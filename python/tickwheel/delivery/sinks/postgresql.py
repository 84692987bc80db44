r"""The sink `postgresql://...?table=T` (rule D10): a row of `T` for each message, exactly one, whatever crashes (D5).

- Each `send` is a transaction, usually one statement and one round trip. The digest of each message goes into `T_ids`;
  if the digest is new there, the row goes into `T`. If the connection is lost during a commit, and the result is
  unknown, the commit can therefore be tried again.
- `T` may already exist, with more columns, constraints and triggers. If a statement fails and the connection still
  answers `SELECT 1`, the batch is halved until the rows are found that fail alone, each half in a savepoint. A row is
  refused by a constraint, its data or a trigger. A row that another session has locked, or that takes too long, has no
  answer; the other rows of the batch do not wait for it. A batch that takes much longer than usual is halved too, and a
  row that takes long has all the time when it is sent alone. If no row can be written, as the table is locked or
  missing, there is no answer about all of them. If no connection can be made, the database is down (D6).
- There is a sink for most messages and one for keys in doubt, each with a connection of its own. So a locked row holds
  up no batch.
- All connections share an advisory lock of their store and table. Before a new connection writes, it ends all
  connections with the lock that belong to other runs. A send ends the connections of its own run that were lost
  meanwhile, or belong to a replaced sink. The server may not have executed all statements of such a connection yet: it
  never will.
- A new owner of a replicated store notes its epoch before it ends them (D21). A connection that an earlier owner opens
  later finds the newer epoch, and writes nothing.
- A pooler may be between in session mode. In transaction mode it is refused at the start: see `poolers.py`.
- A payload is stored as `json`, not `jsonb`, to keep every byte: its spaces, its order, a number such as 1.50. It may
  also have \u0000, which `jsonb` refuses. A payload that is not JSON in UTF-8 is in `payload_bytes`. PostgreSQL's text
  can't hold the character NUL, so a message with one in its id or key is refused.
- The sessions have the time zone UTC. A column `timestamp` therefore gets UTC.
- After a lost connection the next `send` opens a new one. If the server closed it between two sends, no message was
  sent by it, so none is marked. The address is never shown with its password.
"""

import math
import select
import time
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any, ClassVar

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from tickwheel.delivery.base.errors import DeliveryFailed, Unanswered, Unavailable, WrongUsage
from tickwheel.delivery.sinks.addresses import secrets_in, secrets_of, without, without_secrets
from tickwheel.delivery.sinks.patience import ALONE_S, Patience, samples
from tickwheel.delivery.sinks.poolers import backend_of
from tickwheel.delivery.sinks.sink import NONE_REFUSED, Delivery, Refusals, SinkOpener, SinkSettings
from tickwheel.delivery.sinks.tables import (
    EARLIER_AT_ONCE,
    IF_THERE,
    TableSink,
    Verdicts,
    check_columns,
    row_of,
    table_of,
)
from tickwheel.delivery.sinks.writers import Runs, Writer

FORM = "postgresql://USER:PASSWORD@HOST/DATABASE?table=T"

_TYPES = {
    "id": "text",
    "key": "text",
    "due": "timestamp with time zone",
    "payload": "json",
    "payload_bytes": "bytea",
    "delivered_at": "timestamp with time zone",
    "lateness_ms": "double precision",
    "attempt": "integer",
    "redelivered": "boolean",
}
_JSON = {"payload", "event"}  # an array of json has no binary form here; the server converts the text
_IDS_TYPES = {"digest": "bytea", "store": "text", "run": "text", "first_seq": "bigint"}
_NOT_NULL = {"id", "due", "delivered_at", "lateness_ms", "attempt", "redelivered"}

# Classes of SQLSTATE: data, constraints, functions and triggers, limits.
_OF_THE_ROW = {"21", "22", "23", "38", "39", "44", "54", "P0"}
# A trigger that names a table that is missing is a `ProgrammingError`, as is a policy that forbids the row.
_REFUSALS = (psycopg.DataError, psycopg.IntegrityError, psycopg.ProgrammingError, psycopg.NotSupportedError)
_LOCK_WAIT_MS = 100  # for a row that another session has locked
_LOOK_WAIT_MS = 5  # for rows of which one may be locked
_LOCK_WAITS_S = 1.0  # of one send
_TOGETHER_SHARE = 0.75  # of the sink's own time-out, at most: the rest is for the search
_SHORTEST_MS = 25  # of a statement in the search, besides its wait for a lock
_LOOK_WITHIN = 0.2  # of the time-out: a send that lost its connection by then looks whether the server is there
_SIZE_AT_ONCE = 16 << 20  # bytes of payload in one statement

_DROP_EARLIER = """
    DELETE FROM {ids} WHERE run <> %(run)s AND digest IN (
        SELECT digest FROM {ids} WHERE store = %(store)s AND run <> %(run)s LIMIT %(most)s)
"""

_SETTINGS = """
    SELECT set_config('statement_timeout', %(timeout_ms)s, false),
    set_config('TimeZone', 'UTC', false),
    set_config('idle_in_transaction_session_timeout', %(timeout_ms)s, false),
    set_config('plan_cache_mode', 'force_custom_plan', false),
    set_config('synchronous_commit', CASE s WHEN 'off' THEN 'on' ELSE s END, false)
    FROM current_setting('synchronous_commit') AS s
"""
_LIMITS = """
    SELECT set_config('lock_timeout', %s::text, {0}), set_config('statement_timeout', %s::text, {0})
"""
_COLUMNS_THERE = """
    SELECT attname FROM pg_attribute
    WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped
"""
_DEFERS = """
    SELECT EXISTS (SELECT FROM pg_trigger WHERE tgdeferrable AND tgrelid IN (
        SELECT relid FROM pg_partition_tree(to_regclass(%(table)s)) UNION ALL SELECT to_regclass(%(table)s)))
"""
_OTHERS_END = """
    SELECT pg_terminate_backend(pid) FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 1 AND (classid::bigint << 32 | objid::bigint) = %s
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND granted
    AND pid <> pg_backend_pid() AND pid <> ALL(%s::integer[])
"""
_LOOK_FOR_OTHERS_S = 0.005  # until they have ended

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_Row = tuple[Any, ...]  # digest, the columns, and `first_seq`
_Old = Sequence[tuple[bytes, int]]

_INSERT = """
    WITH old AS (
        DELETE FROM {ids} WHERE digest = ANY(%(old)b::bytea[])
        AND (store <> %(store)s OR first_seq = ANY(%(old_first_seq)b::bigint[]))
    ),
    new AS (
        INSERT INTO {ids} AS it (digest, store, run, first_seq)
        SELECT unnest(%(digest)b::bytea[]), %(store)s, %(run)s, unnest(%(first_seq)b::bigint[])
        ON CONFLICT (digest) DO UPDATE SET run = excluded.run, first_seq = excluded.first_seq
        WHERE it.store = excluded.store AND it.first_seq < excluded.first_seq RETURNING digest
    )
    INSERT INTO {table} ({columns})
    SELECT {values} FROM unnest({parts}) WITH ORDINALITY AS sent (digest, {columns}, first_seq, place)
    JOIN new USING (digest) ORDER BY place
"""


_RAISE_EPOCH = """
    INSERT INTO {} AS it (digest, store, run, first_seq) VALUES (%b, %s, %s, %s)
    ON CONFLICT (digest) DO UPDATE SET first_seq = greatest(it.first_seq, excluded.first_seq) RETURNING first_seq
"""


class _NotThereError(psycopg.OperationalError):
    """No connection can be made."""


class PostgresqlSink(TableSink):
    """Writes to `table`, and creates it if it is missing. `options`: for libpq, with the password."""

    spare: ClassVar[int] = 1

    def __init__(self, options: dict[str, Any], names: list[str], settings: SinkSettings, writer: Writer) -> None:
        super().__init__(settings, writer)
        self._options = options
        self._table = sql.Identifier(*names)
        self._ids = sql.Identifier(*names[:-1], f"{names[-1]}_ids")
        self._if_there: Sequence[str] = ()
        self._lock = _lock_of(settings.store_id, names)
        self._connection: psycopg.Connection | None = None
        self._limits = (0, 0)  # as `_limit` set them for the connection
        self._noted_owner: tuple[str, int] | None = None  # by the connection
        self._defers: bool | None = None
        """Whether the table has a constraint that may be checked at the commit, which no `statement_timeout` ends. Each
        connection looks it up, once the table is made.
        """
        self._patience = Patience(_TOGETHER_SHARE * self._own_s)
        try:
            connection = self._open()
            with connection.transaction():  # so a start that fails makes no table
                there = _make(connection, self._table, _TYPES, "")
                self._if_there = [name for name in IF_THERE if name in there]
                _make(connection, self._ids, _IDS_TYPES, ", PRIMARY KEY (digest)")
                self._columns = (*_TYPES, *self._if_there)
                self._insert = _insert_of(self._table, self._ids, self._columns)
                self._write(connection, (), ())  # finds wrong types and missing rights now, not with every message
        except psycopg.Error as error:
            self.close()
            where = f"the table {'.'.join(names)} in {_where(options)}"
            raise DeliveryFailed(f"{where} can't be used: {_error_text(error)}") from None
        except BaseException:
            self.close()
            raise

    def _send(self, deliveries: Sequence[Delivery]) -> Refusals:
        try:
            return self._write_all(deliveries)
        except _NotThereError as error:
            raise Unavailable(_error_text(error)) from None
        except psycopg.Error as error:
            raise Unanswered(f"{type(error).__name__}: {_error_text(error)}") from None

    def _write_all(self, deliveries: Sequence[Delivery]) -> Refusals:
        rows = [_row(delivery, self._if_there) for delivery in deliveries]
        search = _Search(self._own_s, self._patience, len(rows))
        with self._connected() as connection:
            old: _Old = ()
            if self._writer.may_delete():
                self._drop_earlier(connection)
                old = self._writer.free()
            self._limit(connection, len(rows))
            verdicts = None
            if _size(rows) <= _SIZE_AT_ONCE:
                began_s = time.monotonic()
                try:
                    self._write_together(connection, rows, old)
                    verdicts = NONE_REFUSED
                    if len(rows) > 1:
                        self._patience.note(time.monotonic() - began_s)
                    self._writer.forget()
                except psycopg.Error as error:
                    _probe(connection, error)
                    search.note(error, time.monotonic() - began_s, len(rows))
                    if search.is_over:  # a row that is sent alone has had all the time
                        raise
            if verdicts is None:
                verdicts = self._in_parts(connection, rows, old, search)
        return verdicts

    def _there(self, digests: Sequence[bytes]) -> Iterable[tuple[bytes, str, int]]:
        with self._connected() as connection:
            self._limit(connection, 1)
            select = sql.SQL("SELECT digest, store, first_seq FROM {} WHERE digest = ANY(%b::bytea[])")
            return connection.execute(select.format(self._ids), (digests,), binary=True).fetchall()

    def _drop_earlier(self, connection: psycopg.Connection) -> None:
        """Delete some digests of earlier runs."""
        if self._writer.has_earlier:
            self._limit(connection, 1)
            own = {"store": self._settings.store_id, "run": self._settings.run}
            drop = sql.SQL(_DROP_EARLIER).format(ids=self._ids)
            if connection.execute(drop, {**own, "most": EARLIER_AT_ONCE}).rowcount < EARLIER_AT_ONCE:
                self._writer.no_earlier()

    def close(self) -> None:
        """Close the connection; an open transaction is rolled back."""
        self._disconnect()
        self._writer.close()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            is_idle = connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
            connection.close()
            self._writer.disconnects(is_lost=not is_idle)

    @contextmanager
    def _connected(self) -> Iterator[psycopg.Connection]:
        """A connection; after an error inside the block it is not used again.

        If it was lost, and none can be made in its place, the error says so.
        """
        began_s = time.monotonic()
        try:
            yield self._open()
        except BaseException as error:
            is_lost = isinstance(error, psycopg.Error) and self._connection is not None and self._connection.broken
            self._disconnect()
            if is_lost and time.monotonic() - began_s < _LOOK_WITHIN * self._settings.timeout_s:
                self._connect().close()
            raise

    def _open(self) -> psycopg.Connection:
        """The connection, once no other connection may still write the same rows. It sends no message."""
        if self._writer.is_replaced:  # it would end connections of the newer ones
            raise psycopg.OperationalError("this sink was replaced")
        if self._connection is not None and _has_died(self._connection):
            self._writer.disconnects(is_lost=False)
            self._disconnect()
        try:
            if self._connection is None:
                self._connection = self._connect()
                self._writer.connects(backend_of(self._connection, self._connect, self._own_s))
                self._limits, self._defers, self._noted_owner = (0, 0), None, None
                self._connection.execute(_SETTINGS, {"timeout_ms": str(math.ceil(self._own_s * 1000))})
                self._connection.execute("SELECT pg_advisory_lock_shared(%s)", (self._lock,))
                if self._owner is None:
                    self._end_others(self._connection)
            elif self._writer.lost_backends():
                self._limit(self._connection, 1)
                self._end_others(self._connection)
            if self._owner != self._noted_owner and self._owner is not None:
                self._note_owner(self._connection, self._owner)
        except psycopg.Error as error:
            raise _NotThereError(_error_text(error)) from None
        if self._writer.is_replaced:  # before it had the lock, so its successor did not end this connection
            raise psycopg.OperationalError("this sink was replaced")
        return self._connection

    def _connect(self) -> psycopg.Connection:
        own_ms = math.ceil(self._own_s * 1000)
        defaults = {
            "connect_timeout": math.ceil(self._own_s),
            "tcp_user_timeout": own_ms,
            "keepalives_idle": math.ceil(self._own_s / 2),  # a server that vanished while it had a statement is noticed
            "keepalives_interval": math.ceil(self._own_s / 4),
            "keepalives_count": 2,
            "fallback_application_name": "tickwheel",
        }
        try:
            return psycopg.connect(**{**defaults, **self._options, "client_encoding": "utf8"}, autocommit=True)
        except psycopg.Error as error:
            raise _NotThereError(without(secrets_of(self._options), _error_text(error))) from None

    def _note_owner(self, connection: psycopg.Connection, owner: tuple[str, int]) -> None:
        """Ends connections of earlier owners, once none of them can write with a new one. Errors: `DeliveryFailed`."""
        raise_epoch = sql.SQL(_RAISE_EPOCH).format(self._ids)
        found = connection.execute(raise_epoch, self._epoch_row(owner)).fetchone()
        assert found is not None
        self._check_epoch(found[0], owner[1])
        self._end_others(connection)
        self._noted_owner = owner

    def _end_others(self, connection: psycopg.Connection) -> None:
        """Ends all connections with the lock but those of this run, and returns once they have ended."""
        lost = self._writer.lost_backends()
        until_s = time.monotonic() + self._own_s
        while connection.execute(_OTHERS_END, (self._lock, self._writer.backends())).fetchone() is not None:
            if time.monotonic() > until_s:
                raise psycopg.OperationalError("a connection that was lost, or of another run, does not end")
            time.sleep(_LOOK_FOR_OTHERS_S)
        self._writer.are_over(lost)

    def _write_together(self, connection: psycopg.Connection, rows: Sequence[_Row], old: _Old) -> None:
        if not self._has_deferrable(connection):
            self._write(connection, rows, old)
            return
        with connection.transaction():
            self._write(connection, rows, old)
            connection.execute("SET CONSTRAINTS ALL IMMEDIATE")  # checks them now, within `statement_timeout`

    def _has_deferrable(self, connection: psycopg.Connection) -> bool:
        if self._defers is None:
            table = {"table": self._table.as_string(connection)}
            self._defers = connection.execute(_DEFERS, table).fetchone() == (True,)
        return self._defers

    def _write(self, connection: psycopg.Connection, rows: Sequence[_Row], old: _Old) -> None:
        names = ("digest", *self._columns, "first_seq")
        columns = zip(*rows, strict=True) if rows else [()] * len(names)
        values = {name: list(column) for name, column in zip(names, columns, strict=True)}
        dropped = {"old": [digest for digest, _ in old], "old_first_seq": [first_seq for _, first_seq in old]}
        own = {"store": self._settings.store_id, "run": self._settings.run}
        connection.execute(self._insert, {**values, **dropped, **own})

    def _limit(self, connection: psycopg.Connection, rows: int) -> None:
        """Set how long a statement with so many rows may take: several shall not wait for one that takes long."""
        limits = (_LOCK_WAIT_MS, math.ceil((self._own_s if rows == 1 else self._patience.together_s) * 1000))
        if limits != self._limits:
            connection.execute(_LIMITS.format("false"), limits)
            self._limits = limits

    def _in_parts(self, connection: psycopg.Connection, rows: Sequence[_Row], old: _Old, search: "_Search") -> Refusals:
        """Write the rows in one transaction, and return the verdicts of those that fail alone.

        Errors: `psycopg.Error` if no row can be written, whatever is in it.
        """
        verdicts: Verdicts = {}
        self._limit(connection, 1)
        with connection.transaction():
            self._write(connection, (), ())
            began_s = time.monotonic()
            not_dropped = self._try(connection, (), old, search)
            if search.is_slow:
                self._try_samples(connection, rows, search, time.monotonic() - began_s)
            self._part(connection, rows, 0, search, verdicts)
            connection.execute(_LIMITS.format("true"), self._limits)  # for the commit
        if not_dropped is None:
            self._writer.forget()
        return verdicts

    def _try_samples(
        self, connection: psycopg.Connection, rows: Sequence[_Row], search: "_Search", none_s: float
    ) -> None:
        """Find out whether the database is slow, or some rows are. Nothing stays, so the rows keep their order.
        `none_s`: the time of a try without rows, as for the round trips.
        """
        took_s = []
        failures = []
        for row in samples(rows):
            began_s = time.monotonic()
            failures.append(self._try(connection, [row], (), search, is_kept=False))
            if failures[-1] is None:
                took_s.append(time.monotonic() - began_s)
        search.waits_long = all(isinstance(error, psycopg.errors.QueryCanceled) for error in failures)
        if took_s:
            self._patience.note_pace(max(0.0, min(took_s) - none_s), len(rows))

    def _part(
        self,
        connection: psycopg.Connection,
        rows: Sequence[_Row],
        start: int,
        search: "_Search",
        verdicts: Verdicts,
    ) -> None:
        if search.is_over:
            verdicts.update(dict.fromkeys(range(start, start + len(rows))))
            return
        if len(rows) == 1 or (_size(rows) <= _SIZE_AT_ONCE and not search.has_failed(len(rows))):
            error = self._try(connection, rows, (), search)
            if error is None:
                return
            if len(rows) == 1:
                verdicts[start] = _verdict(error)
                return
        half = len(rows) // 2
        self._part(connection, rows[:half], start, search, verdicts)
        self._part(connection, rows[half:], start + half, search, verdicts)

    def _try(
        self,
        connection: psycopg.Connection,
        rows: Sequence[_Row],
        old: _Old,
        search: "_Search",
        *,
        is_kept: bool = True,
    ) -> psycopg.Error | None:
        """Write the rows in a savepoint. Returns the error if it leaves the connection usable; then none is written."""
        began_s = time.monotonic()
        try:
            with connection.transaction():
                connection.execute(_LIMITS.format("true"), search.limits(len(rows)))
                connection.execute("SET CONSTRAINTS ALL DEFERRED")  # as a row may need what a trigger does after it
                self._write(connection, rows, old)
                connection.execute("SET CONSTRAINTS ALL IMMEDIATE")  # checks them now, not with the whole batch
                if not is_kept:
                    raise psycopg.Rollback
        except psycopg.Error as error:
            _probe(connection, error)
            search.note(error, time.monotonic() - began_s, len(rows))
            return error
        search.note(None, time.monotonic() - began_s, len(rows))
        return None


class _Search:
    """The search for the rows of one send that fail, or take long, and how long each of its statements may take.

    A row that another session has locked is waited for `_LOCK_WAIT_MS`, and several rows, of which one may be locked,
    much shorter. All waits for locks take `_LOCK_WAITS_S` at most, besides 1 ms for each statement. A part of the batch
    has its part of the batch's time, and at most a sixth of the time that is left. Single rows share `ALONE_S` besides.
    So the slowest of 1,024 rows is found, in 11 steps, before the time is over. After a batch took too long, some of
    its rows are tried alone first. If each of them takes too long, the database is slow. Then the batch is tried again,
    with most of the time left. If the quickest of them shows that all are slow, the parts have more time.
    """

    def __init__(self, own_s: float, patience: Patience, rows: int) -> None:
        self._until_s = time.monotonic() + own_s
        self._alone_s, self._lock_waits_s = min(ALONE_S, own_s / 4), min(_LOCK_WAITS_S, own_s / 4)
        self._patience, self._rows = patience, rows
        self.is_slow = False
        """Whether the batch took too long."""
        self.waits_long = False
        """Whether the database is slow, as each of some rows took too long too."""

    @property
    def is_over(self) -> bool:
        """Whether no time is left for another statement."""
        return time.monotonic() > self._until_s

    def limits(self, rows: int) -> tuple[int, int]:
        """The longest wait for a lock, and the longest time of the statement, in milliseconds."""
        lock_ms = min(_LOCK_WAIT_MS if rows == 1 else _LOOK_WAIT_MS, int(self._lock_waits_s * 1000))
        left_s = self._until_s - time.monotonic()
        if self.waits_long and rows == self._rows:
            statement_s = _TOGETHER_SHARE * left_s
        elif rows == 0 or self._rows == 1:
            statement_s = left_s / 6
        else:
            alone_s = self._alone_s if rows == 1 else 0.0
            statement_s = min(max(self._patience.part_s(rows / self._rows), alone_s), left_s / 6)
        return max(lock_ms, 1), max(int(statement_s * 1000), lock_ms + _SHORTEST_MS)

    def note(self, error: psycopg.Error | None, took_s: float, rows: int) -> None:
        """A statement with so many rows has ended after so long."""
        if error is None and rows > 1:
            self._patience.note(took_s)
        elif isinstance(error, psycopg.errors.LockNotAvailable):
            self._lock_waits_s -= took_s
        elif rows == 1:
            self._alone_s -= took_s
        elif isinstance(error, psycopg.errors.QueryCanceled) and rows > 1:
            self.is_slow = True

    def has_failed(self, rows: int) -> bool:
        """Whether this is the batch, which took too long, and is not tried again."""
        return self.is_slow and rows == self._rows and not self.waits_long


def opener_of(spec: str) -> SinkOpener:
    """Reads the address; nothing is connected yet. Errors: `WrongUsage`, without the password."""
    options, names = read_address(spec)
    runs = Runs()
    return lambda settings: PostgresqlSink(options, names, settings, runs.join(settings))


def read_address(spec: str) -> tuple[dict[str, Any], list[str]]:
    """The options of libpq, and the parts of the table's name. Errors: `WrongUsage`, without the password."""
    form, slashes, rest = spec.partition("//")
    if form != "postgresql:" or not slashes:
        raise WrongUsage(f"{without_secrets(spec)} is no address of a database: write {FORM}")
    if "#" in rest or rest.count("@") > ("@" in rest.partition("/")[0].partition("?")[0]):
        raise WrongUsage(
            f"{without_secrets(spec)} is ambiguous: in a password, write @ as %40, / as %2F, ? as %3F, # as %23"
        )
    address, _, query = spec.partition("?")
    given = query.split("&") if query else []
    names = table_of("&".join(part for part in given if part.startswith("table=")), FORM, schema=True)
    others = "&".join(part for part in given if not part.startswith("table="))
    try:
        options = conninfo_to_dict(f"{address}?{others}" if others else address)
    except psycopg.Error as error:
        # libpq's error quotes the part it does not understand, which may be the password
        problem = without(secrets_in(spec), _error_text(error))
        raise WrongUsage(f"{without_secrets(spec)} is no address of a database: {problem}: write {FORM}") from None
    return options, names


def _row(delivery: Delivery, if_there: Sequence[str]) -> _Row:
    columns = row_of(delivery, lambda ms: _EPOCH + timedelta(milliseconds=ms), if_there)
    return delivery.digest, *columns, delivery.first_seq


def _insert_of(table: sql.Identifier, ids: sql.Identifier, columns: Sequence[str]) -> sql.Composed:
    kinds = {name: "text" if name in _JSON else _TYPES.get(name, "text") for name in columns}
    parts = ", ".join(
        f"%({name})b::{kind}[]" for name, kind in {"digest": "bytea", **kinds, "first_seq": "bigint"}.items()
    )
    values = ", ".join(f"{name}::json" if name in _JSON else name for name in columns)
    named = {"columns": ", ".join(columns), "values": values, "parts": parts}
    return sql.SQL(_INSERT).format(table=table, ids=ids, **{name: sql.SQL(text) for name, text in named.items()})


def _size(rows: Sequence[_Row]) -> int:
    return sum(len(row[4] or row[5] or "") for row in rows)


def _has_died(connection: psycopg.Connection) -> bool:
    """Whether an idle connection is lost: the server has sent something, which is not a notice."""
    try:
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLIN)
        if poll.poll(0):
            connection.execute("SELECT 1")
    except psycopg.Error:
        return True
    return False


def _probe(connection: psycopg.Connection, error: psycopg.Error) -> None:
    """Errors: `error`, if the connection does not answer after it."""
    try:
        connection.execute("SELECT 1")
    except psycopg.Error:
        raise error from None


def _verdict(error: psycopg.Error) -> str | Unanswered:
    """Of a row that failed alone."""
    text = f"{type(error).__name__}: {_error_text(error)}"
    is_refusal = isinstance(error, _REFUSALS) or (error.sqlstate or "")[:2] in _OF_THE_ROW
    return text if is_refusal else Unanswered(text)


def _lock_of(store_id: str, names: Sequence[str]) -> int:
    name = "\0".join((store_id, *names)).encode()
    return int.from_bytes(blake2b(name, digest_size=8).digest(), "big", signed=True)


def _make(connection: psycopg.Connection, name: sql.Identifier, types: dict[str, str], key: str) -> Container[str]:
    text = name.as_string(connection)
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(hashtext('tickwheel'))")  # two processes may start together
        if connection.execute("SELECT to_regclass(%s)", (text,)).fetchone() == (None,):
            columns = ", ".join(f"{name} {kind}{' NOT NULL' * (name in _NOT_NULL)}" for name, kind in types.items())
            connection.execute(sql.SQL("CREATE TABLE {} ({})").format(name, sql.SQL(columns + key)))
        there = {column for (column,) in connection.execute(_COLUMNS_THERE, (text,))}
    check_columns(text, types, there)
    return there


def _where(options: dict[str, Any]) -> str:
    return f"{options.get('dbname', 'the default database')} at {options.get('host', 'the default host')}"


def _error_text(error: BaseException) -> str:
    return " ".join(str(error).split())
