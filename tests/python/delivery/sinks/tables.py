"""Tables of both SQL sinks for tests, and what is in them."""

import itertools
import sqlite3
from pathlib import Path
from typing import Any, Protocol

import psycopg

from delivery.sinks.making import delivery, opened


class Table(Protocol):
    """A table that does not exist yet, and direct access to its database."""

    spec: str
    name: str

    def ask(self, statement: str) -> list[tuple[Any, ...]]: ...


class SqliteTable:
    name = "t"
    bytes = "BLOB"

    def __init__(self, path: Path) -> None:
        self.spec = f"sqlite:{path}?table=t"
        self.database = sqlite3.connect(path, isolation_level=None)

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        return self.database.execute(statement).fetchall()


class PostgresTable:
    bytes = "BYTEA"
    numbers = itertools.count()

    def __init__(self, url: str, connection: psycopg.Connection) -> None:
        self.name = f"t{next(self.numbers)}"
        self.spec = f"{url}&table={self.name}"
        self.connection = connection

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        cursor = self.connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def ids(table: Table) -> list[str]:
    place = "rowid" if table.name == "t" else "ctid"
    return [id_ for (id_,) in table.ask(f"SELECT id FROM {table.name} ORDER BY {place}")]


def names(first: int, last: int) -> list[str]:
    return [f"id{seq}" for seq in range(first, last + 1)]


def refuse_the_id(table: Table, id_: str) -> None:
    """From now on a row with this id is refused."""
    table.ask(f"CREATE UNIQUE INDEX once_{table.name} ON {table.name} (id)")
    sink = opened(table.spec, "another store")
    sink.send([delivery(id_=id_, key="another")])
    sink.close()
