"""A table of each SQL sink in turn."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from delivery.sinks.tables import PostgresTable, SqliteTable, Table


@pytest.fixture(params=["sqlite", "postgresql"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Table]:
    if request.param == "sqlite":
        sqlite = SqliteTable(tmp_path / "out.db")
        yield sqlite
        sqlite.database.close()
        return
    url = request.getfixturevalue("postgres_url")
    with psycopg.connect(url, autocommit=True) as connection:
        yield PostgresTable(url, connection)
