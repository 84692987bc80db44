"""A program's connection to its own database, by each library and on each database that an outbox can be written to."""

import itertools
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import sqlalchemy
from django.db.utils import ConnectionHandler
from sqlalchemy.orm import Session

from django_site.setting_up import set_up
from tickwheel.delivery.outbox import create_table

KINDS = [
    *("sqlite3", "sqlalchemy sqlite", "session sqlite", "django sqlite"),
    *("psycopg", "sqlalchemy postgresql", "session postgresql", "django postgresql"),
]
_numbers = itertools.count()


class Program(NamedTuple):
    """`connection` has a transaction open, or opens one with the next statement. `address`: where to read `table`."""

    connection: Any
    commit: Callable[[], object]
    rollback: Callable[[], object]
    close: Callable[[], object]
    address: str
    table: str

    def make_table(self) -> None:
        create_table(self.connection, self.table)
        self.commit()


def program(kind: str, folder: Path, postgres_url: str) -> Program:
    """A program with a table of its own."""
    library, _, dialect = kind.partition(" ")
    table = f"outbox_{next(_numbers)}"
    path = folder / "app.db"
    mark = "&" if "?" in postgres_url else "?"
    sqlite_address, address = f"sqlite:{path}?table={table}", f"{postgres_url}{mark}table={table}"
    if kind == "sqlite3":
        one = sqlite3.connect(path)
        return Program(one, one.commit, one.rollback, one.close, sqlite_address, table)
    if kind == "psycopg":
        other = psycopg.connect(postgres_url)
        return Program(other, other.commit, other.rollback, other.close, address, table)
    if library == "django":
        third = django_connection(path if dialect == "sqlite" else postgres_url)
        where = sqlite_address if dialect == "sqlite" else address
        return Program(third, third.commit, third.rollback, third.close, where, table)
    url = f"sqlite:///{path}" if dialect == "sqlite" else postgres_url.replace("postgresql:", "postgresql+psycopg:")
    engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.pool.NullPool)
    fourth = engine.connect() if library == "sqlalchemy" else Session(engine)
    where = sqlite_address if dialect == "sqlite" else address
    return Program(fourth, fourth.commit, fourth.rollback, fourth.close, where, table)


def django_connection(database: Path | str) -> Any:
    """Without autocommit, so that each statement is in a transaction."""
    set_up()
    if isinstance(database, Path):
        options = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(database)}
    else:
        given = psycopg.conninfo.conninfo_to_dict(database)
        names = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host"}
        options = {"ENGINE": "django.db.backends.postgresql", **{name: given[key] for name, key in names.items()}}
    connection = ConnectionHandler({"default": options})["default"]
    connection.set_autocommit(False)
    return connection
