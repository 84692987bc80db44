"""What the program for clusters reads: files, of any storage, and tables; what is wrong with it (rules S1, D1, D2)."""

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tickwheel.delivery import WrongUsage
from tickwheel.delivery.model.message import Columns
from tickwheel.delivery.read.hand_off_rows import batch_of
from tickwheel.spark.inputs import Input
from tickwheel.spark.parse import records_of_contents, records_of_files

pytestmark = pytest.mark.timeout(180)

DUE_MS = 1_700_000_000_005


def files(folder: Path) -> list[Path]:
    """Four files, one of them broken."""
    lines = [json.dumps({"id": f"n{n}", "due": DUE_MS}) for n in range(3)]
    (folder / "a b.ndjson").write_text("\n".join([*lines, "no record"]))
    (folder / "c.csv").write_text(f"id,due,what\nx,{DUE_MS},1\n")
    pq.write_table(pa.table({"id": ["p"], "due": [DUE_MS], "payload": ["1"]}), folder / "d.parquet")
    (folder / "e.parquet").write_bytes(b"garbage")
    return sorted(folder.iterdir())


def test_the_content_of_files_gives_the_same_messages_as_the_files__D1_D2(tmp_path: Path) -> None:
    def rows(found: Iterable[Any]) -> list[tuple[Any, ...]]:
        columns = ["id", "key", "due_ms", "payload", "line", "reason", "source"]
        every = (row for records in found for row in batch_of(records).select(columns).to_pylist())
        return [tuple(row.values()) for row in every]

    every = files(tmp_path)
    paths = pa.record_batch([[it.as_uri() for it in every], [0] * 4], ["path", "at"])
    contents = pa.record_batch(
        [[it.as_uri() for it in every], pa.array([it.read_bytes() for it in every]), [0] * 4], ["path", "content", "at"]
    )
    expected = rows(records_of_files(Columns(), iter([paths])))
    assert len(expected) == 7
    found = rows(records_of_contents(Columns(), iter([contents])))
    assert [it[:-1] for it in found] == [it[:-1] for it in expected]
    assert {it[-1] for it in found} == {f"file://{it}" for it in every}, "dead letters name the address"


def test_a_folder_and_a_table_are_read_with_the_columns_that_are_named__S1_D1(session: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    files(tmp_path / "in")
    session.sql("CREATE OR REPLACE TEMP VIEW due AS SELECT 'v' AS name, 1700000000005L AS at, 7 AS what")
    session.sql(f"CREATE TABLE later USING parquet LOCATION '{tmp_path / 'table'}' AS SELECT * FROM due")
    try:
        table = Input("table:later", Columns("name", None, "at", None))
        assert messages(table, session, tmp_path / "1") == Counter(v=1)
        folder = Input(str(tmp_path / "in"), options={"maxBytesPerTrigger": "1"})
        assert messages(folder, session, tmp_path / "2") == Counter(
            {"n0": 1, "n1": 1, "n2": 1, "x": 1, "p": 1, None: 2}
        )
    finally:
        session.sql("DROP TABLE later")


def messages(given: Input, session: Any, checkpoint: Path) -> "Counter[str | None]":
    """The ids of all that is there now."""
    found: Counter[str | None] = Counter()
    rows = given.messages(session).select("id")
    query = (
        rows.writeStream.foreachBatch(lambda batch, _: found.update(row.id for row in batch.collect()))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return found


def test_what_can_not_be_read_is_wrong_usage_and_says_why__D2(session: Any, tmp_path: Path) -> None:
    wrong = {
        "kafka://broker": "write kafka://BROKERS/TOPIC",
        "-": "give a file or folder",
        "table:": "give a file or folder",
        "table:none": "cannot be found",
        str(tmp_path / "none"): "Path does not exist",
        "none://host/in": "none",
        "kafka://127.0.0.1:1/topic": "give spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13",
    }
    for name, why in wrong.items():
        with pytest.raises(WrongUsage, match=why):
            Input(name).messages(session)
