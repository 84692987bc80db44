"""Writes records into an outbox, in the caller's own transaction.

The records exist only if the transaction commits: a rollback removes them. `tickwheel serve --outbox` and
`DeliveryQueue(..., outbox=...)` read them.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.delivery.model.entries import Event
from tickwheel.delivery.model.message import Message
from tickwheel.delivery.outbox.connections import writer_of
from tickwheel.delivery.outbox.records import cancel_record, event_record, record_of, reschedule_record
from tickwheel.delivery.outbox.tables import TABLE, create_statement, insert_statement


def create_table(connection: Any, table: str = TABLE) -> None:
    """Make the table, if it is missing, in the caller's transaction. Errors: `WrongUsage`, and errors of the driver.

    For migrations `create_statement` and `tickwheel outbox sql` give the statement.
    """
    writer = writer_of(connection)
    writer.execute(create_statement(writer.dialect, table), {})


def enqueue(connection: Any, message: Message | Mapping[str, Any] | Sequence[Any], *, table: str = TABLE) -> None:
    """Write a message into the outbox, in the caller's transaction.

    `connection`: of sqlite3, psycopg 3, SQLAlchemy 2 (also a `Session`) or Django, on SQLite or PostgreSQL. `message`:
    as to `DeliveryQueue.put_many`, a dict with the arguments of `put` but `replace` and `debounce_ms`; a `delay_ms`
    counts from now. Errors: `BadRecord`, `WrongUsage`, and errors of the driver. Costs one statement.

    >>> import sqlite3
    >>> with sqlite3.connect(":memory:") as connection:
    ...     create_table(connection)
    ...     enqueue(connection, {"id": "order 7", "delay_ms": 60_000, "payload": {"pay": "now"}})
    >>> [record for record, in connection.execute("SELECT record FROM tickwheel_outbox")]
    ['{"id":"order 7","delay_ms":60000,"payload":{"pay":"now"}}']
    >>> connection.close()
    """
    _write(connection, [record_of(message)], table)


def enqueue_many(
    connection: Any, messages: Iterable[Message | Mapping[str, Any] | Sequence[Any]], *, table: str = TABLE
) -> None:
    """Write messages into the outbox, in their order, by one statement. If one is wrong, none is written."""
    try:
        given = iter(messages)
    except TypeError:
        raise WrongUsage(f"{messages!r:.200} can't be written: give a list of messages, or another iterable") from None
    _write(connection, [record_of(message) for message in given], table)


def cancel(connection: Any, id: str, key: str | None = None, *, table: str = TABLE) -> None:  # noqa: A002
    """Write into the outbox that a message is to be cancelled (D7), which happens once the transaction has committed.

    Records are read in the order in which they were written. There is no answer whether it was too late; for an answer
    use `DeliveryQueue.cancel`.
    """
    _write(connection, [cancel_record(id, key)], table)


def reschedule(
    connection: Any,
    id: str,  # noqa: A002
    *,
    due: datetime | str | int | None = None,
    delay_ms: float | timedelta | None = None,
    key: str | None = None,
    table: str = TABLE,
) -> None:
    """Write into the outbox that a message gets another due time (D16); `delay_ms` counts from now."""
    _write(connection, [reschedule_record(id, key, due, delay_ms)], table)


def event(
    connection: Any,
    key: str,
    name: str,
    *,
    id: str,  # noqa: A002
    payload: Any = None,
    remember_ms: int | timedelta | None = None,
    table: str = TABLE,
) -> None:
    """Write an event into the outbox (D22), which lets go the messages of its key once the transaction has committed.

    So it is true when your own rows are. The message that waits may come from a transaction that commits later:
    `remember_ms` lets the event wait for it.
    """
    _write(connection, [event_record(Event(id, key, name, payload, remember_ms))], table)


def _write(connection: Any, records: Sequence[str], table: str) -> None:
    writer = writer_of(connection)
    names = (writer.parameter.format("written_ms"), writer.parameter.format("records"))
    statement = insert_statement(writer.dialect, table, *names)
    if records:
        values = {"written_ms": time.time_ns() // 1_000_000, "records": writer.records(records)}
        writer.execute(statement, values)
