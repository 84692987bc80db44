"""From lines, files and rows to messages, in the workers' own code, without a JVM (rules D1, D2)."""

from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tickwheel.delivery import WrongUsage
from tickwheel.delivery.model.message import Columns
from tickwheel.delivery.read.hand_off_rows import HANDED
from tickwheel.spark.parse import _AT as AT
from tickwheel.spark.parse import Parse, parse_rows, records_of_files, records_of_lines, records_of_rows

USUAL = Columns()
DUE_MS = 1_700_000_000_005
PLACED = ("value", "source", "line")


def found(read: Any, *batches: Any) -> list[dict[str, Any]]:
    out = [*Parse(partial(read, USUAL))(iter(batches))]
    assert all(batch.schema.names == [*HANDED.names, "partition"] for batch in out)
    assert all(batch.schema.field(field.name) == field for batch in out for field in HANDED)
    return [one for batch in out for one in batch.to_pylist()]


def paths(files: list[Path], at_ms: int = 0) -> Any:
    return pa.record_batch([[file.as_uri() for file in files], [at_ms] * len(files)], ["path", AT])


def test_each_value_is_a_record_with_the_place_it_came_from__D1_S8() -> None:
    values = [
        b'{"id": "a", "due": 1700000000005, "payload": [1.50]}',
        b'{"id": "b", "op": "cancel", "key": "k"}',
        b"\xff",
        None,
        b"{}\n{}",
    ]
    lines = pa.record_batch([values, ["t/0"] * 5, [7, 8, 9, 10, 11], [0] * 5], [*PLACED, AT])
    a, b, *bad = found(records_of_lines, lines)
    assert (a["id"], a["due_ms"], a["payload"], a["is_json"], a["source"], a["line"]) == (
        "a",
        1_700_000_000_005,
        b"[1.50]",
        True,
        "t/0",
        7,
    )
    assert (b["id"], b["key"], b["due_ms"], b["reason"]) == ("b", "k", None, None)
    assert [(one["line"], one["reason"]) for one in bad] == [
        (9, "byte 1 of the line is not UTF-8"),
        (10, "the value holds 0 records"),
        (11, "the value holds 2 records"),
    ]
    assert bad[0]["payload"] == b"\xff"


def test_files_of_every_format_are_read_and_a_broken_one_ends_nothing__D1_D2(tmp_path: Path) -> None:
    (tmp_path / "a b.ndjson").write_text('{"id": "a", "due": 1700000000005}\n{"id": ""}\n')
    (tmp_path / "c.csv").write_text("id,due,x\nc,1700000000006,1\n")
    pq.write_table(pa.table({"id": ["p"], "due": [1_700_000_000_007]}), tmp_path / "p.parquet")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 no")
    names = ["a b.ndjson", "broken.parquet", "none.ndjson", "c.csv", "p.parquet"]
    rows = found(records_of_files, paths([tmp_path / name for name in names]))
    assert [(one["id"], one["due_ms"]) for one in rows if one["reason"] is None] == [
        ("a", DUE_MS),
        ("c", DUE_MS + 1),
        ("p", DUE_MS + 2),
    ]
    bad = {Path(one["source"]).name: one["reason"] for one in rows if one["reason"]}
    assert bad.keys() == {"a b.ndjson", "broken.parquet", "none.ndjson"}
    assert bad["a b.ndjson"] == "id is empty"
    assert "can't be read" in bad["none.ndjson"]


def test_rows_of_any_frame_are_messages_by_their_columns__D1() -> None:
    rows = pa.record_batch([["a", None], [DUE_MS, 6], ["x", "y"], [0, 0]], ["id", "due", "other", AT])
    a, bad = found(lambda columns, batches: records_of_rows(columns, "rows", batches), rows)
    assert (a["id"], a["payload"], a["source"]) == ("a", b'{"other":"x"}', "rows")
    assert (bad["reason"], bad["payload"]) == ("id is missing", b'{"due":6,"other":"y"}')


def test_a_file_whose_columns_can_not_be_used_is_one_dead_letter__D2(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("name,due\na,5\nb,5\n")
    pq.write_table(pa.table({"id": ["p"], "when": [7]}), tmp_path / "p.parquet")
    names = ["a.csv", "p.parquet"]
    rows = found(records_of_files, paths([tmp_path / name for name in names]))
    assert [(one["line"], one["reason"]) for one in rows] == [
        (1, "the header has no column id"),
        (1, "the schema has no column due"),
    ]


def test_a_frame_whose_columns_can_not_be_used_is_refused_when_the_query_is_made__D2() -> None:
    class Frame:
        columns: ClassVar = ["name", "due"]

    with pytest.raises(WrongUsage, match="no column id: name the columns"):
        parse_rows(Frame())  # type: ignore[arg-type]


def test_many_records_come_in_batches_of_some_thousand__D8() -> None:
    values = [b'{"id": "%d", "due": 1700000000005}' % n for n in range(5_000)]
    lines = pa.record_batch([values, ["t"] * 5_000, [*range(5_000)], [0] * 5_000], [*PLACED, AT])
    batches = [*Parse(partial(records_of_lines, USUAL))(iter([lines]))]
    assert [batch.num_rows for batch in batches] == [2_000, 2_000, 1_000]


def test_a_delay_counts_from_the_time_that_comes_with_the_record_so_a_task_gives_the_same_rows_again__D5_S2(
    tmp_path: Path,
) -> None:
    at_ms = 1_700_000_000_000
    values = [b'{"id": "a", "delay_ms": 5}', b'{"id": "b", "delay_ms": 0.5}']
    lines = pa.record_batch([values, ["t", "t"], [1, 2], [at_ms, at_ms + 100]], [*PLACED, AT])
    assert [row["due_ms"] for row in found(records_of_lines, lines)] == [at_ms + 5, at_ms + 101]
    (tmp_path / "a.ndjson").write_bytes(b"\n".join(values))
    (tmp_path / "b.csv").write_text("id,delay_ms\na,5\n")
    pq.write_table(pa.table({"id": ["p"], "delay_ms": [7]}), tmp_path / "c.parquet")
    files = paths([tmp_path / name for name in ("a.ndjson", "b.csv", "c.parquet")], at_ms)
    assert [row["due_ms"] - at_ms for row in found(records_of_files, files)] == [5, 1, 5, 7]
    rows = pa.record_batch([["a", "b"], [5, 6], [at_ms, at_ms]], ["id", "delay_ms", AT])
    read = [found(lambda columns, batches: records_of_rows(columns, "rows", batches), rows) for _ in range(2)]
    assert [row["due_ms"] - at_ms for row in read[0]] == [5, 6]
    assert read[0] == read[1]
    assert [row["payload"] for row in read[0]] == [b"{}", b"{}"]
