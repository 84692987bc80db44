"""A streaming query that hands off what a hold releases: it is started, watched, and ended (rules S1, D13).

It ends between two micro-batches, if the current one ends soon. The next run repeats an interrupted micro-batch, and
Spark writes pages about it.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.sql import DataFrame

from tickwheel._event import Event
from tickwheel.delivery.base.errors import DeliveryFailed
from tickwheel.spark.hand_off import HandOff

_TRIGGER: Final = "1 second"
_LOOK_EVERY_S: Final = 0.2
_END_WITHIN_S: Final = 20.0

Check = Callable[[Mapping[str, Any] | None], object]


def start(near: DataFrame, hand_off: HandOff, checkpoint: object, stop: Event | None = None) -> Any:
    """Start the query that hands off what the hold releases, once a second, until `stop` is set."""
    return (
        near.writeStream.foreachBatch(_UntilStopped(hand_off, stop or Event()))
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime=_TRIGGER)
        .start()
    )


@dataclass(frozen=True, slots=True)
class _UntilStopped:
    """A function for `foreachBatch`."""

    hand_off: HandOff
    stop: Event

    def __call__(self, near: DataFrame, batch_id: int) -> None:
        if self.stop.is_set():
            _silence()
            raise InterruptedError("the query is being ended, and nothing of this micro-batch was sent")
        try:
            self.hand_off(near, batch_id)
        except DeliveryFailed:
            _silence()  # the run ends with this error, and says it in one line
            raise
        except Py4JJavaError as error:
            # Spark applies a regular expression to a text that names this class; on a long one its stack overflows.
            raise RuntimeError(str(error)) from None


def watch(query: Any, hand_off: HandOff, stop: Event, check: Check, *, until_delivered: bool = True) -> bool:
    """Wait until `stop` is set, or, with `until_delivered`, all that was read is delivered; then end the query. Whether
    all is delivered.

    `check` is called some times a second, with the query's report of its last micro-batch, and may raise. Errors: the
    query's, and `DeliveryFailed`.
    """
    try:
        while not stop.wait(_LOOK_EVERY_S):
            if not query.isActive:
                query.awaitTermination()  # raises the query's error
                raise DeliveryFailed("Spark stopped the query without a reason")
            progress = query.lastProgress
            check(progress)
            if until_delivered and progress is not None and not read(progress) and hand_off.report.is_empty:
                return True
    finally:
        end(query)
    return False


def read(progress: Mapping[str, Any]) -> int:
    """How many rows the last micro-batch read, without the hold's ticks."""
    return sum(
        source["numInputRows"] for source in progress["sources"] if "RatePerMicroBatch" not in source["description"]
    )


def end(query: Any) -> None:
    """Stop the query between two micro-batches if one ends soon."""
    by_s = time.monotonic() + _END_WITHIN_S
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < by_s:
        time.sleep(0.005)
    _silence()
    query.stop()


def _silence() -> None:
    """From now on the JVM logs nothing: what it says of a query that ends is pages, and nothing new."""
    SparkContext.getOrCreate().setLogLevel("OFF")
