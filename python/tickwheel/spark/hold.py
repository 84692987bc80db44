"""The hold (rules S2, S4): messages due later wait in Spark's state until they are near, and until they are delivered.

    MESSAGES --split--> PIECES by shard --transformWithState--> NEAR
                64 ticks in each micro-batch ---^

Each micro-batch visits each of the 64 shards once, whatever comes: `shard.py` says what a visit does. Near messages go
to the hand-off, which tells the next micro-batch, by `orders.py`, what became of them.
"""

from collections.abc import Iterator
from typing import Any, Final

from pyspark import TaskContext
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import StructField, StructType

from tickwheel.delivery.read.hand_off_rows import PARTITIONS
from tickwheel.spark.orders import PROPERTY, Orders, Taker
from tickwheel.spark.packing import gather, pack, split_by, unpack
from tickwheel.spark.schemas import CHUNK, CHUNK_NUMBER, DUE_WITHIN, INDEX, MESSAGES, NEAR, PIECES
from tickwheel.spark.shard import Shard
from tickwheel.spark.shard_index import Index

LEAD_MS: Final = 20_000

_NOTHING_TOLD: Final[dict[str, None]] = dict.fromkeys(NEAR.names[NEAR.names.index("waiting") :])

_OWN_SINK: Final = Taker("", "", (), (), 0)
"""Of a pipeline without a hand-off."""
_LEAD: Final = "tickwheel lead_ms"
"""In the metadata of the first column of `NEAR`. The hand-off finds there what `hold` was given."""


def hold(messages: DataFrame, lead_ms: int = LEAD_MS) -> DataFrame:
    """A stream of `NEAR`, for `HandOff` or `near_messages`: what is due within `lead_ms`, in order of due time within a
    shard. The session needs `HOLD_SETTINGS`.
    """
    first, *others = NEAR
    near = StructType([StructField(first.name, first.dataType, first.nullable, {_LEAD: lead_ms}), *others])

    def split(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for many in gather(batches):
            shards, pieces = zip(*split_by(many, "partition"), strict=True)
            yield pa.record_batch([pa.array(shards, pa.int32()), pa.array(pieces, pa.binary())], ["shard", "rows"])

    pieces = messages.select(*MESSAGES.names).mapInArrow(split, PIECES)
    return (
        pieces.union(_ticks(messages.sparkSession))
        .groupBy("shard")
        .transformWithState(Hold(lead_ms), near, outputMode="Append", timeMode="ProcessingTime")
    )


def lead_ms_of(near: DataFrame) -> int:
    """The lead that `hold` was given; the usual one if the rows came through steps that do not pass on metadata."""
    return int(near.schema[0].metadata.get(_LEAD, LEAD_MS))


def near_messages(near: DataFrame) -> DataFrame:
    """The rows of `NEAR` as `MESSAGES`, for a pipeline with a sink of its own: there what is near has left the hold."""

    def unpacked(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            for shard, piece in zip(batch.column("shard").to_pylist(), batch.column("rows"), strict=True):
                rows = unpack(piece.as_py())
                yield rows.append_column("partition", pa.array([shard] * rows.num_rows, pa.int32()))

    return near.where("rows is not null").select("shard", "rows").mapInArrow(unpacked, MESSAGES)


def _ticks(session: SparkSession) -> DataFrame:
    """A row without messages for each shard in each micro-batch."""
    rows = session.readStream.format("rate-micro-batch").option("rowsPerBatch", PARTITIONS).load()
    shard = F.pmod("value", F.lit(PARTITIONS)).cast("int").alias("shard")
    return rows.select(shard, F.lit(None).cast("binary").alias("rows"))


class Hold(StatefulProcessor):  # type: ignore[misc]  # pyspark is not read for its types
    """A shard's index is a value state, its chunks are a map state."""

    def __init__(self, lead_ms: int) -> None:
        self._lead_ms = lead_ms

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called by Spark in each task."""
        self._index = handle.getValueState("index", INDEX)
        self._chunks = _Chunks(handle.getMapState("chunks", CHUNK_NUMBER, CHUNK))
        context = TaskContext.get()
        orders = context.getLocalProperty(PROPERTY) if context else None
        self._orders = Orders.decode(orders) if orders else None

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Visit a shard with one micro-batch's rows."""
        [number] = key
        now_ms = timerValues.getCurrentProcessingTimeInMs()
        pieces = [bytes(row.rows) for row in rows if row.rows is not None]
        before = self._index.get() if self._index.exists() else None  # Spark logs a warning for each that is not there
        encoded = bytes(before[0]) if before else None
        index = Index.decode(encoded)
        shard = Shard(number, index, self._chunks, now_ms)
        near_ms = now_ms + self._lead_ms
        taker = shard.settle(self._orders, near_ms) if self._orders else _OWN_SINK
        shard.keep(pieces)
        for batch in shard.give(near_ms + (max(0, taker.ahead_ms) if taker else 0)):
            near = {"rows": pack(batch), "taker": index.address, "store_id": index.taker}
            yield Row(shard=number, **near, **_NOTHING_TOLD)
        if self._orders is None:
            shard.settle_all()
        shard.tidy()
        self._write(encoded, index.encode())
        yield Row(
            shard=number, rows=None, taker=index.address, store_id=index.taker, waiting=index.waiting,
            given=index.unsettled, due_ms=index.first_ms, went_back=shard.went_back,
            due_within=[index.due_by(now_ms + within_ms) for within_ms in DUE_WITHIN.values()],
        )  # fmt: skip

    def _write(self, before: bytes | None, after: bytes | None) -> None:
        if after is None and before is not None:
            self._index.clear()
        elif after is not None and after != before:
            self._index.update((after,))


class _Chunks:
    """A map state of Spark's as `ChunkState`."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def get(self, number: int) -> bytes:
        return bytes(self._state.getValue((number,))[0])

    def put(self, number: int, chunk: bytes) -> None:
        self._state.updateValue((number,), (chunk,))

    def remove(self, number: int) -> None:
        self._state.removeKey((number,))
