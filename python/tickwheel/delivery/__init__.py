"""Delayed delivery in one process: messages are handed to their destination at their due time, to the millisecond.

This is what `tickwheel deliver` and `tickwheel serve` run, and `DeliveryQueue` in Python. It needs `pip install
'tickwheel[delivery]'`. Rules in brackets are those of `docs/delivery.md`, which also shows how the parts work together.
"""

from tickwheel.delivery.errors import BadRecord, DeliveryFailed, StoreFailed, WrongUsage
from tickwheel.delivery.items import Answer
from tickwheel.delivery.message import Cancel, Message
from tickwheel.delivery.queue import DeliveryQueue
from tickwheel.delivery.sinks import Delivery
from tickwheel.delivery.store.letters import Letter
from tickwheel.delivery.summary import Summary

__all__ = [
    "Answer",
    "BadRecord",
    "Cancel",
    "Delivery",
    "DeliveryFailed",
    "DeliveryQueue",
    "Letter",
    "Message",
    "StoreFailed",
    "Summary",
    "WrongUsage",
]
