"""What the program for clusters reads (rule S1): files, a Kafka topic, or a table, each bounded in a micro-batch.

Intake is bounded, so that a micro-batch ends soon also where there is a backlog: held messages leave the hold between
two micro-batches only. Records of Kafka are counted. Of files the bytes are, and one is read whole, however large: its
lines have numbers, and a header is at its beginning. A table's source knows its own unit.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.delivery.model.message import Columns
from tickwheel.spark.failing import innermost
from tickwheel.spark.kafka_topic import Topic
from tickwheel.spark.parse import parse_contents, parse_files, parse_lines, parse_rows
from tickwheel.spark.shape import HadoopFolder
from tickwheel.spark.sources import BYTES_AT_ONCE, list_files, read_kafka

_KAFKA: Final = re.compile(r"kafka://([^/]+)/([^/]+)", re.IGNORECASE)
_TABLE: Final = "table:"
_FILES: Final = "folder of files"
_ROWS_AT_ONCE: Final = 100_000
_NEEDED: Final = "give spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13 with the version of Spark"


@dataclass(frozen=True, slots=True)
class Input:
    """`name`: a file or folder, `kafka://BROKERS/TOPIC`, or `table:NAME`. `options`: of Spark's source; they override
    its bounds. Errors: `WrongUsage`.
    """

    name: str
    columns: Columns = field(default_factory=Columns)
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind == "Kafka topic" and _KAFKA.fullmatch(self.name) is None:
            raise WrongUsage(f"{self.name} is no topic: write kafka://BROKERS/TOPIC")
        if self.name in ("-", _TABLE):
            raise WrongUsage(f"{self.name} can't be read: give a file or folder, kafka://BROKERS/TOPIC, or table:NAME")

    @property
    def kind(self) -> str:
        """The kind of input, as the checkpoint keeps it."""
        if self.name.lower().startswith("kafka:"):
            return "Kafka topic"
        return "table" if self.name.startswith(_TABLE) else _FILES

    @property
    def is_files(self) -> bool:
        """Whether it is a file or a folder."""
        return self.kind == _FILES

    def messages(self, session: SparkSession) -> DataFrame:
        """A stream of `MESSAGES`. Errors: `WrongUsage`."""
        read = {"Kafka topic": self._kafka, "table": self._table}.get(self.kind, self._files)
        try:
            return read(session)
        except (PySparkException, Py4JJavaError) as error:
            hint = f": {_NEEDED}" if "data source: kafka" in str(error) else ""
            raise WrongUsage(f"{self.name} can't be read: {innermost(str(error))}{hint}") from error

    def topic(self, session: SparkSession) -> Topic | None:
        """What Kafka tells of the topic, if it is one."""
        found = _KAFKA.fullmatch(self.name)
        return Topic(session, found[1], found[2], self.options) if found else None

    def identity(self, session: SparkSession) -> str:
        """Which input it is: the same name may be another one tomorrow. Errors: `OSError`."""
        if topic := self.topic(session):
            return topic.identity()
        return self.name if self.kind == "table" else HadoopFolder(session, self.name).full_name

    def _kafka(self, session: SparkSession) -> DataFrame:
        found = _KAFKA.fullmatch(self.name)
        assert found is not None, "it was checked"
        options = {"maxOffsetsPerTrigger": str(_ROWS_AT_ONCE), **self.options}
        return parse_lines(read_kafka(session, found[1], found[2], options), self.columns)

    def _table(self, session: SparkSession) -> DataFrame:
        name = self.name.removeprefix(_TABLE)
        # The options of Delta and Spark's own tables, and of Iceberg; a source skips options that it does not know.
        options = {"streaming-max-rows-per-micro-batch": str(_ROWS_AT_ONCE)}
        if "maxFilesPerTrigger" not in self.options:
            options["maxBytesPerTrigger"] = str(BYTES_AT_ONCE)
        rows = session.readStream.options(**{**options, **self.options}).table(name)
        return parse_rows(rows, self.columns, name)

    def _files(self, session: SparkSession) -> DataFrame:
        files = list_files(session, self.name, BYTES_AT_ONCE, self.options)
        try:
            is_local = HadoopFolder(session, self.name).scheme == "file"
        except OSError as error:
            raise WrongUsage(f"{self.name} can't be read: {error.strerror}") from error
        if is_local:
            return parse_files(files.select("path"), self.columns)
        return parse_contents(files.select("path", "content"), self.columns)
