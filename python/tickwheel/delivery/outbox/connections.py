"""How a statement is run on the caller's connection: of sqlite3, psycopg 3, SQLAlchemy 2 or Django.

A connection can only come from a library that the program has imported, so this module imports none. Nothing is begun
or committed here, so the statement is part of the transaction that the caller has open.
"""

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from tickwheel.delivery.base.errors import WrongUsage

_Execute: TypeAlias = Callable[[str, dict[str, Any]], object]

_ALLOWED = "a connection of sqlite3, psycopg 3, SQLAlchemy 2 (also a Session) or Django"


class Writer(NamedTuple):
    """The database of a connection, how its driver writes the parameter `{}`, and what runs a statement."""

    dialect: str
    parameter: str
    execute: _Execute

    def records(self, records: Sequence[str]) -> object:
        """The value of a parameter with several records."""
        return json.dumps(records) if self.dialect == "sqlite" else [*records]


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
    return Writer("postgresql", "%({})s", connection.execute)


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
    )


def _django(connection: Any) -> Writer | None:
    if _is(connection, "django.utils.connection", "ConnectionProxy"):  # `django.db.connection`
        connection = sys.modules["django.db"].connections[connection._alias]
    if not _is(connection, "django.db.backends.base.base", "BaseDatabaseWrapper"):
        return None

    def execute(statement: str, values: dict[str, Any]) -> None:
        with connection.cursor() as cursor:
            cursor.execute(statement, values or None)

    return Writer(connection.vendor, "%({})s", execute)


def _is(connection: object, module: str, name: str) -> bool:
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(connection, kind)
