"""How a statement is run on the caller's connection: of sqlite3, psycopg 3, SQLAlchemy 2 or Django.

A connection can only come from a library that the program has imported, so this module imports none. Nothing is begun
or committed here, so the statement is part of the transaction that the caller has open.
"""

import json
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.delivery.outbox.records import readable

_Execute: TypeAlias = Callable[[str, dict[str, Any]], object]

_ALLOWED: Final = "a connection of sqlite3, psycopg 3, SQLAlchemy 2 (also a Session) or Django"


_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]+")


class Writer(NamedTuple):
    """The database of a connection, how its driver writes the parameter `{}`, and what runs a statement.

    `driver`: the driver's own connection to PostgreSQL.
    """

    dialect: str
    parameter: str
    execute: _Execute
    driver: object = None

    def records(self, records: Sequence[str]) -> object:
        """The value of a parameter with several records. If the connection or the database is not in UTF-8, characters
        outside ASCII are escaped: JSON may have them so. Errors: `BadRecord` if a record is too long then.
        """
        if not self._has_all_characters():
            escaped = (_NOT_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], record) for record in records)
            records = [readable(record.encode()) for record in escaped]
        return json.dumps(records) if self.dialect == "sqlite" else [*records]

    def _has_all_characters(self) -> bool:
        parameter = getattr(getattr(self.driver, "info", None), "parameter_status", None)  # of psycopg 2 and 3
        return parameter is None or parameter("client_encoding") == parameter("server_encoding") == "UTF8"


def writer_of(connection: Any) -> Writer:
    """The writer into the caller's connection. Errors: `WrongUsage`."""
    for of_library in (_sqlite3, _psycopg, _sqlalchemy, _django):
        writer = of_library(connection)
        if writer is not None:
            return writer
    raise WrongUsage(f"{connection!r:.200} is no connection that an outbox can be written to: give {_ALLOWED}")


def _sqlite3(connection: Any) -> Writer | None:
    if not _is(connection, "sqlite3", "Connection"):
        return None
    return Writer("sqlite", ":{}", connection.execute)


def _psycopg(connection: Any) -> Writer | None:
    if _is(connection, "psycopg", "AsyncConnection"):
        raise WrongUsage(f"an asynchronous connection of psycopg can't be written to: give {_ALLOWED}")
    if not _is(connection, "psycopg", "Connection"):
        return None
    psycopg = sys.modules["psycopg"]
    cursor = psycopg.Cursor(connection, row_factory=psycopg.rows.tuple_row)  # the connection may have others
    return Writer("postgresql", "%({})s", cursor.execute, connection)


def _sqlalchemy(connection: Any) -> Writer | None:
    if any(_is(connection, "sqlalchemy.ext.asyncio", name) for name in ("AsyncSession", "AsyncConnection")):
        raise WrongUsage("an asynchronous connection: await its run_sync(lambda connection: enqueue(connection, ...))")
    if any(_is(connection, "sqlalchemy.orm", name) for name in ("Session", "scoped_session")):
        connection = connection.connection()  # the connection of its transaction, which it begins if there is none
    elif not _is(connection, "sqlalchemy", "Connection"):
        return None
    text = sys.modules["sqlalchemy"].text
    return Writer(
        connection.dialect.name,
        ":{}",
        lambda statement, values: connection.execute(text(statement), values),
        connection.connection.driver_connection,
    )


def _django(connection: Any) -> Writer | None:
    if _is(connection, "django.utils.connection", "ConnectionProxy"):  # `django.db.connection`
        connection = sys.modules["django.db"].connections[connection._alias]
    if not _is(connection, "django.db.backends.base.base", "BaseDatabaseWrapper"):
        return None

    def execute(statement: str, values: dict[str, Any]) -> None:
        with connection.cursor() as cursor:
            cursor.execute(statement, values or None)

    if connection.vendor == "postgresql":
        connection.ensure_connection()
    return Writer(connection.vendor, "%({})s", execute, connection.connection)


def _is(connection: object, module: str, name: str) -> bool:
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(connection, kind)
