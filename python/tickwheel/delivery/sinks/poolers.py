"""Finds a pooler, such as pgbouncer, between a connection and PostgreSQL.

A lock, a setting and a `LISTEN` belong to one connection of the server. In *session mode* a pooler keeps one connection
of the server for each connection of a client, so all of these work. In *transaction mode* the next statement may use
another connection of the server. A lock then protects nothing, and other clients get the settings.

- A pooler invents the process number that libpq reports (`info.backend_pid`). The server itself tells the real one.
- `LISTEN` proves session mode: the connection is told what another connection notifies. In transaction mode it is not.
"""

import secrets
import time
from collections.abc import Callable
from typing import Final

import psycopg

_CHANNEL: Final = "tickwheel_pooler"

_TRANSACTION_MODE: Final = (
    "a pooler in transaction mode is between, where no connection keeps its lock and its settings: set"
    " pool_mode=session, or name the server itself"
)


def backend_of(connection: psycopg.Connection, connect: Callable[[], psycopg.Connection], within_s: float) -> int:
    """The process of the server that does the statements of this connection, which commits each statement by itself.

    `connect` makes another connection to the same address. Errors: `psycopg.OperationalError` if a pooler is between
    that does not keep a session within this time.
    """
    [(backend,)] = connection.execute("SELECT pg_backend_pid()").fetchall()
    if backend != connection.info.backend_pid and not _keeps_session(connection, backend, connect, within_s):
        raise psycopg.OperationalError(_TRANSACTION_MODE)
    return int(backend)


def _keeps_session(
    connection: psycopg.Connection, backend: int, connect: Callable[[], psycopg.Connection], within_s: float
) -> bool:
    until_s = time.monotonic() + within_s
    token = secrets.token_hex()
    connection.execute(f"LISTEN {_CHANNEL}".encode())
    with connect() as other:
        notify = "SELECT pg_backend_pid(), pg_notify(%s, %s)"
        [(other_backend, _)] = other.execute(notify, (_CHANNEL, token)).fetchall()
        other.commit()
    is_told = False
    while other_backend != backend and not is_told and (left_s := until_s - time.monotonic()) > 0:
        is_told = any(it.payload == token for it in connection.notifies(timeout=left_s, stop_after=1))
    connection.execute(f"UNLISTEN {_CHANNEL}".encode())
    return is_told
