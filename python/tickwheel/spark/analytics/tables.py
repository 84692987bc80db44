"""Runs the statements of `tickwheel.analysis.figures` on DataFrames (rule S6).

The memory is that of Spark's sorting and grouping, which spill to disk: no percentile keeps the values of a group in
memory.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tickwheel.analysis.figures import Figure
from tickwheel.analysis.shown import Row


class SparkTables:
    """As `tickwheel.analysis.making.Tables`, for a session that has the tables as views."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def frame(self, figure: Figure) -> DataFrame:
        """The rows, in one partition: a figure is small, and a sort over several would make Spark compute it twice."""
        order = f" SORT BY {figure.order}" if figure.order else ""
        return self._session.sql(f"SELECT /*+ REPARTITION(1) */ * FROM ({figure.statement}){order}")

    def rows(self, figure: Figure) -> Sequence[Row]:
        """The rows."""
        return [row.asDict() for row in self.frame(figure).collect()]

    def write(self, figure: Figure, path: Path) -> None:
        """Write the rows."""
        self.frame(figure).write.parquet(f"file://{path.resolve()}")


@contextmanager
def named(table: DataFrame, name: str) -> Iterator[SparkTables]:
    """What runs statements that name this table."""
    table.createOrReplaceTempView(name)
    try:
        yield SparkTables(table.sparkSession)
    finally:
        table.sparkSession.catalog.dropTempView(name)
