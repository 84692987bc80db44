"""Delayed delivery on Spark (rules S1 to S8): the same job as in one process, for more messages than one can hold.

    source -> parse -> hold -> hand off -> a deliverer

Each step is a function from DataFrame to DataFrame. `tickwheel deliver --engine spark` is a pipeline of these steps.
"""

from tickwheel.spark.hand_off import HandOff
from tickwheel.spark.hold import hold, near_messages
from tickwheel.spark.parse import parse_files, parse_lines, parse_rows
from tickwheel.spark.session import HOLD_SETTINGS, laptop_session, spark_session
from tickwheel.spark.sources import read_files, read_kafka

__all__ = [
    "HOLD_SETTINGS",
    "HandOff",
    "hold",
    "laptop_session",
    "near_messages",
    "parse_files",
    "parse_lines",
    "parse_rows",
    "read_files",
    "read_kafka",
    "spark_session",
]
