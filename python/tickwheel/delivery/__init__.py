"""Delayed delivery in one process: messages are handed to their destination at their due time, to the millisecond.

This is what `tickwheel deliver` runs. It needs `pip install 'tickwheel[delivery]'`. Data flows one way: sources ->
message -> deliverer (register, timer) -> sink. Rules in brackets are those of `docs/delivery.md`.
"""

from tickwheel.delivery.dead_letters import DeadLetters
from tickwheel.delivery.errors import BadRecord, DeliveryFailed, WrongUsage
from tickwheel.delivery.job import Job, Result, run
from tickwheel.delivery.message import Cancel, Columns, Message
from tickwheel.delivery.outputs import check_outputs
from tickwheel.delivery.sinks import Delivery, Sink, open_sink, path_of
from tickwheel.delivery.sources import Source, find_sources
from tickwheel.delivery.summary import Summary

__all__ = [
    "BadRecord",
    "Cancel",
    "Columns",
    "DeadLetters",
    "Delivery",
    "DeliveryFailed",
    "Job",
    "Message",
    "Result",
    "Sink",
    "Source",
    "Summary",
    "WrongUsage",
    "check_outputs",
    "find_sources",
    "open_sink",
    "path_of",
    "run",
]
