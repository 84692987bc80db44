"""Transactional enqueue: a message is written in the program's own transaction, and delivered exactly if that commits.

    enqueue(connection, message) -> outbox table -> a thread of the deliverer reads it -> engine -> its rows are deleted

A row is deleted only once its message is accepted on disk, so none is lost. `docs/outbox.md` has the guarantees.
"""

from tickwheel.delivery.outbox.tables import create_statement
from tickwheel.delivery.outbox.writing import cancel, create_table, enqueue, enqueue_many, event, reschedule

__all__ = ["cancel", "create_statement", "create_table", "enqueue", "enqueue_many", "event", "reschedule"]
