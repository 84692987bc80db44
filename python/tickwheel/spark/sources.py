"""The sources of streams (rule S1): files and Kafka. Any other streaming DataFrame goes to `parse_rows` as it is."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

BYTES_AT_ONCE: Final = 32 << 20
"""Of files in a micro-batch, unless said otherwise: some 100,000 messages, a few seconds."""

_SUFFIXES: Final = ",".join(
    "".join(f"[{letter}{letter.upper()}]" for letter in suffix) for suffix in ("ndjson", "jsonl", "csv", "parquet")
)
_LISTED: Final[Mapping[str, str]] = {"recursiveFileLookup": "true", "pathGlobFilter": f"*.{{{_SUFFIXES}}}"}


def read_files(session: SparkSession, folder: Path, bytes_at_once: int = BYTES_AT_ONCE) -> DataFrame:
    """`PATHS`, for `parse_files`: the files in a folder and below it, also later ones. A micro-batch has one file, or
    several with at most `bytes_at_once` together. A file must be complete when it appears: write it elsewhere, then
    move it there.
    """
    return list_files(session, str(folder), bytes_at_once, {}).select("path")


def list_files(session: SparkSession, folder: str, bytes_at_once: int, options: Mapping[str, str]) -> DataFrame:
    """The same with Spark's columns: `path` and, if it is selected, `content`. `folder` is any that Hadoop can read.
    `options` of Spark's source override its bound.
    """
    bound = {} if "maxFilesPerTrigger" in options else {"maxBytesPerTrigger": str(bytes_at_once)}
    listing = (
        session.readStream.format("binaryFile")
        .schema("path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY")  # its fixed schema
        .options(**{**_LISTED, **bound, **options})
    )
    return listing.load(folder)


def read_kafka(session: SparkSession, brokers: str, topic: str, options: Mapping[str, str] | None = None) -> DataFrame:
    """`RECORDS` of a topic, for `parse_lines`, from its start unless the checkpoint has an offset. `options` are those
    of Spark's source. Records are accepted in the order of offsets within each partition of the topic. A transaction's
    records are read once it is committed, and never if it is aborted. A delay counts from a record's timestamp.
    """
    reader = (
        session.readStream.format("kafka")
        .option("kafka.bootstrap.servers", brokers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("kafka.isolation.level", "read_committed")
    )
    for name, value in (options or {}).items():
        reader = reader.option(name, value)
    source = F.concat_ws("/", F.lit("kafka"), "topic", F.col("partition").cast("string"))
    return reader.load().select("value", source.alias("source"), F.col("offset").alias("line"), "timestamp")
