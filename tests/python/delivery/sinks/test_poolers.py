"""The sink of PostgreSQL behind a pooler, here pgbouncer (rules D5, D6, D10)."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from delivery.pgbouncer import pgbouncer
from delivery.postgres_server import PostgresServer
from delivery.sinks.making import batch, opened
from tickwheel.delivery import DeliveryQueue, Message
from tickwheel.delivery.base.errors import DeliveryFailed
from tickwheel.delivery.sinks import SinkSettings, open_sink
from tickwheel.delivery.sinks.poolers import backend_of

pytestmark = pytest.mark.timeout(120)

TRANSACTION_MODE = "in transaction mode.*: set pool_mode=session, or name the server itself"


@pytest.fixture(scope="module")
def session_url(postgres_server: PostgresServer) -> Iterator[str]:
    with pgbouncer(postgres_server, "session") as url:
        yield url


@pytest.fixture
def beside(postgres_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection


def backends(beside: psycopg.Connection) -> set[int]:
    """The connections that hold an advisory lock."""
    asked = beside.execute("SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted")
    return {pid for (pid,) in asked}


def test_in_session_mode_the_two_connections_of_a_run_leave_each_other_alone__D5_D6(
    session_url: str, beside: psycopg.Connection
) -> None:
    opener = open_sink(f"{session_url}&table=pooled")
    assert callable(opener)
    sinks = [opener(SinkSettings("store", 20, "run")) for _ in range(2)]
    both = backends(beside)
    assert len(both) == 2
    for seq in range(6):
        assert sinks[seq % 2].send(batch([seq])) == {}
    assert backends(beside) == both
    for sink in sinks:
        sink.close()
    asked = beside.execute("SELECT count(*) FROM pooled").fetchone()
    assert asked == (6,)


def test_in_session_mode_a_new_run_ends_the_connections_of_the_one_before__D5(
    session_url: str, beside: psycopg.Connection
) -> None:
    spec = f"{session_url}&table=pooled_again"
    before = opened(spec, run="before")
    assert before.send(batch([1])) == {}
    after = opened(spec, run="after")
    assert len(backends(beside)) == 1
    assert after.send(batch([1, 2])) == {}
    assert len(backends(beside)) == 1
    before.close()
    after.close()


def test_in_session_mode_a_run_delivers_each_message_once__D5(
    session_url: str, beside: psycopg.Connection, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with DeliveryQueue(tmp_path / "store.db", to=f"{session_url}&table=pooled_run", max_attempts=1) as queue:
        queue.put_many([Message(f"id{n}", f"k{n % 50}", 1_700_000_000_000, b"") for n in range(500)])
        assert queue.wait_until_empty(60)
        assert (queue.summary.delivered, queue.summary.dead_letters) == (500, 0)
    assert beside.execute("SELECT count(*), max(attempt) FROM pooled_run").fetchone() == (500, 1)
    assert not caplog.records


@pytest.mark.parametrize("more", ["", "server_round_robin = 1"])
def test_transaction_mode_is_refused_at_the_start__D10(
    postgres_server: PostgresServer, beside: psycopg.Connection, more: str
) -> None:
    """Each statement may be done by another connection of the server: by the same one, or in turn by each."""
    with pgbouncer(postgres_server, "transaction", more) as url:
        with psycopg.connect(url) as one, psycopg.connect(url) as two:
            assert (
                one.execute("SELECT pg_backend_pid()").fetchone() != two.execute("SELECT pg_backend_pid()").fetchone()
            )
        spec = f"{url}&table=not_pooled"
        with pytest.raises(DeliveryFailed, match=TRANSACTION_MODE):
            opened(spec, timeout_s=1.5)
    assert beside.execute("SELECT to_regclass('not_pooled')").fetchone() == (None,)


def test_transaction_mode_is_known_by_a_notice_that_does_not_come__D10(postgres_server: PostgresServer) -> None:
    """When the other connection has another backend by chance, here as it goes past the pooler."""
    with (
        pgbouncer(postgres_server, "transaction") as url,
        psycopg.connect(url, autocommit=True) as connection,
        pytest.raises(psycopg.OperationalError, match=TRANSACTION_MODE),
    ):
        backend_of(connection, lambda: psycopg.connect(postgres_server.url), 0.5)


def test_without_a_pooler_no_other_connection_is_made__D10(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        assert backend_of(connection, pytest.fail, 20) == connection.info.backend_pid
