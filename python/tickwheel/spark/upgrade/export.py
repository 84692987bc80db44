"""Writes what a checkpoint holds to a folder: records, and how far its input was read (`tickwheel spark-upgrade`).

It is complete or it is not there: `upgrade.json` is written last. The counts in it are those of the index of each
shard, and an export with other counts is an error.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

import msgspec
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BooleanType, IntegerType, LongType, StringType, StructField, StructType

from tickwheel import __version__
from tickwheel.delivery.base.errors import DeliveryFailed, WrongUsage
from tickwheel.delivery.model.message import MAX_RECORD
from tickwheel.delivery.read.hand_off_rows import PARTITIONS
from tickwheel.spark.failing import reason
from tickwheel.spark.packing import VERSION
from tickwheel.spark.same_source import check_logs
from tickwheel.spark.shape import NAME as SHAPE
from tickwheel.spark.shape import HadoopFolder
from tickwheel.spark.upgrade.formats import FORMATS, named, rows_of, shard_of
from tickwheel.spark.upgrade.kept import Shard
from tickwheel.spark.upgrade.records import exported
from tickwheel.spark.upgrade.sources import Source, last_done, sources_of
from tickwheel.spark.upgrade.written import FOLDERS, NAME, TAKEN_IN, Kind, Upgrade

_SHOWN: Final = 100  # characters
_ROWS: Final = StructType(
    [
        StructField("shard", IntegerType()),
        StructField("kind", IntegerType()),
        StructField("due_ms", LongType()),
        StructField("source", StringType()),
        StructField("line", LongType()),
        StructField("is_other", BooleanType()),
        StructField("text", StringType()),
    ]
)
_ARROW: Final = to_arrow_schema(_ROWS)


def export(session: SparkSession, checkpoint: str, out: str, now_ms: int, say: Callable[[str], None]) -> Upgrade:
    """Write to `out`, a new or empty folder. Errors: `WrongUsage`, `DeliveryFailed`; `out` is empty then."""
    try:
        return _export(session, HadoopFolder(session, checkpoint), HadoopFolder(session, out), now_ms, say)
    except OSError as error:
        raise DeliveryFailed(f"{checkpoint} can't be exported to {out}: {error.strerror}") from error


def _export(
    session: SparkSession, folder: HadoopFolder, out: HadoopFolder, now_ms: int, say: Callable[[str], None]
) -> Upgrade:
    if out.names():
        raise WrongUsage(f"{out} is not empty: name a new folder, so that nothing is overwritten")
    query, notes = _query_of(session, folder)
    check_logs(folder, query)
    batch = last_done(query)
    found = sources_of(query, batch, notes)
    say(f"Reading the state of micro-batch {batch}.")
    try:
        done = _records(session, folder, query, batch, found, out, now_ms, say)
        if last_done(query) != batch:
            raise WrongUsage(f"a program runs on {folder}: stop it with SIGTERM, and run this again")
        with _written(out):
            out.write(NAME, msgspec.json.format(msgspec.json.encode(done)))
    except BaseException as error:
        with suppress(OSError):  # the reason is told
            out.remove_all()
        if isinstance(error, (PySparkException, Py4JError)):
            raise DeliveryFailed(
                f"the state of {folder} can't be read: {reason(error)}; use the Spark that wrote it or a later one, or "
                "restore a copy, at the path where it was made"
            ) from error
        raise
    return done


def _records(
    session: SparkSession,
    folder: HadoopFolder,
    query: HadoopFolder,
    batch: int,
    sources: list[Source],
    out: HadoopFolder,
    now_ms: int,
    say: Callable[[str], None],
) -> Upgrade:
    """Write the records of a micro-batch."""
    index, chunks = (_state(session, query, batch, name) for name in ("index", "chunks"))
    indexes = {row.shard: bytes(row.value[0]) for row in index.select("key.shard", "value").collect()}
    shards = {number: shard_of(value) for number, value in indexes.items()}
    rows = chunks.select("key.shard", "user_map_key.number", "user_map_value.rows")
    kept = rows.mapInArrow(_Export(shards, now_ms), _ROWS).persist()
    try:
        counts, other = _counts(kept, shards, folder)
        _check_sizes(kept, folder)
        say("Writing the records.")
        with _written(out):
            for kind in FOLDERS:
                if counts[kind]:
                    _write(kept.where(F.col("kind") == kind), out, FOLDERS[kind])
    finally:
        with suppress(Exception):  # the JVM may have gone, and the result is what counts
            kept.unpersist()
    return Upgrade(
        version=__version__,
        checkpoint=str(folder),
        format=_format_of(indexes),
        micro_batch=batch,
        held=counts[Kind.GIVEN] + counts[Kind.HELD],
        given=counts[Kind.GIVEN],
        controls=counts[Kind.CONTROL],
        dead_letters=counts[Kind.LETTER],
        left_out=counts[Kind.LEFT_OUT],
        other_content=other,
        deliverers=sorted({shard.address for shard in shards.values()} - {""}),
        sources=sources,
    )


@contextmanager
def _written(out: object) -> Iterator[None]:
    """Tells a failure as that of the new folder: all is read by now."""
    try:
        yield
    except (PySparkException, Py4JError, OSError) as error:
        why = error.strerror if isinstance(error, OSError) else reason(error)
        raise DeliveryFailed(
            f"{out} can't be written: {why}; nothing is lost: mend it, or name another folder"
        ) from error


def _format_of(indexes: Mapping[int, bytes]) -> int:
    return max((value[0] for value in indexes.values()), default=VERSION)


def _query_of(session: SparkSession, folder: HadoopFolder) -> tuple[HadoopFolder, HadoopFolder | None]:
    """The folder of the query, and the one of the notes if it has one. A program of its own has the query alone."""
    names = {*folder.names()}
    shape = folder.read(SHAPE)
    if shape is None and not {"commits", "offsets"} <= names:
        raise WrongUsage(f"{folder} is no checkpoint of tickwheel, or damaged: it has no {SHAPE}")
    if shape is None:
        return folder, None
    try:
        before = msgspec.json.decode(shape, type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise WrongUsage(f"{folder}/{SHAPE} is damaged: restore it from a copy") from error
    if before.get("format") not in FORMATS:
        raise WrongUsage(
            f"the checkpoint {folder} has the format {before.get('format')}, and this version exports {named()}: "
            "export it with the version that wrote it"
        )
    notes = HadoopFolder(session, f"{folder}/files") if "files" in names and "input" not in before else None
    return HadoopFolder(session, f"{folder}/query"), notes


def _state(session: SparkSession, query: HadoopFolder, batch: int, variable: str) -> DataFrame:
    """The rows of a state variable after a micro-batch. Errors: `WrongUsage` if no operator of the query is a hold."""
    operators = session.read.format("state-metadata").load(str(query)).select("operatorId", "operatorProperties")
    for number, properties in operators.collect():
        known = msgspec.json.decode(properties or "{}", type=dict[str, Any]).get("stateVariables", [])
        if {"index", "chunks"} <= {it["stateName"] for it in known}:
            reader = session.read.format("statestore").option("batchId", batch).option("operatorId", number)
            return reader.option("stateVarName", variable).load(str(query))
    raise WrongUsage(f"{query} is the checkpoint of a query without a hold: nothing of it can be exported")


class _Export:
    """A function for `mapInArrow`: from chunks to rows that are `Exported`, with their shard."""

    def __init__(self, shards: Mapping[int, Shard], now_ms: int) -> None:
        self._shards = shards
        self._now_ms = now_ms

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for shard, number, chunk in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                kept = self._shards.get(shard)
                if kept is not None and (places := kept.chunks.get(number)):
                    rows = [{"shard": shard, **row._asdict()} for row in exported(rows_of(chunk), places, self._now_ms)]
                    yield pa.RecordBatch.from_pylist(rows, _ARROW)


def _counts(kept: DataFrame, shards: Mapping[int, Shard], folder: object) -> tuple[Counter[int], int]:
    """How many rows there are of each kind, and how many with other content. Errors: `DeliveryFailed` if their numbers
    are not those of the indexes.
    """
    of_kind, of_shard = Counter[int](), Counter[tuple[int, bool]]()
    other = 0
    for row in (
        kept.groupBy("shard", "kind").agg(F.count("*").alias("rows"), F.count_if("is_other").alias("x")).collect()
    ):
        of_kind[row.kind] += row.rows
        of_shard[row.shard, row.kind in (Kind.GIVEN, Kind.HELD)] += row.rows
        other += row.x
    for number, shard in shards.items():
        for is_message, rows in ((True, shard.messages), (False, shard.controls)):
            if of_shard[number, is_message] != rows:
                raise DeliveryFailed(
                    f"the checkpoint {folder} is damaged: shard {number} has {rows:,} "
                    f"{'messages' if is_message else 'other rows'} by its index, and {of_shard[number, is_message]:,} "
                    "were found: restore it from a copy"
                )
    return of_kind, other


def _check_sizes(kept: DataFrame, folder: object) -> None:
    """Errors: `DeliveryFailed` if a record is too long to be taken in. A binary payload is longer as NDJSON."""
    sizes = F.transform(F.split("text", "\n"), F.octet_length)
    long = kept.where(F.col("kind").isin([*map(int, TAKEN_IN)]) & (F.array_max(sizes) > MAX_RECORD))
    found = long.agg(F.count("*").alias("rows"), F.first(F.substring("text", 1, _SHOWN)).alias("first")).collect()[0]
    if found.rows:
        raise DeliveryFailed(
            f"{folder} has messages whose records are longer than {MAX_RECORD:,} bytes, the most that is read: "
            f"{found.rows:,}, and one begins with {found.first}; go on with the version that wrote it until they are "
            "delivered"
        )


def _write(rows: DataFrame, out: HadoopFolder, name: str) -> None:
    """Write the texts to files of NDJSON. A shard is in one of them, in order. Spark's own suffix is another one."""
    in_order = rows.repartition(PARTITIONS, "shard").sortWithinPartitions("shard", "due_ms", "source", "line")
    in_order.select("text").write.text(f"{out}/{name}")
    for file in out.names(name):
        path = f"{name}/{file}"
        if file.startswith("part-") and out.size(path):
            out.move(path, f"{path.removesuffix('.txt')}.ndjson")
        else:
            out.remove(path)
