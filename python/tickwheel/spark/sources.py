"""Where streams come from (rule S1): files and Kafka; any other streaming DataFrame goes to `parse_rows` as it is."""

from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

_SUFFIXES = "*.{ndjson,jsonl,csv,parquet}"


def read_files(session: SparkSession, folder: Path, at_once: int = 64) -> DataFrame:
    """`PATHS` of the files in a folder and below it, now and later, at most `at_once` in a micro-batch; for
    `parse_files`. A file must be whole when it appears: write it elsewhere, then move it there.
    """
    listing = (
        session.readStream.format("binaryFile")
        .schema("path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY")  # as that source has it
        .option("recursiveFileLookup", "true")
        .option("pathGlobFilter", _SUFFIXES)
        .option("maxFilesPerTrigger", at_once)
    )
    return listing.load(str(folder)).select("path")


def read_kafka(session: SparkSession, brokers: str, topic: str, options: Mapping[str, str] | None = None) -> DataFrame:
    """`RECORDS` of a topic, from its start where the checkpoint says nothing else; for `parse_lines`. `options` are
    those of Spark's source. The order of acceptance is that of offsets, in each of the topic's partitions. What a
    transaction wrote is read once that is committed, and never if it is aborted.
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
    return reader.load().select("value", source.alias("source"), F.col("offset").alias("line"))
