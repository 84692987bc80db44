"""What the program for clusters reads (rule S1): files, a Kafka topic, or a table, each bounded in a micro-batch.

Intake is bounded, so that a micro-batch ends soon also where there is a backlog: held messages leave the hold between
two micro-batches only. Records of Kafka are counted. Files are counted as files, because one task reads a whole file:
its lines have numbers, and a header is at its beginning. A table's source knows its own unit.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from tickwheel.delivery.errors import WrongUsage
from tickwheel.delivery.message import Columns
from tickwheel.spark.parse import parse_contents, parse_files, parse_lines, parse_rows
from tickwheel.spark.shape import HadoopFolder
from tickwheel.spark.sources import list_files, read_kafka

_KAFKA: Final = re.compile(r"kafka://([^/]+)/([^/]+)", re.IGNORECASE)
_TABLE: Final = "table:"


@dataclass(frozen=True, slots=True)
class Input:
    """`name`: a file or folder, `kafka://BROKERS/TOPIC`, or `table:NAME`. `rows`, `files`: how much of it a micro-batch
    reads at most. `options`: of Spark's source; they override these bounds. Errors: `WrongUsage`.
    """

    name: str
    columns: Columns = field(default_factory=Columns)
    rows: int = 100_000
    files: int = 16
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind == "Kafka topic" and _KAFKA.fullmatch(self.name) is None:
            raise WrongUsage(f"{self.name} is no topic: write kafka://BROKERS/TOPIC")
        if self.name in ("-", _TABLE):
            raise WrongUsage(f"{self.name} can't be read: give a file or folder, kafka://BROKERS/TOPIC, or table:NAME")

    @property
    def kind(self) -> str:
        """What it is, as the checkpoint keeps it."""
        if self.name.lower().startswith("kafka:"):
            return "Kafka topic"
        return "table" if self.name.startswith(_TABLE) else "folder of files"

    def messages(self, session: SparkSession) -> DataFrame:
        """A stream of `MESSAGES`. Errors: those of Spark's sources, and `WrongUsage`."""
        if self.kind == "Kafka topic":
            return self._kafka(session)
        return self._table(session) if self.kind == "table" else self._files(session)

    def _kafka(self, session: SparkSession) -> DataFrame:
        found = _KAFKA.fullmatch(self.name)
        assert found is not None, "it was checked"
        options = {"maxOffsetsPerTrigger": str(self.rows), **self.options}
        return parse_lines(read_kafka(session, found[1], found[2], options), self.columns)

    def _table(self, session: SparkSession) -> DataFrame:
        name = self.name.removeprefix(_TABLE)
        # Those of Delta and of Spark's own tables, and that of Iceberg; a source skips the options that it has not.
        options = {"maxFilesPerTrigger": str(self.files), "streaming-max-rows-per-micro-batch": str(self.rows)}
        rows = session.readStream.options(**{**options, **self.options}).table(name)
        return parse_rows(rows, self.columns, name)

    def _files(self, session: SparkSession) -> DataFrame:
        files = list_files(session, self.name, self.files, self.options)
        try:
            is_local = HadoopFolder(session, self.name).scheme == "file"
        except OSError as error:
            raise WrongUsage(f"{self.name} can't be read: {error.strerror}") from error
        if is_local:
            return parse_files(files.select("path"), self.columns)
        return parse_contents(files.select("path", "content"), self.columns)
