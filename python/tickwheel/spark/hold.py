"""The hold (rule S2): messages due later wait in Spark's state, by shard and due second, until they are near.

    MESSAGES --pack--> (shard, second) --transformWithState--> (shard, second) --unpack--> MESSAGES that are near

It is an overflow wheel on disk, without a limit of time. A micro-batch appends one piece to each group it has messages
for, and sets the group's timer. The timer empties its group and no other. So a release touches its own second only, and
the state is empty when all is released. Messages nearer than `lead`, cancels and dead letters pass at once. Every
comparison uses the micro-batch's own time, so no message is held after its timer has gone off.
"""

from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import IntegerType, StructField, StructType

from tickwheel.spark.packing import NO_SECOND, gather, merge, pack, unpack
from tickwheel.spark.parse import partition_of
from tickwheel.spark.schemas import HELD, MESSAGES, PACKED

PARTITIONS: Final = 64
"""The number of shards, which never changes: each key belongs to one shard and to one deliverer (rule S5)."""
SHARDS: Final = 8
LEAD_MS: Final = 20_000

_WITH_PARTITION: Final = StructType([*MESSAGES, StructField("partition", IntegerType())])


def hold(messages: DataFrame, lead_ms: int = LEAD_MS) -> DataFrame:
    """A stream of `MESSAGES`, each held until `lead_ms` before the second in which it is due, in order of due time
    within a shard and second. The session needs `HOLD_SETTINGS`.
    """

    def packed(batches: Iterator[Any]) -> Iterator[Any]:
        return (pack(many, SHARDS) for many in gather(batches))

    def unpacked(batches: Iterator[Any]) -> Iterator[Any]:
        return (unpack(piece.as_py()) for batch in batches for piece in batch.column("rows"))

    with_partition = messages.select(*MESSAGES.names, partition_of(PARTITIONS).alias("partition"))
    near = (
        with_partition.union(_heartbeat(messages.sparkSession))
        .mapInArrow(packed, PACKED)
        .groupBy("shard", "second")
        .transformWithState(Hold(lead_ms), PACKED, outputMode="Append", timeMode="ProcessingTime")
    )
    return near.mapInArrow(unpacked, MESSAGES)


def _heartbeat(session: SparkSession) -> DataFrame:
    """A source that always has new data, but no rows. Without new data Spark runs no micro-batch after a start, and so
    no timer: held messages would wait until the next message comes.
    """
    ticks = session.readStream.format("rate").option("rowsPerSecond", 1).load().where(F.lit(False))
    return ticks.select(*(F.lit(None).cast(field.dataType).alias(field.name) for field in _WITH_PARTITION))


class Hold(StatefulProcessor):  # type: ignore[misc]  # pyspark is not read for its types
    """The state of one group: a list of pieces, and one timer."""

    def __init__(self, lead_ms: int) -> None:
        self._lead_ms = lead_ms

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called by Spark in each task."""
        self._handle = handle
        self._pieces = handle.getListState("pieces", HELD)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Take one micro-batch's rows of this group."""
        shard, second = key
        pieces = [bytes(row.rows) for row in rows]
        release_ms = second * 1000 - self._lead_ms
        if second == NO_SECOND or release_ms <= timerValues.getCurrentProcessingTimeInMs():
            yield Row(shard=shard, second=second, rows=merge(pieces))
            return
        for piece in pieces:
            self._pieces.appendValue((piece,))
        self._handle.registerTimer(release_ms)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: ARG002, N802, N803
        """The group is near: release all of it, and leave no state."""
        shard, second = key
        pieces = [bytes(piece) for (piece,) in self._pieces.get()]
        self._pieces.clear()
        if pieces:
            yield Row(shard=shard, second=second, rows=merge(pieces))
