"""The reader of an outbox in PostgreSQL behind a pooler, here pgbouncer (rules D9, D11)."""

from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from delivery.outbox.conftest import Reading
from delivery.outbox.programs import Program, program
from delivery.pgbouncer import pgbouncer
from delivery.postgres_server import PostgresServer
from tickwheel.delivery.outbox import enqueue
from tickwheel.delivery.outbox.source import source_of

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def written(tmp_path: Path, postgres_url: str) -> Iterator[Program]:
    made = program("psycopg", tmp_path, postgres_url)
    made.make_table()
    yield made
    made.close()


def test_behind_a_pooler_in_transaction_mode_no_reader_gets_the_outbox__D9(
    written: Program, postgres_server: PostgresServer
) -> None:
    """Neither would be alone: the lock belongs to a connection of the server that all clients share."""
    with pgbouncer(postgres_server, "transaction") as url:
        source = source_of(f"{url}&table={written.table}")()
        with pytest.raises(psycopg.OperationalError, match="transaction mode is between"):
            source.open()
        source.close()
    locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
    assert written.connection.execute(locks).fetchone() == (0,)


def test_behind_a_pooler_in_session_mode_one_reader_gets_rows_as_they_are_committed__D9_D11(
    written: Program, postgres_server: PostgresServer, reading: Callable[..., Reading]
) -> None:
    with pgbouncer(postgres_server, "session") as url:
        read = reading(f"{url}&table={written.table}")
        for name in ("a", "b"):
            enqueue(written.connection, {"id": name, "delay_ms": 0}, table=written.table)
            written.commit()
            assert read.ids(1) == [name]
        other = source_of(f"{url}&table={written.table}")()
        assert not other.open()
        other.close()
        read.queue.close()
