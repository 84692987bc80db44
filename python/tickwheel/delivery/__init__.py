"""Delayed delivery in one process: sends messages to their destination at their due time, to the millisecond.

`tickwheel deliver`, `tickwheel serve` and, in Python, `DeliveryQueue` run this. It needs `pip install
'tickwheel[delivery]'`. Rules in brackets are in `docs/delivery.md`, which also shows how the parts work together.
"""

from tickwheel.delivery.base.errors import (
    BadRecord,
    DeliveryFailed,
    Final,
    StoreFailed,
    StoreUnavailable,
    Unanswered,
    Unavailable,
    WrongUsage,
)
from tickwheel.delivery.engine.upkeep import (
    CheckedStore,
    CompactedStore,
    backup_store,
    check_store,
    compact_store,
    restore_store,
)
from tickwheel.delivery.model.entries import Answer, Letter
from tickwheel.delivery.model.message import Cancel, Message
from tickwheel.delivery.model.summary import Summary
from tickwheel.delivery.queue.aio import AsyncDeliveryQueue
from tickwheel.delivery.queue.queue import DeliveryQueue
from tickwheel.delivery.sight import StoreView
from tickwheel.delivery.sinks import Delivery

__all__ = [
    "Answer",
    "AsyncDeliveryQueue",
    "BadRecord",
    "Cancel",
    "CheckedStore",
    "CompactedStore",
    "Delivery",
    "DeliveryFailed",
    "DeliveryQueue",
    "Final",
    "Letter",
    "Message",
    "StoreFailed",
    "StoreUnavailable",
    "StoreView",
    "Summary",
    "Unanswered",
    "Unavailable",
    "WrongUsage",
    "backup_store",
    "check_store",
    "compact_store",
    "restore_store",
]
